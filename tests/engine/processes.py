"""Looking at processes, and waiting for what is to become of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine.parent import SPARE


def until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    """Wait for a condition. False where it did not come true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """True for a process that still runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children_of(pid: int) -> list[int]:
    """A parent's runs: its children, but the one that was forked ahead of the next run, and the zombies."""
    return [child for child in all_children_of(pid) if name_of(child) not in (SPARE, "")]


def all_children_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def name_of(pid: int) -> str:
    """What `ps` calls a process; nothing where it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() if alive(pid) else ""
    except (FileNotFoundError, ProcessLookupError):
        return ""
