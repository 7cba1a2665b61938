"""A stand-in for a parent process: it keeps to the protocol of parent.py until its fault comes. No TensorFlow, no runs.

    broken_parent.py FOLDER

FOLDER/plan.json says what each start of it does: a list of {"at": MOMENT, "fault": NAME}, or null where it behaves, as
it does after the last of them. Each process that it is or starts leaves its number in FOLDER/pids.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOMENTS = ("importing", "idle", "running")
# Name: what it does at that moment, and then it says nothing more. In some it ends, in the others it must be ended.
FAULTS = {
    "dies in a line": "die(HALF)",
    "dies": 'die(b"")',
    "exits": "os._exit(0)",
    "stops": "os.kill(os.getpid(), signal.SIGSTOP)",
    "half a line": "write(HALF); wait()",
    "nothing": "wait()",
    "garbage": 'write(b"\\x00\\xff\\n{]\\n"); wait()',
    "no message": """write(b'{"run": "x", "exit": null}\\n'); wait()""",
    "deeply nested": 'write(b"[" * 100_000 + b"\\n"); wait()',
    "huge line": 'write(b"x" * (3 << 20)); wait()',
    "closes its output": "os.close(1); wait()",
    "deaf, and chatty": "chat()",
    "never ends a run": "serve(ends=False)",
    "a signal without a name": "serve(code=-99)",
    "runs of others": "others(); serve()",
}


def environment(folder: Path, plan: Sequence[tuple[str, str] | None]) -> Path:
    """Make FOLDER. Returns the interpreter of a runtime that starts this stand-in in place of parent.py."""
    folder.mkdir()
    steps = [None if step is None else {"at": step[0], "fault": step[1]} for step in plan]
    (folder / "plan.json").write_text(json.dumps(steps))
    (folder / "bin").mkdir()
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" "{folder}"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    return python


def pids(folder: Path) -> list[int]:
    """All processes that there have been."""
    file = folder / "pids"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def starts(folder: Path) -> int:
    """How often it was started."""
    file = folder / "starts"
    return file.stat().st_size if file.exists() else 0


# ------------------------------------------------------------------------------------------ in the stand-in itself

HALF = b'{"run": 1, "task": "", "lines": ["{\\"event\\": '


def note(folder: Path, pid: int) -> None:
    with (folder / "pids").open("a") as file:
        file.write(f"{pid}\n")


def write(data: bytes) -> None:
    while data:
        data = data[os.write(1, data) :]


def say(**message: Any) -> None:
    write((json.dumps(message) + "\n").encode())


def wait() -> None:
    """Go on living, and reading nothing."""
    while True:
        time.sleep(60)


def die(last: bytes) -> None:
    write(last)
    os.kill(os.getpid(), signal.SIGKILL)


def chat() -> None:
    """Speak and speak of a run, and read nothing."""
    while True:
        say(run=1, task="", lines=["x" * 1000], seconds=0.1)


def others() -> None:
    """Tell of runs that are not this parent's, or are nobody's."""
    for run in (0, 999_999):
        say(run=run, pid=os.getpid() + 1_000_000)
        say(run=run, task="", lines=["not mine"], seconds=0.1)
        say(run=run, task="", died=1, seconds=0.1)
        say(run=run, task="", exit=0, stopped=None, port_conflict=[], seconds=0.1, stderr="")


def end(run: int, stopped: str | None = None, code: int = 0) -> None:
    say(run=run, task="", exit=code, stopped=stopped, port_conflict=[], seconds=0.1, stderr="")


def start_process(run: int, folder: Path) -> None:
    """A process of a run: it does not notice its parent's death, and is the engine's to end."""
    pid = os.fork()
    if pid == 0:
        os.close(0)
        os.close(1)
        os.close(2)
        time.sleep(60)
        os._exit(0)
    os.setpgid(pid, pid)  # as the parent does it: before it is told of, the group is there
    say(run=run, pid=pid)
    note(folder, pid)  # not before it is told of


def serve(*, ends: bool = True, code: int = 0, fault: str = "", folder: Path | None = None) -> None:
    """Answer to commands until there are no more; a fault comes when a run has begun."""
    pending = b""
    while data := os.read(0, 1 << 16):
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            command = json.loads(line)
            if "ping" in command:
                say(pong=command["ping"])
            elif "cancel" in command and ends:
                end(command["cancel"], "cancelled")
            elif "run" in command:
                if fault and folder is not None:
                    start_process(command["run"], folder)
                    say(run=command["run"], task="", lines=['{"event": "before"}'], seconds=0.1)
                    exec(FAULTS[fault])
                say(run=command["run"], task="", lines=['{"event": "nap"}'], seconds=0.1)
                if ends:
                    end(command["run"], code=code)


def main() -> None:
    folder = Path(sys.argv[1])
    note(folder, os.getpid())
    plan = json.loads((folder / "plan.json").read_text())
    start = starts(folder)
    with (folder / "starts").open("a") as file:
        file.write("x")
    step = plan[start] if start < len(plan) and plan[start] else {"at": "", "fault": ""}
    say(importing=50)
    if step["at"] == "importing":
        exec(FAULTS[step["fault"]])
    versions = {"tensorflow": "0", "keras": "0", "tf_keras": None, "python": "0", "modules": 1, "seconds": 0.1}
    say(ready={**versions, "network": "host", "network_reason": "it is not tried"})
    if step["at"] == "idle":
        exec(FAULTS[step["fault"]])
    serve(fault=step["fault"] if step["at"] == "running" else "", folder=folder)


if __name__ == "__main__":
    main()
