"""What all tests share: one started engine, as the app has one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from engine.engine import Engine, Ticket
from engine.request import Request
from engine.runtimes import RuntimeMissingError
from engine.trace import Trace


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """An engine on the app's own TensorFlow, imported once for all tests."""
    with Engine() as engine:
        yield engine


@pytest.fixture(scope="session")
def submit_on(engine: Engine) -> Callable[..., Ticket]:
    """Asks for a run: submit_on("2.4.1", "aggregation", replicas=4). A runtime's name will do: "2.21.0+keras-3.4.1".

    A test of a version that is not installed here is skipped; where CI is set it fails.
    """

    def submit(version: str | None, experiment: str, **settings: Any) -> Ticket:
        tensorflow, _, keras = (version or "").partition("+keras-")
        try:
            return engine.submit(Request.of(experiment, settings, tensorflow or None, keras or None))
        except RuntimeMissingError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))

    return submit


@pytest.fixture(scope="session")
def run_on(submit_on: Callable[..., Ticket]) -> Callable[..., Trace]:
    """Asks for a run, as `submit_on`, and waits for its trace."""

    def run(version: str | None, experiment: str, **settings: Any) -> Trace:
        return submit_on(version, experiment, **settings).result(240)

    return run
