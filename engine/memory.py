"""Memory: what the engine's processes hold, as the system tells (Linux does)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def resident(pid: int, root: Path = Path("/")) -> int | None:
    """Resident bytes of a process. None where the system doesn't tell, or where it has just ended."""
    pages = _pages(pid, root)
    return None if pages is None else pages[0]


def held_by_run(pids: Iterable[int], parent: int, root: Path = Path("/")) -> int:
    """Bytes that the processes of a run hold beyond what each has in common with the parent that it was forked from."""
    inherited = _pages(parent, root)
    if inherited is None:
        return 0
    pages = [_pages(pid, root) for pid in pids]
    return sum(max(0, _own(each) - _own(inherited)) for each in pages if each is not None)


def _own(pages: tuple[int, int]) -> int:
    return pages[0] - pages[1]


def _pages(pid: int, root: Path) -> tuple[int, int] | None:
    """Resident bytes, and how many of them are of files, of which the machine holds one copy for all."""
    try:
        words = (root / f"proc/{pid}/statm").read_text().split()
    except OSError:
        return None
    size = os.sysconf("SC_PAGE_SIZE")
    return int(words[1]) * size, int(words[2]) * size
