"""What ended a run before its program was done: what TensorFlow raised, or why the run was stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from engine.trace import Trace

Cause = TypeVar("Cause", bound=str)

MAX_MESSAGE: Final = 240  # characters of a message that are quoted in a sentence; the page shows all of it


@dataclass(frozen=True)
class Failure:
    """`kind` is the exception's type, or the status of a run that was stopped ("timeout", "killed", "cancelled");
    `line` is the program's, where one is known."""

    kind: str
    message: str
    line: int | None
    raised: bool

    @property
    def quoted(self) -> str:
        """The message as code in Markdown, in one line; the kind, where there is none."""
        message = " ".join(self.message.replace("`", "'").split())
        if len(message) > MAX_MESSAGE:
            message = message[:MAX_MESSAGE] + " …"
        return f"`{message or self.kind}`"

    @property
    def at_line(self) -> int | str:
        """The line as it stands in a sentence."""
        return "?" if self.line is None else self.line


def failure_of(trace: Trace) -> Failure | None:
    """What ended this run; None where it ended well, or has not ended and raised nothing so far."""
    # Of a cluster's tasks, the first that raised: the order of its events is that of their arrival.
    error = min(trace.of("error"), key=lambda event: float(event.get("t", 0)), default=None)
    if error is not None:
        return Failure(error["type"], str(error["message"]), error.get("line"), raised=True)
    status = trace.end.get("status", "running")
    if status in ("ok", "running"):
        return None
    return Failure(str(status), str(trace.end.get("reason", "")), None, raised=False)


def cause_of(failure: Failure, causes: Iterable[tuple[str, Cause]], other: Cause) -> Cause:
    """The first cause whose part of a message is in this one's; `other` where none is, and for a stopped run."""
    found = (cause for part, cause in causes if part in failure.message)
    return next(found, other) if failure.raised else other
