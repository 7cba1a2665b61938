"""Traces: the events of one run, in order, as they travel (JSON lines) and as pages read them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict


class Event(TypedDict, total=False):
    """One event of a run. Each has its name and its time; the other fields are those of its name, see design.md and the
    programs. Asking for one that isn't here, or making an event without its time, is a mistake that mypy finds."""

    event: Required[str]
    t: Required[float]  # seconds since the run began
    # Made by the engine: `run`, `end`, `died`, `output`.
    experiment: str
    settings: dict[str, Any]
    tensorflow: str
    keras: str
    python: str
    devices: list[str]
    status: Any  # of `end` a Status, of `died` an exit status
    seconds: float
    why: str
    detail: str
    reason: str
    signal: str
    text: str
    # Made by programs.
    address: Any
    begun: Any
    bytes: Any
    cluster: Any
    collection: Any
    correct: Any
    counter: Any
    device: Any
    distance: Any
    examples: Any
    gradients: Any
    held: Any
    home: Any
    index: Any
    job: Any
    kind: Any
    line: Any
    local_step: Any
    loss: Any
    losses: Any
    merged: Any
    message: Any
    metric: Any
    moment: Any
    moving_averages: Any
    name: Any
    name_scope: Any
    names: Any
    needed: Any
    of: Any
    op: Any
    operation: Any
    optimizer: Any
    parts: Any
    pushes: Any
    rate: Any
    reference_loss: Any
    reference_update: Any
    replica: Any
    replicas: Any
    reuse: Any
    role: Any
    same_as: Any
    shape: Any
    step: Any
    steps: Any
    strategy: Any
    task: Any
    tokens: Any
    type: Any
    update: Any
    value: Any
    variable: Any
    variable_scope: Any
    variables: Any
    waited: Any
    waiting: Any
    weights: Any
    worker: Any


# "running" is of a trace whose run is still under way: no event says it.
Status = Literal["ok", "error", "timeout", "cancelled", "killed", "running"]


@dataclass(frozen=True)
class Trace:
    """The events of one run, first `run`, last `end`, and what the run wrote to standard error.

    `ok` and `error` are TensorFlow's own answers; `timeout`, `cancelled` and `killed` mean that the run
    did not get to give one, and the `end` event then says why in `reason`. While a run is under way, its trace is
    what it has said so far (`Ticket.so_far`): there is no `end` yet, and the status is `running`.
    """

    events: tuple[Event, ...]
    stderr: str = ""

    @property
    def start(self) -> Event:
        """The `run` event: experiment, settings, versions and devices."""
        return self.events[0]

    @property
    def end(self) -> Event:
        """The `end` event: status, seconds, and a reason where the run was stopped. While it is under way, what there
        is to say of that: the time of its last event."""
        last = self.events[-1]
        if last["event"] == "end":
            return last
        return {"event": "end", "t": last["t"], "status": "running", "seconds": last["t"]}

    @property
    def status(self) -> Status:
        status: Status = self.end["status"]
        return status

    @property
    def seconds(self) -> float:
        """Seconds from the start of the run's process to its end."""
        return float(self.end["seconds"])

    @property
    def error(self) -> Event | None:
        """What TensorFlow raised, or None."""
        return next(iter(self.of("error")), None)

    @property
    def answered(self) -> bool:
        """True where TensorFlow gave its answer, be it values or an error."""
        return self.status in ("ok", "error")

    def of(self, name: str) -> list[Event]:
        """The events of that name, in order."""
        return [event for event in self.events if event["event"] == name]

    def without_times(self) -> list[dict[str, Any]]:
        """The events less what differs between two equal runs: `t` and the end's `seconds`."""
        return [{key: value for key, value in event.items() if key not in ("t", "seconds")} for event in self.events]

    def to_jsonl(self) -> str:
        """One JSON object a line, as `python -m engine run` prints it."""
        return "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in self.events)

    @classmethod
    def from_jsonl(cls, text: str, stderr: str = "") -> Trace:
        """Read what `to_jsonl` wrote. Raises ValueError where a line is no event."""
        events = tuple(json.loads(line) for line in text.splitlines() if line.strip())
        if not events or not all(isinstance(event, dict) and "event" in event for event in events):
            raise ValueError("a trace is JSON objects with an 'event', one a line")
        return cls(events, stderr)
