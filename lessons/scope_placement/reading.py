"""What the trace of a `scope_placement` run says: when each variable came into being and whose it is, and what
training then did.

Whether it trained as one is not taken from the settings: it is found by comparing each copy of the weight, step by
step, with the optimizer's own arithmetic on the gradients that were reported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.program import render
from engine.settings import SettingsError
from engine.trace import Event, Status, Trace
from engine.versions import Versions
from lessons.failure import Failure, cause_of, failure_of

# Whose a variable is. "default" is the strategy of those that were made in no scope: plain variables, one copy.
Owner = Literal["MirroredStrategy", "default"]
Role = Literal["weight", "slot", "iterations", "other"]
# What is put inside the scope or not, in the order of the program. "step" is the training step, or fit.
Part = Literal["model", "dummy_call", "optimizer", "step"]
# When a variable came into being. "compile" and "run" are moments at which only an error is seen: model.compile,
# and a step as a whole, such as the run of the graph that tf.function made of it.
Moment = Literal["construction", "dummy_call", "build", "compile", "first_call", "first_apply", "first_fit", "run"]
Place = Literal["in", "out"]
# Keras's optimizers: "legacy" up to TensorFlow 2.10, "keras2" from 2.11 and in tf_keras, "keras3".
Era = Literal["legacy", "keras2", "keras3"]
# How the gradients of a step became one: added, averaged, or only the first taken.
Rule = Literal["sum", "mean", "first"]
# "trained": as one, every copy equal and moved by all gradients. "miscounted": the same, but `iterations` is not the
# number of steps. "one_input": every copy equal, but moved by one replica's input alone. "one_replica": only the
# first copy moved. "diverged": the copies differ. "plain": a single copy that no strategy knows. "odd": every copy
# equal, and moved by something else. "nothing": the run ended before a step.
Outcome = Literal[
    "trained", "miscounted", "one_input", "one_replica", "diverged", "plain", "odd", "nothing", "raised", "stopped"
]
Cause = Literal[
    "mixing", "needs_scope", "colocate", "slot_scope", "no_handle", "cross_replica", "placeholder", "compile",
    "metric", "no_build", "build_early", "loss_reduction", "assertion", "other",
]  # fmt: skip

# Part of a message -> why it was raised. Of several that fit, the first is meant.
CAUSES: Final[tuple[tuple[str, Cause], ...]] = (
    ("Mixing different tf.distribute.Strategy objects", "mixing"),  # distribute_lib._wrong_strategy_scope
    ('Need to be inside "with strategy.scope()"', "needs_scope"),  # the same, where no strategy is active
    ("Trying to create optimizer slot variable under the scope", "slot_scope"),  # optimizer_v2.add_slot
    ("`colocate_vars_with` must only be passed", "colocate"),  # distribute_utils.validate_colocate
    ("is not available outside the replica context", "no_handle"),  # values.DistributedVariable.handle
    # Eager mode looks for the weight among its copies' devices before it asks for a handle.
    ("tuple indices must be integers or slices, not MirroredVariable", "no_handle"),
    ("cannot be called in cross-replica context", "cross_replica"),  # optimizer_v2.apply_gradients
    ("'NoneType' object has no attribute 'merge_call'", "cross_replica"),  # the same place, later
    ("You must feed a value for placeholder", "placeholder"),  # session-like run of a graph
    ("was not created in the distribution strategy scope", "compile"),  # keras training._validate_compile
    ("SyncOnReadVariable does not support `assign_add`", "metric"),  # values_util, by a metric of fit
    ("for loss reduction when losses are used with `tf.distribute.Strategy`", "loss_reduction"),  # losses_utils
    ("object has no attribute 'build'", "no_build"),
    ("have not yet been created", "build_early"),  # Sequential.weights
    ("The optimizer cannot recognize variable", "build_early"),  # keras 2 Optimizer._update_step
    ("Unknown variable:", "build_early"),  # keras 3 BaseOptimizer._check_variables_are_known
)
HAS_SLOTS: Final = ("momentum", "adam", "adagrad", "rmsprop")
BUILT: Final = ("functional", "sequential_built")  # have their weights once they are made
_STRAY: Final = 1e-5  # what float32 leaves of a value of 1 after some steps, and the trace's six decimals


@dataclass(frozen=True)
class Birth:
    """One variable, as it came into being. `name` is short: "weight", "momentum", "iterations"."""

    variable: str
    name: str
    role: Role
    part: Part
    moment: Moment
    line: int
    kind: str
    owner: Owner
    devices: tuple[str, ...]


@dataclass(frozen=True)
class Step:
    """One step: what was reported of it. `after` has one value for each copy of the weight; `gradients` one for each
    replica that ran, and none for fit, which reports its loss."""

    number: int
    gradients: tuple[float, ...]
    loss: float | None
    before: tuple[float, ...]
    after: tuple[float, ...]
    iterations: tuple[float, ...]

    @property
    def equal(self) -> bool:
        """True where every copy holds the same."""
        return not any(self.drifted)

    @property
    def drifted(self) -> tuple[bool, ...]:
        """Which copies differ from the first."""
        return tuple(not close(copy, self.after[0], abs(self.after[0])) for copy in self.after)


@dataclass(frozen=True)
class PartFailure(Failure):
    """`code` is what stands in the line; `part` and `moment` say what the program was doing, in `step`, 0 before the
    first one."""

    cause: Cause
    code: str | None
    step: int
    part: Part
    moment: Moment


@dataclass(frozen=True)
class Reading:
    """A whole run, read from its trace. `merges` are the rules by which all its steps could have merged gradients."""

    settings: dict[str, Any]
    tensorflow: str
    keras: str
    births: tuple[Birth, ...]
    steps: tuple[Step, ...]
    merges: tuple[Rule, ...]
    status: Status
    failure: PartFailure | None

    def place(self, part: Part) -> Place:
        """Whether that was put inside the scope or stands outside of it."""
        if part == "dummy_call":
            return "in" if self.settings["dummy_call"] == "in_scope" else "out"
        place: Place = self.settings[{"model": "model", "optimizer": "optimizer", "step": "apply"}[part] + "_scope"]
        return place

    @property
    def parts(self) -> tuple[Part, ...]:
        """What the program has, in its order."""
        parts: tuple[Part, ...] = ("model", "dummy_call", "optimizer", "step")
        return tuple(part for part in parts if part != "dummy_call" or self.settings["dummy_call"] != "none")

    def enters(self, part: Part) -> bool:
        """True where that runs in the strategy's replicas wherever it stands: strategy.run enters the scope, and so
        does the fit of a model that was made in it."""
        if part == "dummy_call":
            return bool(self.settings["dummy_call"] == "in_replica")
        if part != "step" or self.direct:
            return False
        return not self.fit or self.settings["model_scope"] == "in"

    @property
    def replicas(self) -> int:
        """How many replicas the strategy has."""
        return int(self.settings["replicas"])

    @property
    def fit(self) -> bool:
        """True where Keras's own loop trains."""
        return bool(self.settings["loop"] == "fit")

    @property
    def direct(self) -> bool:
        """True where the step is called without strategy.run."""
        return bool(self.settings["step"] == "direct")

    @property
    def has_slots(self) -> bool:
        """True for an optimizer that keeps variables for each weight."""
        return self.settings["optimizer"] in HAS_SLOTS

    @property
    def era(self) -> Era:
        """Which optimizers these are."""
        if self.settings["keras"] == "tf_keras":
            return "keras2"
        return "legacy" if self.keras_numbers < (2, 11) else "keras2" if self.keras_numbers < (3, 0) else "keras3"

    @property
    def keras_numbers(self) -> tuple[int, ...]:
        """Keras's major and minor version: (3, 15); () where the trace doesn't say it."""
        return tuple(int(number) for number in re.findall(r"\d+", self.keras)[:2])

    @cached_property
    def weight(self) -> Birth | None:
        """The weight, None where the run ended before it."""
        return next((birth for birth in self.births if birth.role == "weight"), None)

    @cached_property
    def slots(self) -> tuple[Birth, ...]:
        """What the optimizer keeps for the weight."""
        return tuple(birth for birth in self.births if birth.role == "slot")

    @cached_property
    def counter(self) -> Birth | None:
        """The optimizer's `iterations`, None where the run ended before it."""
        return next((birth for birth in self.births if birth.role == "iterations"), None)

    @property
    def last(self) -> Step | None:
        """The last step, None where there is none."""
        return self.steps[-1] if self.steps else None

    @cached_property
    def counted_right(self) -> bool:
        """True where `iterations` is the number of steps, in every copy of it."""
        return all(count == step.number for step in self.steps for count in step.iterations)

    @cached_property
    def as_one(self) -> float | None:
        """What every copy would hold after these steps, trained as one by the gradients of all replicas; None where
        these are not known."""
        if not self.steps or not (self.fit or self.settings["loss"] == "output"):
            return None
        update = Update(self.settings["optimizer"], float(self.settings["learning_rate"]), self.era)
        weight = self.steps[0].before[0]
        for _ in self.steps:
            gradients = batch_gradients(self, weight)
            weight += update(sum(gradients) / (len(gradients) if self.fit else 1))
        return weight

    @cached_property
    def outcome(self) -> Outcome:
        """What became of the run, in a word."""
        if self.failure:
            return "raised" if self.failure.raised else "stopped"
        if not self.steps or self.weight is None:
            return "nothing"
        if self.weight.owner == "default":
            return "plain"
        last = self.steps[-1]
        if not last.equal:
            rest = [copy for step in self.steps for copy in step.after[1:]]
            return "one_replica" if set(rest) == {self.steps[0].before[-1]} else "diverged"
        wanted: Rule = "mean" if self.fit else "sum"
        if wanted not in self.merges:
            return "odd"
        if not self.fit and len(last.gradients) < self.replicas:
            return "one_input"
        return "trained" if self.counted_right else "miscounted"


def read(trace: Trace) -> Reading:
    """Read a trace of the experiment `scope_placement`, however early it ends."""
    settings: dict[str, Any] = trace.start["settings"]
    births = tuple(_birth(event, trace.of("birth")) for event in trace.of("birth"))
    steps = tuple(_steps(trace, births))
    reading = Reading(
        settings=settings,
        tensorflow=str(trace.start.get("tensorflow", "")),
        keras=str(trace.start.get("keras", "")),
        births=births,
        steps=steps,
        merges=(),
        status=trace.status,
        failure=_failure(trace, steps),
    )
    merges = tuple(rule for rule in _rules(reading) if _explains(reading, rule))
    return Reading(**{**vars(reading), "merges": merges})


def _birth(event: Event, events: Sequence[Event]) -> Birth:
    moment: Moment = event["moment"]
    role: Role = event["role"]
    part: Part = "step"
    if moment in ("construction", "build"):
        part = "model" if role == "weight" else "optimizer"
    elif moment == "dummy_call":
        part = "dummy_call"
    weights = [other["variable"] for other in events if other["role"] == "weight"]
    name = {"weight": "weight", "iterations": "iterations"}.get(role) or _short(event["variable"], weights)
    return Birth(
        variable=event["variable"],
        name=name,
        role=role,
        part=part,
        moment=moment,
        line=event["line"],
        kind=event["kind"],
        owner=event["strategy"],
        devices=tuple(device.rpartition("device:")[2] for device in event["devices"]),
    )


def _short(variable: str, weights: Sequence[str]) -> str:
    """The name of a slot without the optimizer's and the weight's: "SGD/dense/kernel/momentum" is "momentum", and so
    are "SGD/m/dense/kernel" ("m") and "sgd/dense_kernel_momentum"."""
    name = variable
    for weight in weights:
        for form in (weight, weight.replace("/", "_")):
            name = name.replace(form, "")
    parts = [part.strip("_") for part in name.split("/") if part.strip("_")]
    return parts[-1] if parts else variable


def _steps(trace: Trace, births: Sequence[Birth]) -> Iterator[Step]:
    """Every step that each copy of the weight reported on."""
    copies = _by_step(trace.of("variable"))
    gradients, counters = _by_step(trace.of("gradient")), _by_step(trace.of("counter"))
    losses = {event["step"]: float(event["value"]) for event in trace.of("loss")}
    expected = next((len(birth.devices) for birth in births if birth.role == "weight"), 1)
    before = (1.0,) * expected  # Dense(..., kernel_initializer="ones")
    for number in sorted(copies):
        after = copies[number]
        if len(after) != expected:
            return  # cut off in the middle
        yield Step(number, gradients.get(number, ()), losses.get(number), before, after, counters.get(number, ()))
        before = after


def _by_step(events: Sequence[Event]) -> dict[int, tuple[float, ...]]:
    """Step -> the values of each replica, in order."""
    values: dict[int, tuple[float, ...]] = {}
    for event in events:
        values[event["step"]] = (*values.get(event["step"], ()), float(event["value"]))
    return values


# ---------------------------------------------------------------------------------------------------- arithmetic


def _rules(reading: Reading) -> tuple[Rule, ...]:
    """The rules that could be distinguished: with fit no replica's own gradient is known."""
    return ("sum", "mean") if reading.fit else ("sum", "mean", "first")


def _explains(reading: Reading, rule: Rule) -> bool:
    """True where the optimizer, given gradients merged by that rule, takes every copy where it was in every step."""
    if not reading.steps:
        return False
    settings = reading.settings
    update = Update(settings["optimizer"], float(settings["learning_rate"]), reading.era)
    weight = reading.steps[0].before[0]
    size = abs(weight)
    for step in reading.steps:
        gradients = batch_gradients(reading, step.before[0]) if reading.fit else step.gradients
        if not gradients:
            return False
        merged = {"sum": sum(gradients), "mean": sum(gradients) / len(gradients), "first": gradients[0]}[rule]
        weight += update(merged)
        size = max(size, abs(weight))
        if not all(close(copy, weight, size) for copy in step.after):
            return False
    return True


def batch_gradients(reading: Reading, weight: float) -> tuple[float, ...]:
    """The gradient of each example in a batch of fit, which has one x a replica: y = weight * x."""
    inputs = reading.settings["inputs"]
    if reading.settings["loss"] == "output":
        return tuple(float(x) for x in inputs)
    sign = math.copysign(1.0, weight) if weight else 0.0  # |weight * x - 0|
    return tuple(sign * abs(x) for x in inputs)


class Update:
    """One optimizer of Keras as arithmetic, with the slots that it keeps for one weight."""

    def __init__(self, optimizer: str, rate: float, era: Era) -> None:
        self.optimizer, self.rate, self.era = optimizer, rate, era
        self.steps = 0
        self.first = 0.0
        self.second = 0.1 if optimizer == "adagrad" else 0.0

    def __call__(self, gradient: float) -> float:
        """By how much the weight changes in the next step."""
        self.steps += 1
        tiny = 1e-7  # every optimizer's epsilon
        if self.optimizer == "sgd":
            return -self.rate * gradient
        if self.optimizer == "momentum":
            self.first = 0.9 * self.first - self.rate * gradient
            return self.first
        if self.optimizer == "adam":
            self.first = 0.9 * self.first + 0.1 * gradient
            self.second = 0.999 * self.second + 0.001 * gradient**2
            rate = self.rate * math.sqrt(1 - 0.999**self.steps) / (1 - 0.9**self.steps)
            return -rate * self.first / (math.sqrt(self.second) + tiny)
        self.second = (
            self.second + gradient**2 if self.optimizer == "adagrad" else 0.9 * self.second + 0.1 * gradient**2
        )
        root = math.sqrt(self.second) + tiny if self.era == "legacy" else math.sqrt(self.second + tiny)
        return -self.rate * gradient / root


def close(one: float, other: float, size: float) -> bool:
    """Equal but for what float32 may leave of numbers of that size."""
    return abs(one - other) <= _STRAY * max(size, 1.0) or (math.isnan(one) and math.isnan(other))


# ------------------------------------------------------------------------------------------------------- failure


def _failure(trace: Trace, steps: Sequence[Step]) -> PartFailure | None:
    found = failure_of(trace)
    if found is None:
        return None
    if trace.error is None:
        done = steps[-1].number if steps else 0
        last = max((event["step"] for event in trace.events if "step" in event), default=0)
        part, moment = _stopped_at(trace, last)
        return PartFailure(**vars(found), cause="other", code=None, step=max(done, last), part=part, moment=moment)
    step, code = int(trace.error["step"]), _line(trace, found.line)
    part, moment = _at(code or "", step)
    unnamed = found.kind == "AssertionError" and not found.message
    cause: Cause = "assertion" if unnamed else cause_of(found, CAUSES, "other")
    return PartFailure(**vars(found), cause=cause, code=code, step=step, part=part, moment=moment)


def _line(trace: Trace, line: int | None) -> str | None:
    """A line of the program that this trace is of; None where that can't be known any more."""
    start = trace.start
    try:
        settings = SCOPE_PLACEMENT.settings.parse(start["settings"])
        program = render(SCOPE_PLACEMENT, settings, Versions(start["tensorflow"], start["keras"], start["keras"]))
    except (SettingsError, KeyError, ValueError):
        return None  # an old recording, perhaps
    lines = program.splitlines()
    return lines[line - 1].strip() if line and line <= len(lines) else None


def _at(code: str, step: int) -> tuple[Part, Moment]:
    """What the program was doing in that line."""
    if "apply_gradients" in code:
        return "step", "first_apply" if step <= 1 else "run"
    if ".fit(" in code:
        return "step", "first_fit" if step <= 1 else "run"
    if "model.compile" in code:
        return "optimizer", "compile"
    if "optimizer.build" in code:
        return "optimizer", "build"
    if step:
        called = code == "y = model(x)" or "tape.gradient" in code
        return "step", "first_call" if called and step == 1 else "run"
    if code.startswith(("model(", "strategy.run(model")):
        return "dummy_call", "dummy_call"
    return "optimizer" if code.startswith("optimizer") else "model", "construction"


def _stopped_at(trace: Trace, step: int) -> tuple[Part, Moment]:
    """What the program had last been seen to do when it was stopped."""
    if step:
        return "step", "first_fit" if step == 1 and trace.start["settings"]["loop"] == "fit" else "run"
    born = trace.of("birth")
    if not born:
        return "model", "construction"
    return _birth(born[-1], born).part, born[-1]["moment"]
