"""Traces as a run of the experiment `scope_placement` prints them, made of numbers that a test states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.program import render
from engine.settings import as_words
from engine.trace import Event, Trace
from engine.versions import Versions

Owner = Literal["MirroredStrategy", "default"]
MIRRORED: Owner = "MirroredStrategy"
PLAIN: Owner = "default"
APPLY = "optimizer.apply_gradients(zip(gradients, weights))"
KERAS = {"2.4.1": "2.4.0", "2.5.0": "2.5.0", "2.15.1": "2.15.0", "2.21.0": "3.15.1"}
SLOTS = {"sgd": (), "momentum": ("momentum",), "adam": ("momentum", "velocity")}


def scope_trace(
    *copies: Sequence[float],
    weight: Owner | None = MIRRORED,
    counter: Owner | None = MIRRORED,
    slots: Owner | None = MIRRORED,
    gradients: Sequence[float] | None = None,
    counts: Sequence[Sequence[int]] | None = None,
    error: tuple[str, str] | None = None,
    at: str = APPLY,
    error_step: int | None = None,
    tensorflow: str = "2.21.0",
    **settings: Any,
) -> Trace:
    """A run whose copies of the weight hold `copies`, one list a step, 1 before the first.

    `weight`, `counter` (the optimizer's iterations) and `slots` say which strategy owns them, None that they never came
    into being. `gradients` are what the replicas report in every step (their inputs, if left out); `counts` what
    iterations say after each. `error` (type and message) is raised in the line that reads `at`, in `error_step` (the
    one after `copies`, if left out; 0 is before the first).
    """
    parsed = SCOPE_PLACEMENT.settings.parse({name: as_words(value) for name, value in settings.items()})
    chosen = parsed.model_dump(mode="json")
    keras = KERAS[tensorflow]
    program = [row.strip() for row in render(SCOPE_PLACEMENT, parsed, Versions(tensorflow, keras, keras)).splitlines()]
    devices = [f"CPU:{replica}" for replica in range(chosen["replicas"])]
    events: list[Event] = [
        {
            "event": "run",
            "t": 0.0,
            "experiment": "scope_placement",
            "settings": chosen,
            "tensorflow": tensorflow,
            "keras": keras,
            "python": "3.11.7",
            "devices": devices,
        }
    ]

    def birth(variable: str, role: str, moment: str, owner: Owner | None) -> None:
        if owner is not None:
            events.append(
                {
                    "event": "birth",
                    "t": 0.0,
                    "step": 0 if moment in ("construction", "build", "dummy_call") else 1,
                    "variable": variable,
                    "role": role,
                    "moment": moment,
                    "line": 90 + len(events),
                    "kind": "MirroredVariable" if owner == MIRRORED else "ResourceVariable",
                    "strategy": owner,
                    "devices": [f"/job:localhost/replica:0/task:0/device:{device}" for device in devices][
                        : len(devices) if owner == MIRRORED else 1
                    ],
                }
            )

    first = "first_fit" if chosen["loop"] == "fit" else "first_apply"
    legacy = tensorflow in ("2.4.1", "2.5.0")
    built = chosen["model"] in ("functional", "sequential_built")
    called = "first_fit" if chosen["loop"] == "fit" else "first_call"
    weight_moment = "construction" if built else "dummy_call" if chosen["dummy_call"] != "none" else called
    if weight_moment in ("construction", "dummy_call"):
        birth("dense/kernel", "weight", weight_moment, weight)
    if not legacy:
        birth("sgd/iteration", "iterations", "construction", counter)
        birth("sgd/learning_rate", "other", "construction", counter)
    slot_moment = "build" if chosen["optimizer_build"] == "yes" else first
    if slot_moment == "build":
        for name in SLOTS[chosen["optimizer"]]:
            birth(f"sgd/dense_kernel_{name}", "slot", slot_moment, slots)
    if copies or (error and error_step != 0):
        if weight_moment not in ("construction", "dummy_call"):
            birth("dense/kernel", "weight", weight_moment, weight)
        if legacy:
            birth("SGD/iter", "iterations", first, counter)
        if slot_moment == first:
            for name in SLOTS[chosen["optimizer"]]:
                birth(f"SGD/dense/kernel/{name}" if legacy else f"sgd/dense_kernel_{name}", "slot", first, slots)
        if legacy:
            for name in ("learning_rate", "decay", "momentum"):
                birth(f"SGD/{name}", "other", first, counter)
    sent = chosen["inputs"] if gradients is None else gradients
    for number, values in enumerate(copies, 1):
        if chosen["loop"] == "fit":
            events.append({"event": "loss", "t": 0.0, "step": number, "value": 1.5})
        else:
            events += [
                {
                    "event": "gradient",
                    "t": 0.0,
                    "step": number,
                    "replica": replica,
                    "value": value,
                    "variable": "dense/kernel",
                }
                for replica, value in enumerate(sent)
            ]
        events += [
            {
                "event": "variable",
                "t": 0.0,
                "step": number,
                "replica": replica,
                "value": value,
                "variable": "dense/kernel",
            }
            for replica, value in enumerate(values)
        ]
        counted = [number] * len(values) if counts is None else counts[number - 1]
        events += [
            {"event": "counter", "t": 0.0, "step": number, "replica": replica, "value": value, "counter": "iterations"}
            for replica, value in enumerate(counted)
        ]
    if error:
        line = 1 + max(place for place, row in enumerate(program) if row == at)
        raised = len(copies) + 1 if error_step is None else error_step
        events.append({"event": "error", "t": 0.0, "type": error[0], "message": error[1], "line": line, "step": raised})
    events.append({"event": "end", "t": 0.0, "status": "error" if error else "ok", "seconds": 0.2})
    return Trace(tuple({**event, "t": 0.01 * place} for place, event in enumerate(events)))
