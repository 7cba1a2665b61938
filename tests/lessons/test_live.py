"""Real traces through the lesson: whatever TensorFlow answers, the lesson knows what to make of it."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from engine.engine import Engine
from engine.experiments.aggregation import AGGREGATION, AggregationSettings
from engine.recordings import Recordings
from engine.request import Request
from lessons.aggregation import lesson as module
from lessons.aggregation.lesson import LESSON
from lessons.aggregation.reading import read
from lessons.aggregation.story import explanation
from lessons.language import LANGUAGES, Texts
from tests.conftest import Sample

FOLDER = Path(module.__file__).parent
CHOICES = {setting.name: setting.choices for setting in AggregationSettings.declared()}
AT_ONCE = 100
VARIED = ("aggregation", "route", "synchronization", "value", "dtype")


RECORDINGS = Recordings()


@pytest.mark.parametrize("runtime", RECORDINGS.made_with(AGGREGATION))
def test_every_error_that_was_recorded_is_explained(runtime: str) -> None:
    errors = {
        recording.trace.error["message"]
        for recording in RECORDINGS.all(AGGREGATION, runtime)
        if recording.trace.error is not None
    }
    assert errors
    assert not [error for error in errors if explanation(error) == "other"]


@pytest.mark.parametrize(
    ("cross_device", "routes"),
    [("default", CHOICES["route"]), ("hierarchical_copy", ("assign_add", "optimizer"))],  # it loses an odd replica
)
def test_every_answer_of_tensorflow_is_read_drawn_and_told(
    engine: Engine, sample: Sample, cross_device: str, routes: tuple[str, ...]
) -> None:
    """Over every aggregation x route x synchronization x value x dtype, with 3 replicas: no error is unknown to the
    lesson, and every merge is accounted for."""
    varied = {**{name: CHOICES[name] for name in VARIED}, "route": routes}
    every = [dict(zip(varied, options, strict=True)) for options in itertools.product(*varied.values())]
    grid = sample(every, by=lambda choice: (choice["aggregation"], choice["route"]))
    requests = [
        Request.of("aggregation", {**choice, "cross_device": cross_device, "replicas": 3, "learning_rate": 2})
        for choice in grid
    ]
    # As several sessions: of one, only so many runs may wait.
    tickets = [engine.submit(request, str(place // AT_ONCE)) for place, request in enumerate(requests)]
    for choice, ticket in zip(grid, tickets, strict=True):
        trace = ticket.result(300)
        assert trace.answered, choice
        if trace.error is not None:
            assert explanation(trace.error["message"]) != "other", (choice, trace.error["message"])
        reading = read(trace)
        for step in reading.steps:
            assert step.merge != "other" or step.why is not None, choice
        for language in LANGUAGES:
            texts = Texts(FOLDER, language)
            assert LESSON.story(trace, texts)
            assert LESSON.alternative(trace, texts)
    LESSON.figure(trace, Texts(FOLDER, "en"))
