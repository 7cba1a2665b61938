"""A warm runtime: the engine's end of the conversation with one parent process (see parent.py)."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

from engine.runtimes import Runtime

PARENT = Path(__file__).parent / "parent.py"
ERRORS_KEPT = 8 * 1024  # characters of the parent's standard error that are kept: its last

# All that a run sees of the environment it was started from.
ENVIRONMENT = ("PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "TZ", "SYSTEMROOT", "TMPDIR")
ENVIRONMENT_PREFIXES = ("OPENBLAS_", "OMP_", "MKL_", "NVIDIA_")


@dataclass(frozen=True)
class WarmState:
    """How far a parent is. `progress` runs from 0 to 1; `reason` says why it is `failed`."""

    name: Literal["stopped", "starting", "ready", "failed"]
    progress: float = 0.0
    seconds: float = 0.0
    reason: str = ""


class WarmRuntime:
    """One parent process. `tell` is called in this object's own thread with each of its messages, and with None
    when the process has ended, for whatever reason. `info` is what it said of its versions when it was ready."""

    def __init__(self, runtime: Runtime, workplace: Path, tell: Callable[[WarmRuntime, dict[str, Any] | None], None]):
        self.runtime = runtime
        self.began = time.monotonic()
        self.used = self.began  # when it last had something to do, and how many runs it has done: the engine's books
        self.runs = 0
        self._tell = tell
        self._found = 0
        self.info: dict[str, Any] | None = None
        self._errors = ""
        self._ended = False
        self._write = threading.Lock()
        # A session of its own: Ctrl-C at the terminal is for the engine, and the parent ends when the engine does.
        self.process = subprocess.Popen(
            [str(runtime.python), "-I", str(PARENT), str(workplace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(workplace),
            cwd=workplace,
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, name=f"tf-{runtime.name}", daemon=True),
            threading.Thread(target=self._read_errors, name=f"tf-{runtime.name}-stderr", daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def state(self) -> WarmState:
        seconds = time.monotonic() - self.began
        if self._ended:
            return WarmState("failed", seconds=seconds, reason=self._why_it_ended())
        if self.info is not None:
            return WarmState("ready", 1.0, self.info["seconds"])
        return WarmState("starting", min(0.99, self._found / self.runtime.modules), seconds)

    @property
    def was_killed(self) -> bool:
        """True where it was ended by a signal: not by itself, as it would be by an error that comes again."""
        return self._ended and self.process.returncode < 0

    def _why_it_ended(self) -> str:
        status = self.process.returncode
        if status < 0:
            return f"ended by {signal.Signals(-status).name}"
        # TensorFlow's own notes (I0000 ...) are not why a Python ended.
        lines = [line for line in self._errors.strip().splitlines() if not line.startswith(("I0000", "W0000"))]
        return lines[-1] if lines else f"exit status {status}"

    @property
    def ready(self) -> bool:
        return self.info is not None and not self._ended

    def send(self, **command: Any) -> None:
        """Give the parent a command. One that has ended doesn't hear it; its end is told separately."""
        with contextlib.suppress(BrokenPipeError, ValueError), self._write:
            _pipe(self.process.stdin).write((json.dumps(command) + "\n").encode())
            _pipe(self.process.stdin).flush()

    def close(self, seconds: float = 2.0) -> None:
        """End the parent and its runs: ask by closing its input, insist after that many seconds."""
        with contextlib.suppress(BrokenPipeError), self._write:
            _pipe(self.process.stdin).close()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _read(self) -> None:
        for line in _pipe(self.process.stdout):
            message = json.loads(line)
            if "importing" in message:
                self._found = message["importing"]
            elif "ready" in message:
                self.info = message["ready"]
            self._tell(self, message)
        self.process.wait()
        self._readers[1].join()
        self._ended = True
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError), self._write:  # what was written last may have found no reader
                _pipe(pipe).close()
        self._tell(self, None)

    def _read_errors(self) -> None:
        for line in _pipe(self.process.stderr):
            self._errors = (self._errors + line.decode("utf-8", "replace"))[-ERRORS_KEPT:]


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # all three were asked for
    return pipe


def _environment(home: Path) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ENVIRONMENT or name.startswith(ENVIRONMENT_PREFIXES)
    }
    # TensorFlow's warnings are kept for the Trace tab; its notes on how it was built are not worth a learner's eye.
    return {
        **kept,
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TF_CPP_MIN_LOG_LEVEL": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
