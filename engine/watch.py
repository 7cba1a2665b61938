"""The engine's own watch over its parents: what is too long, on a clock of its own, whatever their pipes say. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Patience:
    """Seconds: between two looks; after which a parent that says nothing is asked whether it is there (a ping), and
    after which it is given up; the same while it imports TensorFlow, when it can't answer but tells of each batch of
    modules; that the whole import may take; that a run may go on beyond its deadline, which is its parent's to keep."""

    look: float = 1.0
    ping: float = 5.0
    silence: float = 20.0
    import_silence: float = 120.0
    importing: float = 600.0
    overtime: float = 10.0


@dataclass
class AwakeClock:
    """Seconds in which this process was there to look. Where it was itself stopped, or its machine asleep, what it
    missed meanwhile is nobody's silence: a tick counts no more than `most`."""

    most: float
    clock: Callable[[], float] = time.monotonic
    now: float = 0.0
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._last = self.clock()

    def tick(self) -> float:
        """Look at the clock."""
        time_now = self.clock()
        self.now += min(self.most, time_now - self._last)
        self._last = time_now
        return self.now


def fault_of_parent(patience: Patience, *, ready: bool, silent: float, age: float) -> str | None:
    """Why a parent is to be given up, or None. It was `silent` for so many seconds, and started `age` seconds ago."""
    if ready:
        return f"it gave no sign for {patience.silence:g} s" if silent > patience.silence else None
    if silent > patience.import_silence:
        return f"it gave no sign for {patience.import_silence:g} s while it imported TensorFlow"
    if age > patience.importing:
        return f"it had not imported TensorFlow after {patience.importing:g} s"
    return None
