"""What the trace of a `fit` run says, beside what arithmetic says of the same fit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.experiments.fit import FIT
from engine.trace import Event, Trace
from lessons.language import Texts, number
from lessons.lesson import Comparison
from lessons.outcome import Outcome, nothing, raised, values

STRAY: Final = 2e-4  # of the size: what float32 leaves of hundreds of steps, and the trace's six decimals


@dataclass(frozen=True)
class Epoch:
    """The weight of each replica after an epoch, and the loss of it that Keras tells; and what both should be.

    `told_of` says whose loss that is, for the weights that the replicas had: of "all" examples or of the "first"
    replica's alone; None where it is neither, or an epoch of several batches does not say.
    """

    copies: tuple[float, ...]
    loss: float
    weight_expected: float
    loss_expected: float
    told_of: Literal["all", "first"] | None

    @property
    def weight_right(self) -> bool:
        return all(_close(copy, self.weight_expected) for copy in self.copies)

    @property
    def loss_right(self) -> bool:
        """True where it is the loss of all examples, for weights that may be wrong."""
        return _close(self.loss, self.loss_expected) or self.told_of == "all"


@dataclass(frozen=True)
class Reading:
    """A whole run, read from its trace. `error` is the type of what TensorFlow raised."""

    settings: dict[str, Any]
    epochs: tuple[Epoch, ...]
    error: str | None

    @property
    def weight_right(self) -> bool:
        """True where every replica's weight is what it should be, after every epoch."""
        return all(epoch.weight_right for epoch in self.epochs)

    @property
    def loss_right(self) -> bool:
        """True where the loss reported for every epoch is right, whatever the weights."""
        return all(epoch.loss_right for epoch in self.epochs)


def read(trace: Trace) -> Reading:
    """Read a trace of the experiment `fit`, however early it ends."""
    settings: dict[str, Any] = trace.start["settings"]
    copies = {step: tuple(values) for step, values in _by_step(trace.of("variable")).items()}
    losses = _by_step(trace.of("loss"))
    expected = list(arithmetic(settings))
    epochs = tuple(
        Epoch(
            copies[step],
            losses[step][0],
            *expected[step - 1],
            _told_of(losses[step][0], copies.get(step - 1, (1.0,) * len(copies[step])), settings),
        )
        for step in sorted(copies)
        if step in losses
    )
    return Reading(settings, epochs, trace.error["type"] if trace.error else None)


def arithmetic(settings: dict[str, Any]) -> Iterator[tuple[float, float]]:
    """The weight after each epoch, and the loss of that epoch: a batch moves the weight by the learning rate times the
    gradient of the mean over the whole batch, on however many replicas, and the loss is the mean over the epoch's
    examples, each before its step."""
    xs = [float(x) for x in range(1, settings["examples"] + 1)]
    size, rate = settings["batch_size"], settings["learning_rate"]
    batches = [xs[begin : begin + size] for begin in range(0, len(xs), size)] * settings["repeats"]
    weight = 1.0
    for _ in range(settings["epochs"]):
        total = count = 0.0
        for batch in batches:
            square = sum(x * x for x in batch) / len(batch)
            total += weight * weight * square * len(batch)
            count += len(batch)
            weight -= rate * 2 * weight * square
        yield weight, total / count


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """Each replica's weight at the end, and the loss of the first epoch as Keras reports it; right where both are."""
    reading = read(trace)
    if reading.error:
        return raised(reading.error, None, texts)
    if not reading.epochs:
        return nothing(texts)
    first, last = reading.epochs[0], reading.epochs[-1]
    weight = "weight" if reading.weight_right else "weight_wrong"
    loss = "loss" if reading.loss_right else "loss_of_first" if first.told_of == "first" else "loss_wrong"
    return Outcome(
        "right" if reading.weight_right and reading.loss_right else "odd",
        texts(f"outcome.{weight}", copies=values(last.copies, texts)),
        texts(f"outcome.{loss}", loss=number(first.loss)),
    )


COMPARISON = Comparison("versions", FIT, ("replicas", "epochs", "repeats", "mode"), outcome)


def _told_of(loss: float, before: tuple[float, ...], settings: dict[str, Any]) -> Literal["all", "first"] | None:
    if settings["repeats"] > 1 or settings["examples"] > settings["batch_size"]:
        return None  # the weights that its later batches met are not in the trace
    xs = [float(x) for x in range(1, settings["examples"] + 1)]
    share = -(-settings["batch_size"] // settings["replicas"])
    each = [
        sum((weight * x) ** 2 for x in xs[share * replica : share * (replica + 1)])
        for replica, weight in enumerate(before)
    ]
    if _close(loss, sum(each) / len(xs)):
        return "all"
    return "first" if _close(loss, each[0] / len(xs[:share])) else None


def _by_step(events: list[Event]) -> dict[int, list[float]]:
    values: dict[int, list[float]] = {}
    for event in events:
        values.setdefault(event["step"], []).append(float(event["value"]))  # "nan" and "inf" are words in JSON
    return values


def _close(value: float, expected: float) -> bool:
    return math.isfinite(value) and abs(value - expected) <= STRAY * max(abs(expected), 0.01)
