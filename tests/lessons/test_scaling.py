"""The lesson on scaling: what it reads, draws, tells and fixes, from real runs and from invented ones."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

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


def step(number: int, update: float, reference: float, distance: float | str) -> Event:
    return {
        "event": "step", "t": 0.1 * number, "step": number, "examples": [8, 8], "loss": 1 / number, "rate": 0.1,
        "gradients": [1.0, 2.0], "merged": 2.5, "update": update, "reference_loss": 2 / number,
        "reference_update": reference, "distance": distance,
    }  # fmt: skip


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
def test_every_run_that_the_guide_leads_to_is_told_and_mended(engine: Engine, link: Any) -> None:
    """What the lesson says would fix a run does, or against small batches brings it nearer."""
    settings = {**link.settings, "steps": 40}
    found = engine.run(Request.of("scaling", settings))
    for language, texts in TEXTS.items():
        story = LESSON.story(found, texts)
        assert len(story) >= 3
        assert LESSON.alternative(found, texts)
        assert texts(f"guide.{link.name}")
        assert texts(f"guide.{link.name}_help")
        assert ("reference" in " ".join(story)) == (language == "en")
    assert LESSON.fix is not None
    change = LESSON.fix(found)
    before = read(found)
    if change is None:
        assert before.outcome == "equal" or before.small_batches
        return
    after = read(engine.run(Request.of("scaling", {**settings, **change})))
    if before.small_batches:
        assert after.farthest < before.farthest
    else:
        assert after.outcome == "equal"


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"loss": "sum"}, {"loss": "global_mean"}),
        ({"gradient": "mean"}, {"gradient": "sum"}),
        ({"rule": "linear", "loss": "per_replica_mean"}, {"loss": "global_mean", "rule": "none"}),
        ({"last_batch": "keep"}, {"last_batch": "keep_counted"}),
        ({"reference": "small_batches"}, {"rule": "linear"}),
        ({"reference": "small_batches", "rule": "linear"}, None),
        ({"reference": "small_batches", "loss": "per_replica_mean"}, None),
    ],
)
def test_remedies(settings: dict[str, Any], change: dict[str, str] | None) -> None:
    assert LESSON.fix is not None
    assert LESSON.fix(trace(step(1, 0.7, 0.3, 0.4), **settings)) == change


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
