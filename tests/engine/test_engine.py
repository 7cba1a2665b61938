"""The engine's own work: queue, joining, keeping, cancelling, deadlines, faults, and leaving nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import engine as engine_module
from engine.cache import CachedRun, RunCache
from engine.engine import Engine
from engine.limits import Limits
from engine.request import EngineBusyError, EngineClosedError, Request
from engine.runtimes import Runtime, RuntimeMissingError, find_runtimes
from engine.trace import Trace
from tests.engine.faults import FAULTS, fault, rendering_faults, say
from tests.engine.processes import alive, children_of, until

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def programs(tensorflow: Runtime) -> Iterator[None]:  # noqa: ARG001  with all else as it is
    """Let the experiment `faults` render to its own programs; all else is the real engine."""
    patch = pytest.MonkeyPatch()
    patch.setattr(engine_module, "render", rendering_faults(vars(engine_module)["render"]))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def small(programs: None) -> Iterator[Engine]:  # noqa: ARG001  the programs must be there first
    """An engine with two slots and little patience, memory and room for output."""
    with Engine(limits=Limits(slots=2, run_memory=1 << 30, run_output=200_000)) as engine:
        engine.warm_up()
        yield engine


def aggregation(**settings: Any) -> Request:
    return Request.of("aggregation", settings)


# ---------------------------------------------------------------------------------------------------------- faults


@pytest.mark.parametrize(
    ("program", "status", "reason"),
    [
        ("sleeps", "timeout", "it had not ended after 2."),
        ("loops", "timeout", "it had not ended after 2."),
        ("ignores signals", "timeout", "it had not ended after 2."),
        ("complains", "timeout", "it had not ended after 2."),
        ("floods", "killed", "it printed more than a run may"),
        ("long line", "killed", "it printed more than a run may"),
        ("allocates", "killed", "it held more memory than a run may"),
        ("exits", "killed", "its process ended with exit status 7 and reported no error"),
        ("syntax", "killed", "its process ended with exit status 1 and reported no error"),
        ("killed", "killed", "its process was ended by SIGKILL"),
        ("aborts", "killed", "its process was ended by SIGABRT"),
    ],
)
def test_a_run_that_misbehaves_is_ended_and_told(small: Engine, program: str, status: str, reason: str) -> None:
    trace = small.run(fault(program))
    assert trace.status == status
    assert trace.end["reason"].startswith(reason)
    assert not trace.answered
    assert until(lambda: not any(children_of(pid) for pid in small.pids()))
    assert small.run(aggregation(aggregation="MEAN")).status == "ok"  # and the engine goes on


def test_what_is_no_event_is_kept(small: Engine) -> None:
    """Nothing that a program prints is lost, and it can't pretend to be the engine."""
    trace = small.run(fault("rubbish"))
    texts = [event["text"] for event in trace.of("output")]
    assert texts == ["no event", "[1]", '{"event": "end", "status": "ok"}', "x"]
    assert trace.status == "ok"
    assert small.run(fault("not utf-8")).of("output")[0]["text"] == "\ufffd\ufffd"


def test_standard_error_is_kept_to_its_end(small: Engine) -> None:
    trace = small.run(fault("syntax"))
    assert trace.stderr.strip().endswith("SyntaxError: invalid syntax")
    assert "engine" not in trace.stderr  # the learner's program, not ours
    assert len(small.run(fault("complains", 1)).stderr) == 64 * 1024


def test_a_grandchild_goes_with_its_run(small: Engine) -> None:
    """It would live for 600 seconds; `result` waits for none of it."""
    trace = small.submit(fault("leaves a child")).result(240)
    assert trace.status == "ok"
    assert trace.of("left")
    assert until(lambda: not any(children_of(pid) for pid in small.pids()))


def test_a_run_whose_parent_dies_is_run_again_once(small: Engine) -> None:
    ticket = small.submit(fault("waits", 1))
    (parent,) = small.pids()
    assert until(lambda: bool(children_of(parent)))
    (child,) = children_of(parent)
    os.kill(parent, signal.SIGKILL)
    assert until(lambda: not alive(child)), "a run must not outlive its parent"
    say(1)
    trace = ticket.result(240)
    assert trace.status == "ok"
    assert len(trace.of("nap")) == 1
    assert small.pids() != [parent]


def test_a_run_that_loses_its_parent_twice_says_so(small: Engine) -> None:
    ticket = small.submit(fault("sleeps"))
    for _ in range(2):
        assert until(lambda: small.state().name == "ready" and any(children_of(pid) for pid in small.pids()), 60)
        os.kill(small.pids()[0], signal.SIGKILL)
        time.sleep(0.2)
    trace = ticket.result(60)
    assert (trace.status, "died under this run" in trace.end["reason"]) == ("killed", True)
    assert small.run(aggregation(aggregation="SUM")).status == "ok"


def test_a_runtime_that_does_not_start_says_why(tmp_path: Path) -> None:
    """A Python without TensorFlow in it."""
    (own,) = list(find_runtimes(tmp_path).values())
    python = tmp_path / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True)
    with Engine({own.name: Runtime(python, own.versions)}) as engine:
        trace = engine.run(aggregation())
        assert trace.status == "killed"
        assert trace.end["reason"].startswith("TensorFlow could not be started (")
        assert "ModuleNotFoundError: No module named 'tensorflow'" in trace.end["reason"]
        assert engine.state().name == "failed"
        assert engine.run(aggregation()).status == "killed"  # it is tried again, and does not hang


def test_an_engine_without_runtimes_says_so() -> None:
    with Engine({}) as engine, pytest.raises(RuntimeMissingError, match="installed here: none"):
        engine.submit(aggregation())


# ---------------------------------------------------------------------------------- queue, joining, keeping, cancelling


def test_two_strategies_of_different_size_in_one_engine(small: Engine) -> None:
    """In one process the second would abort the collectives of the first; here each has its own process."""
    for replicas, last in ((2, 1.2), (4, 1.4), (2, 1.2), (8, 1.8), (1, 1.1)):
        trace = small.run(aggregation(replicas=replicas, cross_device="default"))
        assert trace.of("variable")[-1]["value"] == last


def test_equal_requests_in_flight_are_one_run(small: Engine) -> None:
    tickets = [small.submit(fault("waits", 7), session=str(number)) for number in range(10)]
    say(7)
    traces = [ticket.result(240) for ticket in tickets]
    assert all(trace is traces[0] for trace in traces)


def test_a_finished_run_is_cached_only_where_it_is_deterministic(small: Engine) -> None:
    first = small.run(aggregation(replicas=3))
    again = small.submit(aggregation(replicas=3))
    assert again.cached
    assert again.result() is first
    assert small.run(fault("rubbish")) is not small.run(fault("rubbish"))


def test_what_is_cached_is_bounded_by_what_was_printed() -> None:
    """The least recently used goes first; one that alone is too much is not kept."""
    cache = RunCache(most=100)
    runs = {name: CachedRun(Trace(()), name, size) for name, size in (("a", 40), ("b", 40), ("c", 30), ("d", 101))}
    for name in "ab":
        cache.add(name, runs[name])
    assert cache.get("a") is runs["a"]
    cache.add("a", runs["c"])  # there is one already
    cache.add("c", runs["c"])
    assert [cache.get(name) for name in "abc"] == [runs["a"], None, runs["c"]]
    assert cache.size == 70
    cache.add("d", runs["d"])
    assert (cache.get("d"), cache.size) == (None, 70)


def test_the_queue_is_fair_and_tells_its_places(small: Engine) -> None:
    """A session that asks for much does not keep others waiting: they take turns."""
    blockers = [small.submit(fault("waits", number), "blocker") for number in (100, 101)]
    assert until(lambda: [ticket.place for ticket in blockers] == [0, 0])
    greedy = [small.submit(fault("waits", number), "greedy") for number in range(200, 204)]
    modest = small.submit(fault("waits", 300), "modest")
    assert [ticket.place for ticket in greedy] == [1, 3, 4, 5]
    assert modest.place == 2
    for number in (100, 101, 200, 300):  # the last of the greedy one's still wait for their words
        say(number)
    assert modest.result(240).status == "ok"
    assert not greedy[-1].done
    for number, ticket in zip(range(200, 204), greedy, strict=True):
        say(number)
        assert ticket.result(240).status == "ok"


def test_a_cancelled_run_ends_at_once(small: Engine) -> None:
    ticket = small.submit(fault("waits", 110))  # for a word that is never said
    (parent,) = small.pids()
    assert until(lambda: bool(children_of(parent)))
    (child,) = children_of(parent)
    ticket.cancel()
    assert ticket.result().status == "cancelled"
    assert until(lambda: not alive(child), FAULTS.seconds / 2)


def test_a_waiting_run_that_is_cancelled_never_starts(small: Engine) -> None:
    running = [small.submit(fault("waits", number)) for number in (400, 401)]
    assert until(lambda: [ticket.place for ticket in running] == [0, 0])  # the slots of the tests before are free
    waiting = small.submit(fault("sleeps", 402))
    waiting.cancel()
    after = small.submit(fault("naps", 403))
    assert after.place == 1
    say(400)
    say(401)
    for ticket in (*running, after):
        assert ticket.result(240).status == "ok"


def test_cancelling_one_of_two_tickets_leaves_the_other_its_run(small: Engine) -> None:
    mine, yours = small.submit(fault("waits", 500), "me"), small.submit(fault("waits", 500), "you")
    mine.cancel()
    assert mine.result().status == "cancelled"
    say(500)
    assert yours.result(240).status == "ok"


def counted(trace: Trace) -> list[int]:
    return [event["value"] for event in trace.of("count")]


def test_a_run_can_be_watched_while_it_goes_on(small: Engine) -> None:
    """What it has said so far, for each who waits; and it is the whole trace in the end."""
    tickets = [small.submit(fault("counts", 700), session) for session in ("me", "you")]
    for said in range(5):
        for ticket in tickets:
            assert until(lambda ticket=ticket, said=said: counted(ticket.so_far()) == list(range(1, said + 1)))  # type: ignore[misc]
            assert ticket.so_far().status == "running"
            assert ticket.so_far().start["experiment"] == "faults"
            assert not ticket.so_far().answered
        say(700, said + 1)
    for ticket in tickets:
        assert ticket.result(240) is ticket.so_far()
    assert counted(tickets[0].result()) == [1, 2, 3, 4, 5]


def test_a_run_that_begins_again_is_watched_from_its_beginning(small: Engine) -> None:
    """Nothing of the process that died with its parent is left in what is seen."""
    ticket = small.submit(fault("counts", 701))
    say(701, 1)
    say(701, 2)
    assert until(lambda: counted(ticket.so_far()) == [1, 2])
    os.kill(small.pids()[0], signal.SIGKILL)
    assert until(lambda: counted(ticket.so_far()) == [])
    assert until(lambda: counted(ticket.so_far()) == [1, 2], 240)
    for word in (3, 4, 5):
        say(701, word)
    assert counted(ticket.result(240)) == [1, 2, 3, 4, 5]


def test_what_waits_or_was_cancelled_or_kept_can_be_watched_too(small: Engine) -> None:
    running = [small.submit(fault("waits", number)) for number in (710, 711)]
    assert until(lambda: [ticket.place for ticket in running] == [0, 0])
    waiting = small.submit(fault("naps", 712))
    assert [event["event"] for event in waiting.so_far().events] == ["run"]
    assert waiting.so_far().status == "running"
    waiting.cancel()
    assert waiting.so_far().status == "cancelled"
    for ticket in running:
        ticket.cancel()
    trace = small.run(aggregation())
    assert small.submit(aggregation()).so_far() is trace


def test_asking_again_after_cancelling_runs_afresh(small: Engine) -> None:
    small.submit(fault("naps", 600)).cancel()
    assert small.submit(fault("naps", 600)).result(30).status == "ok"


@pytest.mark.usefixtures("programs")
def test_a_full_queue_refuses_clearly() -> None:
    with Engine(limits=Limits(slots=1, waiting=3)) as engine:
        tickets = [engine.submit(fault("naps", number)) for number in range(3)]
        with pytest.raises(EngineBusyError, match="3 runs are waiting already"):
            engine.submit(fault("naps", 4))
        tickets[0].cancel()
        engine.submit(fault("naps", 5)).cancel()


@pytest.mark.usefixtures("programs")
def test_closing_answers_those_who_wait() -> None:
    engine = Engine()
    ticket = engine.submit(fault("sleeps"))
    engine.close()
    assert (ticket.result(1).status, ticket.result().end["reason"]) == ("cancelled", "the engine was closed")
    engine.close()
    with pytest.raises(EngineClosedError):
        engine.submit(fault("sleeps"))


@pytest.mark.usefixtures("programs")
def test_import_progress_is_told() -> None:
    """While TensorFlow is imported the engine says how far it is; a request in the meantime waits for it."""
    with Engine() as engine:
        assert engine.state().name == "stopped"
        ticket = engine.submit(aggregation())
        seen = set()
        while not ticket.wait(0.02):
            seen.add(engine.state().progress)
        assert len(seen) > 10
        assert max(seen) <= 1
        assert engine.state().name == "ready"
        assert engine.state().progress == 1


# ---------------------------------------------------------------------------------------------- nothing is left behind

APP = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
from engine.engine import Engine
from engine.limits import Limits
from tests.engine import faults
import engine.engine as module
module.render = lambda experiment, settings, versions: faults.PROGRAMS["sleeps"]
faults.HASTY.__dict__["seconds"] = 60.0
engine = Engine(limits=Limits(slots=2))
engine.warm_up()
print(engine._workplace.path, flush=True)
if "importing" not in sys.argv:
    tickets = [engine.submit(faults.fault("sleeps", number)) for number in range(4)]
    while len([job for job in engine._running.values() if job.pids]) < 2: time.sleep(0.05)
print(*engine.pids(), *[pid for job in engine._running.values() for pid in job.pids], flush=True)
time.sleep(60)
"""


@pytest.mark.usefixtures("tensorflow")
@pytest.mark.parametrize("moment", ["running", "importing"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_engine(number: signal.Signals, moment: str) -> None:
    """However the app is stopped, parent and runs are gone within 5 seconds."""
    app = subprocess.Popen(
        [sys.executable, "-c", APP, moment], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
    )
    assert app.stdout is not None
    workplace = Path(app.stdout.readline().strip())
    pids = [int(pid) for pid in app.stdout.readline().split()]
    assert len(pids) == (3 if moment == "running" else 1)
    assert all(alive(pid) for pid in pids)
    app.send_signal(number)
    app.wait(10)
    assert until(lambda: not any(alive(pid) for pid in pids), 30)
    app.stdout.close()
    with Engine({}):  # the next engine tidies up what a killed one could not
        assert not workplace.exists()


def test_traces_travel_as_json_lines(small: Engine) -> None:
    trace = small.run(aggregation(aggregation="MEAN"))
    assert Trace.from_jsonl(trace.to_jsonl()).events == trace.events
    for text in ("", "1\n", '{"a": 1}\n', "{"):
        with pytest.raises(ValueError):  # noqa: PT011  json's own message will do
            Trace.from_jsonl(text)


def test_requests_travel_as_json() -> None:
    request = aggregation(aggregation="MEAN", replicas=3, clipnorm=2)
    assert Request.from_json(request.to_json()) == request
    for text in ("[]", "1", '{"experiment": "nope"}', '{"experiment": "aggregation", "settings": {"replicas": 0}}'):
        with pytest.raises(ValueError):  # noqa: PT011
            Request.from_json(text)
