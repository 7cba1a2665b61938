"""The lesson on variable aggregation, as pages know it."""

from __future__ import annotations

from engine.experiments.aggregation import AGGREGATION, AggregationSettings
from engine.trace import Trace
from lessons.aggregation.figure import alternative, figure
from lessons.aggregation.reading import read
from lessons.aggregation.story import what_happened
from lessons.language import Texts, number
from lessons.lesson import Lesson, Prediction
from lessons.outcome import Outcome, nothing, raised, values


def unused(settings: AggregationSettings) -> frozenset[str]:
    """The settings that change nothing on this route."""
    optimizer = settings.route in ("optimizer", "optimizer_unsummed")
    names = set() if optimizer else {"learning_rate", "clipnorm"}
    if settings.route != "cross_replica":
        names.add("update")
    return frozenset(names)


def answers(trace: Trace) -> frozenset[str]:
    """How the replicas' numbers were merged: every rule that accounts for all steps (with one replica all do)."""
    reading = read(trace)
    if reading.failure:
        return frozenset({"error"})
    fits = [frozenset[str](step.fits) for step in reading.steps if step.finished]
    return frozenset.intersection(*fits) if fits and all(fits) else frozenset({"other"})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """The copies after the last step; right where they are equal."""
    reading = read(trace)
    if reading.failure:
        return raised(reading.failure.kind, reading.failure.place, texts)
    if reading.last is None:
        return nothing(texts)
    copies = values([value for value in reading.last.after if value is not None], texts)
    on_read = reading.on_read and reading.last.read is not None
    detail = texts("outcome.on_read", value=number(reading.last.read)) if on_read else ""
    return Outcome("right" if reading.last.equal else "odd", copies, detail)


LESSON = Lesson(
    name="aggregation",
    experiment=AGGREGATION,
    first=("aggregation", "route", "replicas", "steps"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), trace, texts),
    outcome=outcome,
    prediction=Prediction(("sum", "mean", "first", "own", "other", "error"), answers),
)
