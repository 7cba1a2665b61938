"""Every fix that a lesson offers is run, and fixes: of recorded runs, and of runs with random settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pytest

from engine.engine import Engine
from engine.job import Ticket
from engine.recordings import Recordings
from engine.request import Request
from engine.trace import Trace
from lessons import LESSONS, outcome_of
from lessons.lesson import AnyLesson
from tests.conftest import Sample

RECORDINGS = Recordings()
WITH_FIX = [lesson for lesson in LESSONS if lesson.fix is not None]
# Those that offer a fix of every run that is not right: there the settings alone decide.
ALWAYS: Final = ("aggregation",)
RECORDED = [(lesson, runtime) for lesson in WITH_FIX for runtime in RECORDINGS.made_with(lesson.experiment)]
each_recorded = pytest.mark.parametrize(
    ("lesson", "runtime"), RECORDED, ids=[f"{lesson.name}-{runtime}" for lesson, runtime in RECORDED]
)
each_with_fix = pytest.mark.parametrize("lesson", WITH_FIX, ids=lambda lesson: lesson.name)


def fix_of(lesson: AnyLesson, trace: Trace) -> Mapping[str, str] | None:
    assert lesson.fix is not None
    return lesson.fix(trace)


def fixed(lesson: AnyLesson, trace: Trace, runtime: str | None = None) -> Request | None:
    """What a run's fix asks for; None where none is offered."""
    change = fix_of(lesson, trace)
    if change is None:
        return None
    settings = {**trace.start["settings"], **change}
    assert settings != trace.start["settings"], "a fix that changes nothing"
    return Request(lesson.experiment, lesson.experiment.settings.parse(settings), runtime)


def check(lesson: AnyLesson, before: Trace, after: Trace) -> None:
    """A fixed run is right, by what the lesson says and, where there is one, by arithmetic; and needs no more."""
    settings = lesson.experiment.settings
    at = f"{settings.parse(before.start['settings']).to_words(changed_only=True)}, {fix_of(lesson, before)}"
    outcome = outcome_of(after, "en")
    assert outcome.kind == "right", f"{at}: {outcome.text}"
    assert fix_of(lesson, after) is None, f"{at}: and then {fix_of(lesson, after)}"
    wrong = WRONG[lesson.name](after) if lesson.name in WRONG else None
    assert wrong is None, f"{at}: {wrong}"


# ------------------------------------------------------------------------------------------------- what right means


def wrong_aggregation(trace: Trace) -> str | None:
    """What is wrong with the numbers of a run, None where every copy and every read is what it has to be."""
    settings = trace.start["settings"]
    if trace.status != "ok":
        return str(trace.error)
    copies: dict[int, list[float]] = {}
    for event in trace.of("variable"):
        copies.setdefault(event["step"], []).append(event["value"])
    last, steps = copies[max(copies)], max(copies)
    sent = settings["gradients"] if settings["value"] == "tensor" else [settings["gradients"][0]] * len(last)
    if settings["synchronization"] == "ON_READ":
        read = trace.of("read")[-1]["value"]
        merged = {"SUM": sum(last), "MEAN": sum(last) / len(last), "ONLY_FIRST_REPLICA": last[0]}
        if not near(read, merged[settings["aggregation"]]):
            return f"read as {read} of {last}"
        if settings["route"] == "cross_replica" and settings["update"] == "assign" and not near(read, sent[0]):
            return f"set to {sent[0]}, read as {read}"
    elif not all(near(copy, last[0]) for copy in last):
        return f"copies {last}"
    if settings["route"] == "optimizer" and settings["clipnorm"] is None:
        expected = 1 - settings["learning_rate"] * sum(sent) * steps
        if not near(last[0], expected):
            return f"the optimizer made {last[0]} of 1, not {expected}"
    return None


def wrong_scaling(trace: Trace) -> str | None:
    """How far from the reference a run was; against small batches, by how much a flower weighs in a step."""
    settings, steps = trace.start["settings"], trace.of("step")
    replicas, share = settings["replicas"], settings["per_replica_batch"]
    if settings["reference"] == "small_batches" and replicas > 1:
        if not all(math.isfinite(float(step["distance"])) for step in steps):
            return "values that are no numbers"
        rule = {"none": 1, "square_root": replicas**0.5}.get(settings["rule"], replicas)
        if settings["optimizer"] == "adam":
            return None if near(rule, replicas) else f"the rate times {rule}"
        weight = {"global_mean": 1 / (replicas * share), "per_replica_mean": 1 / share, "sum": 1.0}[settings["loss"]]
        weight *= rule / (replicas if settings["gradient"] == "mean" else 1)
        # A small step divides by its own flowers only.
        return None if near(weight, 1 / share) else f"a flower weighs {weight}, in a small step {1 / share}"
    if settings["optimizer"] == "adam" and settings["normalization"] == "synchronized":
        # Weights that change nothing part there: a bias whose gradient is but rounding, divided by its size.
        apart = max(abs(step["loss"] / step["reference_loss"] - 1) for step in steps)
        return None if apart < 1e-3 else f"losses {apart} apart"
    farthest = max(float(step["distance"]) for step in steps)
    return None if farthest < 1e-5 else f"{farthest} from the reference"


WRONG: Final[Mapping[str, Callable[[Trace], str | None]]] = {
    "aggregation": wrong_aggregation,
    "scaling": wrong_scaling,
}


def near(value: float, expected: float) -> bool:
    return abs(value - expected) <= 1e-5 * max(1, abs(value), abs(expected))


# -------------------------------------------------------------------------------------------------------- the fixes


def offers(lesson: AnyLesson, runtime: str, *, recorded: bool) -> Iterator[tuple[Trace, Request, Trace | None]]:
    """The recorded runs with a fix, what it asks for, and that run, for those where it is recorded, or is not."""
    for recording in RECORDINGS.all(lesson.experiment, runtime):
        request = fixed(lesson, recording.trace, runtime)
        if request is not None:
            found = RECORDINGS.find(request)
            if (found is not None) == recorded:
                yield recording.trace, request, found.trace if found is not None else None


@each_recorded
def test_what_a_fix_leads_to_is_right_where_it_is_recorded(lesson: AnyLesson, runtime: str) -> None:
    found = 0
    for before, _, after in offers(lesson, runtime, recorded=True):
        assert after is not None
        check(lesson, before, after)
        found += 1
    assert found


@each_recorded
def test_what_a_fix_leads_to_is_right_where_it_has_to_be_run(
    lesson: AnyLesson, runtime: str, submit_on: Callable[..., Ticket], sample: Sample
) -> None:
    runs = sample(offers(lesson, runtime, recorded=False), 1 / 20)
    tickets = [
        submit_on(runtime, lesson.experiment.name, **request.settings.model_dump(mode="json")) for _, request, _ in runs
    ]
    for (before, _, _), ticket in zip(runs, tickets, strict=True):
        check(lesson, before, ticket.result(600))


@each_with_fix
def test_what_a_fix_leads_to_is_right_after_random_runs(
    lesson: AnyLesson, engine: Engine, random_runs: Callable[[AnyLesson], list[Trace]]
) -> None:
    offered: list[tuple[Trace, Any]] = []
    for trace in random_runs(lesson):
        request = fixed(lesson, trace)
        if request is not None:
            offered.append((trace, engine.submit(request)))
        elif lesson.name in ALWAYS:
            assert outcome_of(trace, "en").kind == "right", trace.start["settings"]
            assert WRONG[lesson.name](trace) is None, trace.start["settings"]
    for before, ticket in offered:
        check(lesson, before, ticket.result(600))


@each_with_fix
def test_every_run_that_a_lesson_leads_to_can_be_made_right(lesson: AnyLesson, engine: Engine) -> None:
    """Those of its guide that are wrong on the app's own version, by what is offered there."""
    tickets = [
        engine.submit(Request(lesson.experiment, lesson.experiment.settings.parse(link.settings)))
        for link in lesson.guide
        if not link.tensorflow
    ]
    for before in [ticket.result(600) for ticket in tickets]:
        request = fixed(lesson, before)
        if request is not None:
            check(lesson, before, engine.run(request))
