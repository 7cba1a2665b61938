"""What is said of one choice on every version, from the recordings: the tables, and the time line of Keras 3."""

from __future__ import annotations

import itertools
import re
from operator import attrgetter
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.experiments.fit import FIT, FitSettings
from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.offers import Offer, offers
from engine.recordings import Recordings
from engine.request import Request
from engine.trace import Event, Trace
from lessons import LESSONS, outcome_of
from lessons.aggregation.reading import Place
from lessons.language import LANGUAGES, Texts
from lessons.lesson import AnyLesson
from lessons.outcome import Outcome
from lessons.scope_placement import reading as scope
from lessons.versions import fit, matrix, timeline
from lessons.versions.flavour import Flavour, flavours

RECORDINGS = Recordings()
ENGLISH, CHINESE = (Texts(Path(timeline.__file__).parent, language) for language in LANGUAGES)
OWN = next(iter(RECORDINGS.made_with(SCOPE_PLACEMENT)))  # the newest
# A flavour by a short name: its version and settings.
FLAVOURS: dict[str, tuple[str, dict[str, str]]] = {
    "2.4.1": ("2.4.1", {}),
    "2.5.0": ("2.5.0", {}),
    "2.15.1": ("2.15.1", {}),
    "tf_keras": (OWN, {"keras": "tf_keras"}),
    "keras3": (OWN, {}),
}


def recorded(experiment: str, version: str, **settings: Any) -> Trace:
    recording = RECORDINGS.find(Request.of(experiment, settings, version))
    assert recording is not None, (version, settings)
    return recording.trace


def said(experiment: str, version: str, **settings: Any) -> Outcome:
    return outcome_of(recorded(experiment, version, **settings), "en")


# ------------------------------------------------------------------------------------------------- outcomes


@pytest.mark.parametrize(
    "lesson", [lesson for lesson in LESSONS if not lesson.experiment.recorded], ids=attrgetter("name")
)
def test_a_run_that_is_not_recorded_has_an_outcome(engine: Engine, lesson: AnyLesson) -> None:
    """The one that its page begins with, in every language."""
    trace = engine.run(Request.of(lesson.experiment.name, {}))
    assert [outcome_of(trace, language).kind for language in LANGUAGES] == ["right"] * len(LANGUAGES)
    assert all(outcome_of(trace, language).head for language in LANGUAGES)


@pytest.mark.parametrize("name", [name for name, experiment in EXPERIMENTS.items() if experiment.recorded])
def test_every_recording_has_an_outcome(name: str) -> None:
    """In both languages; none that TensorFlow answered is without a word, and no cause is unknown."""
    experiment = EXPERIMENTS[name]
    assert RECORDINGS.made_with(experiment)
    for made in RECORDINGS.made_with(experiment):
        recordings = list(RECORDINGS.all(experiment, made))
        assert recordings
        for recording in recordings:
            english, chinese = (outcome_of(recording.trace, language) for language in ("en", "zh"))
            assert english.kind == chinese.kind != "none"
            assert english.head
            assert chinese.head
            assert (english.kind == "raised") == (recording.trace.status == "error")
            if name == "scope_placement" and recording.trace.error is not None:
                failure = scope.read(recording.trace).failure
                assert failure is not None
                assert failure.cause != "other" or "losses.Reduction.SUM" in failure.message, failure


def test_outcomes_of_aggregation() -> None:
    assert said("aggregation", "2.4.1") == Outcome("odd", "1.1, 1.2")
    assert said("aggregation", "2.4.1", aggregation="MEAN") == Outcome("right", "1.15, 1.15")
    assert said("aggregation", OWN, aggregation="SUM", replicas=8) == Outcome("right", "4.6 × 8")
    assert said("aggregation", OWN, aggregation="SUM", value="python") == Outcome(
        "raised", "ValueError", "at the update"
    )
    read = said("aggregation", "2.5.0", aggregation="SUM", synchronization="ON_READ")
    assert read == Outcome("right", "1.1, 1.2", "read as 2.3")  # copies of ON_READ are each replica's own


# The tables of the facts: in or out of the scope, by strategy.run; and without it.
TRAINS = ("right", "trains")
SLOT, COLOCATE = ("ValueError", "slot variable"), ("ValueError", "colocate_vars_with")
MIXING, SCOPE = ("RuntimeError", "Mixing strategies"), ("RuntimeError", "needs the scope")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_table_of_placements(flavour: str) -> None:
    version, settings = FLAVOURS[flavour]
    for model, model_scope, optimizer_scope in itertools.product(scope.BUILT, ("in", "out"), ("in", "out")):
        choice = {"model": model, "model_scope": model_scope, "optimizer_scope": optimizer_scope, **settings}
        found = said("scope_placement", version, **choice)
        if flavour == "keras3" and optimizer_scope == "out":
            assert (found.head, found.detail) == MIXING
        elif model_scope == "out":
            assert (found.head, found.detail) == (SLOT if flavour in ("2.4.1", "2.5.0") else COLOCATE)
        else:
            assert (found.kind, found.head) == TRAINS
    for model, model_scope in itertools.product(("sequential_deferred", "subclassed"), ("in", "out")):
        found = said("scope_placement", version, model=model, model_scope=model_scope, **settings)
        assert (found.kind, found.head) == TRAINS


DIRECT = {
    ("functional", "sgd"): ["ValueError no handle", "one replica only 0.7, 1", *["one input only 0.7, 0.7"] * 3],
    ("functional", "adam"): [
        "ValueError slot variable",
        "one replica only 0.7, 1",
        *["copies differ 0.6664, 0.6152"] * 2,
        "RuntimeError needs the scope",
    ],
    ("sequential_deferred", "sgd"): [*["plain variable 0.7"] * 2, *["AssertionError plain weight"] * 3],
    ("sequential_deferred", "adam"): [
        "plain variable 0.7",
        "ValueError slot variable",
        *["AssertionError plain weight"] * 2,
        "RuntimeError needs the scope",
    ],
}


@pytest.mark.parametrize(("model", "optimizer"), DIRECT)
def test_the_table_without_strategy_run(model: str, optimizer: str) -> None:
    choice = {
        "model": model,
        "optimizer": optimizer,
        "step": "direct",
        "apply_scope": "out",
        "mode": "function",
        "steps": 3,
    }
    found = [said("scope_placement", version, **choice, **settings) for version, settings in FLAVOURS.values()]
    assert [f"{each.head} {each.detail}" for each in found] == DIRECT[model, optimizer]
    assert not any(each.kind == "right" for each in found)


def test_what_does_not_train_as_one_is_told_beside_what_does() -> None:
    """Three steps of 0.1 * (1 + 2), from 1; and a plain counter to which both replicas add 1 in each of two steps."""
    direct = {"step": "direct", "apply_scope": "out", "mode": "function", "steps": 3, "optimizer": "sgd"}
    for version in ("2.5.0", "2.15.1", OWN):
        assert said("scope_placement", version, **direct).why == f"Trained as one, every copy would hold {1 - 0.9:.1f}."
    counted = said("scope_placement", OWN, optimizer="sgd", optimizer_scope="out")
    assert counted.why == "`iterations` says 4 after 2 steps: each replica adds 1 to one plain variable."
    assert said("scope_placement", OWN).why == ""


# ------------------------------------------------------------------------------------------------- flavours, rows


def test_flavours_stand_from_old_to_new() -> None:
    found = flavours(SCOPE_PLACEMENT, offers(SCOPE_PLACEMENT, {}, RECORDINGS))
    assert [flavour.name for flavour in found] == ["2.4.1", "2.5.0", "2.15.1", f"{OWN} tf_keras", OWN]
    request = found[3].request(SCOPE_PLACEMENT, SCOPE_PLACEMENT.settings())
    assert (request.tensorflow, request.keras, request.settings.model_dump()["keras"]) == (OWN, None, "tf_keras")
    keras = [flavour.keras for flavour in flavours(FIT, offers(FIT, {}, RECORDINGS))]
    assert keras[:3] == ["Keras 2.4.0", "Keras 2.5.0", "Keras 2.15.0"]
    assert keras[3].startswith("tf_keras 2.21")
    assert keras[4] == "Keras 3.4.1"
    numbers = [[int(part) for part in re.findall(r"\d+", each)] for each in keras[4:]]
    assert numbers == sorted(numbers)


def test_every_cell_of_the_matrices_is_recorded() -> None:
    columns = flavours(SCOPE_PLACEMENT, offers(SCOPE_PLACEMENT, {}, RECORDINGS))
    rows = [row for mode in matrix.MODES for name in matrix.OPTIMIZERS for row in matrix.placements(name, mode)]
    rows += [row for mode in matrix.MODES for place in ("in", "out") for row in matrix.direct(place, mode)]
    for row, column in itertools.product(rows, columns):
        assert RECORDINGS.find(column.request(SCOPE_PLACEMENT, row.settings)) is not None, (row, column.name)
    assert matrix.cells(rows[:2], 3) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


# ------------------------------------------------------------------------------------------------- fit, the time line


def points() -> list[timeline.Point]:
    found = []
    for flavour in flavours(FIT, offers(FIT, {}, RECORDINGS)):
        runs = [RECORDINGS.find(flavour.request(FIT, settings)) for settings in timeline.RUNS]
        short, long = (run.trace if run else None for run in runs)
        found.append(timeline.Point(flavour, short, long, recorded=True))
    return found


def test_arithmetic_of_fit() -> None:
    """y = weight * x, loss the mean of y * y: a step multiplies the weight by 1 - rate * 2 * mean(x * x)."""
    epochs = list(fit.arithmetic(FitSettings().model_dump()))
    assert [weight for weight, _ in epochs] == pytest.approx([0.85, 0.85**2, 0.85**3])
    assert [loss for _, loss in epochs] == pytest.approx([7.5, 7.5 * 0.85**2, 7.5 * 0.85**4])
    two = FitSettings(examples=2, batch_size=1, epochs=1, learning_rate=0.1).model_dump()
    ((weight, loss),) = fit.arithmetic(two)
    assert weight == pytest.approx(0.8 * 0.2)  # 1 - 0.1 * 2 * 1, then times 1 - 0.1 * 2 * 4
    assert loss == pytest.approx((1 + (0.8 * 2) ** 2) / 2)


def test_the_time_line() -> None:
    """Six times Keras 3 changed what this fit computes or tells."""
    found = {point.flavour.keras: point for point in points()}
    right = timeline.verdict(next(iter(found.values())), ENGLISH)
    assert right == "Every replica’s weight is right. The reported loss is right."
    for keras, point in found.items():
        if "Keras 3" not in keras or point.flavour.offer.versions.keras_numbers >= (3, 10):
            assert point.right, keras
            assert timeline.verdict(point, ENGLISH) == right
    for keras, copies, weight, said in (
        ("3.4.1", (0.857375, 0.421875), "are 0.8574 and 0.4219, not 0.6141. The replicas’", "replica 0’s share alone"),
        ("3.5.0", (0.343, 0.343), "are 0.343, not 0.6141. Each replica’s loss is", "replica 0’s share alone"),
        ("3.7.0", (0.343, 0.343), "are 0.343, not 0.6141. Each replica’s loss is", "Over 200 batches it is NaN, not "),
        ("3.8.0", (0.614125, 0.614125), "weight is right", "Over 200 batches it is NaN, not "),
    ):
        point = found[f"Keras {keras}"]
        assert point.last is not None
        assert point.last.copies == pytest.approx(copies, abs=1e-5)
        assert point.right is False
        assert weight in timeline.verdict(point, ENGLISH)
        assert said in timeline.verdict(point, ENGLISH)


@pytest.mark.parametrize("texts", [ENGLISH, CHINESE], ids=LANGUAGES)
def test_the_figure_of_the_time_line(texts: Texts) -> None:
    found = points()
    drawn = timeline.figure(found, texts)
    weights = [trace for trace in drawn.data if trace.legendgroup == "replica_1"]
    assert list(weights[0].y) == pytest.approx([point.last.copies[1] for point in found if point.last])
    assert all("-open" in symbol for symbol in weights[0].marker.symbol)  # recorded
    assert "NaN" in [text for trace in drawn.data for text in trace.text or ()]
    words = timeline.alternative(found, texts)
    assert "0.8574" in words
    assert "NaN" in words
    # Nothing has run yet: what is right is there already.
    empty = [timeline.Point(point.flavour, None, None, recorded=False) for point in found]
    assert timeline.figure(empty, texts).data
    assert timeline.verdict(empty[0], texts) == ""
    assert empty[0].right is None


def test_whose_loss_was_told() -> None:
    first = fit.read(recorded("fit", "2.4.1")).epochs[0]
    assert (first.why_loss, first.loss_right, first.weight_right) == (None, True, True)
    recording = RECORDINGS.find(Request.of("fit", {}, "2.21", "3.4.1"))
    assert recording is not None
    apart = fit.read(recording.trace)
    assert [epoch.why_loss for epoch in apart.epochs] == ["first"] * 3
    assert not apart.loss_right


def test_a_run_that_gave_no_answer_has_an_outcome() -> None:
    trace = recorded("fit", "2.4.1")
    end: Event = {"event": "end", "t": 9.0, "status": "timeout", "seconds": 9.0, "reason": "?"}
    assert outcome_of(Trace((*trace.events[:3], end)), "en") == Outcome("none", "out of time")
    point = timeline.Point(Flavour(offer()), Trace((trace.start, end)), None, recorded=False)
    assert point.last is None


def offer() -> Offer:
    return next(iter(offers(FIT, {}, RECORDINGS).values()))


# ------------------------------------------------------------------------------------------------- texts


def test_every_setting_of_fit_and_every_outcome_has_a_text() -> None:
    for texts in (ENGLISH, CHINESE):
        for setting in FitSettings.declared():
            assert texts(f"controls.{setting.name}.label")
            assert texts(f"controls.{setting.name}.help")
            for option in setting.choices:
                assert texts(f"controls.{setting.name}.options.{option}.text")
    lessons = {lesson.name: lesson for lesson in LESSONS}
    for language in LANGUAGES:
        of_scope, of_aggregation = (lessons[name].texts(language) for name in ("scope_placement", "aggregation"))
        for name in {*get_args(scope.Cause), *get_args(scope.Outcome)} - {"assertion", "other", "raised", "stopped"}:
            assert of_scope(f"outcome.{name}")
        for place in get_args(Place):
            assert of_aggregation(f"outcome.{place}")
