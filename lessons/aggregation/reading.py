"""What the trace of an `aggregation` run says, step by step, decided by arithmetic on its numbers.

How the contributions were merged is not taken from the settings: it is found by comparing what the copies did
with the sum, the mean, the first and the own contribution. Where several of them give the same number, the
trace cannot tell which it was, and `Step.fits` says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal

from engine.trace import Event, Status, Trace
from lessons.failure import Failure, failure_of

# How one number came out of several. "first": replica 0's only. "own": each copy took its own replica's.
Rule = Literal["sum", "mean", "first", "own"]
# What a step shows: one rule; "one", a single replica, where all are the same; "same", where several give the
# same number; "other", where none gives it.
Merge = Literal["sum", "mean", "first", "own", "one", "same", "other"]
# What accounts for a number that no plain rule gives, or for a learning rate that was not the one asked for.
# "clipped": each contribution clipped, then summed. "clipped_after": summed, then clipped. "clipped_either":
# both give it. "lost": summed without the last replica's. "split": the value divided by the number of
# replicas. "split_cut": so divided, and cut to whole for an int32 weight. "whole_rate": an int32 weight cuts the
# rate to whole.
Why = Literal["clipped", "clipped_after", "clipped_either", "lost", "split", "split_cut", "whole_rate"]
# Where the variable's aggregation is asked: when it is written, at a cross-replica read, or nowhere.
Asked = Literal["write", "read", "never"]
# What the run was doing when it failed.
Place = Literal["creation", "update", "read"]
Values = tuple[float | None, ...]

RULES: Final[tuple[Rule, ...]] = ("sum", "mean", "first", "own")
EPSILON: Final = 2.0**-23  # the relative step of float32


@dataclass(frozen=True)
class Count:
    """One step counter after a step: what each replica's copy says, and what arithmetic expects it to say."""

    name: str
    copies: tuple[float, ...]
    expected: int

    @property
    def value(self) -> float:
        """What replica 0's copy says."""
        return self.copies[0]

    @property
    def agree(self) -> bool:
        """True where every replica's copy says the same."""
        return len(set(self.copies)) == 1

    @property
    def as_expected(self) -> bool:
        """True where every copy says what was expected."""
        return all(_close(copy, self.expected, abs(self.expected)) for copy in self.copies)


@dataclass(frozen=True)
class StepFailure(Failure):
    """`step` is 0 before the first one; `place` says what was being done in it."""

    step: int
    place: Place


@dataclass(frozen=True)
class Step:
    """One step: what was sent, how it was merged, and what it left behind. One value per replica, None if not
    reported.

    `contributions` are the gradients as they went into the merge: clipped, where that is what happened.
    `reached` is the contribution that each copy took, with the sign and the learning rate taken out again;
    `applied` is the same with them: what was added to the copy, or what it was set to where the method is
    assign. `merged` is the number that all copies took, None where they took different ones or where it isn't
    known. `gap` is how far that number is from the sum, where no rule gives it.
    """

    number: int
    gradients: Values
    contributions: Values
    before: Values
    after: Values
    reached: Values
    applied: Values
    merge: Merge | None
    fits: tuple[Rule, ...]
    merged: float | None
    why: Why | None
    gap: float | None
    counts: tuple[Count, ...]
    read: float | None
    read_merge: Merge | None
    read_fits: tuple[Rule, ...]

    @property
    def finished(self) -> bool:
        """True where every copy reported what it then held."""
        return bool(self.after) and None not in self.after

    @property
    def moved(self) -> Values:
        """What each copy was moved by."""
        return tuple(
            None if old is None or new is None else new - old for old, new in zip(self.before, self.after, strict=True)
        )

    @property
    def equal(self) -> bool | None:
        """True where all copies hold the same; None where they did not all report."""
        return not differ(self.after) if self.finished else None

    @property
    def used(self) -> tuple[bool | None, ...]:
        """Which contributions reached a copy; None where the rules that fit disagree or the merge isn't
        known."""
        if self.why == "lost":
            return (*(True for _ in self.gradients[:-1]), False)
        by_rule = {"first": 1}
        verdicts = []
        for replica in range(len(self.gradients)):
            answers = {replica < by_rule.get(rule, len(self.gradients)) for rule in self.fits}
            verdicts.append(answers.pop() if len(answers) == 1 else None)
        return tuple(verdicts)

    def count(self, name: str) -> Count | None:
        """The counter of that name, None where it was not reported."""
        return next((count for count in self.counts if count.name == name), None)


@dataclass(frozen=True)
class Reading:
    """A whole run, read from its trace. `start` is what the copies held before the first step.

    `rate` is the learning rate that the optimizer really applied: cut to whole for an int32 weight.
    """

    settings: dict[str, Any]
    devices: tuple[str, ...]
    kind: str | None
    start: Values
    steps: tuple[Step, ...]
    asked: Asked
    rate: float
    status: Status
    failure: StepFailure | None

    @property
    def replicas(self) -> int:
        """How many replicas the run had."""
        return int(self.settings["replicas"])

    @property
    def aggregation(self) -> str:
        """The aggregation that the variable was made with."""
        return str(self.settings["aggregation"])

    @property
    def route(self) -> str:
        """How the contributions were given to the variable."""
        return str(self.settings["route"])

    @property
    def method(self) -> Literal["assign_add", "assign", "assign_sub"]:
        """The variable's method that changed the copies in the end."""
        return _method(self.settings)

    @property
    def with_optimizer(self) -> bool:
        """True where a Keras optimizer stood between the gradients and the variable."""
        return self.route.startswith("optimizer")

    @property
    def on_read(self) -> bool:
        """True for a variable that is synchronised when it is read."""
        return bool(self.settings["synchronization"] == "ON_READ")

    @property
    def wrong(self) -> bool:
        """True for an error, for copies that drifted, and for a number that was lost or cut on its way."""
        if self.failure is not None:
            return self.failure.raised
        drifted = self.last is not None and self.last.equal is False and not self.on_read
        return drifted or any(step.why in ("lost", "split_cut", "whole_rate") for step in self.steps)

    @property
    def last(self) -> Step | None:
        """The last step that every copy reported on, None where there is none."""
        return next((step for step in reversed(self.steps) if step.finished), None)


def read(trace: Trace) -> Reading:
    """Read a trace of the experiment `aggregation`, however early it ends."""
    settings: dict[str, Any] = trace.start["settings"]
    replicas = int(settings["replicas"])
    rate = float(settings["learning_rate"])
    if settings["dtype"] == "int32":
        rate = float(math.trunc(rate))  # keras SGD.update_step casts it to the variable's dtype

    copies = _by_step(trace.of("variable"), replicas)
    gradients = _by_step(trace.of("gradient"), replicas)
    reads = {event["step"]: float(event["value"]) for event in trace.of("read")}
    counters: dict[int, list[Event]] = {}
    for event in trace.of("counter"):
        counters.setdefault(event["step"], []).append(event)
    failure = _failure(trace, copies)

    nothing: Values = (None,) * replicas
    numbers = {*copies, *gradients, *reads, *counters} | ({failure.step} if failure else set())
    steps = []
    before = copies.get(0, nothing)
    for step in sorted(numbers - {0}):
        after = copies.get(step, nothing)
        steps.append(
            _step(
                step,
                settings,
                rate,
                gradients.get(step, nothing),
                before,
                after,
                _counts(counters.get(step, []), settings, step),
                reads.get(step),
            )
        )
        before = after
    return Reading(
        settings=settings,
        devices=_devices(trace, replicas),
        kind=next((event["kind"] for event in trace.of("placement")), None),
        start=copies.get(0, nothing),
        steps=tuple(steps),
        asked=asked(settings),
        rate=rate,
        status=trace.status,
        failure=failure,
    )


@lru_cache(maxsize=1024)  # asked again for every frame of a figure
def differ(copies: Values) -> bool:
    """True where not all of these values that are known are the same."""
    known = [copy for copy in copies if copy is not None]
    # Copies of a mirrored variable go through the same arithmetic, so equal ones are equal to the last
    # float32 digits.
    return any(not _close(copy, known[0], abs(known[0])) for copy in known)


def asked(settings: Mapping[str, Any]) -> Asked:
    """Where a variable with these settings is asked for its aggregation."""
    if settings["synchronization"] == "ON_READ":
        return "read"
    return "write" if settings["route"] in ("assign_add", "assign", "assign_sub") else "never"


def _step(
    number: int,
    settings: dict[str, Any],
    rate: float,
    gradients: Values,
    before: Values,
    after: Values,
    counts: tuple[Count, ...],
    value_read: float | None,
) -> Step:
    merge: Merge | None = None
    fits: tuple[Rule, ...] = ()
    why: Why | None = None
    merged = gap = None
    contributions = gradients
    reached: Values = (None,) * len(gradients)
    applied: Values = reached
    sent, old, new = _known(gradients), _known(before), _known(after)
    if sent is not None and old is not None and new is not None:
        factor, offset = _arithmetic(settings, rate, old)
        scale = max(map(abs, (*old, *new, *(factor * value for value in sent))))

        def gives(values: Sequence[float]) -> bool:
            return all(
                _close(copy, start + factor * value, scale * (len(sent) + 3))
                for copy, start, value in zip(new, offset, values, strict=True)
            )

        fits = tuple(rule for rule in RULES if factor and gives(apply(rule, sent)))
        if fits:
            merge = "one" if len(sent) == 1 else fits[0] if len(fits) == 1 else "same"
            took = apply(fits[0], sent)
        else:
            merge = "other"
            why, contributions = _account(settings, sent, gives)
            # A rate of 0 lets nothing through.
            took = tuple((copy - start) / factor if factor else 0.0 for copy, start in zip(new, offset, strict=True))
            gap = took[0] - sum(sent)
        reached, applied = took, tuple(factor * value for value in took)
        if settings["route"].startswith("optimizer") and rate != settings["learning_rate"]:
            why = "whole_rate"
        if not differ(reached):
            merged = reached[0]
    read_fits = _read_fits(new, value_read)
    return Step(
        number=number,
        gradients=gradients,
        contributions=contributions,
        before=before,
        after=after,
        reached=reached,
        applied=applied,
        merge=merge,
        fits=fits,
        merged=merged,
        why=why,
        gap=gap,
        counts=counts,
        read=value_read,
        read_merge=_named(read_fits, len(after)) if new is not None and value_read is not None else None,
        read_fits=read_fits,
    )


def apply(rule: Rule, values: Sequence[float]) -> tuple[float, ...]:
    """What each copy takes, one value per replica, where contributions are merged by that rule."""
    if rule == "own":
        return tuple(values)
    merged = {"sum": sum(values), "mean": sum(values) / len(values), "first": values[0]}[rule]
    return (merged,) * len(values)


def _arithmetic(settings: dict[str, Any], rate: float, old: Sequence[float]) -> tuple[float, Sequence[float]]:
    """Factor and offsets with: new copy = offset + factor x what it took."""
    if settings["route"].startswith("optimizer"):
        return -rate, old
    method = _method(settings)
    return (-1.0 if method == "assign_sub" else 1.0), ([0.0] * len(old) if method == "assign" else old)


def _account(settings: dict[str, Any], sent: Sequence[float], gives: Any) -> tuple[Why | None, Values]:
    """What else, known to happen in TensorFlow or Keras, gives the number; and the contributions it was made
    of."""
    limit = settings["clipnorm"]
    if settings["route"].startswith("optimizer") and limit is not None:
        each = tuple(_clip(value, limit) for value in sent)
        whole = _clip(sum(sent), limit)
        before, after = gives(apply("sum", each)), gives((whole,) * len(sent))
        if before or after:
            return "clipped_either" if before and after else "clipped" if before else "clipped_after", (
                each if before else tuple(sent)
            )
    if settings["route"].startswith("optimizer") and settings["cross_device"] == "hierarchical_copy":
        # cross_device_utils.aggregate_gradients_using_hierarchical_copy adds two groups of len // 2 replicas,
        # so that an odd last one is in neither.
        each = tuple(sent) if limit is None else tuple(_clip(value, limit) for value in sent)
        if len(sent) % 2 and gives((sum(each[:-1]),) * len(sent)):
            return "lost", each
    # values_util.on_read_assign_cross_replica: so that a sum survives saving and restoring.
    if settings["synchronization"] == "ON_READ":
        shares = [value / len(sent) for value in sent]
        if gives(shares):
            return "split", tuple(sent)
        # There the share is a float, which tf.cast then cuts to the variable's dtype.
        if settings["dtype"] == "int32" and gives([float(math.trunc(share)) for share in shares]):
            return "split_cut", tuple(sent)
    return None, tuple(sent)


def _clip(value: float, limit: float) -> float:
    """tf.clip_by_norm of a scalar, whose norm is its size."""
    return math.copysign(min(abs(value), limit), value)


def _read_fits(copies: Sequence[float] | None, value: float | None) -> tuple[Rule, ...]:
    if copies is None or value is None:
        return ()
    scale = max(abs(value), *map(abs, copies)) * (len(copies) + 3)
    return tuple(rule for rule in RULES if rule != "own" and _close(value, apply(rule, copies)[0], scale))


def _named(fits: tuple[Rule, ...], replicas: int) -> Merge:
    if not fits:
        return "other"
    return "one" if replicas == 1 else fits[0] if len(fits) == 1 else "same"


def _counts(events: Sequence[Event], settings: dict[str, Any], step: int) -> tuple[Count, ...]:
    copies: dict[str, list[float]] = {}
    for event in events:
        copies.setdefault(event["counter"], []).append(float(event["value"]))
    # Outside the replicas a counter is raised once a step, by one call for all of them.
    per_step = 1 if settings["route"] == "cross_replica" else int(settings["replicas"])
    return tuple(
        Count(name, tuple(values), step * per_step if name == "SUM" else step) for name, values in copies.items()
    )


def _failure(trace: Trace, copies: dict[int, Values]) -> StepFailure | None:
    found = failure_of(trace)
    if found is None:
        return None
    if trace.error:
        step = int(trace.error["step"])
    else:
        # A stopped run was at the step after the last that all copies reported on.
        complete = [number for number, values in copies.items() if None not in values]
        step = min(max(complete, default=-1) + 1, int(trace.start["settings"]["steps"]))
    reported = copies.get(step)
    place: Place = "creation" if step == 0 else "update" if reported is None or None in reported else "read"
    return StepFailure(**vars(found), step=step, place=place)


def _method(settings: dict[str, Any]) -> Literal["assign_add", "assign", "assign_sub"]:
    route = settings["route"]
    if route.startswith("optimizer"):
        return "assign_sub"
    method: Literal["assign_add", "assign", "assign_sub"] = settings["update"] if route == "cross_replica" else route
    return method


def _devices(trace: Trace, replicas: int) -> tuple[str, ...]:
    """The short form of where each copy was placed; what was asked for, where the run did not get that
    far."""
    placed = {event["replica"]: event["device"].rpartition("device:")[2] for event in trace.of("placement")}
    asked_for = [str(device) for device in trace.start.get("devices", [])]
    asked_for += [f"{replica}" for replica in range(len(asked_for), replicas)]
    return tuple(placed.get(replica, asked_for[replica]) for replica in range(replicas))


def _by_step(events: Sequence[Event], replicas: int) -> dict[int, Values]:
    values: dict[int, list[float | None]] = {}
    for event in events:
        row = values.setdefault(event["step"], [None] * replicas)
        row[event["replica"]] = float(event["value"])
    return {step: tuple(row) for step, row in values.items()}


def _known(values: Values) -> tuple[float, ...] | None:
    """The values where all are known and there is at least one, else None."""
    known = tuple(value for value in values if value is not None)
    return known if known and len(known) == len(values) else None


def _close(one: float, other: float, scale: float) -> bool:
    """Equal but for what float32 arithmetic on numbers of that size may leave."""
    return abs(one - other) <= EPSILON * max(scale, abs(other), 1e-30) * 2
