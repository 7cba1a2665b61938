"""The lesson on variable scopes, as pages know it."""

from __future__ import annotations

from engine.experiments.variable_scope import PRESETS, VARIABLE_SCOPE, VariableScopeSettings
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import OWN, Lesson, Link, Prediction
from lessons.outcome import Outcome, raised
from lessons.variable_scope.figure import alternative, figure
from lessons.variable_scope.fix import suggested_fix
from lessons.variable_scope.reading import read
from lessons.variable_scope.story import what_happened


def unused(settings: VariableScopeSettings) -> frozenset[str]:
    """The settings that change nothing: with no variable there is none to write to."""
    made = any(operation.makes_variable for operation in settings.parsed)
    return frozenset(() if made else {"assign"})


def answers(trace: Trace) -> frozenset[str]:
    """What came of the names: refused, some of one variable, or each of its own."""
    reading = read(trace)
    if reading.failure:
        return frozenset({"refused"})
    return frozenset({"shared" if len(reading.objects) < len(reading.variables) else "apart"})


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """How many names are how many variables."""
    reading = read(trace)
    if reading.failure:
        cause = reading.failure.cause
        return raised(reading.failure.kind, None if cause == "other" else cause, texts)
    return Outcome("right", texts("outcome.counted", names=len(reading.variables), objects=reading.count))


LESSON = Lesson(
    name="variable_scope",
    experiment=VARIABLE_SCOPE,
    first=("operations", "mode", "api"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    outcome=outcome,
    fix=lambda trace: suggested_fix(read(trace)),
    see_also=("placement", {"device_setter": "article"}),
    prediction=Prediction(options=("shared", "apart", "refused"), answers=answers),
    guide=(
        *(Link(name, {} if name == "article" else {"operations": words}) for name, words in PRESETS.items()),
        Link("article_tf", {"api": "tf"}, tensorflow=OWN),
        Link("article_tf1", {"api": "tf"}, tensorflow="1.15.5"),
        Link("eager", {"mode": "eager", "operations": PRESETS["auto_reuse"]}),
    ),
)
