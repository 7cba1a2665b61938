"""The cache of finished runs: those that would end the same way again."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from engine.trace import Trace

CACHED_BYTES = 24 << 20


class CachedRun(NamedTuple):
    """A run that has ended, and will not be run again: its trace, and the program that ran."""

    trace: Trace
    program: str
    size: int  # characters that it printed


class RunCache:
    """Runs by their key, the least recently used first to go where they have printed more than `most` characters
    together. Not thread-safe: the engine's lock guards it."""

    def __init__(self, most: int = CACHED_BYTES) -> None:
        self._most = most
        self._runs: OrderedDict[str, CachedRun] = OrderedDict()
        self.size = 0

    def get(self, key: str) -> CachedRun | None:
        run = self._runs.get(key)
        if run is not None:
            self._runs.move_to_end(key)
        return run

    def add(self, key: str, run: CachedRun) -> None:
        """Keep a run, where there is no equal one yet, and where it is not too much by itself."""
        if key in self._runs or run.size > self._most:
            return
        self._runs[key] = run
        self.size += run.size
        while self.size > self._most:
            self.size -= self._runs.popitem(last=False)[1].size
