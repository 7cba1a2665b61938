"""The engine: takes requests, runs each in a fresh process of a warm runtime, and gives back traces.

One engine serves every page and every visitor of the app. At most one run per core is under way; the others wait in
order, fairly across sessions. Equal requests that wait or run are one run; finished deterministic ones are cached. A
parent is started when its runtime is first wanted, and stopped when nobody has wanted it for some time, or when
another runtime needs its room.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from engine.ending import Ending, died_event, ending_of, parse_event, without_folders
from engine.fair_queue import FairQueue
from engine.program import render
from engine.request import EngineBusyError, EngineClosedError, Request, check_runs_on, request_key
from engine.runtimes import Runtime, RuntimeMissingError, choose, find_runtimes
from engine.trace import Event, Trace
from engine.warm import WarmRuntime, WarmState

RUN_MEMORY = 3 << 30  # bytes that one run may hold
RUN_OUTPUT = 4 << 20  # bytes that one run may print
MAX_WAITING = 512  # runs that may wait, all sessions together
CACHED_EVENTS = 200_000  # events of finished runs that are cached, the least recently used go first
MAX_ATTEMPTS = 2  # a run whose parent died under it is run once more
MAX_PARENTS = 5  # warm parents at once; the standard set holds 1.7 GiB together, no five hold more than 2.6
IDLE_SECONDS = 600.0  # seconds after which a parent that has nothing to do is stopped
WORKPLACE = "replica-lab-"


class CachedRun(NamedTuple):
    """A run that has ended, and will not be run again: its trace, and the program that ran."""

    trace: Trace
    program: str


@dataclass(frozen=True)
class ParentState:
    """A parent as a status page shows it: how far it is, the seconds since it was started, the resident memory that
    it alone holds, in MiB (None where the system doesn't tell), the runs it has done and those under way."""

    runtime: Runtime
    state: WarmState
    seconds: float
    memory: float | None
    runs: int
    running: int


@dataclass(eq=False)
class _Job:
    """One run, wanted by one ticket or more."""

    key: str
    request: Request
    runtime: Runtime
    program: str
    tickets: set[Ticket] = field(default_factory=set)
    attempts: int = 0
    run_id: int = 0
    warm: WarmRuntime | None = None
    pids: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


class Ticket:
    """A future for one requested run. `program` is the script that runs, or that has run."""

    def __init__(self, engine: Engine, session: str, program: str) -> None:
        self._engine = engine
        self._done = threading.Event()
        self._trace: Trace | None = None
        self.session = session
        self.program = program
        self.cached = False  # True where the trace was there already

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until the trace is there. False where the time ran out first."""
        return self._done.wait(seconds)

    def result(self, seconds: float | None = None) -> Trace:
        """The trace. Raises TimeoutError where it isn't there within that many seconds."""
        if not self._done.wait(seconds):
            raise TimeoutError(f"no trace within {seconds} s")
        assert self._trace is not None
        return self._trace

    @property
    def place(self) -> int:
        """How many runs are before this one: 0 when it is under way or done."""
        return self._engine._place(self)

    def so_far(self) -> Trace:
        """What the run has said up to now: a trace of status `running`, or the whole one where it has ended. A run that
        lost its parent begins again, and so does this; one that waits has but its `run` event. Any thread may ask."""
        return self._engine._so_far(self)

    def cancel(self) -> None:
        """Nobody waits for this ticket any more. A run that no other ticket wants is killed."""
        self._engine._cancel(self)

    def _finish(self, trace: Trace) -> None:
        self._trace = trace
        self._done.set()


class Engine:
    """See the module. Use it as a context manager, or `close` it; a process that dies without leaves nothing either."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime] | None = None,
        *,
        slots: int | None = None,
        seconds: float | None = None,
        memory: int = RUN_MEMORY,
        output: int = RUN_OUTPUT,
        waiting: int = MAX_WAITING,
        parents: int = MAX_PARENTS,
        idle: float = IDLE_SECONDS,
    ) -> None:
        """`runtimes`: by name (default: all that are found, also later). `slots`: runs at once (default: one a core).
        `seconds`: a deadline instead of each experiment's own. `memory`, `output`: bytes that one run may hold and
        print. `waiting`: runs that may wait. `parents`: warm parents at once. `idle`: seconds without anything to
        do after which one is stopped."""
        self._finds = runtimes is None
        self.runtimes = dict(find_runtimes() if runtimes is None else runtimes)
        self.slots = slots or os.cpu_count() or 1
        self._max_parents = parents
        self._idle_seconds = idle
        self._limits = {"bytes": memory, "output": output}
        self._seconds = seconds
        self._max_waiting = waiting
        self._lock = threading.RLock()
        self._warm: dict[str, WarmRuntime] = {}
        self._stopped: list[WarmRuntime] = []  # out of use, but perhaps not yet gone
        self._died_importing: Counter[str] = Counter()  # how often in a row, by runtime
        self._states: dict[str, WarmState] = {}  # of parents that could not start
        self._queue: FairQueue[_Job] = FairQueue()
        self._jobs: dict[str, _Job] = {}  # waiting and running, by key
        self._running: dict[int, _Job] = {}  # by the id by which the parent knows them
        self._run_ids = itertools.count(1)
        self._cache: OrderedDict[str, CachedRun] = OrderedDict()
        self._cached_events = 0
        self._closed = False
        _remove_leftovers()
        self._workplace = Path(tempfile.mkdtemp(prefix=f"{WORKPLACE}{os.getpid()}-"))
        self._wake_reaper = threading.Event()
        self._reaper = threading.Thread(target=self._stop_idle_parents, name="reaper", daemon=True)
        self._reaper.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every run and every parent; those who wait get a `cancelled` trace. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for job in list(self._jobs.values()):
                self._finish(job, Ending("cancelled", "closed"))
            parents = list(self._warm.values())
            self._warm.clear()
        self._wake_reaper.set()
        self._reaper.join()
        for warm in (*parents, *self._stopped):
            warm.close()
        shutil.rmtree(self._workplace, ignore_errors=True)

    # ------------------------------------------------------------------ what pages and the command line call

    def runtime(self, tensorflow: str | None = None, keras: str | None = None) -> Runtime:
        """The runtime with these versions, be it one that was installed a moment ago. Raises RuntimeMissingError."""
        try:
            runtime = choose(self.runtimes, tensorflow, keras)
            if runtime.python.exists() or not self._finds:
                return runtime
        except RuntimeMissingError:
            if not self._finds:
                raise
        self.runtimes = find_runtimes()
        return choose(self.runtimes, tensorflow, keras)

    def warm_up(self, tensorflow: str | None = None, keras: str | None = None) -> None:
        """Begin to import TensorFlow, if that has not begun and there is room. Returns at once."""
        runtime = self.runtime(tensorflow, keras)
        with self._lock:
            self._start(runtime, self._wanted())
            if runtime.name in self._warm:
                self._warm[runtime.name].used = time.monotonic()

    def state(self, tensorflow: str | None = None, keras: str | None = None) -> WarmState:
        """How far the import of that TensorFlow is."""
        name = self.runtime(tensorflow, keras).name
        with self._lock:
            warm = self._warm.get(name)
            return warm.state if warm else self._states.get(name, WarmState("stopped"))

    def parents(self) -> list[ParentState]:
        """What is warm, or on its way there."""
        with self._lock:
            running = [job.runtime.name for job in self._running.values()]
            return [
                ParentState(
                    warm.runtime,
                    warm.state,
                    time.monotonic() - warm.began,
                    _resident(warm.process.pid),
                    warm.runs,
                    running.count(name),
                )
                for name, warm in self._warm.items()
            ]

    def pids(self) -> list[int]:
        """The process ids of the parents."""
        with self._lock:
            return [warm.process.pid for warm in self._warm.values()]

    def submit(self, request: Request, session: str = "") -> Ticket:
        """Ask for a trace. Returns at once.

        Raises RuntimeMissingError, CannotRunError, EngineBusyError or EngineClosedError."""
        runtime = self.runtime(request.tensorflow, request.keras)
        check_runs_on(request.experiment, runtime, self.runtimes)
        program = render(request.experiment, request.settings, runtime.versions)
        ticket = Ticket(self, session, program)
        key = request_key(runtime, request)
        with self._lock:
            if self._closed:
                raise EngineClosedError("the engine is closed")
            cached = self._cache.get(key)
            if cached is not None:
                self._cache.move_to_end(key)
                ticket.cached = True
                ticket.program = cached.program
                ticket._finish(cached.trace)
                return ticket
            if self._queue.length() >= self._max_waiting:
                raise EngineBusyError(f"{self._max_waiting} runs are waiting already; try again in a moment")
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job(key, request, runtime, program)
            job.tickets.add(ticket)
            ticket.program = job.program
            if job.warm is None:
                self._queue.add(session, job)
                self._dispatch()
        return ticket

    def run(self, request: Request) -> Trace:
        """Ask and wait."""
        return self.submit(request).result()

    def cached(self, request: Request) -> CachedRun | None:
        """An equal run that has ended and is cached, None where it would have to be run. Raises RuntimeMissingError."""
        key = request_key(self.runtime(request.tensorflow, request.keras), request)
        with self._lock:
            return self._cache.get(key)

    def load(self) -> tuple[int, int]:
        """How many runs are under way, and how many wait."""
        with self._lock:
            return len(self._running), len(self._queue.order())

    # ------------------------------------------------------------------ the queue

    def _place(self, ticket: Ticket) -> int:
        with self._lock:
            for place, job in enumerate(self._queue.order(), 1):
                if ticket in job.tickets:
                    return place
        return 0

    def _so_far(self, ticket: Ticket) -> Trace:
        with self._lock:
            if ticket._trace is not None:
                return ticket._trace
            (job,) = (job for job in self._jobs.values() if ticket in job.tickets)
            return Trace((self._start_event(job), *job.events))

    def _dispatch(self) -> None:
        """Start what can be started: the next session's next job whose parent is ready, while a slot is free."""
        self._start_parents()
        ready = {name: warm for name, warm in self._warm.items() if warm.ready}
        while len(self._running) < self.slots:
            job = self._queue.take(lambda job: job.runtime.name in ready)
            if job is None:
                return
            job.warm = warm = ready[job.runtime.name]
            job.run_id = next(self._run_ids)
            job.attempts += 1
            job.events = []
            self._running[job.run_id] = job
            warm.used = time.monotonic()
            experiment, settings = job.request.experiment, job.request.settings
            warm.send(
                run=job.run_id,
                program=job.program,
                tasks=dict(experiment.tasks(settings)),
                serving=list(experiment.serving(settings)),
                may_be_killed=experiment.may_be_killed(settings),
                seconds=self._seconds or experiment.seconds,
                **self._limits,
            )

    def _cancel(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket.done:
                return
            for job in self._jobs.values():
                if ticket in job.tickets:
                    job.tickets.discard(ticket)
                    if not any(other.session == ticket.session for other in job.tickets):
                        self._queue.remove(job, ticket.session)
                    ticket._finish(self._trace(job, Ending("cancelled", "unwanted")))
                    if not job.tickets:
                        if job.warm is not None:
                            # It leaves the books now, so that an equal request starts afresh; its slot is free when
                            # the parent says that the process is gone.
                            job.warm.send(cancel=job.run_id)
                        del self._jobs[job.key]
                    self._dispatch()
                    return

    # ------------------------------------------------------------------ parents and what they say

    def _start_parents(self) -> None:
        """Start the parents that the next jobs need, as far as there is room for them."""
        waiting = [job for job in self._jobs.values() if job.warm is None]
        if all(job.runtime.name in self._warm for job in waiting):
            return
        wanted = self._wanted()
        runtimes = {job.runtime.name: job.runtime for job in waiting}
        for name in wanted:
            if name in runtimes:
                self._start(runtimes[name], wanted)

    def _wanted(self) -> list[str]:
        """The runtimes that have a right to a parent: those of the runs under way, then of the next jobs in order."""
        names = dict.fromkeys(job.runtime.name for job in self._running.values())
        for job in self._queue.order():
            if len(names) >= self._max_parents:
                break
            names.setdefault(job.runtime.name)
        return list(names)

    def _start(self, runtime: Runtime, wanted: Collection[str]) -> None:
        """Begin to import that TensorFlow, if that has not begun. Where there are as many parents as there may be, the
        one used least recently makes room, but none that is wanted or still being imported; else nothing happens."""
        if runtime.name in self._warm:
            return
        if len(self._warm) >= self._max_parents:
            others = [warm for name, warm in self._warm.items() if name not in wanted and warm.ready]
            if not others:
                return
            self._stop(min(others, key=lambda warm: warm.used))
        self._states.pop(runtime.name, None)
        try:
            self._warm[runtime.name] = WarmRuntime(runtime, self._workplace, self._on_message)
        except OSError as error:  # its interpreter has gone, or this machine has no room for another process
            self._not_started(runtime.name, WarmState("failed", reason=str(error)))

    def _not_started(self, name: str, state: WarmState) -> None:
        """A parent never came as far as to run anything; the next request tries again."""
        del self._died_importing[name]
        self._states[name] = state
        for job in [job for job in self._jobs.values() if job.runtime.name == name and job.warm is None]:
            self._finish(job, Ending("killed", "not_started", f"TensorFlow {name}: {state.reason}"))

    def _stop(self, warm: WarmRuntime) -> None:
        """Take a parent that nothing runs on out of use. The reaper sees it to its end."""
        del self._warm[warm.runtime.name]
        self._stopped.append(warm)
        self._wake_reaper.set()

    def _stop_idle_parents(self) -> None:
        """In a thread of its own: stop the parents that have been idle for long, and see those stopped to their end."""
        while not self._closed:
            with self._lock:
                busy = {job.runtime.name for job in (*self._jobs.values(), *self._running.values())}
                since = time.monotonic() - self._idle_seconds
                for name, warm in list(self._warm.items()):
                    if warm.ready and name not in busy and warm.used < since:
                        self._stop(warm)
                stopped, self._stopped = self._stopped, []
                self._wake_reaper.clear()
            for warm in stopped:
                warm.close()
            if not self._closed:
                self._wake_reaper.wait(min(self._idle_seconds / 4, 15.0))

    def _on_message(self, warm: WarmRuntime, message: dict[str, Any] | None) -> None:
        with self._lock:
            if self._closed:
                return
            if message is None:
                self._on_parent_exit(warm)
            elif "ready" in message:
                warm.used = time.monotonic()
                del self._died_importing[warm.runtime.name]
            elif "run" in message:
                job = self._running.get(message["run"])
                if job is not None:
                    self._on_run_message(job, message)
            self._dispatch()

    def _on_run_message(self, job: _Job, message: dict[str, Any]) -> None:
        if "pid" in message:
            job.pids.append(message["pid"])
        elif "lines" in message:
            events = [parse_event(line, job.runtime, self._workplace) for line in message["lines"]]
            # A program that is a cluster names the task itself, but what was not meant as an event has no name yet.
            job.events.extend({**event, "task": message["task"]} if message["task"] else event for event in events)
        elif "died" in message:
            event = died_event(message, job.events)
            if event is not None:
                job.events.append(event)
        else:
            del self._running[job.run_id]
            if job.warm is not None:
                job.warm.runs += 1
                job.warm.used = time.monotonic()
            if message["port_conflict"] and job.attempts < MAX_ATTEMPTS:
                self._requeue(job)
                return
            self._finish(job, ending_of(message, job.events))

    def _on_parent_exit(self, warm: WarmRuntime) -> None:
        """A parent has ended. Where nobody asked it to, its runs died with it, and are run once more."""
        name = warm.runtime.name
        if self._warm.get(name) is not warm:
            return  # it was stopped, and had nothing to do
        del self._warm[name]
        lost = [job for job in self._running.values() if job.warm is warm]
        for job in lost:
            del self._running[job.run_id]
            for pid in job.pids:
                _kill_group(pid)
            if job.attempts >= MAX_ATTEMPTS:
                self._finish(job, Ending("killed", "parent_died", str(MAX_ATTEMPTS)))
            else:
                self._requeue(job)
        if warm.info is None:
            self._died_importing[name] += 1
            if not warm.was_killed or self._died_importing[name] >= MAX_ATTEMPTS:
                self._not_started(name, warm.state)

    def _requeue(self, job: _Job) -> None:
        """A run came to nothing through no fault of its own: it is the next of those who still wait for it."""
        job.warm, job.pids, job.events = None, [], []
        for ticket in job.tickets:
            self._queue.add(ticket.session, job, first=True)

    def _start_event(self, job: _Job) -> Event:
        """What is known before anything runs; the parent's own word on its versions, where it has given it."""
        versions = job.runtime.versions
        info = (job.warm.info if job.warm else None) or {}
        return {
            "event": "run",
            "t": 0.0,
            "experiment": job.request.experiment.name,
            "settings": job.request.settings.model_dump(mode="json"),
            "tensorflow": info.get("tensorflow", versions.tensorflow),
            "keras": info.get("keras", versions.keras),
            "python": info.get("python", ""),
            "devices": job.request.experiment.devices(job.request.settings),
        }

    def _trace(self, job: _Job, ending: Ending) -> Trace:
        stderr = without_folders(ending.stderr, job.runtime, self._workplace)
        return Trace((self._start_event(job), *job.events, ending.event()), stderr)

    def _finish(self, job: _Job, ending: Ending) -> None:
        trace = self._trace(job, ending)
        self._queue.remove(job)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        for ticket in job.tickets:
            ticket._finish(trace)
        if trace.answered and job.request.experiment.deterministic and job.key not in self._cache:
            self._cache[job.key] = CachedRun(trace, job.program)
            self._cached_events += len(trace.events)
            while self._cached_events > CACHED_EVENTS:
                _, oldest = self._cache.popitem(last=False)
                self._cached_events -= len(oldest.trace.events)


def _resident(pid: int) -> float | None:
    """Resident memory of a process, in MiB, where the system tells (Linux)."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return None  # it has just ended, or there is no /proc
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # it went with its parent
        os.killpg(pid, signal.SIGKILL)


def _remove_leftovers() -> None:
    """Folders of engines that were killed before they could tidy up."""
    for folder in Path(tempfile.gettempdir()).glob(f"{WORKPLACE}*"):
        pid = folder.name.removeprefix(WORKPLACE).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(folder, ignore_errors=True)
