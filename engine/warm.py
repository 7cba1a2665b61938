"""A warm runtime: the engine's end of the conversation with one parent process (see parent.py)."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from engine.messages import Command, Importing, Message, Ready, Versions, read_message, signal_name
from engine.runtimes import Runtime

PARENT = Path(__file__).parent / "parent.py"
ERRORS_KEPT = 8 * 1024  # characters of the parent's standard error that are kept: its last
MAX_LINE = 32 << 20  # bytes of one message
CLOSE_SECONDS = 2.0  # in which a parent that was asked to end may do so
EXIT_POLL_SECONDS = 0.5  # between two looks at whether the process has ended without closing its pipes

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
    """One parent process. `on_message` is called in this object's own thread with each of its messages, and `on_exit`
    once, when the process has ended, for whatever reason: it is ended, too, where it says what is no message, or where
    `on_message` raises. `info` is what it said of its versions when it was ready. No method waits for the parent but
    `close`, and that not for long."""

    def __init__(
        self,
        runtime: Runtime,
        workplace: Path,
        on_message: Callable[[WarmRuntime, Message], None],
        on_exit: Callable[[WarmRuntime], None],
        max_line: int = MAX_LINE,
    ) -> None:
        """Starts the process. Raises OSError where that can't be done."""
        self.runtime = runtime
        self.began = time.monotonic()
        # The engine's books: when it last had something to do; how many runs it has done; bytes that it holds; on the
        # engine's clock, when it was started and last heard; how many looks have found its process ended.
        self.used = self.began
        self.runs = self.held = 0
        self.born = self.heard = 0.0
        self.looks_ended = 0
        self.info: Versions | None = None
        self._on_message = on_message
        self._on_exit = on_exit
        self._max_line = max_line
        self._modules_found = 0
        self._errors = ""
        self._kill_reason = ""
        self._heard_out = False  # all that it said was read
        self._ended = False
        self._outbox: queue.SimpleQueue[Command | None] = queue.SimpleQueue()  # None: no more commands
        # A session of its own: Ctrl-C at the terminal is for the engine, and the parent ends when the engine does.
        self.process = subprocess.Popen(
            [str(runtime.python), "-I", str(PARENT), str(workplace)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=_environment(workplace),
            cwd=workplace,
            start_new_session=True,
        )
        self._threads = [
            threading.Thread(target=self._read, name=f"tf-{runtime.name}-reader", daemon=True),
            threading.Thread(target=self._write, name=f"tf-{runtime.name}-writer", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def state(self) -> WarmState:
        seconds = time.monotonic() - self.began
        if self.over:
            return WarmState("failed", seconds=seconds, reason=self._why_it_ended())
        if self.info is not None:
            return WarmState("ready", 1.0, self.info.seconds)
        return WarmState("starting", min(0.99, self._modules_found / self.runtime.modules), seconds)

    @property
    def ready(self) -> bool:
        return self.info is not None and not self.over

    @property
    def over(self) -> bool:
        """True where it has ended, or is being killed."""
        return self._ended or bool(self._kill_reason)

    @property
    def was_killed(self) -> bool:
        """True where it was ended by a signal: not by itself, as it would be by an error that comes again."""
        return bool(self._kill_reason) or (self.process.returncode or 0) < 0

    def _why_it_ended(self) -> str:
        if self._kill_reason:
            return self._kill_reason
        status = self.process.returncode or 0
        if status < 0:
            return f"ended by {signal_name(-status)}"
        # TensorFlow's own notes (I0000 ...) are not why a Python ended.
        lines = [line for line in self._errors.strip().splitlines() if not line.startswith(("I0000", "W0000"))]
        return lines[-1] if lines else f"exit status {status}"

    def send(self, command: Command) -> None:
        """Give the parent a command. One that has ended doesn't hear it; its end is told separately."""
        self._outbox.put(command)

    def kill(self, reason: str) -> None:
        """End it at once, and its runs with it, for a reason that is told. `on_exit` follows."""
        if not self._ended:
            self._kill_reason = self._kill_reason or reason
            self.process.kill()

    def finish(self) -> None:
        """Ask it to end, with all its runs, by closing its input."""
        self._outbox.put(None)

    def close(self) -> None:
        """See it to its end: ask, and insist after CLOSE_SECONDS."""
        self.finish()
        try:
            self.process.wait(CLOSE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill("it did not end when it was asked to")
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(CLOSE_SECONDS)

    def _write(self) -> None:
        """In a thread of its own: give the parent its commands, however long it takes to read them."""
        with _pipe(self.process.stdin) as pipe, contextlib.suppress(BrokenPipeError):  # its end is the reader's to tell
            for command in iter(self._outbox.get, None):
                data = (json.dumps(command) + "\n").encode()
                while data:
                    data = data[os.write(pipe.fileno(), data) :]

    def _read(self) -> None:
        """In a thread of its own: take the parent's messages until it has ended, and tell that, whatever happens."""
        try:
            for line in self._lines():
                try:
                    message = read_message(line)
                except ValueError:
                    self.kill(f"it said what is no message: {line[:80]!r}")
                    break
                if isinstance(message, Importing):
                    self._modules_found = message.importing
                elif isinstance(message, Ready):
                    self.info = message.ready
                self._on_message(self, message)
        finally:
            self._end()

    def _lines(self) -> Iterator[bytes]:
        """The whole lines of its standard output, until that or the process has ended. A last half line is dropped."""
        stdout, stderr = _pipe(self.process.stdout).fileno(), _pipe(self.process.stderr).fileno()
        poll = select.poll()
        poll.register(stdout, select.POLLIN)
        poll.register(stderr, select.POLLIN)
        pending = bytearray()
        while True:
            ready = [fd for fd, _ in poll.poll(1000 * EXIT_POLL_SECONDS)]
            if not ready and self.process.poll() is not None:
                break  # some process that it has left behind holds its pipes open
            if stderr in ready and not self._read_errors(stderr):
                poll.unregister(stderr)
            if stdout not in ready:
                continue
            data = os.read(stdout, 1 << 16)
            if not data:
                break
            pending += data
            if b"\n" in data:
                *lines, pending = pending.split(b"\n")
                yield from map(bytes, lines)
            if len(pending) > self._max_line:
                self.kill(f"it said more than {self._max_line} bytes in one line")
                return
        self._heard_out = True

    def _read_errors(self, stderr: int) -> bool:
        """Take what it wrote to standard error. False where that has ended, or where there is nothing at the moment."""
        try:
            data = os.read(stderr, 1 << 16)
        except BlockingIOError:
            return False
        self._errors = (self._errors + data.decode("utf-8", "replace"))[-ERRORS_KEPT:]
        return bool(data)

    def _end(self) -> None:
        """Nothing more is read: see the process to its end, and tell of it."""
        self._outbox.put(None)
        if not self._heard_out:
            self.kill("the engine could not go on with what it said")
        try:
            self.process.wait(CLOSE_SECONDS)  # it may be about to end, with a status of its own
        except subprocess.TimeoutExpired:
            self.kill("it said nothing any more")
            self.process.wait()
        stdout, stderr = _pipe(self.process.stdout), _pipe(self.process.stderr)
        os.set_blocking(stderr.fileno(), False)
        while self._read_errors(stderr.fileno()):
            pass
        stdout.close()
        stderr.close()
        self._ended = True
        self._on_exit(self)


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
