"""What came of a run, in a few words: for a cell of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from engine.trace import Trace
from lessons.aggregation import reading as aggregation
from lessons.language import Texts, number
from lessons.placement import reading as placement
from lessons.scaling import reading as scaling
from lessons.scope_placement import reading as scope_placement
from lessons.sync_replicas import reading as sync_replicas
from lessons.variable_scope import reading as variable_scope
from lessons.versions import fit

FOLDER: Final = Path(__file__).parent  # of the texts of outcomes
MAX_SEPARATE: Final = 4  # copies that are named one by one

# "right": as it is meant to be. "odd": TensorFlow said nothing, and it is not. "raised": TensorFlow's own error.
# "none": the run gave no answer.
Kind = Literal["right", "odd", "raised", "none"]


@dataclass(frozen=True)
class Outcome:
    """A kind, a word or two, and perhaps a detail: plain text. Equal outcomes say that two runs came to the same."""

    kind: Kind
    head: str
    detail: str = ""

    @property
    def text(self) -> str:
        """All of it, in a line."""
        return f"{self.head} · {self.detail}" if self.detail else self.head


def outcome(trace: Trace, texts: Texts) -> Outcome:
    """What came of a run of any experiment that has words for it here. `texts` are those of this folder."""
    if not trace.answered:
        return Outcome("none", texts(f"outcome.status.{trace.status}"))
    return _OUTCOMES[trace.start["experiment"]](trace, texts)


def _of_aggregation(trace: Trace, texts: Texts) -> Outcome:
    """The copies after the last step; right where they are equal."""
    reading = aggregation.read(trace)
    if reading.failure:
        return _raised(reading.failure.kind, f"outcome.aggregation.{reading.failure.place}", texts)
    if reading.last is None:
        return Outcome("none", texts("outcome.nothing"))
    copies = _values([value for value in reading.last.after if value is not None], texts)
    detail = ""
    if reading.on_read and reading.last.read is not None:
        detail = texts("outcome.aggregation.on_read", value=number(reading.last.read))
    return Outcome("right" if reading.last.equal else "odd", copies, detail)


def _of_scope_placement(trace: Trace, texts: Texts) -> Outcome:
    reading = scope_placement.read(trace)
    if reading.failure:
        return _raised(reading.failure.kind, f"outcome.cause.{reading.failure.cause}", texts)
    copies = _values(reading.last.after, texts) if reading.last else ""
    kind: Kind = "right" if reading.outcome == "trained" else "odd"
    return Outcome(kind, texts(f"outcome.scope_placement.{reading.outcome}"), copies)


def _of_fit(trace: Trace, texts: Texts) -> Outcome:
    """Each replica's weight at the end, and the loss of the first epoch as Keras tells it; right where both are."""
    reading = fit.read(trace)
    if reading.error:
        return _raised(reading.error, "outcome.cause.other", texts)
    if not reading.epochs:
        return Outcome("none", texts("outcome.nothing"))
    last = reading.epochs[-1]
    weight = "weight" if reading.weight_right else "weight_wrong"
    weights = texts(f"outcome.fit.{weight}", copies=_values(last.copies, texts))
    loss = texts(f"outcome.fit.{_loss(reading)}", loss=number(reading.epochs[0].loss))
    return Outcome("right" if reading.weight_right and reading.loss_right else "odd", weights, loss)


def _of_variable_scope(trace: Trace, texts: Texts) -> Outcome:
    """How many names are how many variables."""
    reading = variable_scope.read(trace)
    if reading.failure:
        return _raised(reading.failure.kind, f"outcome.variable_scope.{reading.failure.cause}", texts)
    names, objects = len(reading.variables), len(reading.objects)
    return Outcome("right", texts("outcome.variable_scope.counted", names=names, objects=objects))


def _of_placement(trace: Trace, texts: Texts) -> Outcome:
    """Whether a write arrives at the other workers, and on which processes the variables are."""
    reading = placement.read(trace)
    if reading.error is not None:
        cause = "task_index" if "task_index" in reading.error["message"] else "other"
        return _raised(reading.error["type"], f"outcome.placement.{cause}", texts)
    homes: dict[str, list[str]] = {}
    for job, index in reading.uses.get(0, {}).values():
        homes.setdefault(job, []).append(str(index))
    detail = " · ".join(f"{job} {texts.items(indices)}" for job, indices in homes.items())
    kind: Kind = "right" if reading.outcome in ("shared", "alone") else "odd"
    return Outcome(kind, texts(f"outcome.placement.{reading.outcome}"), detail)


def _of_multi_worker(trace: Trace, texts: Texts) -> Outcome:
    """The variables after the last step."""
    if trace.error is not None:
        return _raised(trace.error["type"], "outcome.cause.other", texts)
    last = {event["variable"]: event["value"] for event in trace.of("variable")}
    return Outcome("right", texts("outcome.multi_worker.trained"), _values(list(last.values()), texts))


def _of_sync_replicas(trace: Trace, texts: Texts) -> Outcome:
    """What became of training, and of the counting; not how many gradients were dropped, which differs from run to
    run."""
    reading = sync_replicas.read(trace)
    if reading.failure:
        return _raised(reading.failure.kind, f"outcome.sync_replicas.{reading.failure.cause}", texts)
    updates = max(reading.updates().values())
    kind: Kind = "right" if reading.outcome == "right" else "odd"
    head = texts(f"outcome.sync_replicas.{reading.outcome}")
    if reading.outcome == "deadlock":
        return Outcome(kind, head)
    return Outcome(kind, head, texts("outcome.sync_replicas.counts", updates=updates, step=reading.global_step()))


def _loss(reading: fit.Reading) -> str:
    if reading.loss_right:
        return "loss"
    return "loss_of_first" if reading.epochs[0].told_of == "first" else "loss_wrong"


def _of_scaling(trace: Trace, texts: Texts) -> Outcome:
    """Whether the replicas keep to the reference, and the loss of both at the end."""
    reading = scaling.read(trace)
    if reading.error is not None:
        return _raised(reading.error, "outcome.cause.other", texts)
    losses = _values([result.loss for result in reading.results.values()], texts)
    kind: Kind = "right" if reading.outcome == "equal" else "odd"
    return Outcome(kind, texts(f"outcome.scaling.{kind}"), losses)


_OUTCOMES: Final[dict[str, Callable[[Trace, Texts], Outcome]]] = {
    "aggregation": _of_aggregation,
    "scope_placement": _of_scope_placement,
    "placement": _of_placement,
    "multi_worker": _of_multi_worker,
    "fit": _of_fit,
    "scaling": _of_scaling,
    "variable_scope": _of_variable_scope,
    "sync_replicas": _of_sync_replicas,
}


def _raised(kind: str, cause: str, texts: Texts) -> Outcome:
    return Outcome("raised", kind, texts(cause))


def _values(values: Sequence[float], texts: Texts) -> str:
    """Each copy's value; one for all, where there are many and they are equal."""
    numbers = [number(value) for value in values]
    if len(numbers) > MAX_SEPARATE and len(set(numbers)) == 1:
        return texts("outcome.each", value=numbers[0], count=len(numbers))
    return texts.items(numbers)
