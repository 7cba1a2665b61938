"""What the trace of a `scaling` run says: how its steps compare with the reference's, and by which factor.

Nothing is taken from the settings but what they predict, so that both can be compared.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.trace import Status, Trace

ROUNDING: Final = 1e-5  # what float32 leaves between two runs that are equal by arithmetic, over some hundred steps
NEAR: Final = 1e-3  # relative; how exactly a factor is met by the first step

# "equal": never further from the reference than rounding. "scaled": apart, and the first step was a multiple of the
# reference's that the settings predict. "apart": apart in another way. "diverged": values that are no numbers.
Outcome = Literal["running", "equal", "scaled", "apart", "diverged", "nothing", "raised", "stopped"]


@dataclass(frozen=True)
class Step:
    """One step. `gradients` are the norms of what each replica computed, `merged` that of the sum of what they gave to
    the optimizer; `update` is the length of the step itself, `distance` that between the weights after it."""

    number: int
    examples: tuple[int, ...]
    loss: float
    rate: float
    gradients: tuple[float, ...]
    merged: float
    update: float
    reference_loss: float
    reference_update: float
    distance: float

    @property
    def factor(self) -> float:
        """How many times as long as the reference's this step was."""
        return self.update / self.reference_update if self.reference_update else math.nan


@dataclass(frozen=True)
class Result:
    """A model at the end, on all flowers: the mean loss, and how many it names rightly."""

    loss: float
    correct: int


@dataclass(frozen=True)
class Reading:
    """A whole run, or what there is of one that is under way."""

    settings: dict[str, Any]
    steps: tuple[Step, ...]
    results: Mapping[str, Result]
    iterations: Mapping[str, int]
    status: Status
    error: str | None
    message: str
    line: int | None

    @property
    def replicas(self) -> int:
        return int(self.settings["replicas"])

    @property
    def global_batch(self) -> int:
        """Flowers in a full batch, over all replicas."""
        return self.replicas * int(self.settings["per_replica_batch"])

    @property
    def small_batches(self) -> bool:
        """True where the reference takes each replica's share in a step of its own."""
        return bool(self.settings["reference"] == "small_batches")

    @property
    def loss_factor(self) -> float:
        """By what loss and merge, as they are chosen, multiply the mean gradient of the global batch."""
        factor = {"per_replica_mean": self.replicas, "sum": self.global_batch}.get(self.settings["loss"], 1.0)
        return factor / self.replicas if self.settings["gradient"] == "mean" else factor

    @property
    def rule_factor(self) -> float:
        """By what the rule multiplies the learning rate, once it is warm."""
        rule = self.settings["rule"]
        return {"none": 1.0, "square_root": math.sqrt(self.replicas)}.get(rule, float(self.replicas))

    @property
    def predicted(self) -> float | None:
        """How many times as long as the reference's the first step should be; None where no factor says it."""
        if self.small_batches or (self.settings["normalization"] == "per_replica" and self.replicas > 1):
            return None
        rule = 1.0 if self.settings["rule"] == "linear_warmup" else self.rule_factor
        # Adam divides a gradient by the root of its mean square: at first that leaves its sign.
        return rule if self.settings["optimizer"] == "adam" else rule * self.loss_factor

    @property
    def farthest(self) -> float:
        """The largest distance between the two runs' weights."""
        return max((step.distance for step in self.steps), default=0.0)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(value) for step in self.steps for value in (step.loss, step.update, step.distance))

    @property
    def outcome(self) -> Outcome:
        if self.status == "running":
            return "running"
        if self.error is not None:
            return "raised"
        if self.status != "ok":
            return "stopped"
        if not self.steps:
            return "nothing"
        if not self.finite:
            return "diverged"
        if self.farthest < ROUNDING:
            return "equal"
        predicted = self.predicted
        if predicted is not None and predicted != 1 and close(self.steps[0].factor, predicted):
            return "scaled"
        return "apart"


def read(trace: Trace) -> Reading:
    """Read a trace of `scaling`, ended or not."""
    steps = tuple(
        Step(
            event["step"],
            tuple(event["examples"]),
            float(event["loss"]),
            float(event["rate"]),
            tuple_of(event["gradients"]),
            float(event["merged"]),
            float(event["update"]),
            float(event["reference_loss"]),
            float(event["reference_update"]),
            float(event["distance"]),
        )
        for event in trace.of("step")
    )
    error = trace.error
    return Reading(
        trace.start["settings"],
        steps,
        {event["of"]: Result(float(event["loss"]), event["correct"]) for event in trace.of("result")},
        {event["counter"]: event["value"] for event in trace.of("counter")},
        trace.status,
        error["type"] if error else None,
        error["message"] if error else "",
        error["line"] if error else None,
    )


def close(value: float, expected: float) -> bool:
    """Whether a factor is met, as far as float32 and six reported digits allow."""
    return abs(value - expected) <= NEAR * abs(expected)


def tuple_of(values: list[float | str]) -> tuple[float, ...]:
    """Numbers, of which those that JSON has no form for are words."""
    return tuple(float(value) for value in values)
