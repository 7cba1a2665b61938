"""Runs that tests of all lessons share."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine.engine import Engine
from engine.request import Request
from engine.trace import Trace
from lessons.lesson import AnyLesson
from tests.lessons.random_runs import ALL, COUNT, COUNTS, random_settings


@pytest.fixture(scope="session")
def random_runs(engine: Engine, pytestconfig: pytest.Config) -> Callable[[AnyLesson], list[Trace]]:
    """Runs of a lesson with random settings, others each day (--seed); each is made once."""
    runs: dict[str, list[Trace]] = {}

    def of(lesson: AnyLesson) -> list[Trace]:
        if lesson.name not in runs:
            count = COUNTS.get(lesson.name, COUNT) * (ALL if pytestconfig.getoption("all") else 1)
            chance = random.Random(f"{pytestconfig.getoption('seed')} {lesson.name}")
            requests = [Request(lesson.experiment, random_settings(lesson, chance)) for _ in range(count)]
            tickets = [engine.submit(request) for request in requests]
            runs[lesson.name] = [ticket.result(600) for ticket in tickets]
        return runs[lesson.name]

    return of
