"""Messages: what the engine and a parent process say to each other, one JSON object a line, as parent.py documents it.

Read with pydantic, so that what a broken or dying parent writes is never taken for a message.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

# Why the parent ended a run. "no_room": the system gave it no process or no file.
Stopped = Literal["timeout", "memory", "output", "cancelled", "no_room"]

STRICT = ConfigDict(strict=True)


@dataclass(frozen=True, config=STRICT)
class Versions:
    """What a parent found out about itself. `seconds`: how long TensorFlow's import took, `modules`: of how many.
    `network`: what its runs can reach, and why where that is the host's."""

    tensorflow: str
    keras: str
    tf_keras: str | None
    python: str
    modules: int
    seconds: float
    network: Literal["loopback", "host"] = "host"
    network_reason: str = ""


@dataclass(frozen=True, config=STRICT)
class Importing:
    """How many modules have been looked for so far."""

    importing: int


@dataclass(frozen=True, config=STRICT)
class Ready:
    """TensorFlow is imported; runs can start."""

    ready: Versions


@dataclass(frozen=True, config=STRICT)
class Pong:
    """The answer to a ping."""

    pong: int


@dataclass(frozen=True, config=STRICT)
class Started:
    """A run, or one task of it, has this process (and process group)."""

    run: int
    pid: Annotated[int, Field(gt=1)]  # of 0 and 1 the groups are not a run's


@dataclass(frozen=True, config=STRICT)
class Printed:
    """Whole lines that a run printed, `seconds` after it began."""

    run: int
    task: str
    lines: list[str]
    seconds: float


@dataclass(frozen=True, config=STRICT)
class TaskDied:
    """A task of a cluster ended by itself with this status, or minus this signal."""

    run: int
    task: str
    died: int
    seconds: float


@dataclass(frozen=True, config=STRICT)
class Ended:
    """A run is over, and nothing more comes of it. `task` is the one that failed first, where it is a cluster."""

    run: int
    task: str
    exit: int
    stopped: Stopped | None
    port_conflict: list[str]
    seconds: float
    stderr: str


RunMessage = Printed | Started | TaskDied | Ended
Message = RunMessage | Importing | Ready | Pong

_MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)


def read_message(line: bytes) -> Message:
    """One line of a parent. Raises ValueError where it is no message."""
    return _MESSAGE.validate_json(line)


def signal_name(number: int) -> str:
    """SIGKILL for 9. Of the real-time signals most have no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class RunCommand(TypedDict):
    """Starts a run. `seconds`, `bytes` and `output` are its limits; the rest is about clusters, see Experiment."""

    run: int
    program: str
    seconds: float
    bytes: int
    output: int
    tasks: Mapping[str, int]
    serving: Sequence[str]
    may_be_killed: Sequence[str]


class CancelCommand(TypedDict):
    """Ends a run."""

    cancel: int


class PingCommand(TypedDict):
    """Asks for a Pong."""

    ping: int


Command = RunCommand | CancelCommand | PingCommand
