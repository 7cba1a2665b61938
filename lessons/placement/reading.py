"""What a trace of `placement` says: which process holds which variable, who wrote it, and who saw that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from engine.trace import Trace
from lessons.failure import Failure, failure_of

Process = tuple[str, int]  # ("ps", 0)
Outcome = Literal["shared", "own", "mixed", "alone", "raised", "stopped"]


@dataclass(frozen=True)
class Copy:
    """One variable where it lives. Two workers that name the same process and variable mean the same copy."""

    process: Process
    variable: str
    bytes: int


@dataclass(frozen=True)
class Reading:
    """One run. `copies` is every variable in every process that holds one, `uses` which of them each worker means by
    a variable's name, `devices` what the graph asked for; `read` has what each worker but 0 saw."""

    settings: Mapping[str, Any]
    tensorflow: str
    processes: tuple[Process, ...]
    copies: tuple[Copy, ...]
    uses: Mapping[int, Mapping[str, Process]]
    devices: Mapping[str, str]
    operation: Process | None
    written: Mapping[str, float]
    read: Mapping[int, Mapping[str, float]]
    failure: Failure | None
    outcome: Outcome

    def bytes_on(self, process: Process) -> int:
        """Bytes of all variables that a process holds."""
        return sum(copy.bytes for copy in self.copies if copy.process == process)

    @property
    def placed(self) -> bool:
        """True where the graph says a job for every variable."""
        return all("/job:" in device for device in self.devices.values())

    @property
    def parts(self) -> Mapping[str, tuple[str, ...]]:
        """Of each variable that a partitioner cut: the names of its parts."""
        found: dict[str, tuple[str, ...]] = {}
        for variable in self.devices:
            whole, cut, _ = variable.partition("/part_")
            if cut:
                found[whole] = (*found.get(whole, ()), variable)
        return found


def read(trace: Trace) -> Reading:
    """Read a trace, however far it came."""
    settings = trace.start["settings"]
    sizes = {event["variable"]: event["bytes"] for event in trace.of("placement")}
    uses: dict[int, dict[str, Process]] = {}
    for event in (*trace.of("placement"), *trace.of("read")):
        uses.setdefault(_index(event["task"]), {})[event["variable"]] = process_of(event["home"])
    copies = {
        (process, variable): Copy(process, variable, sizes[variable])
        for _, places in sorted(uses.items())
        for variable, process in places.items()
        if variable in sizes
    }
    seen: dict[int, dict[str, float]] = {}
    for event in trace.of("read"):
        seen.setdefault(_index(event["task"]), {})[event["variable"]] = event["value"]
    written = {event["variable"]: event["value"] for event in trace.of("write")}
    operations = trace.of("operation")
    return Reading(
        settings=settings,
        tensorflow=trace.start["tensorflow"],
        processes=tuple(
            (job, index)
            for job, count in (("ps", settings["ps"]), ("worker", settings["workers"]))
            for index in range(count)
        ),
        copies=tuple(copies.values()),
        uses=uses,
        devices={event["variable"]: event["device"] for event in trace.of("placement")},
        operation=process_of(operations[0]["home"]) if operations else None,
        written=written,
        read=dict(sorted(seen.items())),
        failure=failure_of(trace),
        outcome=_outcome(trace, written, seen),
    )


def process_of(device: str) -> Process:
    """("ps", 0) of "/job:ps/replica:0/task:0/device:CPU:0"."""
    found = re.search(r"/job:(\w+)/(?:replica:\d+/)?task:(\d+)", device)
    if found is None:
        raise ValueError(f"{device!r} names no task")
    return found[1], int(found[2])


def _index(task: str) -> int:
    return int(task.partition(":")[2])


def _outcome(trace: Trace, written: Mapping[str, float], seen: Mapping[int, Mapping[str, float]]) -> Outcome:
    if not trace.answered:
        return "stopped"
    if trace.error is not None:
        return "raised"
    arrived = {value == written[variable] for values in seen.values() for variable, value in values.items()}
    if not arrived:
        return "alone"
    return "mixed" if len(arrived) == 2 else "shared" if arrived == {True} else "own"
