"""What a run said and how it ended: from a program's lines and the parent's words to events. No process, no state."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from engine.messages import Ended, TaskDied, signal_name
from engine.runtimes import Runtime
from engine.trace import Event, Status, Trace
from engine.warm import PARENT

OUTPUT_SHOWN = 1000  # characters of a line that is no event

# Errors that TensorFlow, Python or the system raise in a busy moment.
TRANSIENT_ERRORS = {
    "ResourceExhaustedError", "UnavailableError", "DeadlineExceededError", "AbortedError", "CancelledError",
    "MemoryError", "TimeoutError", "BlockingIOError", "ConnectionError", "ConnectionResetError",
    "ConnectionRefusedError", "BrokenPipeError",
}  # fmt: skip
TRANSIENT_MESSAGE = re.compile(
    r"out of memory|cannot allocate memory|resource temporarily unavailable|no space left|deadline exceeded|timed out",
    re.IGNORECASE,
)

# Why a run gave no answer: what `why` in its `end` event stands for. Pages say it in their own language.
REASONS = {
    "timeout": "it had not ended after {detail} s",
    "memory": "it held more memory than a run may",
    "memory_together": "all runs together held more memory than they may, and it held most",
    "output": "it printed more than a run may",
    "signal": "its process was ended by {detail}",
    "no_room": "the machine had no process or no file left for it ({detail})",
    "exit": "its process ended with exit status {detail} and reported no error",
    "task_signal": "its task {task} was ended by {detail}",
    "task_exit": "its task {task} ended with exit status {detail} and reported no error",
    "port_conflict": "another program took {detail}, where one of its tasks was to be found",
    "parent_died": "the process that holds TensorFlow died under this run, {detail} times",
    "not_started": "TensorFlow could not be started ({detail})",
    "unwanted": "nobody waited for it any more",
    "closed": "the engine was closed",
}


@dataclass(frozen=True)
class Ending:
    """How a run ended: its status, and where that is not TensorFlow's own answer why (one of REASONS), with a detail
    and the task that it was about. `seconds` from the start of its process, and its standard error."""

    status: Status
    why: str = ""
    detail: str = ""
    task: str = ""
    seconds: float = 0.0
    stderr: str = ""

    def event(self) -> Event:
        """The `end` event."""
        seconds = round(self.seconds, 4)
        end: Event = {"event": "end", "t": seconds, "status": self.status, "seconds": seconds}
        if self.why:
            reason = REASONS[self.why].format(detail=self.detail, task=self.task)
            end |= {"why": self.why, "detail": self.detail, "reason": reason}
            if self.task:
                end["task"] = self.task
        return end


def ending_of(message: Ended, events: Iterable[Event]) -> Ending:
    """From the parent's last word on a run, and what the run had said."""

    def end(status: Status, why: str = "", detail: str = "") -> Ending:
        return Ending(status, why, detail, message.task, message.seconds, message.stderr)

    if message.stopped == "timeout":
        return end("timeout", "timeout", f"{message.seconds:.1f}")
    if message.stopped == "cancelled":
        return end("cancelled", "unwanted")
    if message.stopped == "no_room":
        return end("killed", "no_room", (message.stderr.strip().splitlines() or [""])[-1])
    if message.stopped is not None:
        return end("killed", message.stopped)
    if message.exit == 0:
        return end("ok")
    if message.port_conflict:
        return end("killed", "port_conflict", ", ".join(message.port_conflict))
    task = "task_" if message.task else ""
    if message.exit < 0:
        return end("killed", f"{task}signal", signal_name(-message.exit))
    if any(event["event"] == "error" for event in events):
        return end("error")
    return end("killed", f"{task}exit", str(message.exit))


def is_transient(trace: Trace) -> bool:
    """Whether an error of this run may be of the moment: too busy a machine, too little memory. Another try may well
    come to another end, so it is no answer to an equal request."""
    for error in trace.of("error"):
        name = str(error.get("type", "")).rpartition(".")[2]
        if name in TRANSIENT_ERRORS or TRANSIENT_MESSAGE.search(str(error.get("message", ""))):
            return True
    return False


def died_event(message: TaskDied, events: Iterable[Event]) -> Event | None:
    """A task of a cluster has ended by itself: the event that says how. None where it ended with an error which it had
    reported itself: that is its answer."""
    code, task = message.died, message.task
    if code > 0 and any(event["event"] == "error" and event.get("task") == task for event in events):
        return None
    event: Event = {"event": "died", "t": message.seconds, "task": task}
    if code < 0:
        event["signal"] = signal_name(-code)
    else:
        event["status"] = code
    return event


def parse_event(line: str, seconds: float, task: str, runtime: Runtime, workplace: Path) -> Event:
    """A line that a program printed, `seconds` after it began; `task` is the one that did, "" where it is no cluster.

    What is no event becomes one, `output`, so that nothing it said is lost. Every event has its time `t`."""
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    event: Event
    if isinstance(said, dict) and isinstance(said.get("event"), str) and said["event"] not in ("run", "end"):
        strings = {name: value for name, value in said.items() if isinstance(value, str)}
        cleaned = {name: without_folders(value, runtime, workplace) for name, value in strings.items()}
        event = cast("Event", {**said, **cleaned})
        if type(said.get("t")) not in (int, float):
            event["t"] = seconds
    else:
        event = {"event": "output", "t": seconds, "text": without_folders(line, runtime, workplace)}
    if event["event"] == "output":
        event["text"] = str(event.get("text", ""))[:OUTPUT_SHOWN]
    if task:  # a program that is a cluster names it itself, but what was not meant as an event has no name yet
        event["task"] = task
    return event


def without_folders(text: str, runtime: Runtime, workplace: Path) -> str:
    """The script by its name alone, and TensorFlow's files from "tensorflow/" on: where they lie says nothing, and
    differs from run to run, and from machine to machine."""
    if "/" not in text:
        return text
    # The frames below the script's own, some with the line of code that was at work there.
    text = re.sub(rf' *File "{re.escape(str(PARENT))}", line \d+, in \S+\n(?: {{4}}\S.*\n)?\n*', "", text)
    environment = re.escape(str(runtime.python.parent.parent))
    text = re.sub(rf"{environment}/lib/python[\d.]+/site-packages/", "", text)
    return re.sub(rf"{re.escape(str(workplace))}/(run-[^/]+/)?", "", text)
