"""The experiment `aggregation`: what happens to the numbers that replicas contribute to one variable."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, model_validator

from engine.experiments.base import Experiment
from engine.settings import RuleError, Settings, is_left_out
from engine.versions import Versions

Aggregation = Literal["NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA"]
Route = Literal["assign_add", "assign", "assign_sub", "cross_replica", "optimizer", "optimizer_unsummed"]
Update = Literal["assign_add", "assign", "assign_sub"]
Gradient = Annotated[float, Field(ge=-1000, le=1000)]


class AggregationSettings(Settings):
    """One variable `weight`, 1 at first, under MirroredStrategy; every replica contributes one number per step."""

    aggregation: Aggregation = "NONE"
    route: Route = "assign_add"
    update: Update = "assign_add"
    synchronization: Literal["AUTO", "ON_WRITE", "ON_READ"] = "AUTO"
    replicas: int = Field(default=2, ge=1, le=8)
    steps: int = Field(default=1, ge=1, le=20)
    gradients: tuple[Gradient, ...] | None = None
    learning_rate: float = Field(default=1.0, ge=0.001, le=100)
    clipnorm: float | None = Field(default=None, ge=0.001, le=1000)
    value: Literal["tensor", "python"] = "tensor"
    dtype: Literal["float32", "int32"] = "float32"
    mode: Literal["eager", "function"] = "eager"
    cross_device: Literal["default", "reduction_to_one", "hierarchical_copy"] = "default"
    devices: Literal["cpu", "gpu"] = "cpu"

    @model_validator(mode="before")
    @classmethod
    def _default_gradients(cls, data: dict[str, object]) -> dict[str, object]:
        """0.1, 0.2, 0.3, ... one per replica; 1, 2, 3, ... where they must be whole."""
        count = cls.count_of("replicas", data)
        if count is None or not is_left_out(data.get("gradients")):
            return data
        whole = data.get("dtype", "float32") == "int32"
        return {
            **data,
            "gradients": tuple(float(i + 1) if whole else round(0.1 * (i + 1), 1) for i in range(count)),
        }

    @model_validator(mode="after")
    def _whole_gradients(self) -> Self:
        assert self.gradients is not None  # filled in above
        if self.dtype == "int32" and not all(gradient.is_integer() for gradient in self.gradients):
            raise RuleError("gradients", "whole", "whole numbers, as dtype=int32")
        return self


def logical_devices(settings: AggregationSettings) -> list[str]:
    """One per replica, in TensorFlow's short form."""
    return [f"{settings.devices.upper()}:{replica}" for replica in range(settings.replicas)]


def names(_: AggregationSettings, versions: Versions) -> dict[str, Any]:
    """What an optimizer's step counter is, and how it is told that gradients are summed already."""
    return {
        # Keras 3 wraps a tf.Variable, and has no way to be told.
        "iterations": "optimizer.iterations" + (".value" if versions.keras_numbers >= (3, 0) else ""),
        "unsummed": (
            "skip_gradients_aggregation=True"
            if versions.keras_numbers >= (2, 11)
            else "experimental_aggregate_gradients=False"
        ),
    }


AGGREGATIONS, ROUTES = get_args(Aggregation), get_args(Route)

AGGREGATION = Experiment(
    name="aggregation",
    template="aggregation.py.jinja",
    settings=AggregationSettings,
    devices=logical_devices,
    context=names,
    recorded=(
        {"aggregation": AGGREGATIONS, "route": ROUTES, "replicas": (2, 4), "mode": ("eager", "function")},
        {"aggregation": AGGREGATIONS, "route": ROUTES, "steps": (2, 3)},
        {"aggregation": AGGREGATIONS, "route": ROUTES, "synchronization": ("ON_WRITE", "ON_READ")},
        {"aggregation": AGGREGATIONS, "route": ROUTES, "value": ("python",)},
        {"aggregation": AGGREGATIONS, "route": ROUTES, "dtype": ("int32",)},
        {"aggregation": AGGREGATIONS, "route": ROUTES, "cross_device": ("reduction_to_one", "hierarchical_copy")},
        {"aggregation": AGGREGATIONS, "route": ("assign_add", "optimizer"), "replicas": (1, 3, 8)},
        {"aggregation": AGGREGATIONS, "route": ("cross_replica",), "update": ("assign", "assign_sub")},
        {"route": ("optimizer",), "gradients": ((3, 3),), "clipnorm": (1,)},
    ),
)
