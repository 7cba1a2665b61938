"""What all tests share: one started engine, as the app has one; and how much of the tests is run.

How much follows from what a test asks for. `make test-quick` (--quick) runs those that ask neither for TensorFlow nor
for a browser. `make test` runs all tests, and of a large grid of alike cases a sample, another one each day; what is
left out is counted at the end, with the seed that repeats it. `make test-all` (--all) samples nothing.

They run in two processes (pytest-xdist), which what a test asks for decides too: the tests that start TensorFlow are
in few groups, and a group is in one process, so that its tests share what they have started.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import random
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from engine.engine import Engine
from engine.job import Ticket
from engine.request import Request
from engine.runtimes import INSTALLED, Runtime, RuntimeMissingError, choose, find_runtimes
from engine.trace import Trace
from engine.warm import PARENT

T = TypeVar("T")
# What takes long: a test that asks for one of these, itself or by another fixture, is not quick.
TENSORFLOW, BROWSER = "tensorflow", "chromium"
SHARE = 1 / 8  # of the cases of a large grid that a sample takes
LEFT_OUT = pytest.StashKey[int]()
# How long an example takes is the machine's affair.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("how much is tested")
    group.addoption("--quick", action="store_true", help="only what starts neither TensorFlow nor a browser")
    group.addoption(
        "--all-replays", action="store_true", help="every recording, even where of the rest a sample is taken"
    )
    group.addoption("--all", action="store_true", help="every case, where else a sample of alike ones is taken")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    seed = os.environ.get("REPLICA_LAB_SEED", today)
    group.addoption("--seed", default=seed, help="whose sample is taken; by default $REPLICA_LAB_SEED, or today")


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("quick"):
        return "quick: without TensorFlow, without a browser"
    return "everything" if config.getoption("all") else f"a sample of large grids: --seed {config.getoption('seed')}"


def weight(item: pytest.Item) -> int:
    """0 for a quick test, 1 for one that starts TensorFlow, 2 for one in a browser."""
    names = getattr(item, "fixturenames", ())
    return 2 if BROWSER in names else 1 if TENSORFLOW in names else 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not quick, where that is asked for; put the groups that take longest first."""
    if config.getoption("quick"):
        left_out = [item for item in items if weight(item)]
        items[:] = [item for item in items if not weight(item)]
        config.hook.pytest_deselected(items=left_out)
        config.stash[LEFT_OUT] = len(left_out)
    order = {"engine": 0, "browser": 1, "lessons": 2, "pages": 2}
    items.sort(key=lambda item: order.get(group(item), 3))
    if config.pluginmanager.has_plugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(group(item)))


def group(item: pytest.Item) -> str:
    """What is in one process: the quick tests of a file, those of a folder that start TensorFlow, all in a browser."""
    return (item.path.stem, item.path.parent.name, "browser")[weight(item)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:  # this is one of xdist's processes
        output["left out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """What one of xdist's processes has said when it ended, in the one that reports."""
    if hasattr(node, "workeroutput"):  # it came to its end
        node.config.stash[LEFT_OUT] = node.workeroutput["left out"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """What was left out, so that nobody takes it for tested."""
    if left_out := config.stash.get(LEFT_OUT, 0):
        terminalreporter.section(f"left out: {left_out} tests that start TensorFlow or a browser; make test has them")
    reports = itertools.chain.from_iterable(terminalreporter.stats.values())
    properties = itertools.chain.from_iterable(getattr(report, "user_properties", ()) for report in reports)
    sampled = dict.fromkeys(value for name, value in properties if name == "sampled")  # once for each phase of a test
    if not sampled:
        return
    taken, there = sum(few for _, few, _ in sampled), sum(many for _, _, many in sampled)
    terminalreporter.section(f"sampled: {taken} of {there} cases of large grids; --seed {config.getoption('seed')}")
    for test, few, many in sampled:
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
    """Takes some of many alike cases, in their order. See the fixture of that name."""

    def __init__(self, request: pytest.FixtureRequest, everything: bool) -> None:
        self._test: pytest.Item = request.node
        self._seed, self._everything = request.config.getoption("seed"), everything

    def __call__(
        self, cases: Iterable[T], share: float = SHARE, by: Callable[[T], Hashable] = lambda _: None
    ) -> list[T]:
        """At least one of each kind that `by` tells apart; all where everything is tested."""
        every = list(cases)
        if self._everything:
            return every
        name = f"{self._test.path.name}::{self._test.name}"
        chance = random.Random(f"{self._seed} {name}")
        kinds: dict[Hashable, list[int]] = {}
        for place, case in enumerate(every):
            kinds.setdefault(by(case), []).append(place)
        chosen = [place for kind in kinds.values() for place in chance.sample(kind, math.ceil(len(kind) * share))]
        self._test.user_properties.append(("sampled", (name, len(chosen), len(every))))
        return [every[place] for place in sorted(chosen)]


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    """Of a large grid of alike cases a few, others each day; under --all every one. Once in a test."""
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
