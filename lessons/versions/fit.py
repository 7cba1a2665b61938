"""What the trace of a `fit` run says, beside arithmetic on the same fit on one device, and why the two differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, get_args

from engine.experiments.fit import FIT
from engine.trace import Event, Trace
from lessons.language import Texts, number, numbers_apart
from lessons.lesson import Comparison
from lessons.outcome import Kind, Outcome, nothing, raised, values

STRAY: Final = 2e-4  # of the size: what float32 leaves of hundreds of steps, and the trace's six decimals
FLOAT32_MAX: Final = 3.4e38
_MUCH: Final = 1e300  # examples: beside them no batch counts any more

# How the replicas' gradients became a step. "averaged": each is that of the mean over a replica's own share, and their
# mean was taken. "summed": their sum. "apart": each replica applied its own.
Rule = Literal["averaged", "summed", "apart"]
# Why a weight is not what one device has: a rule that is not "averaged", or shares of a batch that are not equal.
Why = Literal["uneven", "uneven_empty", "uneven_summed", "summed", "apart", "unknown"]
# Why a loss is not: it is the "first" replica's alone; the metric's variables are "multiplied" by each batch, or even
# "overflown" by that; or it is that of all examples for "weights" which are not those of one device.
WhyLoss = Literal["first", "multiplied", "overflown", "weights", "unknown"]

Shares = tuple[tuple[float, ...], ...]  # the examples of one batch that each replica gets


@dataclass(frozen=True)
class Simulated:
    """An epoch by arithmetic: the copies after it, and its loss: of all examples; of the first replica's alone; and of
    all where each batch multiplies the metric's total and count by the number of replicas."""

    copies: tuple[float, ...]
    loss_of_all: float
    loss_of_first: float
    loss_multiplied: float


@dataclass(frozen=True)
class Epoch:
    """The weight of each replica after an epoch, and the loss of it that Keras reports; and what both would be on one
    device. `simulated` has what arithmetic makes of the weights that the replicas had; None where nothing known
    accounts for these. `total` and `count` are the metric's on the first replica, as the trace has them."""

    number: int
    copies: tuple[float, ...]
    loss: float
    weight_expected: float
    loss_expected: float
    simulated: Simulated | None
    total: float
    count: float

    @property
    def weight_right(self) -> bool:
        return all(_close(copy, self.weight_expected) for copy in self.copies)

    @property
    def loss_right(self) -> bool:
        """True where it is the loss of all examples, for weights that may be wrong."""
        return self.why_loss in (None, "weights")

    @property
    def why_loss(self) -> WhyLoss | None:
        """Why the loss is not that of one device; None where it is."""
        if _close(self.loss, self.loss_expected):
            return None
        if not (math.isfinite(self.total) and math.isfinite(self.count)):
            return "overflown"
        if self.simulated is None:
            return "unknown"
        losses: tuple[tuple[WhyLoss, float], ...] = (
            ("weights", self.simulated.loss_of_all),
            ("first", self.simulated.loss_of_first),
            ("multiplied", self.simulated.loss_multiplied),
        )
        return next((why for why, loss in losses if _close(self.loss, loss)), "unknown")


@dataclass(frozen=True)
class Reading:
    """A whole run, read from its trace. `error` is what TensorFlow raised; `rule` accounts for every copy in every
    epoch, None where none does."""

    settings: dict[str, Any]
    epochs: tuple[Epoch, ...]
    error: Event | None
    rule: Rule | None

    @property
    def weight_right(self) -> bool:
        """True where every replica's weight is what it should be, after every epoch."""
        return all(epoch.weight_right for epoch in self.epochs)

    @property
    def loss_right(self) -> bool:
        """True where the loss of every epoch is reported right, whatever the weights."""
        return all(epoch.loss_right for epoch in self.epochs)

    @property
    def why_weight(self) -> tuple[Why, ...]:
        """Why the weights are not those of one device, be it only between epochs; nothing where they are."""
        if self.weight_right and (self.loss_right or self.rule == "averaged"):
            return ()
        uneven = self.uneven
        if self.rule == "averaged" and uneven:
            return ("uneven" if all(uneven) else "uneven_empty",)
        if self.rule == "summed" and uneven:
            return ("summed", "uneven_summed")
        rule: Why = self.rule if self.rule in ("summed", "apart") else "unknown"
        return (rule,)

    @property
    def uneven(self) -> Shares | None:
        """The first batch of which the replicas don't get equal shares; None where there is no such batch."""
        return next((shares for shares in batches(self.settings) if len({len(share) for share in shares}) > 1), None)

    @property
    def refused(self) -> Shares | None:
        """The first batch, where its shares could not be added because they are of different sizes."""
        first = batches(self.settings)[0]
        added = self.error is not None and "AddN" in self.error["message"] and not self.epochs
        return first if added and first == self.uneven else None


def read(trace: Trace) -> Reading:
    """Read a trace of the experiment `fit`, however early it ends."""
    settings: dict[str, Any] = trace.start["settings"]
    # Weights may be lost in rounding by the end of an epoch; of rules that all fit, the loss tells which it was.
    fitting = [(rule, epochs) for rule, epochs in _by_rule(trace) if all(map(_fits, epochs))]
    accounted = [each for each in fitting if all(epoch.why_loss != "unknown" for epoch in each[1])]
    nothing_known: list[tuple[Rule | None, tuple[Epoch, ...]]] = [(None, tuple(_epochs(trace, None)))]
    rule, epochs = (*accounted, *fitting, *nothing_known)[0]
    return Reading(settings, epochs, trace.error, rule)


def _by_rule(trace: Trace) -> Iterator[tuple[Rule, tuple[Epoch, ...]]]:
    """Each rule, and the epochs beside what arithmetic makes of it."""
    for rule in get_args(Rule):
        yield rule, tuple(_epochs(trace, simulate(trace.start["settings"], rule)))


def _epochs(trace: Trace, simulated: Sequence[Simulated] | None) -> Iterator[Epoch]:
    copies, losses = _by_step(trace.of("variable")), _by_step(trace.of("loss"))
    metric = [
        _by_step([event for event in trace.of("metric") if event["variable"] == name]) for name in ("total", "count")
    ]
    for step, expected in enumerate(arithmetic(trace.start["settings"]), 1):
        if step in copies and step in losses:
            beside = simulated[step - 1] if simulated else None
            yield Epoch(
                step, tuple(copies[step]), losses[step][0], *expected, beside, *(by_step[step][0] for by_step in metric)
            )


def _fits(epoch: Epoch) -> bool:
    expected = epoch.simulated.copies if epoch.simulated else ()
    return len(epoch.copies) == len(expected) and all(map(_close, epoch.copies, expected))


def arithmetic(settings: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """The weight after each epoch, and the loss of that epoch, on one device: a batch moves the weight by the learning
    rate times the gradient of the mean over the whole batch, and the loss is the mean over the epoch's examples, each
    before its step."""
    for epoch in simulate({**settings, "replicas": 1}, "averaged"):
        yield epoch.copies[0], epoch.loss_of_all


def batches(settings: Mapping[str, Any]) -> list[Shares]:
    """Each batch of an epoch, as the replicas share it."""
    return _share(settings["examples"], settings["batch_size"], settings["replicas"]) * int(settings["repeats"])


def _share(examples: int, batch_size: int, replicas: int) -> list[Shares]:
    """Each batch of all examples once: ceil(size / replicas) a replica, as long as there are examples
    (_LegacyRebatchDataset of tf.data, by which a distributed dataset shares a batch)."""
    xs = [float(x) for x in range(1, examples + 1)]
    shared: list[Shares] = []
    for batch in (xs[begin : begin + batch_size] for begin in range(0, len(xs), batch_size)):
        share = math.ceil(len(batch) / replicas)
        shared.append(tuple(tuple(batch[share * replica : share * (replica + 1)]) for replica in range(replicas)))
    return shared


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """Each replica's weight at the end, and the loss of the first epoch as Keras reports it; right where both are. Of
    what is not, the last epoch in which that is seen, what one device has there, and why."""
    reading = read(trace)
    if reading.error is not None:
        return raised(reading.error["type"], None, texts, why=_why_refused(reading, texts))
    if not reading.epochs:
        return nothing(texts)
    why = []
    weight, loss = reading.epochs[-1], reading.epochs[0]
    if reading.weight_right:
        head = texts("outcome.weight", copies=values(weight.copies, texts))
        if not all(math.isfinite(copy) for copy in weight.copies):
            why.append(texts("outcome.why.diverges"))
    else:
        weight = next(epoch for epoch in reversed(reading.epochs) if not epoch.weight_right)
        *copies, expected = numbers_apart([*weight.copies, weight.weight_expected])
        copies = copies[:1] if len(set(copies)) == 1 else copies
        head = texts("outcome.weight_wrong", copies=texts.items(copies), expected=expected, epoch=weight.number)
    why += why_weight(reading, texts)
    if reading.loss_right:
        detail = texts("outcome.loss", loss=number(loss.loss))
    else:
        loss = next(epoch for epoch in reversed(reading.epochs) if not epoch.loss_right)
        reported, expected = numbers_apart([loss.loss, loss.loss_expected])
        detail = texts("outcome.loss_wrong", loss=reported, expected=expected, epoch=loss.number)
        why.append(why_loss(reading, loss, texts))
    kind: Kind = "right" if reading.weight_right and reading.loss_right else "odd"
    return Outcome(kind, head, detail, texts.sentences(why))


def why_weight(reading: Reading, texts: Texts) -> list[str]:
    """Why the weights are not those of one device, a sentence for each reason."""
    uneven = reading.uneven or ()
    named = {"replicas": reading.settings["replicas"], "shares": _sizes(uneven, texts), "count": sum(map(len, uneven))}
    return [texts(f"outcome.why.{each}", **named) for each in reading.why_weight]


def why_loss(reading: Reading, epoch: Epoch, texts: Texts) -> str:
    """Why the loss that is reported of an epoch is wrong, in a sentence."""
    of_all = "" if epoch.simulated is None else number(epoch.simulated.loss_of_all)
    seen = sum(len(share) for shares in batches(reading.settings) for share in shares)
    return texts(
        f"outcome.why.loss_{epoch.why_loss}",
        of_all=of_all,
        replicas=reading.settings["replicas"],
        total=number(epoch.total),
        count=number(epoch.count),
        seen=seen,
    )


def _why_refused(reading: Reading, texts: Texts) -> str:
    shares = reading.refused
    if shares is None:
        return ""
    *_, (weight, _) = arithmetic(reading.settings)
    return texts("outcome.why.refused", shares=_sizes(shares, texts), expected=number(weight))


def _sizes(shares: Shares, texts: Texts) -> str:
    return texts.list(str(len(share)) for share in shares)


def simulate(settings: Mapping[str, Any], rule: Rule) -> tuple[Simulated, ...]:
    """Each epoch by arithmetic, where gradients are merged by that rule."""
    numbers = (settings["examples"], settings["batch_size"], settings["replicas"], settings["repeats"])
    return _simulate(*numbers, settings["epochs"], settings["learning_rate"], rule)


@lru_cache(maxsize=256)  # a table reads the same settings again and again
def _simulate(
    examples: int, batch_size: int, replicas: int, repeats: int, epochs: int, rate: float, rule: Rule
) -> tuple[Simulated, ...]:
    """A replica's gradient is that of the mean of (weight * x)**2 over its own share, of none that is 0."""
    squares = [
        [(sum(x * x for x in share), len(share)) for share in shares]
        for shares in _share(examples, batch_size, replicas)
    ]
    counts = [repeats * sum(count for _, count in replica) for replica in zip(*squares, strict=True)]
    copies, found = [1.0] * replicas, []
    for _ in range(epochs):
        totals, multiplied, counted = [0.0] * replicas, 0.0, 0.0
        for batch in squares * repeats:
            losses = [weight * weight * square for weight, (square, _) in zip(copies, batch, strict=True)]
            totals = [_float32(total + loss) for total, loss in zip(totals, losses, strict=True)]
            before, size = replicas * counted, sum(count for _, count in batch)
            multiplied = (before * multiplied + sum(losses)) / (before + size)
            counted = min(before + size, _MUCH)
            gradients = [
                2 * weight * square / max(count, 1) for weight, (square, count) in zip(copies, batch, strict=True)
            ]
            if rule != "apart":
                gradients = [sum(gradients) / (replicas if rule == "averaged" else 1)] * replicas
            copies = [_float32(weight - rate * gradient) for weight, gradient in zip(copies, gradients, strict=True)]
        of_all = _float32(sum(totals)) / sum(counts)
        found.append(Simulated(tuple(copies), of_all, totals[0] / counts[0], multiplied))
    return tuple(found)


def _float32(value: float) -> float:
    """Infinite where a float32 can't hold it."""
    return math.copysign(math.inf, value) if abs(value) > FLOAT32_MAX else value


COMPARISON = Comparison("versions", FIT, ("replicas", "epochs", "repeats", "mode"), outcome)


def _by_step(events: list[Event]) -> dict[int, list[float]]:
    values: dict[int, list[float]] = {}
    for event in events:
        values.setdefault(event["step"], []).append(float(event["value"]))  # "nan" and "inf" are words in JSON
    return values


def _close(value: float, expected: float) -> bool:
    """Equal but for what float32 leaves; both not finite, where arithmetic goes beyond what float32 holds."""
    if not math.isfinite(expected):
        return not math.isfinite(value)
    return math.isfinite(value) and abs(value - expected) <= STRAY * max(abs(expected), 0.01)
