"""Parents that die, stop, or talk nonsense, at every moment: no slot is lost, no request waits for ever.

Most of these are stand-ins (broken_parent.py), so that each case takes a second. They are given up by the engine's own
watch where nothing else tells of their end; `HASTY` shortens its patience.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from engine import engine as engine_module
from engine.engine import Engine
from engine.limits import Limits
from engine.messages import Ended, Printed, Ready, read_message
from engine.runtimes import Runtime
from engine.trace import Trace
from engine.versions import Versions
from engine.warm import WarmRuntime
from engine.watch import AwakeClock, Patience, fault_of_parent
from tests import fuzz_parent
from tests.engine import broken_parent, stand_in
from tests.engine.broken_parent import FAULTS, MOMENTS
from tests.engine.faults import fault, rendering_faults
from tests.engine.processes import alive, until

HASTY = Patience(look=0.02, ping=0.1, silence=2.0, import_silence=2.0, importing=5.0, overtime=0.3)


@pytest.fixture(scope="module")
def programs() -> Iterator[None]:
    patch = pytest.MonkeyPatch()
    patch.setattr(engine_module, "render", rendering_faults(vars(engine_module)["render"]))
    yield
    patch.undo()


@contextlib.contextmanager
def engine_on(
    folder: Path, plan: Sequence[tuple[str, str] | None], *, seconds: float = 0.5, slots: int = 1
) -> Iterator[Engine]:
    """An engine on a stand-in with that plan. At the end, none of its processes may be left."""
    runtime = Runtime(broken_parent.environment(folder, plan), Versions("2.2.0", "0.0"))
    limits = Limits(slots=slots, run_output=20_000)
    with Engine({"2.2.0": runtime}, limits, seconds=seconds, patience=HASTY) as engine:
        yield engine
    assert until(lambda: not any(map(alive, broken_parent.pids(folder))))


@pytest.fixture
def start(programs: None, tmp_path: Path) -> Iterator[Callable[..., Engine]]:  # noqa: ARG001  they must be there first
    """Makes an engine on a stand-in, as `engine_on`."""
    with contextlib.ExitStack() as stack:
        yield lambda plan, **options: stack.enter_context(engine_on(tmp_path / "parent", plan, **options))


# Why a parent did not get ready, of some that fail twice while they import.
REASONS = {
    "dies in a line": "ended by SIGKILL",
    "stops": "it gave no sign for 2 s while it imported TensorFlow",
    "half a line": "it gave no sign for 2 s while it imported TensorFlow",
    "nothing": "it gave no sign for 2 s while it imported TensorFlow",
    "garbage": r"it said what is no message: b'\x00\xff'",
    "huge line": "it said more than 1208576 bytes in one line",
    "deaf, and chatty": "it had not imported TensorFlow after 5 s",
}
CASES = [
    *(((moment, name),) for moment in MOMENTS for name in FAULTS),
    *((("running", name),) * 2 for name in FAULTS),
    *((("importing", name),) * 2 for name in REASONS),
]


def named(plan: Sequence[tuple[str, str]]) -> str:
    return f"{plan[0][0]}, {plan[0][1]}" + ", twice" * (len(plan) - 1)


@pytest.fixture(scope="module")
def ends(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[tuple[Trace, Trace]]]]:  # noqa: ARG001
    """Of each case the trace of the run that met the faults, and of one after it. They wait more than they work, so
    they go on together."""

    def meet(plan: Sequence[tuple[str, str]]) -> tuple[Trace, Trace]:
        with engine_on(tmp_path_factory.mktemp("case") / "parent", plan) as engine:
            traces = engine.submit(fault("naps")).result(240), engine.submit(fault("naps", 1)).result(240)
            assert engine.load() == (0, 0)
            return traces

    with ThreadPoolExecutor(8) as pool:
        yield {named(plan): pool.submit(meet, plan) for plan in CASES}


@pytest.mark.parametrize("plan", CASES, ids=named)
def test_a_parents_fault_costs_its_runs_another_try_and_no_slot(
    ends: dict[str, Future[tuple[Trace, Trace]]], plan: tuple[tuple[str, str], ...]
) -> None:
    """And one that comes again is told. Nothing of a try that came to nothing is left in the trace."""
    moment, name = plan[0]
    trace, after = ends[named(plan)].result()
    if name == "a signal without a name" and moment == "idle":
        assert trace.end["detail"] == after.end["detail"] == "signal 99"
        return
    assert after.status == "ok"
    if moment == "importing" and name == "exits":  # by itself: another try would end as this one did
        assert (trace.end["why"], trace.end["detail"]) == ("not_started", "TensorFlow 2.2.0: exit status 0")
    elif len(plan) == 2 and moment == "importing":
        assert (trace.end["why"], trace.end["detail"]) == ("not_started", f"TensorFlow 2.2.0: {REASONS[name]}")
    elif len(plan) == 2:
        assert (trace.status, trace.end["why"]) == ("killed", "parent_died")
    else:
        assert trace.status == "ok"
        assert [event["event"] for event in trace.events[1:-1]] == ["nap"]


def test_an_idle_parent_that_stops_is_replaced_before_anybody_needs_it(start: Callable[..., Engine]) -> None:
    engine = start([("idle", "stops")])
    engine.warm_up()
    (pid,) = engine.pids()
    assert until(lambda: not alive(pid))
    assert engine.pids() == []
    assert engine.run(fault("naps")).status == "ok"


def test_a_parent_that_answers_is_left_alone(start: Callable[..., Engine]) -> None:
    """Idle for longer than the watch's patience, it is asked, and answers."""
    engine = start([])
    engine.warm_up()
    pids = engine.pids()
    time.sleep(2 * HASTY.silence)
    assert engine.pids() == pids
    assert engine.run(fault("naps")).status == "ok"


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize("moment", ["importing", "idle", "running"])
def test_the_real_parent_stopped_at_each_moment(tmp_path: Path, moment: str) -> None:
    """The real parent.py, on a stand-in for TensorFlow that takes a second to import."""
    python = stand_in.environment(tmp_path / "tf", "2.2.0", seconds=1.0)
    runtimes = {"2.2.0": Runtime(python, Versions("2.2.0", "0.0"))}
    with Engine(runtimes, Limits(slots=1), patience=HASTY) as engine:
        engine.warm_up("2.2.0")
        ready = engine.state("2.2.0")
        if moment != "importing":
            assert until(lambda: engine.state("2.2.0").name == "ready", 60)
        ticket = engine.submit(fault("naps", version="2.2.0")) if moment == "running" else None
        (pid,) = engine.pids()
        if ticket is not None:
            assert until(lambda: engine.parents()[0].running == 1)
        os.kill(pid, signal.SIGSTOP)
        ticket = ticket or engine.submit(fault("naps", version="2.2.0"))
        assert ticket.result(120).status == "ok"
        assert not alive(pid)
        assert ready.name == "starting"


def test_a_chatty_parent_that_reads_nothing_blocks_nobody(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More commands than its pipe holds, while it fills the other one: neither waits for the other, nor `close`."""
    monkeypatch.setattr(engine_module, "render", lambda experiment, settings, versions: "#" * 20_000)
    engine = start([("idle", "deaf, and chatty")], seconds=60.0, slots=64)
    engine.warm_up()
    assert until(lambda: engine.state().name == "ready")

    def ask_and_close() -> None:
        tickets = [engine.submit(fault("naps", number)) for number in range(64)]
        assert engine.load() == (64, 0)
        engine.close()
        assert {ticket.result(0).status for ticket in tickets} == {"cancelled"}

    thread = threading.Thread(target=ask_and_close, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert engine.pids() == []


def test_closing_ends_a_parent_that_is_stopped(start: Callable[..., Engine], tmp_path: Path) -> None:
    engine = start([("running", "stops")], seconds=60.0)
    engine.submit(fault("naps"))
    assert until(lambda: len(broken_parent.pids(tmp_path / "parent")) == 2)
    engine.close()
    assert until(lambda: not any(map(alive, broken_parent.pids(tmp_path / "parent"))))


def test_an_exception_while_a_message_is_taken_costs_the_parent_only(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fault of the engine's own, in the thread that listens: it is told, and the listening does not just end."""
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))
    real = vars(engine_module)["parse_event"]

    def raising(line: str, *rest: object) -> object:
        if not raised:
            raise RuntimeError("a fault of the engine")
        return real(line, *rest)

    monkeypatch.setattr(engine_module, "parse_event", raising)
    engine = start([])
    assert engine.run(fault("naps")).status == "ok"
    assert raised == ["a fault of the engine"]


def test_the_watch_outlives_its_own_faults(start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))
    real = WarmRuntime.close

    def raising(self: WarmRuntime) -> None:
        real(self)
        if not raised:
            raise OSError("could not close it")

    monkeypatch.setattr(WarmRuntime, "close", raising)
    engine = start([("running", "dies"), ("running", "stops")])
    assert engine.run(fault("naps")).end["why"] == "parent_died"
    assert raised == ["could not close it"]  # and the second parent, which stopped, was found by the watch all the same


def test_faults_at_random_leave_no_slot_taken() -> None:
    """A few rounds of `python -m tests.fuzz_parent`, with another seed each time, which it prints."""
    figures = fuzz_parent.run(times=12, seed=None, threads=4)
    assert figures.stuck == 0, figures


# ---------------------------------------------------------------------------------------------- the parts by themselves


def test_the_watchs_judgement() -> None:
    patience = Patience(silence=20, import_silence=120, importing=600)
    assert fault_of_parent(patience, ready=True, silent=19, age=10_000) is None
    assert fault_of_parent(patience, ready=True, silent=21, age=10_000) == "it gave no sign for 20 s"
    assert fault_of_parent(patience, ready=False, silent=119, age=599) is None
    assert "120 s while it imported" in str(fault_of_parent(patience, ready=False, silent=121, age=121))
    assert "after 600 s" in str(fault_of_parent(patience, ready=False, silent=1, age=601))


def test_time_in_which_the_engine_itself_was_stopped_is_nobodys_silence() -> None:
    times = iter([0.0, 1.0, 2.0, 3602.0, 3603.0])
    clock = AwakeClock(2.0, lambda: next(times))
    assert [clock.tick() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]


def test_only_messages_are_messages() -> None:
    assert read_message(b'{"run": 1, "task": "", "lines": ["a"], "seconds": 0.5}') == Printed(1, "", ["a"], 0.5)
    ready = read_message(
        b'{"ready": {"tensorflow": "2", "keras": "3", "tf_keras": null, "python": "3", "modules": 1, "seconds": 2}}'
    )
    assert isinstance(ready, Ready)
    end = b'{"run": 1, "task": "", "exit": 0, "stopped": null, "port_conflict": [], "seconds": 1.0, "stderr": ""}'
    assert isinstance(read_message(end), Ended)
    for line in (
        b"",
        b"{",
        b"1",
        b"[]",
        b"{}",
        b'{"run": 1}',
        b'{"run": "1", "pid": 2}',
        end.replace(b"null", b'"no"'),
    ):
        with pytest.raises(ValueError):  # noqa: PT011  pydantic's own message will do
            read_message(line)
