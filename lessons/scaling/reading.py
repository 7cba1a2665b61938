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

# "equal": never further from the reference than rounding. "amplified": by arithmetic the same training, and at first
# it is, but rounding grew. "scaled": apart, and the first step was a multiple of the reference's that the settings
# predict. "apart": apart in another way. "empty": NaN, since replicas without flowers had gradients of NaN.
# "diverged": NaN or infinite without that.
Outcome = Literal[
    "running", "equal", "amplified", "scaled", "apart", "empty", "diverged", "nothing", "raised", "stopped"
]


@dataclass(frozen=True)
class Step:
    """One step. `losses` are what each replica made smaller, `gradients` the norms of what each computed, `merged` that
    of the sum of what they gave to the optimizer; `update` is the length of the step itself, `distance` that between
    the weights after it."""

    number: int
    examples: tuple[int, ...]
    losses: tuple[float, ...]
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

    @property
    def empty(self) -> tuple[int, ...]:
        """The replicas that got no flower."""
        return tuple(replica for replica, count in enumerate(self.examples) if count == 0)

    @property
    def finite(self) -> bool:
        return all(math.isfinite(value) for value in (self.loss, self.update, self.distance))

    @property
    def broken_by_empty(self) -> bool:
        """True where gradients are no numbers on just the replicas that got no flower."""
        none = tuple(replica for replica, norm in enumerate(self.gradients) if not math.isfinite(norm))
        return bool(none) and none == self.empty


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
        """True where the reference takes each replica's share in a step of its own, and there are several."""
        return bool(self.settings["reference"] == "small_batches") and self.replicas > 1

    @property
    def uneven(self) -> Step | None:
        """The first step whose batch was not full."""
        return next((step for step in self.steps if sum(step.examples) != self.global_batch), None)

    @property
    def broken(self) -> Step | None:
        """The first step that left values which are no numbers."""
        return next((step for step in self.steps if not step.finite), None)

    @property
    def loss_factor(self) -> float:
        """By what loss and merge, as they are chosen, multiply the mean gradient of the global batch."""
        return loss_factor(self.settings)

    @property
    def rule_factor(self) -> float:
        """By what the rule multiplies the learning rate, once it is warm."""
        return rule_factor(self.settings)

    @property
    def meant_factor(self) -> int:
        """How many times the learning rate a step of the replicas is to be worth: the reference's steps for it."""
        return self.replicas if self.small_batches else 1

    @property
    def predicted(self) -> float | None:
        """How many times as long as the reference's the first step should be; None where no factor says it."""
        if self.small_batches or (self.settings["normalization"] == "per_replica" and self.replicas > 1):
            return None
        rule = 1.0 if self.settings["rule"] == "linear_warmup" else self.rule_factor
        # Adam divides a gradient by the root of its mean square: at first that leaves its sign.
        return rule if self.settings["optimizer"] == "adam" else rule * self.loss_factor

    @property
    def same_by_arithmetic(self) -> bool:
        """True where replicas and reference are the same training, but for rounding."""
        return not self.small_batches and keeps_to(self.settings, uneven=self.uneven is not None)

    @property
    def has_idle_bias(self) -> bool:
        """True where weights part that change nothing: BatchNormalization takes the bias before it out again, so that
        its gradient is but rounding, and Adam makes steps of that, too. The losses and the steps are the same."""
        first = self.steps[0]
        noise = self.settings["optimizer"] == "adam" and self.settings["normalization"] == "synchronized"
        return noise and close(first.loss, first.reference_loss) and close(first.factor, 1)

    @property
    def as_meant(self) -> bool:
        """True where the run came out as it is meant to: one with the reference, or by steps worth as much."""
        if self.small_batches:
            return self.outcome == "apart" and as_meant(self.settings, uneven=self.uneven is not None)
        return self.outcome in ("equal", "amplified")

    @property
    def farthest(self) -> float:
        """The largest distance between the two runs' weights."""
        return max((step.distance for step in self.steps), default=0.0)

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
        if self.broken is not None:
            return "empty" if self.broken.broken_by_empty else "diverged"
        if self.farthest < ROUNDING:
            return "equal"
        first = self.steps[0]
        if self.same_by_arithmetic and (self.has_idle_bias or first.distance < ROUNDING * max(1.0, first.update)):
            return "amplified"
        predicted = self.predicted
        if predicted is not None and predicted != 1 and close(self.steps[0].factor, predicted):
            return "scaled"
        return "apart"


def loss_factor(settings: Mapping[str, Any]) -> float:
    """By what these choices of loss and gradient multiply the mean gradient of a full global batch."""
    replicas, share = int(settings["replicas"]), int(settings["per_replica_batch"])
    factor = {"per_replica_mean": replicas, "sum": replicas * share}.get(settings["loss"], 1)
    return factor / (replicas if settings["gradient"] == "mean" else 1)


def rule_factor(settings: Mapping[str, Any]) -> float:
    """By what this rule multiplies the learning rate, once it is warm."""
    replicas = int(settings["replicas"])
    return {"none": 1.0, "square_root": math.sqrt(replicas)}.get(settings["rule"], float(replicas))


def keeps_to(settings: Mapping[str, Any], *, uneven: bool) -> bool:
    """True where, by arithmetic, replicas with these settings train as the one device does that takes the whole batch
    in one step. `uneven` says that there was a batch that was not full."""
    replicas, loss, rule = int(settings["replicas"]), loss_factor(settings), rule_factor(settings)
    if settings["rule"] == "linear_warmup" and replicas > 1:
        return False  # from 1 to `replicas`
    if settings["normalization"] == "per_replica" and replicas > 1:
        return False
    if uneven and settings["loss"] == "global_mean" and settings["last_batch"] == "keep":
        return False
    # A sum is the mean's multiple by what there is; a mean of means counts a flower in a small share for more.
    if uneven and (settings["loss"] == "sum" or (settings["loss"] == "per_replica_mean" and replicas > 1)):
        return False
    if settings["optimizer"] == "adam" and not math.isclose(loss, 1):
        return False  # by its epsilon
    return math.isclose(loss * rule, 1)


def as_meant(settings: Mapping[str, Any], *, uneven: bool) -> bool:
    """True where a step is worth, by arithmetic, what is meant: the reference's, or its small steps together."""
    replicas = int(settings["replicas"])
    if settings["reference"] != "small_batches" or replicas == 1:
        return keeps_to(settings, uneven=uneven)
    # Adam divides a factor of the gradient away, but not one of the rate.
    loss = 1.0 if settings["optimizer"] == "adam" else loss_factor(settings)
    return math.isclose(loss * rule_factor(settings), replicas)


def read(trace: Trace) -> Reading:
    """Read a trace of `scaling`, ended or not."""
    steps = tuple(
        Step(
            event["step"],
            tuple(event["examples"]),
            tuple_of(event["losses"]),
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
