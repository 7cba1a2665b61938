"""The lessons: everything that goes over all of them, from navigation to tests, goes over LESSONS."""

from __future__ import annotations

from typing import Any, Final

from engine.trace import Trace
from lessons.aggregation.lesson import LESSON as AGGREGATION
from lessons.language import SHARED, Language, Texts
from lessons.lesson import AnyLesson, Comparison
from lessons.outcome import Outcome
from lessons.placement.lesson import LESSON as PLACEMENT
from lessons.scaling.lesson import LESSON as SCALING
from lessons.scope_placement.lesson import LESSON as SCOPE_PLACEMENT
from lessons.sync_replicas.lesson import LESSON as SYNC_REPLICAS
from lessons.variable_scope.lesson import LESSON as VARIABLE_SCOPE
from lessons.versions.fit import COMPARISON as FIT

# In the order of the pages. The first is where one begins.
LESSONS: Final[tuple[AnyLesson, ...]] = (
    AGGREGATION,
    SCALING,
    SCOPE_PLACEMENT,
    VARIABLE_SCOPE,
    PLACEMENT,
    SYNC_REPLICAS,
)
# What the page Versions offers; most of that page is about scope placement, which is first.
COMPARISONS: Final[tuple[Comparison[Any], ...]] = (
    *sorted((lesson for lesson in LESSONS if lesson.in_versions), key=lambda lesson: lesson is not SCOPE_PLACEMENT),
    FIT,
)
_BY_EXPERIMENT: Final = {each.experiment.name: each for each in (*LESSONS, FIT)}


def outcome_of(trace: Trace, language: Language) -> Outcome:
    """What came of a run of a lesson's experiment, or of `fit`. Raises KeyError for another experiment."""
    if not trace.answered:
        return Outcome("none", Texts(SHARED, language)(f"ended.{trace.status}"))
    comparison = _BY_EXPERIMENT[trace.start["experiment"]]
    return comparison.outcome(trace, comparison.texts(language))


__all__ = ["COMPARISONS", "LESSONS", "outcome_of"]
