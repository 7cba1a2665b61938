"""The lesson on scope placement, as pages know it."""

from __future__ import annotations

from engine.experiments.scope_placement import SCOPE_PLACEMENT, ScopePlacementSettings
from engine.trace import Trace
from lessons.language import Texts, number
from lessons.lesson import Lesson, Link, Prediction
from lessons.outcome import Outcome, raised, values
from lessons.scope_placement.figure import alternative, figure
from lessons.scope_placement.fix import suggested_fix
from lessons.scope_placement.reading import read
from lessons.scope_placement.story import what_happened


def unused(settings: ScopePlacementSettings) -> frozenset[str]:
    """The settings that change nothing: fit calls strategy.run by itself."""
    return frozenset({"step"} if settings.loop == "fit" else ())


def answers(trace: Trace) -> frozenset[str]:
    """Whether it trains as one, goes wrong without a word, or is refused."""
    outcome = read(trace).outcome
    return frozenset({{"trained": "as_one", "raised": "error"}.get(outcome, "not_as_one")})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """Whether it trains as one, and the copies after the last step."""
    reading = read(trace)
    if reading.failure:
        cause = reading.failure.cause
        return raised(reading.failure.kind, None if cause == "other" else cause, texts)
    head, last = texts(f"outcome.{reading.outcome}"), reading.last
    if last is None:
        return Outcome("odd", head)
    copies = values(last.after, texts, apart=not last.equal)
    if reading.outcome == "trained":
        return Outcome("right", head, copies)
    why = ""
    if reading.outcome == "miscounted":
        steps = texts("count.steps", count=last.number)
        why = texts("outcome.why.miscounted", count=number(max(last.iterations)), steps=steps)
    elif reading.as_one is not None:
        why = texts("outcome.why.as_one", value=number(reading.as_one))
    return Outcome("odd", head, copies, why)


LESSON = Lesson(
    name="scope_placement",
    experiment=SCOPE_PLACEMENT,
    places=("model_scope", "optimizer_scope", "apply_scope"),
    first=("model", "step", "optimizer", "mode"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    outcome=outcome,
    fix=lambda trace: suggested_fix(read(trace)),
    prediction=Prediction(("as_one", "not_as_one", "error"), answers),
    guide=(
        Link("all_in", {}),
        Link("model_out", {"model_scope": "out"}),
        Link("deferred_out", {"model": "sequential_deferred", "model_scope": "out"}),
        Link("optimizer_out", {"optimizer_scope": "out"}),
        Link("function", {"mode": "function"}),
        Link("direct_old", {"step": "direct", "apply_scope": "out"}, tensorflow="2.4.1"),
        Link("direct_new", {"step": "direct", "apply_scope": "out"}, tensorflow="2.5.0"),
    ),
)
