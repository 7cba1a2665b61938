"""What is told of a run of SyncReplicasOptimizer, and its texts: none missing, none too many."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from engine.experiments.sync_replicas import SyncReplicasSettings
from engine.trace import Trace
from lessons.language import LANGUAGES, Language, Texts
from lessons.sync_replicas.lesson import LESSON, SLOW, actions
from lessons.sync_replicas.reading import Cause, Lock, Outcome, read
from lessons.sync_replicas.story import what_happened
from tests.lessons.sync_traces import NO_GLOBAL_STEP, RUNS, Script, crossed, in_step, killed, miscounted, wasted_round
from tests.lessons.test_texts import loaded

FOLDER = Path(__file__).parents[2] / "lessons" / "sync_replicas"


def story(run: Trace, language: Language = "en") -> str:
    return " ".join(what_happened(read(run), Texts(FOLDER, language)))


def test_pushed_taken_and_dropped_add_up() -> None:
    said = story(wasted_round().end())
    assert "2 workers pushed 6 gradients; 2 averages took 4 of them" in said
    assert "Dropped without a word: 2 (worker:0 1 and worker:1 1)" in said
    assert "The first tokens (2) carry step 0" in said
    assert "Smallest change" not in said


def test_in_step_nothing_is_dropped() -> None:
    said = story(in_step(3).end())
    assert "3 averages took 6 of them" in said
    assert "Dropped" not in said
    assert "global_step is 3, as many as there were updates." in said
    assert "num_tokens=0" in said


def test_a_step_that_is_shared_counts_every_optimizer() -> None:
    said = story(miscounted().end())
    assert "global_step is 2, but each of `conv` and `fc_w` had only 1 updates" in said
    assert "`conv` (rate 0.1) 0.15 and `fc_w` (rate 1) 1.5" in said
    assert said.endswith("Smallest change: `global_step=composite`.")


def test_a_composite_moves_each_variable_by_its_own_rate() -> None:
    script = Script(optimizers=2, global_step="composite", steps=1).state(0, tokens=2).step(0, 1)
    for worker in (0, 1):
        script.push(worker, 0).push(worker, 0, "fc_w")
    script.average((0, 1), (1, 1)).average((0, 1), (1, 1), variable="fc_w").state(1, tokens=2)
    for worker in (0, 1):
        script.token(worker, 0).after(worker, 1, conv=0.15, fc_w=1.5)
    said = story(script.end())
    assert "global_step is 1, and each of `conv` and `fc_w` had 1 updates" in said
    assert "Each variable is where its own learning rate takes it" in said


def test_a_deadlock_says_who_waits_for_what_and_why() -> None:
    said = story(crossed().end())
    assert "nothing moved for" in said
    assert "worker:0 has a token for `conv` and waits for that of `fc_w`." in said
    assert "worker:1 has a token for `fc_w` and waits for that of `conv`." in said
    assert "The accumulator of `conv` holds 1 of 2 gradients and waits for 1 more." in said
    assert "all of them come from one queue" in said
    assert said.endswith("Smallest change: `global_step=composite`.")


def test_who_was_killed_and_whether_it_goes_on() -> None:
    said = story(killed(1).end())
    assert said.startswith("worker:1 ended itself by SIGKILL in its step 1")
    assert said.endswith("Smallest change: `replicas_to_aggregate=1`.")
    assert "Only the chief takes averages" in story(killed(0).end())


def test_a_slow_worker_is_told_by_its_gradients() -> None:
    script = Script(workers=3, replicas_to_aggregate=2, steps=2, tokens="hook").state(0, tokens=2).step(0, 1, 2)
    script.push(0, 0).push(1, 0).average((0, 1), (1, 1)).token(0, 1).token(1, 1).step(0, 1)
    script.push(0, 1).push(1, 1).average((0, 2), (1, 2)).push(2, 0).token(2, 2).step(2).push(2, 1).state(2)
    said = story(script.end())
    assert "All 2 gradients of worker:2 came too late" in said


def test_errors_are_explained() -> None:
    said = story(RUNS["article"])
    assert "`ValueError` in line 260" in said
    assert "got no `global_step`" in said
    assert said.endswith("Smallest change: `global_step=composite`.")
    assert "`num_tokens` must be at least" in story(RUNS["too_few"])
    assert "TensorFlow's own words: `something 'else'`" in story(RUNS["other"])
    assert NO_GLOBAL_STEP not in said  # the page shows TensorFlow's words beneath


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_every_story_is_complete(run: Trace, language: Language) -> None:
    said = story(run, language)
    assert said
    assert "{" not in said
    assert "None" not in said


def test_every_outcome_reason_and_cause_has_a_text() -> None:
    for language in LANGUAGES:
        texts = Texts(FOLDER, language)
        assert all(texts(f"story.deadlock.why.{lock}") for lock in get_args(Lock))
        assert all(texts(f"story.error.{cause}", message="?") for cause in get_args(Cause))
    outcomes = {key.split(".")[2] for key in loaded(FOLDER, "en") if key.startswith("figure.outcome.")}
    assert set(get_args(Outcome)) - {"stopped"} <= outcomes


def test_every_action_has_a_text_and_no_text_has_none() -> None:
    found = {
        action.name
        for settings in ({}, {"delays": f"{SLOW},{SLOW}", "kill_worker": "1"})
        for action in actions(SyncReplicasSettings.parse(settings))
    }
    wanted = {f"actions.{name}{part}" for name in found for part in ("", "_help")}
    assert {key for key in loaded(FOLDER, "en") if key.startswith("actions.")} == wanted


def test_every_link_leads_somewhere_and_no_two_to_the_same() -> None:
    there = [LESSON.experiment.settings.parse(link.settings) for link in LESSON.guide]
    assert len({settings.model_dump_json() for settings in there}) == len(there)


def test_actions_undo_each_other() -> None:
    settings = SyncReplicasSettings()
    for place in range(4):
        action = list(actions(settings))[place]
        changed = SyncReplicasSettings.parse({**settings.to_words(changed_only=True), **action.change})
        assert changed != settings
        back = list(actions(changed))[place]
        assert back.subject == action.subject
        assert back.name != action.name
        given = {**changed.to_words(changed_only=True), **back.change}
        assert SyncReplicasSettings.parse(given) == settings


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(SyncReplicasSettings()) == {"global_step", "kill_step"}
    assert LESSON.unused(SyncReplicasSettings(optimizers=2, kill_worker=1)) == frozenset()
    assert "tokens" in LESSON.unused(SyncReplicasSettings(sync="no"))
