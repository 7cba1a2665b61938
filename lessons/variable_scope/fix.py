"""The smallest change of settings after which TensorFlow no longer refuses, where there is one.

TensorFlow stops at the first call that it refuses; what it would refuse after that is fixed with it, so that the run
that a fix leads to goes to its end. Which calls those are is known from TensorFlow's own rule (reuse.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from engine.experiments.variable_scope import SCOPES, Operation
from lessons.variable_scope import editing
from lessons.variable_scope.reading import Reading
from lessons.variable_scope.reuse import Refusal, full_names, refusal

Operations = tuple[Operation, ...]
TO_GRAPH: Final = {"mode": "graph"}
_MAX_CHANGES = 40  # of at most 8 operations: there is no fix where these do not do


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run; None where nothing is wrong, or no setting fixes it."""
    failure = reading.failure
    if failure is None or not failure.raised or failure.cause == "other":
        return None
    fix = {"api": "compat.v1"} if failure.cause == "no_attribute" else {}
    operations = editing.explicit(reading.settings.operations)
    if reading.eager and failure.cause == "no_shape" and refusal(operations, eager=False) is None:
        return fix | TO_GRAPH  # where the call finds the variable whose shape it leaves open
    for _ in range(_MAX_CHANGES):
        refused = refusal(operations, reading.eager)
        if refused is None:
            words = editing.words(operations)
            if words is not None and words != reading.settings.operations:
                fix["operations"] = ",".join(words)
            return fix or None
        operations = _changed(operations, refused)
    return None


def _changed(operations: Operations, refused: Refusal) -> Operations:
    """The operations with one change, after which that call is answered, or refused for the next reason."""
    place, made = refused.place, refused.made
    options = {} if made is None else made.options
    match refused.cause:
        case "exists" | "missing":  # take the variable where it is there, make it where it isn't
            scope = _around(operations, place)
            if scope is None:
                return _in_a_scope(operations, place)
            return _with(operations, scope, reuse="AUTO_REUSE")
        case "partitioned" | "not_partitioned":
            return _with(operations, place, partitioner=options.get("partitioner"))
        case _:
            return _with(operations, place, shape=options.get("shape", "1"))


def _around(operations: Operations, place: int) -> int | None:
    """The place of the innermost variable scope that is open there."""
    opened = [
        at for at in range(place) if operations[at].kind == "scope" and at < place < editing.end_of(operations, at)
    ]
    return opened[-1] if opened else None


def _in_a_scope(operations: Operations, place: int) -> Operations:
    """With all calls of that name, which are outside any variable scope, in one that lets them share. Where there is no
    room for another scope, without the call: the program has the variable already."""
    names = full_names(operations)
    calls = [at for at, name in enumerate(names) if name == names[place]]
    first, last = calls[0], calls[-1]
    blocks = [(at, editing.end_of(operations, at)) for at, each in enumerate(operations) if each.is_block]
    while cut := [
        block for block in blocks if (block[0] < first <= block[1] < last) or (first < block[0] <= last < block[1])
    ]:
        first, last = min(first, cut[0][0]), max(last, cut[0][1])  # blocks stay whole
    used = {operation.name for operation in operations if operation.is_block}
    for name in SCOPES:
        opened = Operation("scope", name, options={"reuse": "AUTO_REUSE"})
        changed = (*operations[:first], opened, *operations[first : last + 1], editing.CLOSE, *operations[last + 1 :])
        if name not in used and editing.words(changed) is not None:
            return changed
    return (*operations[:place], *operations[place + 1 :])


def _with(operations: Operations, place: int, **options: str | None) -> Operations:
    """With other options of one operation; without those that are None."""
    merged = {**operations[place].options, **options}
    changed = replace(operations[place], options={key: value for key, value in merged.items() if value is not None})
    return (*operations[:place], changed, *operations[place + 1 :])
