"""What a run said and how it ended, by itself: no engine, no process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.ending import REASONS, Ending, died_event, ending_of, is_transient, parse_event
from engine.messages import Ended, Stopped, TaskDied
from engine.runtimes import Runtime
from engine.trace import Event, Trace
from engine.versions import Versions
from lessons.language import LANGUAGES, SHARED, Texts

RUNTIME = Runtime(Path("/env/bin/python"), Versions("2.2.0", "0.0"))
START: Event = {"event": "run", "t": 0.0}


def parsed(line: str, seconds: float = 1.5, task: str = "") -> Any:
    return parse_event(line, seconds, task, RUNTIME, Path("/lab"))


@pytest.mark.parametrize(
    ("line", "event"),
    [
        ('{"event": "count", "t": 0.5, "value": 1}', {"event": "count", "t": 0.5, "value": 1}),
        ('{"event": "count", "value": 1}', {"event": "count", "value": 1, "t": 1.5}),
        ('{"event": "count", "t": "soon"}', {"event": "count", "t": 1.5}),
        ('{"event": "count", "t": true}', {"event": "count", "t": 1.5}),
        ("a library speaks", {"event": "output", "text": "a library speaks", "t": 1.5}),
        ('{"event": 7}', {"event": "output", "text": '{"event": 7}', "t": 1.5}),
        ('{"event": "end", "status": "ok"}', {"event": "output", "text": '{"event": "end", "status": "ok"}', "t": 1.5}),
        ('{"event": "output"}', {"event": "output", "text": "", "t": 1.5}),
        ("x" * 1001, {"event": "output", "text": "x" * 1000, "t": 1.5}),
        ("[" * 100_000, {"event": "output", "text": "[" * 1000, "t": 1.5}),
    ],
)
def test_every_line_becomes_an_event_with_its_time(line: str, event: dict[str, Any]) -> None:
    assert parsed(line) == event
    assert parsed(line, task="worker:1") == {**event, "task": "worker:1"}


def test_a_running_trace_whose_last_line_is_no_event_has_its_time() -> None:
    trace = Trace((START, parsed('{"event": "count", "t": 0.5}'), parsed("a library speaks", 2.25)))
    assert (trace.status, trace.seconds, trace.end["t"]) == ("running", 2.25, 2.25)


def ended(code: int = 0, stopped: Stopped | None = None, task: str = "", conflict: tuple[str, ...] = ()) -> Ended:
    return Ended(1, task, code, stopped, list(conflict), 2.04, "words\n[Errno 28] No space left on device\n")


@pytest.mark.parametrize(
    ("message", "status", "reason"),
    [
        (ended(), "ok", None),
        (ended(1), "killed", "its process ended with exit status 1 and reported no error"),
        (ended(-9), "killed", "its process was ended by SIGKILL"),
        (ended(-40), "killed", "its process was ended by signal 40"),
        (ended(-6, task="ps:0"), "killed", "its task ps:0 was ended by SIGABRT"),
        (ended(3, task="ps:0"), "killed", "its task ps:0 ended with exit status 3 and reported no error"),
        (ended(-9, "timeout"), "timeout", "it had not ended after 2.0 s"),
        (ended(-9, "memory"), "killed", "it held more memory than a run may"),
        (ended(-9, "output"), "killed", "it printed more than a run may"),
        (ended(-9, "cancelled"), "cancelled", "nobody waited for it any more"),
        (
            ended(0, "no_room"),
            "killed",
            "the machine had no process or no file left for it ([Errno 28] No space left on device)",
        ),
        (
            ended(1, task="ps:0", conflict=("localhost:1", "localhost:2")),
            "killed",
            "another program took localhost:1, localhost:2, where one of its tasks was to be found",
        ),
    ],
)
def test_how_a_run_ended(message: Ended, status: str, reason: str | None) -> None:
    end = ending_of(message, []).event()
    assert (end["status"], end.get("reason"), end["t"], end["seconds"]) == (status, reason, 2.04, 2.04)


def test_an_error_that_was_reported_is_the_answer() -> None:
    error = parsed('{"event": "error", "t": 1, "type": "ValueError", "message": "no", "task": "worker:0"}')
    assert ending_of(ended(1), [error]).event()["status"] == "error"
    assert died_event(TaskDied(1, "worker:0", 1, 2.0), [error]) is None
    assert died_event(TaskDied(1, "worker:1", 1, 2.0), [error]) == {
        "event": "died", "t": 2.0, "task": "worker:1", "status": 1,
    }  # fmt: skip
    assert died_event(TaskDied(1, "worker:0", -9, 2.0), [error]) == {
        "event": "died", "t": 2.0, "task": "worker:0", "signal": "SIGKILL",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "message", "transient"),
    [
        ("ValueError", "Trying to create optimizer slot variable under the scope", False),
        ("InvalidArgumentError", "Inputs to operation AddN must have the same size", False),
        ("FailedPreconditionError", "variable is uninitialized", False),
        ("ResourceExhaustedError", "OOM when allocating tensor", True),
        ("tensorflow.python.framework.errors_impl.UnavailableError", "Socket closed", True),
        ("DeadlineExceededError", "4 s", True),
        ("MemoryError", "", True),
        ("InternalError", "Failed to allocate: out of memory", True),
        ("OSError", "[Errno 12] Cannot allocate memory", True),
        ("OSError", "[Errno 28] No space left on device", True),
        ("RuntimeError", "The operation timed out", True),
    ],
)
def test_errors_of_a_busy_moment_are_told_from_answers(kind: str, message: str, transient: bool) -> None:
    error: Event = {"event": "error", "t": 1.0, "type": kind, "message": message, "line": 1, "step": 0}
    trace = Trace((START, error, Ending("error").event()))
    assert trace.answered
    assert is_transient(trace) == transient


def test_every_reason_has_a_text_in_both_languages() -> None:
    for language in LANGUAGES:
        for why in REASONS:
            assert Texts(SHARED, language)(f"run.why.{why}", detail="7", task="ps:0")
