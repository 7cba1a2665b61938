"""The engine: takes requests, runs each in a fresh process of a warm runtime, and gives back traces.

One engine serves every page and every visitor of the app. As many runs are under way as there are cores, or as memory
allows; the others wait in order, fairly across sessions. Equal requests that wait or run are one run; finished
deterministic ones are cached. A parent is started when its runtime is first wanted, and stopped when nobody has wanted
it for some time, or when another runtime needs its room. One that has died, or gives no sign, is replaced.

One lock guards the engine's books. Nothing that may take long is done under it: what the parents say is parsed before
it is taken (in a thread for each, see warm.py), and what they are told goes through an outbox.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from engine.cache import CachedRun, RunCache
from engine.ending import Ending, died_event, ending_of, is_transient, parse_event, without_folders
from engine.fair_queue import FairQueue
from engine.job import PROCESS_MEMORY, Job, Ticket, WaitsFor
from engine.limits import MIB, Limits
from engine.memory import held_by_run, resident
from engine.messages import Ended, Message, Printed, Ready, RunMessage, Started, TaskDied, Versions
from engine.program import render
from engine.request import EngineBusyError, EngineClosedError, Request, check_runs_on, request_key
from engine.runtimes import Runtime, RuntimeMissingError, choose, find_runtimes
from engine.trace import Trace
from engine.warm import WarmRuntime, WarmState
from engine.watch import AwakeClock, Patience, fault_of_parent
from engine.workplace import Workplace

MAX_ATTEMPTS = 2  # a run whose parent died under it is run once more
PARENT_MEMORY = 640 * MIB  # that a parent is expected to hold; the five of the standard set hold 320 to 620 each


@dataclass(frozen=True)
class ParentState:
    """A parent as a status page shows it: how far it is, the seconds since it was started, the resident memory that
    it alone holds, in MiB (None where the system doesn't tell), the runs it has done and those under way, and what it
    said of itself when it was ready."""

    runtime: Runtime
    state: WarmState
    seconds: float
    memory: float | None
    runs: int
    running: int
    info: Versions | None


class Engine:
    """See the module. Use it as a context manager, or `close` it; a process that dies without leaves nothing either."""

    def __init__(
        self,
        runtimes: Mapping[str, Runtime] | None = None,
        limits: Limits | None = None,
        *,
        seconds: float | None = None,
        patience: Patience | None = None,
    ) -> None:
        """`runtimes`: by name (default: all that are found, also later). `limits`: how much of the machine it may use
        (default: what the environment says, see Limits). `seconds`: a deadline instead of each experiment's own.
        `patience`: with parents that give no sign. Raises SettingsError where the environment's limits are wrong."""
        self._finds = runtimes is None
        self.runtimes = dict(find_runtimes() if runtimes is None else runtimes)
        self.limits = limits or Limits.from_environment(os.environ)
        self._max_parents = min(self.limits.parents, max(1, (self.limits.memory - PROCESS_MEMORY) // PARENT_MEMORY))
        self._max_line = (1 << 20) + 8 * self.limits.run_output  # a byte may take the six characters \uXXXX in JSON
        self._seconds = seconds
        self._lock = threading.RLock()
        self._warm: dict[str, WarmRuntime] = {}
        self._stopped: list[WarmRuntime] = []  # out of use, but perhaps not yet gone
        self._died_importing: Counter[str] = Counter()  # how often in a row, by runtime
        self._states: dict[str, WarmState] = {}  # of parents that could not start
        self._queue: FairQueue[Job] = FairQueue()
        self._jobs: dict[str, Job] = {}  # waiting and running, by key
        self._running: dict[int, Job] = {}  # by the id by which the parent knows them
        self._run_ids = itertools.count(1)
        self._cache = RunCache()
        self._workplace = Workplace()
        self._patience = patience or Patience()
        self._clock = AwakeClock(2 * self._patience.look)
        self._closed = threading.Event()
        self._wake_watch = threading.Event()
        self._start_watch()

    @property
    def slots(self) -> int:
        """How many runs may be under way at once."""
        return self.limits.slots

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every run and every parent; those who wait get a `cancelled` trace. May be called twice."""
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
            for job in list(self._jobs.values()):
                self._finish(job, Ending("cancelled", "closed"))
            running = list(self._running.values())
            parents = list(self._warm.values())
            self._warm.clear()
        self._wake_watch.set()
        self._watch_thread.join()
        _see_to_their_end([*parents, *self._stopped])
        for job in running:
            if job.warm is not None and job.warm.was_killed:
                _kill_groups(job.pids)
        self._workplace.remove()

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
                    None if (held := resident(warm.process.pid)) is None else held / MIB,
                    warm.runs,
                    running.count(name),
                    warm.info,
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
            if self._closed.is_set():
                raise EngineClosedError("the engine is closed")
            cached = self._cache.get(key)
            if cached is not None:
                ticket.cached = True
                ticket.program = cached.program
                ticket.finish(cached.trace)
                return ticket
            job = self._jobs.get(key)
            if job is None or job.warm is None:
                self._check_waiting(session)
            if job is None:
                job = self._jobs[key] = self._job(key, request, runtime, program)
            job.tickets.add(ticket)
            ticket.job, ticket.program = job, job.program
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

    def _check_waiting(self, session: str) -> None:
        """Raises EngineBusyError where no further run may wait."""
        if self._queue.length(session) >= self.limits.session_waiting:
            raise EngineBusyError(self.limits.session_waiting, of_session=True)
        if self._queue.length() >= self.limits.waiting:
            raise EngineBusyError(self.limits.waiting)

    def _job(self, key: str, request: Request, runtime: Runtime, program: str) -> Job:
        """A cluster takes a slot for each of its tasks but those that only serve; one that is bigger than the engine
        takes all there are, and so runs alone."""
        tasks, serving = request.experiment.tasks(request.settings), request.experiment.serving(request.settings)
        working = sum(count for name, count in tasks.items() if name not in serving)
        slots = min(max(1, working), self.slots)
        return Job(key, request, runtime, program, slots, processes=sum(tasks.values()) or 1)

    def place_of(self, ticket: Ticket) -> int:
        with self._lock:
            for place, job in enumerate(self._queue.order(), 1):
                if ticket in job.tickets:
                    return place
        return 0

    def what_waits_for(self, ticket: Ticket) -> WaitsFor:
        with self._lock:
            job = ticket.job
            if ticket.done or job is None or job.warm is not None:
                return ""
            warm = self._warm.get(job.runtime.name)
            if warm is None or not warm.ready:
                return "import"
            first = self._next()
            return (first and self._lacks(first)) or "slots"

    def trace_so_far(self, ticket: Ticket) -> Trace:
        with self._lock:
            return ticket.result(0) if ticket.job is None or ticket.done else ticket.job.trace()

    def _next(self) -> Job | None:
        """The next of those whose parent is ready: it is waited for, however small those behind it are."""
        ready = {name for name, warm in self._warm.items() if warm.ready}
        return self._queue.first(lambda job: job.runtime.name in ready)

    def _lacks(self, job: Job) -> WaitsFor:
        """What there is too little of for that run to start, "" where it can. One alone always can."""
        if not self._running:
            return ""
        if sum(other.slots for other in self._running.values()) + job.slots > self.slots:
            return "slots"
        parents = sum(warm.held if warm.ready else PARENT_MEMORY for warm in self._warm.values())
        runs = sum(other.expected for other in self._running.values())
        return "memory" if parents + runs + job.expected > self.limits.memory else ""

    def _dispatch(self) -> None:
        """Start what can be started."""
        self._start_parents()
        while (job := self._next()) is not None and not self._lacks(job):
            self._queue.take(job)
            try:
                self._workplace.ensure()
            except OSError as error:
                self._finish(job, Ending("killed", "no_room", str(error)))
            else:
                self._begin(job, self._warm[job.runtime.name])

    def _begin(self, job: Job, warm: WarmRuntime) -> None:
        job.warm = warm
        job.run_id = next(self._run_ids)
        job.attempts += 1
        self._running[job.run_id] = job
        warm.used = time.monotonic()
        experiment, settings = job.request.experiment, job.request.settings
        seconds = self._seconds or experiment.seconds
        job.overdue = self._clock.now + seconds + self._patience.overtime
        warm.send(
            {
                "run": job.run_id,
                "program": job.program,
                "seconds": seconds,
                "bytes": self.limits.run_memory,
                "output": self.limits.run_output,
                "tasks": dict(experiment.tasks(settings)),
                "serving": list(experiment.serving(settings)),
                "may_be_killed": list(experiment.may_be_killed(settings)),
            }
        )

    def cancel(self, ticket: Ticket) -> None:
        with self._lock:
            job = ticket.job
            if ticket.done or job is None:
                return
            job.tickets.discard(ticket)
            if not any(other.session == ticket.session for other in job.tickets):
                self._queue.remove(job, ticket.session)
            ticket.finish(job.trace(Ending("cancelled", "unwanted")))
            if not job.tickets:
                # It leaves the books now, so that an equal request starts afresh; its slot is free when the parent says
                # that the process is gone.
                del self._jobs[job.key]
                self._end_run(job)
            self._dispatch()

    def _end_run(self, job: Job) -> None:
        """Have the parent end a run, soon."""
        if job.warm is not None:
            job.warm.send({"cancel": job.run_id})
            job.overdue = min(job.overdue, self._clock.now + self._patience.overtime)

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
            self._workplace.ensure()
            warm = WarmRuntime(runtime, self._workplace.path, self._on_message, self._on_exit, self._max_line)
        except OSError as error:  # its interpreter has gone, or this machine has no room for another process
            self._not_started(runtime.name, WarmState("failed", reason=str(error)))
        else:
            warm.born = warm.heard = self._clock.now
            self._warm[runtime.name] = warm

    def _not_started(self, name: str, state: WarmState) -> None:
        """A parent never came as far as to run anything; the next request tries again."""
        del self._died_importing[name]
        self._states[name] = state
        for job in [job for job in self._jobs.values() if job.runtime.name == name and job.warm is None]:
            self._finish(job, Ending("killed", "not_started", f"TensorFlow {name}: {state.reason}"))

    def _stop(self, warm: WarmRuntime) -> None:
        """Take a parent out of use. The watch sees it to its end."""
        del self._warm[warm.runtime.name]
        self._stopped.append(warm)
        self._wake_watch.set()

    def _on_message(self, warm: WarmRuntime, message: Message) -> None:
        """Called in that parent's own thread."""
        warm.heard = self._clock.now
        if isinstance(message, Ready):
            warm.held = resident(warm.process.pid) or PARENT_MEMORY
            with self._lock:
                warm.used = time.monotonic()
                del self._died_importing[warm.runtime.name]
                self._dispatch()
        elif isinstance(message, Printed):
            events = [
                parse_event(line, message.seconds, message.task, warm.runtime, self._workplace.path)
                for line in message.lines
            ]
            with self._lock:
                job = self._run_of(warm, message)
                if job is not None:
                    job.events.extend(events)
                    job.printed += sum(map(len, message.lines))
        elif isinstance(message, Started):
            with self._lock:
                job = self._run_of(warm, message)
                if job is not None:
                    job.pids.append(message.pid)
                elif warm.over:  # told before its end, and read after it
                    _kill_groups([message.pid])
        elif isinstance(message, TaskDied):
            with self._lock:
                job = self._run_of(warm, message)
                if job is not None and (event := died_event(message, job.events)) is not None:
                    job.events.append(event)
        elif isinstance(message, Ended):
            stderr = without_folders(message.stderr, warm.runtime, self._workplace.path)
            with self._lock:
                job = self._run_of(warm, message)
                if job is not None and not self._closed.is_set():
                    self._on_run_end(job, warm, replace(message, stderr=stderr))
                    self._dispatch()

    def _run_of(self, warm: WarmRuntime, message: RunMessage) -> Job | None:
        """The run that a parent speaks of. None where it is none of its own, or no longer."""
        job = self._running.get(message.run)
        return job if job is not None and job.warm is warm else None

    def _on_run_end(self, job: Job, warm: WarmRuntime, message: Ended) -> None:
        del self._running[job.run_id]
        warm.runs += 1
        warm.used = time.monotonic()
        if message.port_conflict and job.attempts < MAX_ATTEMPTS:
            self._requeue(job)
            return
        ending = ending_of(message, job.events)
        if job.over_budget and message.stopped == "cancelled":
            ending = replace(ending, status="killed", why="memory_together")
        self._finish(job, ending)

    def _on_exit(self, warm: WarmRuntime) -> None:
        """A parent has ended. Where nobody asked it to, its runs died with it, and are run once more. Called in that
        parent's own thread, and by the watch for one that is given up."""
        with self._lock:
            name = warm.runtime.name
            if self._warm.get(name) is not warm or self._closed.is_set():
                return  # it was stopped, and had nothing to do
            self._stop(warm)
            for job in [job for job in self._running.values() if job.warm is warm]:
                del self._running[job.run_id]
                _kill_groups(job.pids)
                if job.attempts >= MAX_ATTEMPTS:
                    self._finish(job, Ending("killed", "parent_died", str(MAX_ATTEMPTS)))
                else:
                    self._requeue(job)
            if warm.info is None:
                self._died_importing[name] += 1
                if not warm.was_killed or self._died_importing[name] >= MAX_ATTEMPTS:
                    self._not_started(name, warm.state)
            self._dispatch()

    def _requeue(self, job: Job) -> None:
        """A run came to nothing through no fault of its own: it is the next of those who still wait for it."""
        job.begin_again()
        for ticket in job.tickets:
            self._queue.add(ticket.session, job, first=True)

    # ------------------------------------------------------------------ the watch

    def _start_watch(self) -> None:
        self._watch_thread = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watch_thread.start()

    def _watch(self) -> None:
        """In a thread of its own: look at the parents, the runs and the memory, as long as the engine is open."""
        try:
            while not self._closed.is_set():
                self._wake_watch.wait(self._patience.look)
                self._wake_watch.clear()
                self._look()
        finally:
            # A fault in one look is told by Python, on standard error; it is not the end of looking.
            with self._lock:
                if not self._closed.is_set():
                    self._start_watch()

    def _look(self) -> None:
        self._measure()
        with self._lock:
            if self._closed.is_set():
                return
            now = self._clock.tick()
            for warm in list(self._warm.values()):
                reason = self._fault_of(warm, now)
                if reason is not None:
                    warm.kill(reason)
                    self._on_exit(warm)
                elif warm.ready and now - warm.heard > self._patience.ping:
                    warm.send({"ping": 0})
            self._stop_idle_parents()
            self._end_the_biggest()
            self._dispatch()
            stopped, self._stopped = self._stopped, []
        _see_to_their_end(stopped)

    def _fault_of(self, warm: WarmRuntime, now: float) -> str | None:
        """Why a parent is to be given up."""
        if any(job.warm is warm and job.overdue < now for job in self._running.values()):
            return f"a run of it had not ended {self._patience.overtime:g} s after its deadline"
        # Its own thread tells of its end, and why; only where that does not come for two looks, it is told here.
        warm.looks_ended = 0 if warm.process.poll() is None else warm.looks_ended + 1
        if warm.looks_ended > 2:
            return "it ended, and nobody told"
        return fault_of_parent(self._patience, ready=warm.ready, silent=now - warm.heard, age=now - warm.born)

    def _stop_idle_parents(self) -> None:
        busy = {job.runtime.name for job in (*self._jobs.values(), *self._running.values())}
        since = time.monotonic() - self.limits.idle
        for name, warm in list(self._warm.items()):
            if warm.ready and name not in busy and warm.used < since:
                self._stop(warm)

    def _measure(self) -> None:
        """See how much memory the parents and the runs hold."""
        with self._lock:
            parents = [warm for warm in self._warm.values() if warm.ready]
            runs = [(job, job.run_id, tuple(job.pids), job.warm) for job in self._running.values()]
        held = {warm: resident(warm.process.pid) for warm in parents}
        of_runs = [(job, run_id, held_by_run(pids, warm.process.pid)) for job, run_id, pids, warm in runs if warm]
        with self._lock:
            for warm, size in held.items():
                warm.held = warm.held if size is None else size
            for job, run_id, size in of_runs:
                if job.run_id == run_id:
                    job.held = size

    def _end_the_biggest(self) -> None:
        """Where all hold more than they may together, end the run that holds most, before the system ends what it
        likes: it may be everything."""
        held = sum(warm.held for warm in self._warm.values()) + sum(job.held for job in self._running.values())
        if held > self.limits.memory and self._running:
            biggest = max(self._running.values(), key=lambda job: job.held)
            if biggest.held and not biggest.over_budget:
                biggest.over_budget = True
                self._end_run(biggest)

    # ------------------------------------------------------------------ traces

    def _finish(self, job: Job, ending: Ending) -> None:
        trace = job.trace(ending)
        self._queue.remove(job)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        for ticket in job.tickets:
            ticket.finish(trace)
        if trace.answered and job.request.experiment.deterministic and not is_transient(trace):
            size = job.printed + len(trace.stderr)
            self._cache.add(job.key, CachedRun(trace, job.program, size))


def _see_to_their_end(parents: Collection[WarmRuntime]) -> None:
    """Ask all of them before waiting for the first."""
    for warm in parents:
        warm.finish()
    for warm in parents:
        warm.close()


def _kill_groups(pids: Collection[int]) -> None:
    """End the process groups of a run whose parent has died."""
    for pid in pids:
        # It may have gone with its parent, or the number be another's by now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
