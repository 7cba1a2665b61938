"""Changes that a learner makes to a sequence of operations: move, remove, add, replace.

Here each block has its `close`, also at the end of the sequence, so that it has an end that can be moved.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.experiments.variable_scope import MAX_OPERATIONS, Operation, parse_operations

# What an operation is at first, when it is added.
NEW = {
    "scope": Operation("scope", "s"),
    "name_scope": Operation("name_scope", "n"),
    "get": Operation("get", "v", options={"shape": "1", "initializer": "1.0"}),
    "variable": Operation("variable", "v"),
    "op": Operation("op", "v"),
}
CLOSE = Operation("close")
# What each kind calls, in TensorFlow's words.
CALLS = {
    "scope": "variable_scope",
    "name_scope": "name_scope",
    "get": "get_variable",
    "variable": "Variable",
    "op": "constant",
}


def explicit(words: Sequence[str]) -> tuple[Operation, ...]:
    """The operations with a `close` for each block."""
    operations = parse_operations(words)
    still_open = sum(each.is_block for each in operations) - sum(each.kind == "close" for each in operations)
    return operations + (CLOSE,) * still_open


def words(operations: Sequence[Operation]) -> tuple[str, ...] | None:
    """The words of a sequence, in their one form; None where it isn't accepted."""
    try:
        return tuple(each.word for each in parse_operations(each.word for each in operations))
    except ValueError:
        return None


def end_of(operations: Sequence[Operation], place: int) -> int:
    """The place of the `close` of the block that opens there."""
    depth = 0
    for other in range(place, len(operations)):
        depth += operations[other].is_block - (operations[other].kind == "close")
        if depth == 0:
            return other
    raise ValueError(f"no block opens at {place}")


def start_of(operations: Sequence[Operation], place: int) -> int:
    """The place of the block that this `close` ends."""
    return next(
        other for other in reversed(range(place)) if operations[other].is_block and end_of(operations, other) == place
    )


def moved(operations: Sequence[Operation], place: int, by: int) -> tuple[Operation, ...] | None:
    """An operation one place up (-1) or down (1); a block goes with all that is in it, its `close` by itself. None
    where that can't be."""
    first, last = place, place
    if operations[place].is_block:
        last = end_of(operations, place)
    other = first - 1 if by < 0 else last + 1
    if not 0 <= other < len(operations):
        return None
    if operations[place].kind == "close" and operations[other].is_block and by < 0:
        return None  # before its own beginning
    kept = operations[first : last + 1]
    rest = [*operations[:first], *operations[last + 1 :]]
    changed = (*rest[: first + by], *kept, *rest[first + by :])
    return changed if words(changed) is not None and _complete(changed) else None


def _complete(operations: Sequence[Operation]) -> bool:
    return sum(each.is_block for each in operations) == sum(each.kind == "close" for each in operations)


def removed(operations: Sequence[Operation], place: int) -> tuple[Operation, ...] | None:
    """Without that operation; a block's contents stay. None where it is the last one, or another needs it."""
    ends = {end_of(operations, place)} if operations[place].is_block else set()
    changed = tuple(each for other, each in enumerate(operations) if other != place and other not in ends)
    return changed if words(changed) is not None else None


def added(operations: Sequence[Operation], kind: str) -> tuple[Operation, ...] | None:
    """With one more: a block after all others, anything else at the end of the last block. None where there are as many
    as there may be."""
    if sum(each.kind != "close" for each in operations) >= MAX_OPERATIONS:
        return None
    if NEW[kind].is_block:
        return (*operations, NEW[kind], CLOSE)
    place = len(operations)
    while place and operations[place - 1].kind == "close":
        place -= 1
    return (*operations[:place], NEW[kind], *operations[place:])


def replaced(operations: Sequence[Operation], place: int, operation: Operation) -> tuple[Operation, ...] | None:
    """With another in its place. None where that isn't accepted."""
    changed = (*operations[:place], operation, *operations[place + 1 :])
    return changed if words(changed) is not None else None


def short(key: str, value: str) -> str:
    """An option in few letters, where its value alone says what it is."""
    if key == "shape":
        return f"[{value.replace('x', ', ')}]"
    if key == "reuse":
        return f"reuse={value}"
    return "no aux" if key == "auxiliary_name_scope" else value
