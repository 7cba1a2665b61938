"""Jobs and tickets: one run on its way through the engine, and a future for each who waits for it."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engine.ending import Ending
from engine.limits import MIB
from engine.request import Request
from engine.runtimes import Runtime
from engine.trace import Event, Trace
from engine.warm import WarmRuntime

if TYPE_CHECKING:
    from engine.engine import Engine

PROCESS_MEMORY = 128 * MIB  # that a process of a run is expected to hold for itself; those known hold up to 60

WaitsFor = Literal["", "import", "slots", "memory"]


class Ticket:
    """A future for one requested run. `program` is the script that runs, or that has run; `cached` says that the trace
    was there already. `job` is the engine's."""

    def __init__(self, engine: Engine, session: str, program: str) -> None:
        self._engine = engine
        self._done = threading.Event()
        self._trace: Trace | None = None
        self.session = session
        self.program = program
        self.cached = False
        self.job: Job | None = None  # None where it was cached

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
        return self._engine.place_of(self)

    @property
    def waits_for(self) -> WaitsFor:
        """What it waits for: its TensorFlow to be imported, a free slot, or memory; "" when it is under way or done."""
        return self._engine.what_waits_for(self)

    def so_far(self) -> Trace:
        """What the run has said up to now: a trace of status `running`, or the whole one where it has ended. A run that
        lost its parent begins again, and so does this; one that waits has but its `run` event. Any thread may ask."""
        return self._engine.trace_so_far(self)

    def cancel(self) -> None:
        """Nobody waits for this ticket any more. A run that no other ticket wants is killed."""
        self._engine.cancel(self)

    def finish(self, trace: Trace) -> None:
        """The engine has the trace."""
        self._trace = trace
        self._done.set()


@dataclass(eq=False)
class Job:
    """One run, wanted by one ticket or more."""

    key: str
    request: Request
    runtime: Runtime
    program: str
    slots: int  # of the engine's that it takes
    processes: int
    tickets: set[Ticket] = field(default_factory=set)
    attempts: int = 0
    # From here on: of this attempt.
    run_id: int = 0
    warm: WarmRuntime | None = None
    pids: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    printed: int = 0  # characters
    overdue: float = math.inf  # when the engine's own patience with it is over, on its clock
    held: int = 0  # bytes, when they were last looked at
    over_budget: bool = False  # it is being ended, as all runs together hold too much

    @property
    def expected(self) -> int:
        """Bytes that it holds, or may soon."""
        return max(self.held, self.processes * PROCESS_MEMORY)

    def begin_again(self) -> None:
        """Forget this attempt."""
        self.warm, self.pids, self.events, self.printed = None, [], [], 0
        self.overdue, self.held, self.over_budget = math.inf, 0, False

    def start_event(self) -> Event:
        """What is known before anything runs; the parent's own word on its versions, where it has given it."""
        info = self.warm.info if self.warm else None
        versions = info or self.runtime.versions
        return {
            "event": "run",
            "t": 0.0,
            "experiment": self.request.experiment.name,
            "settings": self.request.settings.model_dump(mode="json"),
            "tensorflow": versions.tensorflow,
            "keras": versions.keras,
            "python": info.python if info else "",
            "devices": self.request.experiment.devices(self.request.settings),
        }

    def trace(self, ending: Ending | None = None) -> Trace:
        """What it has said, and how it ended; without that, of a run under way."""
        if ending is None:
            return Trace((self.start_event(), *self.events))
        return Trace((self.start_event(), *self.events, ending.event()), ending.stderr)
