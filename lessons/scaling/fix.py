"""The smallest change of settings after which a run keeps to its reference."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any, get_args

from engine.experiments.scaling import Gradient, Loss, Rule
from lessons.scaling.reading import Reading, as_meant, loss_factor


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> value; None where the run keeps to the reference, or can't: against small batches it never does, but
    its steps can be worth as much as theirs together."""
    outcome = reading.outcome
    if reading.as_meant or outcome in ("running", "nothing", "raised", "stopped"):
        return None
    settings = reading.settings
    change: dict[str, str] = {}
    if reading.small_batches:
        if outcome == "empty":
            change["last_batch"] = "drop"
    else:
        if settings["normalization"] == "per_replica" and reading.replicas > 1:
            change["normalization"] = "synchronized"
        if reading.uneven is not None and settings["last_batch"] == "keep":
            change["last_batch"] = "keep_counted"
    return (_factors(reading, {**settings, **change}) | change) or None


def _factors(reading: Reading, settings: Mapping[str, Any]) -> dict[str, str]:
    """The fewest changes of loss, gradient and rule that make a step as long as is meant; of those that are as few,
    one that leaves a true mean, and what comes first in the declaration."""
    names = ("loss", "gradient", "rule")
    choices = [
        dict(zip(names, values, strict=True))
        for values in itertools.product(get_args(Loss), get_args(Gradient), get_args(Rule))
    ]
    uneven = reading.uneven is not None
    right = [choice for choice in choices if as_meant({**settings, **choice}, uneven=uneven)]
    right.sort(key=lambda choice: not math.isclose(loss_factor({**settings, **choice}), 1))
    changes = [{name: value for name, value in choice.items() if value != settings[name]} for choice in right]
    return min(changes, key=len)
