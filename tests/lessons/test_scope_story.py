"""What the story of a scope says, and the change that fixes a run, with numbers computed here."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.recordings import Recordings
from engine.request import Request
from engine.trace import Trace
from lessons.language import LANGUAGES, Language, Texts
from lessons.scope_placement.fix import suggested_fix
from lessons.scope_placement.lesson import LESSON
from lessons.scope_placement.reading import CAUSES, read
from lessons.scope_placement.story import what_happened
from tests.conftest import Sample
from tests.lessons.scope_traces import MIRRORED, PLAIN, scope_trace
from tests.lessons.test_scope_figure import RUNS
from tests.lessons.test_scope_reading import ALONE, AVERAGED, DIRECT, MESSAGES, SUMMED
from tests.lessons.traces import cut

FOLDER = Path(__file__).parents[2] / "lessons" / "scope_placement"
RECORDINGS = Recordings()


def sentences_of(run: Trace, language: Language = "en") -> list[str]:
    return what_happened(read(run), Texts(FOLDER, language))


def test_everything_inside() -> None:
    assert sentences_of(scope_trace(*SUMMED)) == [
        "The weight was created with the model, inside the scope (line 91): it belongs to `MirroredStrategy`, with "
        "copies on CPU:0 and CPU:1.",
        "With the optimizer, made inside the scope (line 92), came `iterations` and the hyperparameter "
        "`learning_rate`, of `MirroredStrategy` too.",
        "The first `apply_gradients` (line 94) made the slot `momentum`, of `MirroredStrategy`.",
        "In step 1 the gradients 1 and 2 add up to 3, and every copy goes from 1 to 0.7 alike.",
        "After 2 steps every copy holds 0.13: it trains as one.",
    ]


def test_everything_inside_in_chinese() -> None:
    sentences = sentences_of(scope_trace(*SUMMED), "zh")
    assert sentences[3] == "第 1 步的梯度 1 和 2 相加得 3，每份拷贝都从 1 变为 0.7。"
    assert "0.13" in sentences[4]


def test_keras_3_refuses_an_optimizer_from_outside() -> None:
    run = scope_trace(error=MESSAGES["mixing"], optimizer_scope="out", counter=PLAIN, slots=None)
    sentences = sentences_of(run)
    assert sentences[1].endswith("came `iterations` and the hyperparameter `learning_rate`, plain variables.")
    assert sentences[2].startswith("`RuntimeError` in step 1, at line ")
    assert "`optimizer.apply_gradients(zip(gradients, weights))`" in sentences[2]
    assert "Keras 3 binds an optimizer" in sentences[3]
    assert sentences[4] == "Smallest change: `optimizer_scope=in`."


def test_one_replica_alone_and_why() -> None:
    sentences = sentences_of(scope_trace(*[[each, 1.0] for each in ALONE], tensorflow="2.5.0", **DIRECT))
    assert "Only the copy on CPU:0 trained, from 1 to 0.439 in 3 steps; the other still holds 1." in sentences[2]
    assert "no longer goes through `merge_call`" in sentences[3]
    assert "2.4.1 does neither" in sentences[3]
    assert sentences[-1] == "Smallest change: `step=strategy_run`."


def test_the_same_step_on_the_version_before() -> None:
    run = scope_trace(error=MESSAGES["slot_scope"], counter=None, slots=None, tensorflow="2.4.1", **DIRECT)
    meaning = sentences_of(run)[2]
    assert "asks the strategy that is active where it is called" in meaning
    assert "From 2.5.0 on" in meaning


@pytest.mark.parametrize(
    ("settings", "trace", "words"),
    [
        ({"model_scope": "out"}, {"weight": PLAIN}, "asks the strategy that is active, `MirroredStrategy`"),
        ({**DIRECT, "optimizer_scope": "out"}, {}, "made outside the scope, that is the default one"),
        ({**DIRECT, "model": "subclassed"}, {"weight": PLAIN}, "first enters the strategy that the optimizer was made"),
    ],
)
def test_a_slot_that_add_slot_refuses_on_2_5_0(settings: dict[str, Any], trace: dict[str, Any], words: str) -> None:
    run = scope_trace(error=MESSAGES["slot_scope"], slots=None, tensorflow="2.5.0", **trace, **settings)
    assert any(words in sentence for sentence in sentences_of(run))


def test_what_an_optimizer_of_keras_2_makes_in_its_first_step() -> None:
    """Its hyperparameters are variables too (optimizer_v2._create_hypers); whose they are is told apart."""
    run = scope_trace(*SUMMED, tensorflow="2.4.1")
    made = (
        "made `iterations` and the slot `momentum`, and the hyperparameters `learning_rate`, `decay` and `momentum`, of"
    )
    assert made in sentences_of(run)[1]
    assert "slot 变量 `momentum`，以及超参数 `learning_rate`、`decay` 和 `momentum`，属于" in sentences_of(run, "zh")[1]
    apart = scope_trace(*([each] for each in ALONE), weight=PLAIN, slots=PLAIN, tensorflow="2.4.1", **DIRECT)
    sentences = sentences_of(apart)
    assert "made `iterations` and the hyperparameters `learning_rate`, `decay` and `momentum`, of" in sentences[1]
    assert sentences[2].endswith("made the slot `momentum`, a plain variable.")


@pytest.mark.parametrize(("copies", "words"), [(1, "with one copy, on CPU:0."), (2, "with copies on CPU:0 and CPU:1.")])
def test_one_copy_is_no_copies(copies: int, words: str) -> None:
    run = scope_trace([0.9] * copies, replicas=copies, gradients=[0.5, 0.5][:copies])
    assert sentences_of(run)[0].endswith(words)


def test_one_input_or_several_that_were_not_used() -> None:
    for replicas, words in (
        (2, "the other input, 2, was never used"),
        (3, "the other inputs, 2 and 3, were never used"),
    ):
        run = scope_trace(*([each] * replicas for each in ALONE), replicas=replicas, **DIRECT)
        assert words in " ".join(sentences_of(run))


def test_several_slots_are_told_as_several() -> None:
    shared: dict[str, Any] = {"optimizer_build": "yes", "optimizer_scope": "out", "slots": PLAIN, "counter": PLAIN}
    run = scope_trace([0.9, 0.81], optimizer="adam", **shared)
    assert "the slots `momentum` and `velocity` are plain variables that all copies use" in " ".join(sentences_of(run))


def test_copies_that_are_said_to_differ_are_seen_to() -> None:
    run = scope_trace([0.90004, 0.90001], optimizer_build="yes", optimizer_scope="out", slots=PLAIN, counter=PLAIN)
    assert read(run).outcome == "diverged"
    assert "The copies now hold 0.90004 and 0.90001," in " ".join(sentences_of(run))


def test_the_gradients_of_an_absolute_error_have_its_sign() -> None:
    """|w * x| for x of -1 and 2, w = 1: both gradients point up, 1 and 2; their mean takes 1 to 1 - 0.1 * 1.5."""
    run = scope_trace([0.85, 0.85], loop="fit", loss="mean_absolute_error", optimizer="sgd", inputs=(-1, 2))
    assert "the batch's gradients 1 and 2, which is 1.5, and every copy goes from 1 to 0.85" in " ".join(
        sentences_of(run)
    )


def test_copies_that_share_their_slots() -> None:
    run = scope_trace([0.9, 0.81], optimizer_build="yes", optimizer_scope="out", slots=PLAIN, counter=PLAIN)
    assert any(
        "the slot `momentum` is one plain variable that all copies use" in sentence for sentence in sentences_of(run)
    )


def test_counting_each_replicas_step() -> None:
    """1 - 0.1 * 3 = 0.7, but the plain counter says 2."""
    run = scope_trace([0.7, 0.7], optimizer="sgd", optimizer_scope="out", counter=PLAIN, counts=[[2]])
    assert "But `iterations` says 2 after 1 step" in " ".join(sentences_of(run))
    assert sentences_of(run)[-1] == "Smallest change: `optimizer_scope=in`."


def test_a_dummy_call_moves_nothing() -> None:
    run = scope_trace(error=MESSAGES["colocate"], weight=PLAIN, slots=None, model_scope="out", dummy_call="in_scope")
    assert (
        sentences_of(run)[1] == "The dummy call moved nothing: a variable stays with the strategy it was created under."
    )


def test_fit_takes_the_mean() -> None:
    assert sentences_of(scope_trace(*AVERAGED, loop="fit"))[3] == (
        "`fit` takes the mean of the batch's gradients 1 and 2, which is 1.5, and every copy goes from 1 to 0.85 alike."
    )


def test_what_cannot_be_told_is_not_told() -> None:
    assert "their sum can't be told from their mean" in sentences_of(scope_trace([0.9, 0.9], optimizer="adam"))[3]


def test_every_cause_has_an_error_here() -> None:
    assert {cause for _, cause in CAUSES} | {"assertion", "other"} == set(MESSAGES)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("cause", MESSAGES)
@pytest.mark.parametrize("settings", [{}, {"loop": "fit"}, DIRECT, {"step": "direct"}, {"optimizer": "sgd"}])
def test_every_error_is_explained(cause: str, settings: dict[str, Any], language: Language) -> None:
    fit = "history = model.fit(x, y, batch_size=REPLICAS, shuffle=False, verbose=0)"
    at: dict[str, Any] = {"at": fit} if "loop" in settings else {}
    for weight, tensorflow in itertools.product((PLAIN, None, MIRRORED), ("2.4.1", "2.5.0", "2.21.0")):
        run = scope_trace(error=MESSAGES[cause], weight=weight, slots=None, tensorflow=tensorflow, **at, **settings)
        sentences = sentences_of(run, language)
        assert MESSAGES[cause][0] in " ".join(sentences)
        assert 2 <= len(sentences) <= 6


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("run", RUNS)
def test_every_story_is_whole_and_short(run: Trace, language: Language) -> None:
    sentences = sentences_of(run, language)
    assert 1 <= len(sentences) <= 7
    for sentence in sentences:
        assert "{" not in sentence
        assert "None" not in sentence
        assert sentence.count("`") % 2 == 0


def test_an_unknown_error_is_quoted_as_code_and_not_too_long() -> None:
    sentence = sentences_of(scope_trace(error=("RuntimeError", "a `tick`\nand " + "x" * 1000)))[-1]
    assert sentence.startswith("TensorFlow's own words: `a 'tick' and xxx")
    assert sentence.endswith("…`")


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("status", ["timeout", "killed", "cancelled"])
def test_a_stopped_run_says_how_far_it_came(status: str, language: Language) -> None:
    whole = scope_trace(*SUMMED, steps=20)
    for length in range(1, len(whole.events)):
        sentences = sentences_of(cut(whole, length, status), language)
        assert 1 <= len(sentences) <= 5
    assert "20" in sentences[-1]
    assert "2" in sentences[-1].replace("20", "")


# ------------------------------------------------------------------------------------------------------- what fixes it


@pytest.mark.parametrize("run", [scope_trace(*SUMMED), scope_trace(*AVERAGED, loop="fit"), scope_trace()])
def test_what_trains_needs_no_mending(run: Trace) -> None:
    assert suggested_fix(read(run)) is None


def on_keras(run: Trace, keras: str) -> Trace:
    return Trace(({**run.events[0], "keras": keras}, *run.events[1:]))


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_keras_that_no_setting_fixes_is_said_to_be_one(language: Language) -> None:
    """Before 3.5 each copy goes its own way: -0.1 then -0.19, and twice that. Before 3.8 fit takes sums for means."""
    apart = on_keras(scope_trace([0.9, 0.8], [0.71, 0.42]), "3.4.1")
    assert read(apart).outcome == "diverged"
    doubled = on_keras(scope_trace(*SUMMED, loop="fit"), "3.5.0")
    assert read(doubled).outcome == "odd"
    refused = on_keras(scope_trace(error=MESSAGES["mixing"], optimizer_scope="out"), "3.4.1")
    for run in (apart, doubled, refused):
        assert suggested_fix(read(run)) is None
    assert "3.4.1" in sentences_of(apart, language)[-2]
    assert "3.5.0" in sentences_of(doubled, language)[-2]
    for run, needed in ((apart, "Keras 3.5 "), (refused, "Keras 3.5 "), (doubled, "Keras 3.8 ")):
        assert needed in sentences_of(run, language)[-1]
    assert suggested_fix(read(on_keras(refused, "3.5.0"))) == {"optimizer_scope": "in"}


def test_equal_copies_of_replicas_that_share_nothing() -> None:
    """Both gradients are 2: -0.1 * 2 on each copy by itself, where their sum would take it to 0.6."""
    run = on_keras(scope_trace([0.8, 0.8], optimizer="sgd", inputs=(2, 2)), "3.4.1")
    assert "each by its own replica's gradient, as Keras 3.4.1 never brings" in " ".join(sentences_of(run))


def test_variables_that_the_trace_makes_are_to_be_made_before_it() -> None:
    """In the scope: the weight by a call, slots by optimizer.build; what is there already is not asked for again."""
    deferred: dict[str, Any] = {
        "model": "sequential_deferred",
        "mode": "function",
        "at": "gradient = distributed_step(x)",
    }
    for settings, slots, change, words in (
        ({**deferred, "optimizer": "sgd"}, None, {"dummy_call": "in_scope"}, "The model gets its weight while"),
        (
            deferred,
            MIRRORED,
            {"dummy_call": "in_scope", "optimizer_build": "yes"},
            "its weight, and the optimizer its slots",
        ),
        ({**deferred, "model": "functional"}, MIRRORED, {"optimizer_build": "yes"}, "Keras 3 makes the slots while"),
        ({**deferred, "dummy_call": "in_scope"}, MIRRORED, {"optimizer_build": "yes"}, "Keras 3 makes the slots while"),
    ):
        run = scope_trace(error=MESSAGES["placeholder"], slots=slots, **settings)
        assert suggested_fix(read(run)) == change
        assert words in " ".join(sentences_of(run))


@pytest.mark.parametrize("name", list(RECORDINGS.made_with(SCOPE_PLACEMENT)))
def test_every_recorded_run_that_goes_wrong_has_a_fix_and_it_fixes(name: str) -> None:
    """Wherever what it leads to is recorded too; what is not is run in test_the_change_really_fixes_it."""
    found = 0
    for recording in RECORDINGS.all(SCOPE_PLACEMENT, name):
        reading = read(recording.trace)
        change = suggested_fix(reading)
        assert (change is None) == (reading.outcome == "trained"), reading.settings
        fixed = RECORDINGS.find(Request.of("scope_placement", {**reading.settings, **(change or {})}, name))
        if change and fixed:
            found += 1
            assert read(fixed.trace).outcome == "trained", (reading.settings, change)
    assert found > 100


Submit = Callable[..., Any]
PLACES = ("in", "out")
MODELS = ("functional", "sequential_deferred")
GRID: list[dict[str, Any]] = [
    *(
        {"model": model, "model_scope": a, "optimizer_scope": b, "mode": mode}
        for model, a, b, mode in itertools.product(MODELS, PLACES, PLACES, ("eager", "function"))
    ),
    *(
        {"model": model, "optimizer": optimizer, "optimizer_scope": b, "apply_scope": c, "step": "direct"}
        for model, optimizer, b, c in itertools.product(MODELS, ("sgd", "momentum"), PLACES, PLACES)
    ),
    *(
        {"model": model, "model_scope": a, "optimizer_scope": b, "apply_scope": c, "loop": "fit", "mode": "function"}
        for model, a, b, c in itertools.product(MODELS, PLACES, PLACES, PLACES)
    ),
    *({"model": m, "optimizer_scope": b, "optimizer_build": "yes"} for m, b in itertools.product(MODELS, PLACES)),
    *({"model": m, "model_scope": "out", "dummy_call": d} for m in MODELS for d in ("in_scope", "out_of_scope")),
    *({"model": "sequential_deferred", "optimizer": "sgd", "mode": mode} for mode in ("eager", "function")),
    {"optimizer": "sgd", "optimizer_scope": "out"},
    {"loss": "mean_absolute_error"},
    {"loss": "mean_absolute_error", "step": "direct", "apply_scope": "out"},
    {"model": "subclassed", "optimizer": "adam", "mode": "function", "optimizer_build": "yes"},
    {"model": "sequential_deferred", "mode": "function", "step": "direct"},
]


@pytest.mark.parametrize("version", ["2.21", "2.15.1", "2.5.0", "2.4.1"])
def test_the_change_really_fixes_it(submit_on: Submit, sample: Sample, version: str) -> None:
    """Whatever does not train, on any version: with what `suggested_fix` changes it does, and with less it does not."""
    grid = sample(GRID, 1 / 4)
    tickets = [submit_on(version, "scope_placement", **settings) for settings in grid]
    fixed: list[tuple[dict[str, Any], dict[str, str], Any]] = []
    partly: list[tuple[dict[str, Any], dict[str, str], Any]] = []
    for settings, ticket in zip(grid, tickets, strict=True):
        reading = read(ticket.result(240))
        change = suggested_fix(reading)
        assert (change is None) == (reading.outcome == "trained"), (settings, reading.outcome)
        if change:
            fixed.append((settings, change, submit_on(version, "scope_placement", **{**settings, **change})))
            for name in change if len(change) > 1 else ():
                less = {key: value for key, value in change.items() if key != name}
                partly.append((settings, less, submit_on(version, "scope_placement", **{**settings, **less})))
    assert fixed
    for settings, change, ticket in fixed:
        assert read(ticket.result(240)).outcome == "trained", (settings, change)
    for settings, change, ticket in partly:
        assert read(ticket.result(240)).outcome != "trained", (settings, change)


def test_what_the_guide_leads_to(submit_on: Submit) -> None:
    """Each link shows what it says: it trains, it raises, or it trains one copy and says nothing."""
    expected = {
        "all_in": "trained",
        "model_out": "raised",
        "deferred_out": "trained",
        "optimizer_out": "raised",
        "function": "raised",
        "direct_old": "raised",
        "direct_new": "one_replica",
    }
    assert [link.name for link in LESSON.guide] == list(expected)
    for link in LESSON.guide:
        trace = submit_on(link.tensorflow, "scope_placement", **link.settings).result(240)
        assert read(trace).outcome == expected[link.name], link
