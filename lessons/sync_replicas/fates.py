"""What became of each gradient that was pushed: taken into an average, dropped as stale, or still held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from engine.trace import Event

# None: it can't be told.
Fate = Literal["taken", "dropped", "held"] | None
Push = tuple[str, int, str]  # the task, its step, the variable


def fates(events: Sequence[Event]) -> dict[Push, Fate]:
    """The fate of each push so far.

    An average says whose gradients are in it. An accumulator counts its averages, and drops without a word what comes
    with a smaller local step (TryApplyGrad in core/kernels/conditional_accumulator.h): so a gradient that is in none,
    and has had more averages go by than its local step, never can be in one.
    """
    averages = [event for event in events if event["event"] == "average"]
    taken = {(task, step, each["variable"]) for each in averages for task, step in each["pushes"]}
    count = Counter(each["variable"] for each in averages)
    found: dict[Push, Fate] = {}
    for push in (event for event in events if event["event"] == "push"):
        key = (push["task"], push["step"], push["variable"])
        if key in taken:
            found[key] = "taken"
        else:
            found[key] = "dropped" if count[push["variable"]] > push["local_step"] else "held"
    return found
