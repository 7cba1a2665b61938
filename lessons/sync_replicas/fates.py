"""What became of each gradient that was pushed: taken into an average, dropped as stale, or still held."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from engine.trace import Event

Fate = Literal["taken", "dropped", "held"]
Push = tuple[str, int, str]  # the task, its step, the variable


def fates(events: Iterable[Event]) -> dict[Push, Fate | None]:
    """The fate of each push, so far as these events tell: "held" is what may still be taken.

    An average names the pushes that are in it. A variable's accumulator counts the averages that were taken from it,
    and drops what has a smaller local step than that (TakeGradLockedHelper and TryApplyGrad in TensorFlow's
    core/kernels/conditional_accumulator_base.cc and typed_conditional_accumulator_base.h). So what was pushed with
    local step L is in one of the first L + 1 averages of its variable, or in none ever.

    None where it can't be known: the chief was killed, and an average that it took and never reported is missing, for
    there is less in the accumulator than was pushed into it.
    """
    pushed: dict[Push, int] = {}
    taken: set[Push] = set()
    averages: dict[str, int] = {}
    held: dict[str, int] = {}
    chief_died = False
    for event in events:
        if event["event"] == "push":
            pushed[event["task"], event["step"], event["variable"]] = event["local_step"]
        elif event["event"] == "average":
            averages[event["variable"]] = averages.get(event["variable"], 0) + 1
            taken |= {(task, step, event["variable"]) for task, step in event["pushes"]}
        elif event["event"] == "state":
            held = event.get("held", held)
        elif event["event"] in ("kill", "died") and event["task"] == "worker:0":
            chief_died = True

    found: dict[Push, Fate | None] = {}
    for push, local_step in pushed.items():
        if push in taken:
            found[push] = "taken"
        else:
            found[push] = "held" if local_step >= averages.get(push[2], 0) else "dropped"
    if chief_died:
        for variable in held:
            left = [push for push, fate in found.items() if push[2] == variable and fate == "held"]
            if len(left) != held[variable]:
                found.update(dict.fromkeys(left, None))
    return found
