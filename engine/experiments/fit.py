"""The experiment `fit`: what Keras's own training loop makes of one weight, and of its loss, under MirroredStrategy."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engine.experiments.base import Experiment
from engine.experiments.scope_placement import keras_names
from engine.settings import Settings
from engine.versions import Versions


class FitSettings(Settings):
    """y = weight * x with weight 1 at first; x is 1, 2, ... `examples`, y should be 0, the loss is the mean square.

    An epoch takes the examples in batches of `batch_size`, `repeats` times. Each replica gets its share of a batch;
    where the shares are even, a step multiplies the weight by 1 - learning_rate * 2 * mean(x * x over the batch).
    """

    replicas: int = Field(default=2, ge=1, le=4)
    examples: int = Field(default=4, ge=1, le=16)
    batch_size: int = Field(default=4, ge=1, le=16)
    repeats: int = Field(default=1, ge=1, le=200)
    epochs: int = Field(default=3, ge=1, le=20)
    learning_rate: float = Field(default=0.01, ge=0, le=1)
    mode: Literal["function", "eager"] = "function"
    keras: Literal["bundled", "tf_keras"] = "bundled"
    cross_device: Literal["default", "reduction_to_one", "hierarchical_copy"] = "default"


def names(settings: FitSettings, versions: Versions) -> dict[str, Any]:
    """What differs between versions."""
    return keras_names(settings.keras, versions)


def logical_devices(settings: FitSettings) -> list[str]:
    """One per replica, in TensorFlow's short form."""
    return [f"CPU:{replica}" for replica in range(settings.replicas)]


FIT = Experiment(
    name="fit",
    template="fit.py.jinja",
    settings=FitSettings,
    devices=logical_devices,
    context=names,
    seconds=60,  # where many replicas share two busy cores, it has taken ten times its usual second
    recorded=(
        {"repeats": (1, 20, 200), "keras": ("bundled", "tf_keras")},
        {"replicas": (1, 2, 3, 4), "mode": ("function", "eager")},
        {"epochs": (1, 2, 4)},
        # Batches that can't be shared evenly, the first or the last.
        {"examples": (3, 5), "epochs": (1,), "keras": ("bundled", "tf_keras")},
    ),
    on_each_keras=True,
)
