"""The lesson on scaling: what it reads, draws, tells and fixes, from real runs and from invented ones."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from engine.engine import Engine
from engine.experiments.scaling import ScalingSettings
from engine.request import Request
from engine.trace import Event, Trace
from lessons.language import LANGUAGES, Texts
from lessons.scaling import lesson as module
from lessons.scaling import sweep
from lessons.scaling.figure import HEIGHT, small
from lessons.scaling.lesson import LESSON
from lessons.scaling.reading import Reading, read

FOLDER = Path(module.__file__).parent
TEXTS = {language: Texts(FOLDER, language) for language in LANGUAGES}


def step(number: int, update: float | str, reference: float, distance: float | str, **more: Any) -> Event:
    """One step of two replicas; `more` replaces what it says."""
    made: Event = {
        "event": "step", "t": 0.1 * number, "step": number, "examples": [8, 8], "losses": [0.5, 0.5],
        "loss": 1 / number, "rate": 0.1, "gradients": [1.0, 2.0], "merged": 2.5, "update": update,
        "reference_loss": 2 / number, "reference_update": reference, "distance": distance,
    }  # fmt: skip
    return cast(Event, {**made, **more})


def trace(*events: Event, status: str = "ok", **settings: Any) -> Trace:
    chosen = ScalingSettings.parse({"replicas": 2, "steps": 3, **settings}).model_dump(mode="json")
    begin: Event = {"event": "run", "t": 0.0, "experiment": "scaling", "settings": chosen, "tensorflow": "2.21.0",
             "keras": "3.15.1", "devices": ["CPU:0", "CPU:1"]}  # fmt: skip
    end: list[Event] = [] if status == "running" else [{"event": "end", "t": 1.0, "status": status, "seconds": 1.0}]
    return Trace((begin, *events, *end))


def test_outcomes() -> None:
    def outcome(*events: Event, **more: Any) -> str:
        return read(trace(*events, **more)).outcome

    assert outcome(step(1, 0.3, 0.3, 0.0), step(2, 0.3, 0.3, 9e-6)) == "equal"
    assert outcome(step(1, 0.6, 0.3, 0.3), loss="per_replica_mean") == "scaled"
    assert outcome(step(1, 0.7, 0.3, 0.4), loss="per_replica_mean") == "apart"  # not by what the settings say
    assert outcome(step(1, 0.6, 0.3, 0.3)) == "apart"
    assert outcome(step(1, 0.3, 0.3, "nan")) == "diverged"
    # No numbers, on just the replica that got nothing, or on another.
    assert outcome(step(1, "nan", 0.3, "nan", examples=[8, 0], gradients=[1.0, "nan"])) == "empty"
    assert outcome(step(1, "nan", 0.3, "nan", examples=[8, 0], gradients=["nan", "nan"])) == "diverged"
    assert outcome(step(1, "nan", 0.3, "nan", examples=[8, 0], gradients=["nan", 1.0])) == "diverged"
    # Equal at first, and by arithmetic; what is apart later is rounding, grown.
    assert outcome(step(1, 0.3, 0.3, 1e-7), step(2, 0.3, 0.3, 0.4)) == "amplified"
    assert outcome(step(1, 0.3, 0.3, 1e-7), step(2, 0.3, 0.3, 0.4), normalization="per_replica") == "apart"
    assert outcome(step(1, 0.3, 0.3, 1e-3), step(2, 0.3, 0.3, 0.4)) == "apart"
    kept = {"last_batch": "keep", "per_replica_batch": 8}
    assert outcome(step(1, 0.3, 0.3, 1e-7), step(2, 0.3, 0.3, 0.4, examples=[8, 3]), **kept) == "apart"
    assert outcome(step(1, 0.3, 0.3, 0.0), status="running") == "running"
    assert outcome(status="running") == "running"
    assert outcome(step(1, 0.3, 0.3, 0.0), status="timeout") == "stopped"
    assert outcome() == "nothing"
    assert outcome({"event": "error", "t": 0.0, "type": "ValueError", "message": "no", "line": 3}) == "raised"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1),
        ({"loss": "per_replica_mean"}, 2),
        ({"loss": "sum", "per_replica_batch": 5}, 2 * 5),
        ({"gradient": "mean"}, 1 / 2),
        ({"loss": "per_replica_mean", "rule": "linear"}, 2 * 2),
        ({"rule": "square_root"}, math.sqrt(2)),
        ({"rule": "linear_warmup"}, 1),
        ({"optimizer": "adam", "loss": "sum", "rule": "linear"}, 2),
        ({"normalization": "per_replica"}, None),
        ({"reference": "small_batches"}, None),
    ],
)
def test_what_is_predicted(settings: dict[str, Any], expected: float | None) -> None:
    predicted = read(trace(**settings)).predicted
    assert predicted == (expected if expected is None else pytest.approx(expected))


def test_predictions_hold_in_real_runs(engine: Engine) -> None:
    """Every loss with every merge and every rule once, by one step: as long as the settings say, and the right answer
    of the question."""
    losses, gradients = ("global_mean", "per_replica_mean", "sum"), ("sum", "all_reduce_mean", "mean")
    rules = ("none", "linear", "square_root")
    # A Latin square: which loss and which merge say which rule.
    choices = [(losses[row], gradients[column], rules[(row + column) % 3]) for row in range(3) for column in range(3)]
    requests = [
        Request.of("scaling", {"loss": loss, "gradient": gradient, "rule": rule, "replicas": 2, "steps": 1})
        for loss, gradient, rule in choices
    ]
    for ticket in [engine.submit(request) for request in requests]:
        found = ticket.result(240)
        reading = read(found)
        factor = reading.steps[0].factor
        assert factor == pytest.approx(reading.predicted, rel=1e-3), reading.settings
        assert LESSON.prediction is not None
        (answer,) = LESSON.prediction.answers(found)
        assert answer == (
            "equal" if abs(factor - 1) < 0.01 else "n_times" if abs(factor - 2) < 0.01 else
            "longer" if factor > 1 else "shorter"
        )  # fmt: skip


@pytest.mark.parametrize("link", LESSON.guide, ids=lambda link: link.name)
def test_every_run_that_the_guide_leads_to_has_a_story(engine: Engine, link: Any) -> None:
    settings = {**link.settings, "steps": 40}
    found = engine.run(Request.of("scaling", settings))
    for language, texts in TEXTS.items():
        story = LESSON.story(found, texts)
        assert len(story) >= 3
        assert LESSON.alternative(found, texts)
        assert texts(f"guide.{link.name}")
        assert texts(f"guide.{link.name}_help")
        assert ("reference" in " ".join(story)) == (language == "en")


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"loss": "sum"}, {"loss": "global_mean"}),
        ({"gradient": "mean"}, {"gradient": "sum"}),
        ({"gradient": "mean", "rule": "linear"}, None),  # divided by 2, times 2
        ({"rule": "linear", "loss": "per_replica_mean"}, {"loss": "global_mean", "rule": "none"}),
        ({"rule": "linear_warmup"}, {"rule": "none"}),
        ({"normalization": "per_replica"}, {"normalization": "synchronized"}),
        ({"optimizer": "adam", "loss": "sum"}, {"loss": "global_mean"}),
        # Two small steps at the rate are worth one at twice the rate: 1 x 2, 2 x 1, or 2 / 2 x 2.
        ({"reference": "small_batches"}, {"rule": "linear"}),
        ({"reference": "small_batches", "rule": "linear"}, None),
        ({"reference": "small_batches", "rule": "linear_warmup"}, None),
        ({"reference": "small_batches", "loss": "per_replica_mean"}, None),
        ({"reference": "small_batches", "loss": "per_replica_mean", "rule": "linear"}, {"loss": "global_mean"}),
        ({"reference": "small_batches", "loss": "per_replica_mean", "gradient": "mean"}, {"rule": "linear"}),
        ({"reference": "small_batches", "gradient": "mean"}, {"gradient": "sum", "rule": "linear"}),
        ({"reference": "small_batches", "gradient": "mean", "rule": "linear"}, {"gradient": "sum"}),
        ({"reference": "small_batches", "loss": "sum", "gradient": "mean"},
         {"loss": "per_replica_mean", "rule": "linear"}),
        ({"reference": "small_batches", "optimizer": "adam"}, {"rule": "linear"}),
    ],
    ids=str,
)  # fmt: skip
def test_suggested_fixes(settings: dict[str, Any], change: dict[str, str] | None) -> None:
    assert LESSON.fix is not None
    assert LESSON.fix(trace(step(1, 0.7, 0.3, 0.4), **settings)) == change


def test_fixes_where_a_batch_was_not_full() -> None:
    assert LESSON.fix is not None
    uneven = step(2, 0.7, 0.3, 0.4, examples=[8, 3])
    assert LESSON.fix(trace(step(1, 0.3, 0.3, 0.0), uneven, last_batch="keep")) == {"last_batch": "keep_counted"}
    # No uneven batch was seen: nothing to change about it.
    assert LESSON.fix(trace(step(1, 0.6, 0.3, 0.4), last_batch="keep", gradient="mean")) == {"gradient": "sum"}
    # A mean of means is the mean over all only where the shares are equal.
    means = {"loss": "per_replica_mean", "gradient": "mean", "last_batch": "keep_counted"}
    assert LESSON.fix(trace(step(1, 0.3, 0.3, 0.0), uneven, **means)) == {"loss": "global_mean", "gradient": "sum"}
    empty = step(2, "nan", 0.3, "nan", examples=[3, 0], losses=[0.1, 0.0], gradients=[1.0, "nan"])
    settings = {"last_batch": "keep_counted", "normalization": "per_replica"}
    assert LESSON.fix(trace(empty, **settings)) == {"normalization": "synchronized"}
    settings |= {"reference": "small_batches", "rule": "linear"}
    assert LESSON.fix(trace(empty, **settings)) == {"last_batch": "drop"}


# ------------------------------------------------------------------------------------------------------ what is said


def story_of(found: Trace, language: str = "en") -> str:
    return " ".join(LESSON.story(found, TEXTS[language]))


@pytest.fixture(scope="module")
def train(engine: Engine) -> Callable[..., Trace]:
    def run(**settings: Any) -> Trace:
        found = engine.run(Request.of("scaling", settings))
        assert found.status == "ok", found.stderr[-2000:]
        return found

    return run


def number_after(words: str, story: str) -> float:
    (found,) = re.findall(rf"{words} (\d+(?:\.\d+)?)\b", story)
    return float(found)


@pytest.mark.parametrize("loss", ["global_mean", "per_replica_mean", "sum"])
def test_a_sum_is_called_a_sum_and_a_mean_a_mean(train: Callable[..., Trace], loss: str) -> None:
    """The reference's gradient, its step over its rate, is the mean over all flowers; what a replica divides by makes
    the sum of the replicas' gradients a multiple of it, and their mean a 4th of that."""
    multiple = {"global_mean": 1, "per_replica_mean": 4, "sum": 4 * 8}[loss]
    for gradient in ("sum", "all_reduce_mean", "mean"):
        found = train(loss=loss, gradient=gradient, steps=1)
        (only,) = found.of("step")
        mean_over_all = only["reference_update"] / 0.1
        story = story_of(found)
        if gradient == "mean":
            assert "the optimizer gets their mean, which has the length" in story
            expected = multiple * mean_over_all / 4
        else:
            assert "sum" in story.split("has the length")[0]
            expected = multiple * mean_over_all
        assert number_after("has the length", story) == pytest.approx(expected, rel=1e-3)
        # No vector sum is longer than the lengths added, no mean longer than their mean.
        assert expected <= sum(only["gradients"]) / (4 if gradient == "mean" else 1)


def test_an_uneven_batch_under_adam_is_measured_not_guessed(train: Callable[..., Trace]) -> None:
    found = train(last_batch="keep", optimizer="adam", steps=6)
    fifth = found.of("step")[4]
    story = story_of(found)
    assert sum(fifth["examples"]) == 150 - 4 * 32 == 22
    assert f"only {22 / 32:.3f} times what dividing by 22 would give" in story
    measured = fifth["update"] / fifth["reference_update"]
    assert measured > 0.95  # and not 0.688
    assert number_after("a factor of", story) == pytest.approx(measured, abs=5e-4)
    assert "Adam divides most of the difference away" in story


def test_a_step_is_called_the_references_only_where_it_is(train: Callable[..., Trace]) -> None:
    assert "The step is the reference’s all the same" in story_of(train(last_batch="keep_counted", steps=6))
    # The losses are divided rightly, but each gradient by 4 once more, from the first step on.
    story = story_of(train(last_batch="keep_counted", gradient="mean", steps=6))
    assert "where 0.1 was meant" in story
    assert "divided by 22, as many as there are" in story
    assert "all the same" not in story
    assert "Here the two part" not in story


NOBODY = {"replicas": 8, "per_replica_batch": 2, "last_batch": "keep_counted"}  # 150 = 9 x 16 + 6: shares of 1 and 0


def test_a_replica_without_flowers_under_batch_normalization(train: Callable[..., Trace]) -> None:
    found = train(**NOBODY, normalization="per_replica", steps=12)
    tenth = found.of("step")[9]
    assert tenth["examples"] == [1] * 6 + [0] * 2
    assert tenth["losses"][6:] == [0.0, 0.0]
    assert [replica for replica, norm in enumerate(tenth["gradients"]) if norm == "nan"] == [6, 7]
    reading = read(found)
    assert reading.outcome == "empty"
    story = story_of(found)
    assert "Replicas 6 and 7 have none" in story
    assert "from step 10 on every weight is NaN" in story
    assert "too long" not in story
    assert "all the same" not in story
    assert LESSON.fix is not None
    change = LESSON.fix(found)
    assert change == {"normalization": "synchronized"}
    mended = train(**{**NOBODY, "normalization": "per_replica", **change}, steps=12)
    assert read(mended).outcome == "equal"
    assert "Replicas 6 and 7 have none: their loss is 0, and so is their gradient." in story_of(mended)


def test_a_mean_over_no_flowers_is_no_number(train: Callable[..., Trace]) -> None:
    found = train(**{**NOBODY, "loss": "per_replica_mean", "gradient": "mean"}, steps=10)
    tenth = found.of("step")[9]
    assert tenth["losses"][6:] == ["nan", "nan"]
    assert tenth["gradients"][6:] == [0.0, 0.0]
    story = story_of(found)
    assert "6 means are added, where usually there are 8" in story
    assert "Replicas 6 and 7 have none: their loss, a mean over nothing, is NaN, but their gradient is 0." in story
    # Six equal shares of one flower: their mean, times 6 / 8.
    assert number_after("a factor of", story) == pytest.approx(6 / 8, abs=1e-3)


def test_what_each_replica_makes_smaller(train: Callable[..., Trace]) -> None:
    """The losses of the three kinds, in one step from the same weights: sums, and those divided by 32 or by 8."""
    sums, parts, means = (
        train(loss=loss, steps=1).of("step")[0]["losses"] for loss in ("sum", "global_mean", "per_replica_mean")
    )
    assert parts == pytest.approx([value / 32 for value in sums], rel=1e-4)
    assert means == pytest.approx([value / 8 for value in sums], rel=1e-4)


def test_rounding_that_grows_is_not_called_a_difference(train: Callable[..., Trace]) -> None:
    found = train(learning_rate=10, replicas=2, steps=40)
    steps = found.of("step")
    assert steps[0]["distance"] < 1e-5 < 1e-2 < steps[-1]["distance"]
    assert read(found).outcome == "amplified"
    assert "rounding alone sets them apart" in story_of(found)
    assert LESSON.fix is not None
    assert LESSON.fix(found) is None


def test_a_bias_that_batch_normalization_takes_out_is_not_called_a_difference(train: Callable[..., Trace]) -> None:
    """Its gradient is nothing but rounding; Adam divides that by its size. No loss is another for it."""
    found = train(optimizer="adam", normalization="synchronized", steps=6, replicas=2)
    steps = found.of("step")
    assert steps[-1]["distance"] > 1e-4
    assert all(step["loss"] == pytest.approx(step["reference_loss"], rel=1e-5) for step in steps)
    assert read(found).outcome == "amplified"
    assert "takes the bias before it out again" in story_of(found)
    assert LESSON.fix is not None
    assert LESSON.fix(found) is None


@pytest.mark.parametrize("status", ["running", "ok", "timeout"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_figure_of_any_length_has_the_same_frame(status: str, count: int) -> None:
    """A live figure does not jump: height and the axis of steps are those of the end."""
    found = trace(*[step(number, 0.3, 0.3, 1e-7) for number in range(1, count + 1)], status=status)
    for texts in TEXTS.values():
        figure = json.loads(LESSON.figure(found, texts).to_json())
        assert figure["layout"]["height"] == HEIGHT
        assert figure["layout"]["xaxis"]["range"] == [0.5, 3.5]
        assert LESSON.alternative(found, texts)
        if status != "running":
            assert LESSON.story(found, texts)


def test_curves_are_the_traces_values() -> None:
    figure = LESSON.figure(trace(step(1, 0.3, 0.3, 0.0), step(2, 0.6, 0.3, "nan")), TEXTS["en"])
    replicas, reference, distance = figure.data
    assert list(replicas.y) == [1, 1 / 2]
    assert list(reference.y) == [2, 2 / 2]
    assert list(distance.y) == [1e-9, None]  # nothing has no place on a logarithmic axis, and nan none at all


def test_small_numbers() -> None:
    assert [small(value) for value in (0.0, 3.2e-7, 1.5, math.nan)] == ["0", "3·10⁻⁷", "1.5", "NaN"]


def test_the_sweep_keeps_what_was_chosen() -> None:
    runs = sweep.settings_of(ScalingSettings.parse({"loss": "sum", "seed": 5, "replicas": 3}))
    assert len({run.model_dump_json() for run in runs}) == len(sweep.RATES) * len(sweep.REPLICAS) == 5 * 4
    assert {(run.loss, run.seed, run.steps) for run in runs} == {("sum", 5, sweep.STEPS)}
    assert [(run.learning_rate, run.replicas) for run in runs[:5]] == [
        (0.01, 1), (0.01, 2), (0.01, 4), (0.01, 8), (0.03, 1),
    ]  # fmt: skip


def test_a_sweep_is_drawn_while_it_fills() -> None:
    result: Event = {"event": "result", "t": 1.0, "step": 3, "of": "replicas", "loss": 0.25, "correct": 140}
    found = {5: trace(result), 6: trace(status="timeout")}
    for texts in TEXTS.values():
        figure = sweep.figure(found, texts)
        (heat,) = figure.data
        assert heat.z[1][1] == pytest.approx(math.log10(0.25))
        assert [value for row in heat.z for value in row].count(None) == 19
        words = {(note.x, note.y): note.text for note in figure.layout.annotations}
        assert words[1, 1] == "<b>0.25</b>"
        assert words[2, 1] == "…"
        assert "0.25" in sweep.alternative(found, texts)


def test_a_reading_counts_flowers() -> None:
    reading: Reading = read(trace(per_replica_batch=5))
    assert reading.global_batch == 10
