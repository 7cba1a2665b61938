"""The smallest change of settings after which TensorFlow no longer refuses, where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from engine.experiments.variable_scope import NAMES, Operation
from lessons.variable_scope.reading import Reading


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run; None where nothing is wrong, or no setting fixes it."""
    failure = reading.failure
    if failure is None or not failure.raised:
        return None
    if failure.cause == "no_attribute":
        return {"api": "compat.v1"}
    if failure.place is None:
        return None
    if reading.eager and failure.cause == "no_shape":
        return {"mode": "graph"}
    operations = list(reading.settings.parsed)
    places = [place for place, each in enumerate(operations) if each.kind != "close"]
    at = places[failure.place]
    change = _CHANGES.get(failure.cause)
    if change is None:
        return None
    change(operations, at)
    return {"operations": ",".join(operation.word for operation in operations)}


def _around(operations: Sequence[Operation], at: int) -> int | None:
    """The place of the innermost variable scope that is open there."""
    opened: list[int] = []
    for place, operation in enumerate(operations[:at]):
        if operation.is_block:
            opened.append(place)
        elif operation.kind == "close":
            opened.pop()
    return next((place for place in reversed(opened) if operations[place].kind == "scope"), None)


def _reuse(operations: list[Operation], at: int) -> None:
    """Take the variable where it is there, make it where it isn't; outside any scope, give it another name."""
    scope = _around(operations, at)
    if scope is None:
        taken = {operation.name for operation in operations}
        free = next((name for name in NAMES if name not in taken), operations[at].name)
        operations[at] = replace(operations[at], name=free)
    else:
        operations[scope] = _with(operations[scope], reuse="AUTO_REUSE")


def _create(operations: list[Operation], at: int) -> None:
    _reuse(operations, at)
    if "shape" not in operations[at].options:
        operations[at] = _with(operations[at], shape="1")


def _shape(operations: list[Operation], at: int) -> None:
    operations[at] = _with(operations[at], shape="1")


def _any_shape(operations: list[Operation], at: int) -> None:
    """Whatever shape it has."""
    operations[at] = _with(operations[at], shape=None, partitioner=None)


def _whole(operations: list[Operation], at: int) -> None:
    operations[at] = _with(operations[at], partitioner=None)


def _with(operation: Operation, **options: str | None) -> Operation:
    merged = {**operation.options, **options}
    return replace(operation, options={key: value for key, value in merged.items() if value is not None})


_CHANGES: dict[str, Callable[[list[Operation], int], None]] = {
    "exists": _reuse,
    "missing": _create,
    "no_shape": _shape,
    "other_shape": _any_shape,
    "not_partitioned": _whole,
}
