"""What is told of a run of SyncReplicasOptimizer, and its texts: none missing, none too many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from engine.experiments.sync_replicas import SyncReplicasSettings
from engine.trace import Trace
from lessons.language import LANGUAGES, Language, Texts
from lessons.sync_replicas.figure import alternative
from lessons.sync_replicas.lesson import LESSON, SLOW, actions
from lessons.sync_replicas.reading import Cause, Lock, Outcome, read
from lessons.sync_replicas.story import what_happened
from tests.lessons.sync_traces import NO_GLOBAL_STEP, RUNS, Script, crossed, in_step, killed, miscounted, wasted_round
from tests.lessons.test_texts import loaded

FOLDER = Path(__file__).parents[2] / "lessons" / "sync_replicas"


def check_sentences(run: Trace) -> None:
    """What must hold of every story and alternative text: nothing twice, nouns by their counts, numbers that add up."""
    reading = read(run)
    for language in LANGUAGES:
        texts = Texts(FOLDER, language)
        sentences = what_happened(reading, texts)
        assert len(set(sentences)) == len(sentences)
        assert all(sentence and "{" not in sentence and "None" not in sentence for sentence in sentences)
        said = texts.sentences([*sentences, alternative(reading, texts)])
        if language == "zh":
            touching = re.compile(r"[a-z0-9`][\u4e00-\u9fff]|[\u4e00-\u9fff][a-z0-9`]")
            assert not any(touching.search(sentence) for sentence in sentences), sentences
            continue
        counted = re.findall(r"\b(\d+) (gradient|update|average|step|worker|token)(s?)\b", said)
        assert [(count, noun) for count, noun, plural in counted if (count != "1") != bool(plural)] == []
        if reading.sync and reading.pushes and not reading.failure:
            pushed, taken, dropped = len(reading.pushes), reading.fates["taken"], reading.fates["dropped"]
            assert f"pushed {pushed} gradient" in said
            assert f"gradients pushed: {pushed}; dropped: {dropped}." in said
            assert taken == sum(len(average.pushes) for average in reading.averages)
            assert not dropped or re.search(rf"\b{dropped} gradients? (of worker:\d )?(was|were) dropped", said)
        if not reading.sync:
            assert "averaged" not in said.replace("nothing is averaged", "").replace("none averaged", "")
            assert "token" not in said
            assert "dropped" not in said


def story(run: Trace, language: Language = "en") -> str:
    return " ".join(what_happened(read(run), Texts(FOLDER, language)))


def test_pushed_taken_and_dropped_add_up() -> None:
    said = story(wasted_round().end())
    assert "2 workers pushed 6 gradients and 2 averages took 4 of them" in said
    assert "2 gradients were dropped, and no error says so: 1 from worker:0 and 1 from worker:1." in said
    assert "The first 2 tokens carry step 0" in said
    assert "Smallest change" not in said


def test_in_step_nothing_is_dropped() -> None:
    said = story(in_step(3).end())
    assert "2 workers pushed 6 gradients and 3 averages took all of them" in said
    assert "dropped" not in said
    assert "global_step is 3: one for each update." in said
    assert "num_tokens=0" in said


def test_a_step_that_is_shared_counts_every_optimizer() -> None:
    said = story(miscounted().end())
    assert "global_step is 2, but `conv` and `fc_w` had 1 update each" in said
    assert "`conv` (rate 0.1) is 0.15 and `fc_w` (rate 1) is 1.5" in said
    assert said.endswith("Smallest change: `global_step=composite`.")


def test_a_composite_moves_each_variable_by_its_own_rate() -> None:
    script = Script(optimizers=2, global_step="composite", steps=1).state(0, tokens=2).step(0, 1)
    for worker in (0, 1):
        script.push(worker, 0).push(worker, 0, "fc_w")
    script.average((0, 1), (1, 1)).average((0, 1), (1, 1), variable="fc_w").state(1, tokens=2)
    for worker in (0, 1):
        script.token(worker, 0).after(worker, 1, conv=0.15, fc_w=1.5)
    said = story(script.end())
    assert "global_step is 1, and `conv` and `fc_w` had 1 update each" in said
    assert "Each variable is where its own learning rate takes it" in said


def test_a_deadlock_says_who_waits_for_what_and_why() -> None:
    said = story(crossed().end())
    assert "nothing moved for" in said
    assert "worker:0 has the token for `conv` and still waits for the token for `fc_w`." in said
    assert "worker:1 has the token for `fc_w` and still waits for the token for `conv`." in said
    assert "The accumulators of `conv` and `fc_w` hold 1 each of the 2 gradients that an average takes." in said
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
    assert "2 gradients of worker:2 were dropped" in said
    assert "Not one gradient of worker:2 was in time" in said


def test_errors_are_explained() -> None:
    said = story(RUNS["article"])
    assert said.startswith(
        "worker:0 and worker:1 raised `ValueError` in line 260 of the program, before the first step."
    )
    assert "got no `global_step`" in said
    assert said.endswith("Smallest change: `global_step=composite`.")
    too_few = story(RUNS["too_few"])
    assert too_few.startswith("worker:0 raised `ValueError`")  # the chief: no other puts in tokens
    assert "from each of `total_num_replicas=2` replicas" in too_few
    assert "an average takes 3: one first token is missing." in too_few
    assert "TensorFlow's own words: `something 'else'`" in story(RUNS["other"])
    assert NO_GLOBAL_STEP not in said  # the page shows TensorFlow's words beneath


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_every_story_is_complete(run: Trace) -> None:
    assert story(run)
    check_sentences(run)


@pytest.mark.parametrize(
    ("settings", "counted"),
    [
        ({}, "global_step is 2: one for each update."),
        (
            {"optimizers": 2},
            "global_step is 4, but `conv` and `fc_w` had 2 updates each: each of the 2 optimizers adds 1",
        ),
        (
            {"optimizers": 2, "global_step": "article"},
            "global_step is 2, and `conv` and `fc_w` had 2 updates each: only",
        ),
        ({"optimizers": 2, "global_step": "own"}, "counts in a step variable of its own, and counts right: 2."),
        (
            {"optimizers": 2, "global_step": "composite"},
            "global_step is 2, and `conv` and `fc_w` had 2 updates each: one",
        ),
    ],
    ids=str,
)
def test_asynchronously_nothing_is_averaged_and_steps_are_counted_as_they_are(
    settings: dict[str, object], counted: str
) -> None:
    """Two workers, one step each."""
    script = Script(sync="no", steps=2, **settings).state(0).step(0, 1)
    variables = ("conv", "fc_w")[: script.settings.optimizers]
    for worker in (0, 1):
        for variable in variables:
            script.average((worker, 1), variable=variable, by=worker)
    steps = {"shared": (2 * len(variables),), "own": (2, 2)}
    run = script.state(*steps.get(script.settings.global_step, (2,))).end()
    check_sentences(run)
    said = story(run)
    assert f"each of the {2 * len(variables)} gradients of 2 workers was applied as it came." in said
    assert counted in said
    applied = "1 gradient" if len(variables) == 1 else "2 gradients"
    assert f"worker:0: 1 step, {applied} applied." in alternative(read(run), Texts(FOLDER, "en"))


def test_a_worker_that_took_a_token_along_is_told_from_one_too_few() -> None:
    script = Script(workers=3, replicas_to_aggregate=2, total_num_replicas=2, tokens="zero", kill_worker=2, kill_step=2)
    script.state(0).step(0, 1, 2).push(0, 0).push(2, 0).average((0, 1), (2, 1)).push(1, 0).state(1, tokens=2)
    script.token(0, 1).token(2, 1).step(0, 2).push(0, 1).kill(2)
    run = script.deadlock((0, 0), (1, 0), step=1, conv=1).end()
    check_sentences(run)
    said = story(run)
    assert (
        "An update puts in 2 tokens, each for one fresh gradient, and worker:2 took one along: only 1 can come." in said
    )
    assert said.endswith("Smallest change: `total_num_replicas=3`.")


def test_a_death_after_the_last_update_does_not_let_training_go_on() -> None:
    script = Script(workers=3, replicas_to_aggregate=2, tokens="zero", kill_worker=2, kill_step=1, steps=1).state(0)
    script.step(0, 1, 2).push(0, 0).push(1, 0).average((0, 1), (1, 1)).kill(2).state(1, tokens=3).token(0, 1)
    said = story(script.token(1, 1).end())
    assert "All updates had been made by then." in said
    assert "Training went on" not in said


def test_variables_with_other_numbers_of_updates_are_told_apart() -> None:
    script = Script(optimizers=3, tokens="first_hook_only").state(0, tokens=2).step(0, 1)
    for worker in (0, 1):
        script.push(worker, 0).push(worker, 0, "fc_w").push(worker, 0, "fc_b")
    script.average((0, 1), (1, 1))
    run = script.deadlock(*((worker, place) for worker in (0, 1) for place in range(3)), step=1, fc_w=2, fc_b=2).end()
    check_sentences(run)
    said = story(run)
    assert "`conv` had 1 update, `fc_w` had none and `fc_b` had none, and then nothing moved for 4 s" in said
    assert "worker:0 and worker:1 wait for the tokens for `conv`, `fc_w` and `fc_b`." in said
    assert "The accumulators of `fc_w` and `fc_b` hold 2 gradients each, enough for an average (2)" in said
    assert "`conv` 有 1 次更新、`fc_w` 一次也没有、`fc_b` 一次也没有，之后" in story(run, "zh")
    assert "`fc_w` 和 `fc_b` 的累加器里各有 2 个梯度" in story(run, "zh")


def test_where_only_the_first_hook_runs_a_shared_step_is_not_said_to_count_each() -> None:
    """Averages of one, and tokens enough: the first optimizer alone brings it to its end."""
    script = Script(workers=1, optimizers=2, tokens="first_hook_only", steps=1, total_num_replicas=4).state(0, tokens=1)
    script.step(0).push(0, 0).push(0, 0, "fc_w").average((0, 1)).state(1, tokens=4, fc_w=1).token(0, 1).token(0, 1, 1)
    run = script.end()
    check_sentences(run)
    said = story(run)
    assert "global_step is 1, but `conv` had 1 update and `fc_w` had none." in said
    assert "Each SyncReplicasOptimizer needs its own hook" in said
    assert "adds 1 per round" not in said
    assert said.endswith("Smallest change: `global_step=composite`.")


def test_every_outcome_reason_and_cause_has_a_text() -> None:
    for language in LANGUAGES:
        texts = Texts(FOLDER, language)
        values: dict[str, object] = {
            "count": 2,
            "dead": "?",
            "left": 1,
            "workers": "?",
            "replicas": 2,
            "needed": 2,
            "message": "?",
        }
        assert all(texts(f"story.deadlock.why.{lock}", **values) for lock in get_args(Lock))
        assert all(texts(f"story.error.{cause}", **values) for cause in get_args(Cause))
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
