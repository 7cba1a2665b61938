"""The lesson on variable scopes, as pages know it."""

from __future__ import annotations

from engine.experiments.variable_scope import PRESETS, VARIABLE_SCOPE, VariableScopeSettings
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import Lesson, Link, Prediction
from lessons.variable_scope.figure import alternative, figure
from lessons.variable_scope.reading import read
from lessons.variable_scope.remedy import remedy
from lessons.variable_scope.story import what_happened


def unused(settings: VariableScopeSettings) -> frozenset[str]:
    """The settings that change nothing: with no variable there is none to write to."""
    made = any(operation.makes_variable for operation in settings.parsed)
    return frozenset(() if made else {"assign"})


REFUSED = "refused"


def answers(settings: VariableScopeSettings) -> tuple[str, ...]:
    """How many variables there may be of these names, or that TensorFlow refuses."""
    names = sum(operation.makes_variable for operation in settings.parsed)
    return (*(str(count + 1) for count in range(names)), REFUSED) if names else ()


def truth(trace: Trace) -> str | None:
    """What came of it."""
    if not trace.answered:
        return None
    return REFUSED if trace.error else str(len(read(trace).objects))


def said(answer: str, texts: Texts) -> str:
    """An answer in words."""
    if answer == REFUSED:
        return texts("predict.refused")
    return texts("predict.one" if answer == "1" else "predict.many", count=answer)


LESSON = Lesson(
    name="variable_scope",
    experiment=VARIABLE_SCOPE,
    first=("operations", "mode", "api"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), texts),
    remedy=lambda trace: remedy(read(trace)),
    predict=Prediction(options=answers, truth=truth, said=said),
    guide=(
        *(Link(name, {} if name == "article" else {"operations": words}) for name, words in PRESETS.items()),
        Link("article_tf", {"api": "tf"}),
        Link("article_tf1", {"api": "tf"}, tensorflow="1.15.5"),
        Link("eager", {"mode": "eager", "operations": PRESETS["auto_reuse"]}),
    ),
)
