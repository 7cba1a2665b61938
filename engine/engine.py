"""The engine: takes requests, runs each in a fresh process of a warm runtime, and gives back traces.

One engine serves every page and every visitor of the app. At most one run per core is under way; the others wait in
order, fairly across sessions. Equal requests that wait or run are one run; finished deterministic ones are kept. A
parent is started when its runtime is first wanted, and stopped when nobody has wanted it for some time, or when
another runtime needs its room.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from engine.experiments import CannotRunError, Experiment, find_experiment
from engine.program import render
from engine.runtimes import Runtime, RuntimeMissingError, choose, find_runtimes
from engine.settings import Settings
from engine.trace import Event, Status, Trace
from engine.warm import PARENT, WarmRuntime, WarmState

MEMORY = 3 << 30  # bytes that one run may hold
OUTPUT = 4 << 20  # bytes that one run may print
WAITING = 512  # tickets that may wait, all sessions together
KEPT_EVENTS = 200_000  # events of finished runs that are kept, the least recently used go first
ATTEMPTS = 2  # a run whose parent died under it is run once more
PARENTS = 5  # warm parents at once; the standard set holds 1.7 GiB together, no five hold more than 2.6
IDLE = 600.0  # seconds after which a parent that has nothing to do is stopped
WORKPLACE = "replica-lab-"

# Why a run gave no answer: what `why` in its `end` event stands for. Pages say it in their own language.
REASONS = {
    "timeout": "it had not ended after {detail} s",
    "memory": "it held more memory than a run may",
    "output": "it printed more than a run may",
    "signal": "its process was ended by {detail}",
    "exit": "its process ended with exit status {detail} and reported no error",
    "task_signal": "its task {task} was ended by {detail}",
    "task_exit": "its task {task} ended with exit status {detail} and reported no error",
    "taken": "another program took {detail}, where one of its tasks was to be found",
    "lost": "the process that holds TensorFlow died under this run, {detail} times",
    "not_started": "TensorFlow could not be started ({detail})",
    "unwanted": "nobody waited for it any more",
    "closed": "the engine was closed",
}


class EngineBusyError(RuntimeError):
    """Too many runs are waiting already."""


class EngineClosedError(RuntimeError):
    """The engine was closed; nothing can be run with it any more."""


@dataclass(frozen=True)
class Request:
    """What is to be run: an experiment, its settings, and on which runtime: the TensorFlow version (None: the app's
    own; a runtime's name will do), and the Keras version (None: the one which that TensorFlow came with)."""

    experiment: Experiment[Any]
    settings: Settings
    tensorflow: str | None = None
    keras: str | None = None

    @classmethod
    def of(
        cls,
        experiment: str,
        given: Mapping[str, Any],
        tensorflow: str | None = None,
        keras: str | None = None,
    ) -> Request:
        """From names and words. Raises UnknownExperimentError or SettingsError."""
        found = find_experiment(experiment)
        return cls(found, found.settings.parse(given), tensorflow, keras)

    def to_json(self) -> str:
        """{"experiment": ..., "settings": {...}, "runtime": {"tensorflow": ..., "keras": ...}}."""
        return json.dumps(
            {
                "experiment": self.experiment.name,
                "settings": self.settings.model_dump(mode="json"),
                "runtime": {"tensorflow": self.tensorflow, "keras": self.keras},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Request:
        """What `to_json` wrote; `runtime` may also be a version, or a runtime's name, by itself.

        Raises ValueError (of which SettingsError is one)."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("settings", {}), dict):
            raise ValueError("a request is a JSON object: {experiment, settings, runtime}")
        runtime = data.get("runtime")
        if runtime is None or isinstance(runtime, str):
            runtime = {"tensorflow": runtime}
        if not isinstance(runtime, dict) or not all(isinstance(word, str | None) for word in runtime.values()):
            raise ValueError("a runtime is a version, or a JSON object: {tensorflow, keras}")
        return cls.of(
            str(data.get("experiment")),
            data.get("settings", {}),
            runtime.get("tensorflow"),
            runtime.get("keras"),
        )


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
    name: int = 0
    warm: WarmRuntime | None = None
    pids: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)


def check_runs_on(experiment: Experiment[Any], runtime: Runtime, runtimes: Mapping[str, Runtime]) -> None:
    """Raises CannotRunError where that experiment can't run on that runtime; it says on which of these it can."""
    if not experiment.runs_on(runtime.versions):
        able = [name for name, other in runtimes.items() if experiment.runs_on(other.versions)]
        raise CannotRunError(experiment.name, runtime.name, able)


class Ticket:
    """One visitor's wish for one trace."""

    def __init__(self, engine: Engine, session: str) -> None:
        self._engine = engine
        self._done = threading.Event()
        self._trace: Trace | None = None
        self.session = session
        self.kept = False  # True where the trace was there already
        self.submitted = time.monotonic()

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
        memory: int = MEMORY,
        output: int = OUTPUT,
        waiting: int = WAITING,
        parents: int = PARENTS,
        idle: float = IDLE,
    ) -> None:
        """`runtimes`: by name (default: all that are found, also later). `slots`: runs at once (default: one a core).
        `seconds`: a deadline instead of each experiment's own. `memory`, `output`: bytes that one run may hold and
        print. `waiting`: tickets that may wait. `parents`: warm parents at once. `idle`: seconds without anything to
        do after which one is stopped."""
        self._finds = runtimes is None
        self.runtimes = dict(find_runtimes() if runtimes is None else runtimes)
        self.slots = slots or os.cpu_count() or 1
        self._most_parents = parents
        self._idle = idle
        self._limits = {"bytes": memory, "output": output}
        self._seconds = seconds
        self._waiting = waiting
        self._lock = threading.RLock()
        self._warm: dict[str, WarmRuntime] = {}
        self._stopped: list[WarmRuntime] = []  # out of use, but perhaps not yet gone
        self._died_importing: Counter[str] = Counter()  # how often in a row, by runtime
        self._states: dict[str, WarmState] = {}  # of parents that could not start
        self._sessions: OrderedDict[str, deque[tuple[Ticket, _Job]]] = OrderedDict()
        self._jobs: dict[str, _Job] = {}  # waiting and running, by key
        self._running: dict[int, _Job] = {}  # by the name the parent knows them by
        self._names = itertools.count(1)
        self._kept: OrderedDict[str, Trace] = OrderedDict()
        self._closed = False
        _remove_leftovers()
        self._workplace = Path(tempfile.mkdtemp(prefix=f"{WORKPLACE}{os.getpid()}-"))
        self._woken = threading.Event()
        self._housekeeper = threading.Thread(target=self._keep_house, name="housekeeper", daemon=True)
        self._housekeeper.start()

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
                self._finish(job, "cancelled", why="closed")
            parents = list(self._warm.values())
            self._warm.clear()
        self._woken.set()
        self._housekeeper.join()
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
        ticket = Ticket(self, session)
        key = _key(runtime, request)
        with self._lock:
            if self._closed:
                raise EngineClosedError("the engine is closed")
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                ticket.kept = True
                ticket._finish(kept)
                return ticket
            if sum(len(queue) for queue in self._sessions.values()) >= self._waiting:
                raise EngineBusyError(f"{self._waiting} runs are waiting already; try again in a moment")
            job = self._jobs.get(key)
            if job is None:
                job = self._jobs[key] = _Job(key, request, runtime, program)
            job.tickets.add(ticket)
            if job.warm is None:
                self._sessions.setdefault(session, deque()).append((ticket, job))
                self._dispatch()
        return ticket

    def run(self, request: Request) -> Trace:
        """Ask and wait."""
        return self.submit(request).result()

    def kept(self, request: Request) -> Trace | None:
        """The trace of an equal run that has ended and is kept, None where it would have to be run. Raises
        RuntimeMissingError."""
        key = _key(self.runtime(request.tensorflow, request.keras), request)
        with self._lock:
            return self._kept.get(key)

    def load(self) -> tuple[int, int]:
        """How many runs are under way, and how many wait."""
        with self._lock:
            return len(self._running), len(self._order())

    # ------------------------------------------------------------------ the queue

    def _order(self) -> list[_Job]:
        """The jobs that wait, in the order they will be taken: a session at a time, each session's in order."""
        jobs: dict[_Job, None] = {}
        queues = [list(queue) for queue in self._sessions.values()]
        for turn in itertools.zip_longest(*queues):
            for entry in turn:
                if entry is not None and self._waits(*entry):
                    jobs.setdefault(entry[1])
        return list(jobs)

    def _waits(self, ticket: Ticket, job: _Job) -> bool:
        return job.warm is None and ticket in job.tickets and self._jobs.get(job.key) is job

    def _place(self, ticket: Ticket) -> int:
        with self._lock:
            for place, job in enumerate(self._order(), 1):
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
        while len(self._running) < self.slots:
            entry = self._next()
            if entry is None:
                return
            job, warm = entry
            job.warm = warm
            job.name = next(self._names)
            job.attempts += 1
            job.events = []
            self._running[job.name] = job
            warm.used = time.monotonic()
            experiment, settings = job.request.experiment, job.request.settings
            warm.send(
                run=job.name,
                program=job.program,
                tasks=dict(experiment.tasks(settings)),
                serving=list(experiment.serving(settings)),
                may_be_killed=experiment.may_be_killed(settings),
                seconds=self._seconds or experiment.seconds,
                **self._limits,
            )

    def _next(self) -> tuple[_Job, WarmRuntime] | None:
        for session in list(self._sessions):
            queue = self._sessions[session]
            for entry in list(queue):
                if not self._waits(*entry):
                    queue.remove(entry)
                    continue
                job = entry[1]
                warm = self._warm.get(job.runtime.name)
                if warm is None or not warm.ready:
                    continue  # this version is still being imported; another one of this session's may run
                queue.remove(entry)
                self._sessions.move_to_end(session)  # its turn is over
                return job, warm
            if not queue:
                del self._sessions[session]
        return None

    def _cancel(self, ticket: Ticket) -> None:
        with self._lock:
            if ticket.done:
                return
            for job in self._jobs.values():
                if ticket in job.tickets:
                    job.tickets.discard(ticket)
                    queue = self._sessions.get(ticket.session, deque())
                    if (ticket, job) in queue:
                        queue.remove((ticket, job))
                    ticket._finish(self._trace(job, "cancelled", why="unwanted"))
                    if not job.tickets:
                        if job.warm is not None:
                            # It leaves the books now, so that an equal request starts afresh; its slot is free when
                            # the parent says that the process is gone.
                            job.warm.send(cancel=job.name)
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
        for job in self._order():
            if len(names) >= self._most_parents:
                break
            names.setdefault(job.runtime.name)
        return list(names)

    def _start(self, runtime: Runtime, wanted: Collection[str]) -> None:
        """Begin to import that TensorFlow, if that has not begun. Where there are as many parents as there may be, the
        one used least recently makes room, but none that is wanted or still being imported; else nothing happens."""
        if runtime.name in self._warm:
            return
        if len(self._warm) >= self._most_parents:
            others = [warm for name, warm in self._warm.items() if name not in wanted and warm.ready]
            if not others:
                return
            self._stop(min(others, key=lambda warm: warm.used))
        self._states.pop(runtime.name, None)
        try:
            self._warm[runtime.name] = WarmRuntime(runtime, self._workplace, self._hear)
        except OSError as error:  # its interpreter has gone, or this machine has no room for another process
            self._not_started(runtime.name, WarmState("failed", reason=str(error)))

    def _not_started(self, name: str, state: WarmState) -> None:
        """A parent never came as far as to run anything; the next request tries again."""
        del self._died_importing[name]
        self._states[name] = state
        for job in [job for job in self._jobs.values() if job.runtime.name == name and job.warm is None]:
            self._finish(job, "killed", why="not_started", detail=f"TensorFlow {name}: {state.reason}")

    def _stop(self, warm: WarmRuntime) -> None:
        """Take a parent that nothing runs on out of use. The housekeeper sees it to its end."""
        del self._warm[warm.runtime.name]
        self._stopped.append(warm)
        self._woken.set()

    def _keep_house(self) -> None:
        """In a thread of its own: stop the parents that have been idle for long, and see those stopped to their end."""
        while not self._closed:
            with self._lock:
                busy = {job.runtime.name for job in (*self._jobs.values(), *self._running.values())}
                since = time.monotonic() - self._idle
                for name, warm in list(self._warm.items()):
                    if warm.ready and name not in busy and warm.used < since:
                        self._stop(warm)
                stopped, self._stopped = self._stopped, []
                self._woken.clear()
            for warm in stopped:
                warm.close()
            if not self._closed:
                self._woken.wait(min(self._idle / 4, 15.0))

    def _hear(self, warm: WarmRuntime, message: dict[str, Any] | None) -> None:
        with self._lock:
            if self._closed:
                return
            if message is None:
                self._lost(warm)
            elif "ready" in message:
                warm.used = time.monotonic()
                del self._died_importing[warm.runtime.name]
            elif "run" in message:
                job = self._running.get(message["run"])
                if job is not None:
                    self._hear_of(job, message)
            self._dispatch()

    def _hear_of(self, job: _Job, message: dict[str, Any]) -> None:
        if "pid" in message:
            job.pids.append(message["pid"])
        elif "lines" in message:
            events = [_event(line, job.runtime, self._workplace) for line in message["lines"]]
            # A program that is a cluster names the task itself, but what was not meant as an event has no name yet.
            job.events.extend({**event, "task": message["task"]} if message["task"] else event for event in events)
        elif "died" in message:
            # A task that ended with an error which it has reported itself gave its answer.
            reported = any(event["event"] == "error" and event.get("task") == message["task"] for event in job.events)
            if message["died"] < 0 or not reported:
                job.events.append(_death(message))
        else:
            del self._running[job.name]
            if job.warm is not None:
                job.warm.runs += 1
                job.warm.used = time.monotonic()
            if message["taken"] and job.attempts < ATTEMPTS:
                self._again(job)
                return
            status, why, detail = _verdict(job, message)
            seconds, stderr = message["seconds"], message["stderr"]
            self._finish(job, status, why=why, detail=detail, task=message["task"], seconds=seconds, stderr=stderr)

    def _lost(self, warm: WarmRuntime) -> None:
        """A parent has ended. Where nobody asked it to, its runs died with it, and are run once more."""
        name = warm.runtime.name
        if self._warm.get(name) is not warm:
            return  # it was stopped, and had nothing to do
        del self._warm[name]
        lost = [job for job in self._running.values() if job.warm is warm]
        for job in lost:
            del self._running[job.name]
            for pid in job.pids:
                _kill_group(pid)
            if job.attempts >= ATTEMPTS:
                self._finish(job, "killed", why="lost", detail=str(ATTEMPTS))
            else:
                self._again(job)
        if warm.info is None:
            self._died_importing[name] += 1
            if not warm.was_killed or self._died_importing[name] >= ATTEMPTS:
                self._not_started(name, warm.state)

    def _again(self, job: _Job) -> None:
        """A run came to nothing through no fault of its own: it is the next of those who still wait for it."""
        job.warm, job.pids, job.events = None, [], []
        for ticket in job.tickets:
            self._sessions.setdefault(ticket.session, deque()).appendleft((ticket, job))

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

    def _trace(
        self,
        job: _Job,
        status: Status,
        *,
        why: str = "",
        detail: str = "",
        task: str = "",
        seconds: float = 0.0,
        stderr: str = "",
    ) -> Trace:
        end: Event = {"event": "end", "t": round(seconds, 4), "status": status, "seconds": round(seconds, 4)}
        if why:
            end |= {"why": why, "detail": detail, "reason": REASONS[why].format(detail=detail, task=task)}
            if task:
                end["task"] = task
        return Trace((self._start_event(job), *job.events, end), _without_folders(stderr, job.runtime, self._workplace))

    def _finish(self, job: _Job, status: Status, **how: Any) -> None:
        """`how`: see `_trace`."""
        trace = self._trace(job, status, **how)
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        for ticket in job.tickets:
            ticket._finish(trace)
        if trace.answered and job.request.experiment.deterministic:
            self._kept[job.key] = trace
            while sum(len(kept.events) for kept in self._kept.values()) > KEPT_EVENTS:
                self._kept.popitem(last=False)


def _key(runtime: Runtime, request: Request) -> str:
    """What equal runs have in common."""
    return json.dumps([runtime.name, request.experiment.name, request.settings.model_dump(mode="json")])


def _event(line: str, runtime: Runtime, workplace: Path) -> Event:
    """A line that a program printed. What is no event is kept as one, so that nothing it said is lost."""
    try:
        event = json.loads(line)
    except ValueError:
        event = None
    if not (isinstance(event, dict) and isinstance(event.get("event"), str) and event["event"] not in ("run", "end")):
        event = {"event": "output", "text": line}
    event = {
        name: _without_folders(value, runtime, workplace) if isinstance(value, str) else value
        for name, value in event.items()
    }
    if event["event"] == "output":
        event["text"] = str(event.get("text", ""))[:1000]
    return event


def _without_folders(text: str, runtime: Runtime, workplace: Path) -> str:
    """The script by its name alone, and TensorFlow's files from "tensorflow/" on: where they lie says nothing, and
    differs from run to run, and from machine to machine."""
    if "/" not in text:
        return text
    # The frames below the script's own, some with the line of code that was at work there.
    text = re.sub(rf' *File "{re.escape(str(PARENT))}", line \d+, in \S+\n(?: {{4}}\S.*\n)?\n*', "", text)
    environment = re.escape(str(runtime.python.parent.parent))
    text = re.sub(rf"{environment}/lib/python[\d.]+/site-packages/", "", text)
    return re.sub(rf"{re.escape(str(workplace))}/(run-[^/]+/)?", "", text)


def _death(message: Mapping[str, Any]) -> Event:
    """A task of a cluster ended by itself: the event that says how."""
    code = message["died"]
    how = {"signal": signal.Signals(-code).name} if code < 0 else {"status": code}
    return {"event": "died", "t": message["seconds"], "task": message["task"], **how}


def _verdict(job: _Job, message: Mapping[str, Any]) -> tuple[Status, str, str]:
    """How a run ended, and why (with a detail) where that is not TensorFlow's own answer."""
    stopped: Literal["timeout", "memory", "output", "cancelled"] | None = message["stopped"]
    if stopped == "timeout":
        return "timeout", "timeout", f"{message['seconds']:.1f}"
    if stopped == "cancelled":
        return "cancelled", "unwanted", ""
    if stopped is not None:
        return "killed", stopped, ""
    code = message["exit"]
    if code == 0:
        return "ok", "", ""
    if message["taken"]:
        return "killed", "taken", ", ".join(message["taken"])
    task = "task_" if message["task"] else ""
    if code < 0:
        return "killed", f"{task}signal", signal.Signals(-code).name
    if any(event["event"] == "error" for event in job.events):
        return "error", "", ""
    return "killed", f"{task}exit", str(code)


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
