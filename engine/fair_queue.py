"""The queue of the engine: what waits, by session, so that one who asks for much keeps nobody else waiting."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Sessions take turns; within a session it is first come, first served. An item that several sessions wait for
    stands in the line of each, and leaves all of them at once. Not thread-safe: the engine's lock guards it."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, list[T]] = OrderedDict()  # the session whose turn is next comes first

    def add(self, session: str, item: T, *, first: bool = False) -> None:
        """Put an item at the end of that session's line, or at its head. One that is in it already stays there."""
        line = self._lines.setdefault(session, [])
        if item not in line:
            line.insert(0 if first else len(line), item)

    def remove(self, item: T, session: str | None = None) -> None:
        """Take an item out of that session's line, or of all; where it is in none, nothing happens."""
        for name in [session] if session is not None else list(self._lines):
            line = self._lines.get(name, [])
            if item in line:
                line.remove(item)
                if not line:
                    del self._lines[name]

    def order(self) -> list[T]:
        """All items in the order in which they will be taken, as far as that can be known."""
        turns = itertools.zip_longest(*self._lines.values())
        return list(dict.fromkeys(item for turn in turns for item in turn if item is not None))

    def first(self, ready: Callable[[T], bool]) -> T | None:
        """The first item that is `ready`, of the session whose turn it is; None where no item is."""
        return next((item for line in self._lines.values() for item in line if ready(item)), None)

    def take(self, item: T) -> None:
        """Take that item: the turn of the first session that has it is over."""
        session = next(session for session, line in self._lines.items() if item in line)
        self._lines.move_to_end(session)
        self.remove(item)

    def length(self, session: str | None = None) -> int:
        """How many places are taken in that session's line, or in all."""
        if session is not None:
            return len(self._lines.get(session, ()))
        return sum(len(line) for line in self._lines.values())
