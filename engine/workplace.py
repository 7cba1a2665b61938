"""The engine's folder under the temporary directory, where each run has its own: made, kept, and removed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

PREFIX = "replica-lab-engine-"
LOCK = "lock"  # held for as long as its engine lives, on whichever side of a container's wall that is
YOUNG = 60.0  # seconds in which a folder may be without its lock, as it is being made


class Workplace:
    """A folder of this engine's own. What engines that were killed have left is removed first."""

    def __init__(self) -> None:
        """Raises OSError where there is no room for it."""
        remove_leftovers()
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
            lock = _lock(self.path)
            if lock is not None:
                self._lock = lock
                return

    def ensure(self) -> None:
        """Make it anew where something has removed it, as what tidies up /tmp does. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            if (self.path / LOCK).stat().st_ino == os.fstat(self._lock).st_ino:
                return
        self.path.mkdir(mode=0o700, exist_ok=True)
        lock = _lock(self.path)
        if lock is not None:
            os.close(self._lock)
            self._lock = lock

    def remove(self) -> None:
        """Remove it, and all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def remove_leftovers() -> None:
    """Remove the folders of engines that were killed before they could: those whose lock nobody holds."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if not (folder / LOCK).exists():
                if time.time() - folder.stat().st_mtime > YOUNG:
                    shutil.rmtree(folder, ignore_errors=True)
            elif (lock := _lock(folder, make=False)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(lock)
        except OSError:
            continue  # another user's, or another engine was quicker


def _lock(folder: Path, *, make: bool = True) -> int | None:
    """Take that folder's lock: an open file. None where another engine has it, or has just removed the folder."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR | (os.O_CREAT if make else 0), 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (folder / LOCK).stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
