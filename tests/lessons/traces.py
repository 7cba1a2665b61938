"""Traces as a run of the experiment `aggregation` prints them, made of numbers that a test states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.trace import Event, Trace

SETTINGS: dict[str, Any] = {
    "aggregation": "NONE",
    "route": "assign_add",
    "update": "assign_add",
    "synchronization": "AUTO",
    "replicas": 2,
    "steps": 1,
    "gradients": [0.1, 0.2],
    "learning_rate": 1.0,
    "clipnorm": None,
    "value": "tensor",
    "dtype": "float32",
    "mode": "eager",
    "cross_device": "default",
    "devices": "cpu",
}


def trace(
    *copies: Sequence[float],
    error: tuple[str, str] | None = None,
    status: str | None = None,
    reads: Sequence[float] | None = None,
    start: Sequence[float] | None = None,
    **settings: Any,
) -> Trace:
    """A run whose copies hold `copies`, one list a step after the first value of 1, with true counters.

    `error` (type and message) is raised in the step after those, or, with `reads` too short, at that step's
    read. `status` is the end's; `reads` what a cross-replica read gives after each step: copy 0, if it is
    left out.
    """
    chosen = SETTINGS | settings
    if "gradients" in settings:
        chosen["replicas"] = len(settings["gradients"])
    replicas, sent = range(chosen["replicas"]), chosen["gradients"]
    kind = "SyncOnReadVariable" if chosen["synchronization"] == "ON_READ" else "MirroredVariable"
    devices = [f"CPU:{replica}" for replica in replicas]
    events: list[Event] = [
        {
            "event": "run",
            "t": 0.0,
            "experiment": "aggregation",
            "settings": chosen,
            "tensorflow": "2.21.0",
            "keras": "3.15.1",
            "python": "3.11.7",
            "devices": devices,
        }
    ]

    def variables(step: int, values: Sequence[float]) -> None:
        events.extend(
            {
                "event": "variable",
                "t": 0.0,
                "step": step,
                "replica": replica,
                "variable": "weight",
                "value": value,
                "kind": kind,
            }
            for replica, value in enumerate(values)
        )

    def gradients(step: int) -> None:
        events.extend(
            {
                "event": "gradient",
                "t": 0.0,
                "step": step,
                "replica": replica,
                "variable": "weight",
                "value": sent[replica],
            }
            for replica in replicas
        )

    if start is None or start:
        events.extend(
            {
                "event": "placement",
                "t": 0.0,
                "variable": "weight",
                "replica": replica,
                "device": f"/job:localhost/replica:0/task:0/device:{devices[replica]}",
                "kind": kind,
            }
            for replica in replicas
        )
        variables(0, start or [1.0] * len(replicas))
    once = chosen["route"] == "cross_replica"
    for step, values in enumerate(copies, 1):
        gradients(step)
        variables(step, values)
        counts = {"SUM": step if once else step * len(replicas), "MEAN": step, "ONLY_FIRST_REPLICA": step}
        if chosen["route"].startswith("optimizer"):
            counts["iterations"] = step
        events.extend(
            {"event": "counter", "t": 0.0, "step": step, "replica": replica, "counter": name, "value": float(count)}
            for name, count in counts.items()
            for replica in replicas
        )
        if reads is None or step <= len(reads):
            value = values[0] if reads is None else reads[step - 1]
            events.append({"event": "read", "t": 0.0, "step": step, "variable": "weight", "value": value})
    if error:
        step = len(copies) if reads is not None and len(reads) < len(copies) else len(copies) + 1
        if start is not None and not start:
            step = 0
        elif step > len(copies):
            gradients(step)
        events.append({"event": "error", "t": 0.0, "type": error[0], "message": error[1], "line": 41, "step": step})
    events.append({"event": "end", "t": 0.0, "status": status or ("error" if error else "ok"), "seconds": 0.2})
    return Trace(tuple({**event, "t": 0.01 * place} for place, event in enumerate(events)))


def cut(whole: Trace, length: int, status: str = "killed") -> Trace:
    """The same run, stopped after that many events."""
    return Trace((*whole.events[:length], {"event": "end", "t": 9.0, "status": status, "seconds": 9.0, "reason": "?"}))
