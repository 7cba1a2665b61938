"""The lesson on variable aggregation, as pages know it."""

from __future__ import annotations

from engine.experiments.aggregation import AGGREGATION, AggregationSettings
from engine.trace import Trace
from lessons.aggregation.figure import alternative, figure
from lessons.aggregation.fix import suggested_fix
from lessons.aggregation.reading import asked, read
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


def captions(settings: AggregationSettings) -> dict[str, str]:
    """What options do where that depends on the way of the numbers: an optimizer asks for no aggregation."""
    where = asked(settings.model_dump())
    names = {"value": f"cross_replica_{settings.value}"} if settings.route == "cross_replica" else {}
    if where == "never":
        names["aggregation"] = "cross_replica" if settings.route == "cross_replica" else settings.route
    elif where == "read":
        names["aggregation"] = f"on_read_{settings.aggregation}"
    return names


def answers(trace: Trace) -> frozenset[str]:
    """How the replicas' numbers were merged: every rule that accounts for all steps (with one replica all do)."""
    reading = read(trace)
    if reading.failure:
        return frozenset({"error"})
    fits = [frozenset[str](step.fits) for step in reading.steps if step.finished]
    return frozenset.intersection(*fits) if fits and all(fits) else frozenset({"other"})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """The copies after the last step; right where they are as they are meant to be."""
    reading = read(trace)
    if reading.failure:
        return raised(reading.failure.kind, reading.failure.place, texts)
    if reading.last is None:
        return nothing(texts)
    copies = values([value for value in reading.last.after if value is not None], texts, apart=not reading.last.equal)
    on_read = reading.on_read and reading.last.read is not None
    detail = texts("outcome.on_read", value=number(reading.last.read)) if on_read else ""
    return Outcome("odd" if reading.wrong else "right", copies, detail)


LESSON = Lesson(
    name="aggregation",
    experiment=AGGREGATION,
    first=("aggregation", "route", "replicas", "steps"),
    unused=unused,
    captions=captions,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), trace, texts),
    fix=lambda trace: suggested_fix(read(trace)),
    outcome=outcome,
    prediction=Prediction(("sum", "mean", "first", "own", "other", "error"), answers),
)
