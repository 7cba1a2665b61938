"""The experiment `scaling`: training on real data with several replicas, beside one device with the whole batch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engine.experiments.base import Experiment
from engine.settings import Settings
from engine.versions import Versions

Loss = Literal["global_mean", "per_replica_mean", "sum"]
Gradient = Literal["sum", "all_reduce_mean", "mean"]
Rule = Literal["none", "linear", "square_root", "linear_warmup"]


class ScalingSettings(Settings):
    """Iris: four measures of 150 flowers tell three species apart, by two Dense layers with 67 weights in all.

    A step takes a global batch of `replicas` * `per_replica_batch` flowers; an epoch goes through all of them, in an
    order that `seed` decides. `loss` is what each replica makes smaller: its flowers' losses added and divided by the
    global batch, or by its own share, or by nothing. `gradient` is how these are merged; Keras 3's apply_gradients
    always sums what it is given over the replicas, so `all_reduce_mean` is a mean that is then summed, and `mean`
    divides first. `rule` multiplies `learning_rate` by N, by its square root, or by what rises from 1 to N within
    `warmup` steps. `last_batch` says what becomes of the flowers that are too few for a batch: dropped, or kept, with
    the sum of losses divided by the usual global batch, or by those that are there (`keep_counted`).

    The reference is one model on one device, the same weights at first, `learning_rate` as it is: it takes the global
    batch in one step, or each replica's share in a step of its own.
    """

    replicas: int = Field(default=4, ge=1, le=8)
    loss: Loss = "global_mean"
    gradient: Gradient = "sum"
    rule: Rule = "none"
    learning_rate: float = Field(default=0.1, ge=0.0001, le=10)
    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    normalization: Literal["none", "per_replica", "synchronized"] = "none"
    per_replica_batch: int = Field(default=8, ge=1, le=16)
    last_batch: Literal["drop", "keep", "keep_counted"] = "drop"
    reference: Literal["global_batch", "small_batches"] = "global_batch"
    steps: int = Field(default=200, ge=1, le=400)
    warmup: int = Field(default=50, ge=1, le=400)
    seed: int = Field(default=1, ge=0, le=9999)


OPTIMIZERS = {"sgd": "SGD({rate})", "momentum": "SGD({rate}, momentum=0.9)", "adam": "Adam({rate})"}
RATES = {"none": "RATE", "linear": "RATE * REPLICAS", "square_root": "RATE * REPLICAS**0.5", "linear_warmup": "warmup"}


def words(settings: ScalingSettings, _: Versions) -> dict[str, Any]:
    """The optimizers as they are written."""
    call = OPTIMIZERS[settings.optimizer]
    return {
        "optimizer_call": call.format(rate=RATES[settings.rule]),
        "reference_call": call.format(rate="RATE"),
    }


def logical_devices(settings: ScalingSettings) -> list[str]:
    """One per replica, in TensorFlow's short form."""
    return [f"CPU:{replica}" for replica in range(settings.replicas)]


def has_the_data(versions: Versions) -> bool:
    """True where Plotly is installed beside TensorFlow: the flowers come with it."""
    return versions.plotly is not None and versions.keras_numbers >= (3, 0)


SCALING = Experiment(
    name="scaling",
    template="scaling.py.jinja",
    settings=ScalingSettings,
    devices=logical_devices,
    context=words,
    runs_on=has_the_data,
    seconds=90,  # a second or two; where many replicas share two busy cores, it may be far more
)
