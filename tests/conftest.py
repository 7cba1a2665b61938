"""What all tests share: one started engine, as the app has one; and how much of the tests is run.

How much follows from what a test asks for. `make test-quick` (--quick) runs those that ask neither for TensorFlow nor
for a browser. `make test` runs all tests, and of a large grid of alike cases a sample, another one each day; what is
left out is counted at the end, with the seed that repeats it. `make test-all` (--all) samples nothing.
"""

from __future__ import annotations

import datetime
import math
import os
import random
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from engine.engine import Engine, Ticket
from engine.request import Request
from engine.runtimes import INSTALLED, Runtime, RuntimeMissingError, choose, find_runtimes
from engine.trace import Trace
from engine.warm import PARENT

T = TypeVar("T")
# What takes long: a test that asks for one of these is not quick.
TENSORFLOW, BROWSER = "tensorflow", "chromium"
# How long an example takes is the machine's affair.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
SAMPLED = pytest.StashKey[dict[str, list[int]]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("how much is tested")
    group.addoption("--quick", action="store_true", help="only what starts neither TensorFlow nor a browser")
    group.addoption("--all", action="store_true", help="every case, where else a sample of alike ones is taken")
    group.addoption("--sampled-replays", action="store_true", help="with --all: but of the recordings a sample")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    seed = os.environ.get("REPLICA_LAB_SEED", today)
    group.addoption("--seed", default=seed, help="whose sample is taken; by default $REPLICA_LAB_SEED, or today")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SAMPLED] = {}


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("quick"):
        return "quick: without TensorFlow, without a browser"
    return "everything" if config.getoption("all") else f"a sample of large grids: --seed {config.getoption('seed')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The quick ones first, as they fail first; those with a browser last, as it then need not stand by."""
    items.sort(key=weight)
    if config.getoption("quick"):
        slow = [item for item in items if weight(item)]
        items[:] = [item for item in items if not weight(item)]
        config.hook.pytest_deselected(items=slow)


def weight(item: pytest.Item) -> int:
    """0 for a quick test, 1 for one that starts TensorFlow, 2 for one in a browser."""
    names = getattr(item, "fixturenames", ())
    return 2 if BROWSER in names else 1 if TENSORFLOW in names else 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What a sample left out, so that nobody takes it for tested."""
    sampled = config.stash[SAMPLED]
    if not sampled:
        return
    taken, there = (sum(counts[place] for counts in sampled.values()) for place in (0, 1))
    terminalreporter.section(f"sampled: {taken} of {there} cases of large grids; --seed {config.getoption('seed')}")
    for test, (few, many) in sampled.items():
        terminalreporter.write_line(f"{few} of {many} in {test}")


QUICK = [False]  # whether the test that runs is


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    QUICK[0] = weight(item) == 0
    return (yield)


def refuse_tensorflow(event: str, arguments: tuple[Any, ...]) -> None:
    """Fails a quick test that is about to start the parent of a real runtime: it would not be quick."""
    if QUICK[0] and event == "subprocess.Popen":
        command = [os.fsdecode(word) for word in arguments[1]]
        if str(PARENT) in command and (command[0] == sys.executable or command[0].startswith(str(INSTALLED))):
            raise AssertionError("this test starts TensorFlow: let it ask for the fixture `tensorflow`")


sys.addaudithook(refuse_tensorflow)


class Sample:
    """Takes a share of alike cases, in their order: sample(cases, 1 / 10). See the fixture of that name."""

    def __init__(self, request: pytest.FixtureRequest, everything: bool) -> None:
        self._config, self._test, self._everything = request.config, request.node.nodeid, everything

    def __call__(self, cases: Iterable[T], share: float, by: Callable[[T], Hashable] = lambda _: None) -> list[T]:
        """At least one of each kind that `by` tells apart; all where everything is tested."""
        every = list(cases)
        if self._everything:
            return every
        chance = random.Random(f"{self._config.getoption('seed')} {self._test}")
        kinds: dict[Hashable, list[int]] = {}
        for place, case in enumerate(every):
            kinds.setdefault(by(case), []).append(place)
        chosen = [place for kind in kinds.values() for place in chance.sample(kind, math.ceil(len(kind) * share))]
        counts = self._config.stash[SAMPLED].setdefault(self._test, [0, 0])
        counts[0] += len(chosen)
        counts[1] += len(every)
        return [every[place] for place in sorted(chosen)]


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    """Of a large grid of alike cases a few, others each day; under --all every one."""
    return Sample(request, everything=request.config.getoption("all"))


@pytest.fixture(scope="session")
def tensorflow() -> Runtime:
    """The app's own TensorFlow. What starts it, in whatever way, asks for this, and so is not quick."""
    return choose(find_runtimes(), None)


@pytest.fixture(scope="session")
def engine(tensorflow: Runtime) -> Iterator[Engine]:  # noqa: ARG001
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
