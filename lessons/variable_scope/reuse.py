"""TensorFlow's rule of reuse, from the operations alone: which get_variable it refuses, and why.

Nothing is told from it: what happened is read from a trace. A fix is found with it, which is then run like anything
else; and tests hold it against TensorFlow. Its source is tensorflow/python/ops/variable_scope.py, alike from 1.15 to
2.21: `_pure_variable_scope` (names and reuse of scopes), `_VariableStore` (what is found, made or refused).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.experiments.variable_scope import Operation
from lessons.variable_scope.reading import Cause


@dataclass(frozen=True)
class Scope:
    """The variable scope that is open: the prefix of variables without its last /, and the reuse that holds."""

    name: str = ""
    reuse: str = "False"


def scopes(operations: Sequence[Operation]) -> Iterator[Scope]:
    """For each operation the scope in which it stands; for a block, the one that it opens."""
    opened = [Scope()]
    objects: dict[str, Scope] = {}
    for operation in operations:
        if operation.kind == "close":
            opened.pop()
        elif operation.kind == "name_scope":
            opened.append(opened[-1])
        elif operation.kind == "scope":
            base = objects[operation.name] if operation.captured else opened[-1]
            name = base.name if operation.captured else f"{base.name}/{operation.name}".lstrip("/")
            given = operation.options.get("reuse", "False")  # False is taken as None, and None inherits
            scope = Scope(name, base.reuse if given == "False" else given)
            if not operation.captured:
                objects[operation.name] = scope
            opened.append(scope)
        yield opened[-1]


def full_names(operations: Sequence[Operation]) -> list[str]:
    """The name under which each get_variable looks; "" for any other operation."""
    return [
        f"{scope.name}/{operation.name}".lstrip("/") if operation.kind == "get" else ""
        for operation, scope in zip(operations, scopes(operations), strict=True)
    ]


@dataclass(frozen=True)
class Refusal:
    """The place of a call that is refused, why, and the call that made the variable of its name, if any."""

    place: int
    cause: Cause
    made: Operation | None


def refusal(operations: Sequence[Operation], eager: bool) -> Refusal | None:
    """The first call that is refused; None where all are answered."""
    store: dict[str, Operation] = {}
    names, opened = full_names(operations), scopes(operations)
    for place, (call, scope, name) in enumerate(zip(operations, opened, names, strict=True)):
        if name:
            made = store.setdefault(name, call)
            earlier = None if made is call else made
            # Executed eagerly, reuse is set to False and nothing is stored.
            cause = _refused(call, "False", None) if eager else _refused(call, scope.reuse, earlier)
            if cause:
                return Refusal(place, cause, earlier)
    return None


def _refused(call: Operation, reuse: str, made: Operation | None) -> Cause | None:
    shape, in_parts = call.options.get("shape"), "partitioner" in call.options
    made_in_parts = made is not None and "partitioner" in made.options
    if in_parts and made and not made_in_parts:
        return "not_partitioned"
    if in_parts and not shape:
        return "no_shape"
    if made_in_parts and not in_parts and reuse != "True":
        return "partitioned"
    if made is None:
        return "missing" if reuse == "True" else "no_shape" if not shape else None
    if reuse == "False":
        return "exists"
    return "other_shape" if shape and shape != made.options["shape"] else None
