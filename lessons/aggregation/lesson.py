"""The lesson on variable aggregation, as pages know it."""

from __future__ import annotations

from engine.experiments.aggregation import AGGREGATION, AggregationSettings
from lessons.aggregation.figure import alternative, figure
from lessons.aggregation.reading import read
from lessons.aggregation.story import what_happened
from lessons.lesson import Lesson


def unused(settings: AggregationSettings) -> frozenset[str]:
    """The settings that change nothing on this route."""
    optimizer = settings.route in ("optimizer", "optimizer_unsummed")
    names = set() if optimizer else {"learning_rate", "clipnorm"}
    if settings.route != "cross_replica":
        names.add("update")
    return frozenset(names)


LESSON = Lesson(
    name="aggregation",
    experiment=AGGREGATION,
    first=("aggregation", "route", "replicas", "steps"),
    unused=unused,
    figure=lambda trace, texts: figure(read(trace), texts),
    alternative=lambda trace, texts: alternative(read(trace), texts),
    story=lambda trace, texts: what_happened(read(trace), trace, texts),
)
