"""Real clusters through the lesson: each run that it leads to comes to what is promised there, and is fixed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.job import Ticket
from engine.request import Request
from engine.trace import Trace
from lessons import outcome_of
from lessons.language import LANGUAGES, Texts
from lessons.sync_replicas.lesson import LESSON
from lessons.sync_replicas.reading import Outcome, Reading, read
from lessons.sync_replicas.successor import sentences, settings, table
from tests.lessons.test_sync_story import check_sentences

TEXTS = {language: Texts(Path(__file__).parents[2] / "lessons" / "sync_replicas", language) for language in LANGUAGES}
LINKS: dict[str, tuple[Outcome, ...]] = {
    "usual": ("right",),
    "article": ("raised",),
    "shared": ("miscounted",),
    "composite": ("right",),
    "backup": ("right",),
    "killed_on": ("right",),
    "killed_stop": ("deadlock",),
    "chief_killed": ("deadlock",),
    "zero": ("right",),
    "twice": ("right",),
    "none": ("deadlock",),
}


# Settings that go wrong whoever is first, and what is offered then.
WRONG: list[tuple[Mapping[str, str], Mapping[str, str]]] = [
    ({"tokens": "zero", "total_num_replicas": "1"}, {"tokens": "hook"}),
    ({"workers": "1", "tokens": "zero", "replicas_to_aggregate": "2", "total_num_replicas": "2"}, {"tokens": "hook"}),
    ({"optimizers": "2", "tokens": "none"}, {"tokens": "hook", "global_step": "composite"}),
    ({"optimizers": "2", "tokens": "first_hook_only"}, {"global_step": "composite"}),
    ({"optimizers": "3", "global_step": "article", "tokens": "none"}, {"tokens": "hook", "global_step": "composite"}),
    ({"tokens": "zero", "kill_worker": "1", "kill_step": "1"}, {"replicas_to_aggregate": "1"}),
    ({"workers": "3", "tokens": "zero", "replicas_to_aggregate": "2", "total_num_replicas": "2", "kill_worker": "2",
      "kill_step": "2"}, {"total_num_replicas": "3"}),
    ({"replicas_to_aggregate": "1", "total_num_replicas": "1", "kill_worker": "1", "kill_step": "2", "tokens": "zero",
      "steps": "9"}, {"total_num_replicas": "2"}),
    ({"optimizers": "2", "kill_worker": "1", "kill_step": "2"},
     {"replicas_to_aggregate": "1", "global_step": "composite"}),
    ({"sync": "no", "optimizers": "2", "steps": "3"}, {"global_step": "composite"}),
]  # fmt: skip


@pytest.fixture(scope="module")
def runs(engine: Engine) -> Mapping[str, Trace]:
    """Every link of the guide but `own`, which is a race."""
    tickets: dict[str, Ticket] = {
        link.name: engine.submit(Request.of("sync_replicas", link.settings))
        for link in LESSON.guide
        if link.name in LINKS
    }
    return {name: ticket.result(300) for name, ticket in tickets.items()}


def reading(runs: Mapping[str, Trace], name: str) -> Reading:
    return read(runs[name])


@pytest.mark.parametrize(("name", "outcomes"), LINKS.items())
def test_each_link_comes_to_what_it_says(runs: Mapping[str, Trace], name: str, outcomes: tuple[Outcome, ...]) -> None:
    """Whatever order its tasks ran in: it adds up, is drawn, and is told."""
    run = reading(runs, name)
    assert run.outcome in outcomes
    fates = run.fates
    assert fates["taken"] == sum(len(average.pushes) for average in run.averages)
    assert sum(fates.values()) == len(run.pushes)
    assert all(len(average.pushes) >= run.needed for average in run.averages)
    assert run.own_rates
    check_sentences(runs[name])
    for texts in TEXTS.values():
        assert LESSON.story(runs[name], texts)
        assert LESSON.figure(runs[name], texts).layout.height
        assert LESSON.alternative(runs[name], texts)
    assert outcome_of(runs[name], "en").kind == {"right": "right", "raised": "raised"}.get(run.outcome, "odd")


def test_what_they_are_to_show(runs: Mapping[str, Trace]) -> None:
    assert reading(runs, "usual").global_step() == 6
    shared = reading(runs, "shared")
    assert shared.global_step() >= 6
    assert shared.global_step() == sum(shared.updates().values())  # each of two optimizers adds 1 an update
    composite = reading(runs, "composite")
    assert composite.global_step() == composite.updates()["conv"] == composite.updates()["fc_b"]
    slow = [push.fate for push in reading(runs, "backup").workers[2].pushes]
    assert "dropped" in slow
    assert reading(runs, "killed_on").workers[2].killed is not None
    stopped = reading(runs, "killed_stop")
    assert stopped.lock == "worker_dead"
    assert stopped.deadlock is not None
    assert set(stopped.deadlock.stuck) == {"worker:0", "worker:1"}
    assert reading(runs, "chief_killed").lock == "chief_dead"
    assert reading(runs, "none").lock == "no_hook"
    assert reading(runs, "none").updates() == {"conv": 0}
    assert reading(runs, "zero").first_tokens == 0
    assert reading(runs, "usual").first_tokens == 2
    assert reading(runs, "twice").first_tokens == 4


def test_every_fix_that_is_offered_fixes(engine: Engine, runs: Mapping[str, Trace]) -> None:
    """Each way to go wrong, alone and with others: what is offered is run, goes right, and leaves nothing to offer."""
    assert LESSON.fix is not None
    tickets = [(given, change, engine.submit(Request.of("sync_replicas", given))) for given, change in WRONG]
    offered = [
        (link.settings, change)
        for link in LESSON.guide
        if link.name in LINKS and (change := LESSON.fix(runs[link.name]))
    ]
    for given, change, ticket in tickets:
        trace = ticket.result(300)
        check_sentences(trace)
        assert read(trace).outcome != "right", given
        assert LESSON.fix(trace) == change, given
        offered.append((given, change))
    assert len(offered) >= 4 + len(WRONG)  # article, shared, killed_stop and none are links
    fixed = [engine.submit(Request.of("sync_replicas", {**given, **change})) for given, change in offered]
    for (given, change), ticket in zip(offered, fixed, strict=True):
        trace = ticket.result(300)
        check_sentences(trace)
        assert read(trace).outcome == "right", (given, change)
        assert LESSON.fix(trace) is None, (given, change)


def test_what_replaced_it_uses_every_gradient(engine: Engine, runs: Mapping[str, Trace]) -> None:
    """The means of -1 and -2 move conv by 0.15 a step, and fc_w and fc_b by 1.5 and 3."""
    chosen = LESSON.experiment.settings.parse({"optimizers": 3, "steps": 2})
    run = engine.run(Request.of("multi_worker", settings(chosen)))
    for texts in TEXTS.values():
        assert sentences(runs["composite"], run, texts)
        columns = table(runs["composite"], run, texts)
        assert len({len(values) for values in columns.values()}) == 1
    columns = table(runs["composite"], run, TEXTS["en"])
    today = {name.partition(",")[0]: values[:2] for name, values in columns.items() if "today" in name}
    assert today == {  # the loss is halved, and so are the gradients; their sum is applied
        "conv": ["−0.5, −1 Σ −1.5 → 0.15", "−0.5, −1 Σ −1.5 → 0.3"],
        "fc_w": ["−0.5, −1 Σ −1.5 → 1.5", "−0.5, −1 Σ −1.5 → 3"],
        "fc_b": ["−0.5, −1 Σ −1.5 → 3", "−0.5, −1 Σ −1.5 → 6"],
    }
    said = " ".join(sentences(runs["composite"], run, TEXTS["en"]))
    assert "2 steps used all 12 gradients" in said  # 2 workers, 3 variables, 2 steps
