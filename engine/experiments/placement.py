"""The experiment `placement`: on which process a variable of a TF1 graph lives, and who shares it therefore."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from engine.experiments.base import Experiment, task_names
from engine.settings import Settings
from engine.versions import Versions

DeviceSetter = Literal["none", "article", "unused", "used"]
Strategy = Literal["round_robin", "greedy"]
Size = Annotated[int, Field(ge=1, le=1_000_000)]


class PlacementSettings(Settings):
    """Variables of `sizes` float32 numbers each, all 0 at first, in the graph that every worker builds for itself.

    `device_setter` says what is done with tf.train.replica_device_setter: nothing; `article`: called with a task_index;
    `unused`: called, and its result not given to tf.device; `used`: given to it. Worker 0 writes 1 into every variable,
    and then the other workers read.
    """

    ps: int = Field(default=2, ge=1, le=4)
    workers: int = Field(default=2, ge=1, le=4)
    device_setter: DeviceSetter = "used"
    strategy: Strategy = "round_robin"
    sizes: tuple[Size, ...] = Field(
        default=(100_000, 10_000, 1_000, 100, 10), min_length=1, max_length=8, description="variable"
    )
    partitioner: Literal["none", "fixed_size"] = "none"
    inner_device: Literal["none", "cpu"] = "none"
    merge_devices: Literal["yes", "no"] = "yes"


def tasks(settings: PlacementSettings) -> dict[str, int]:
    """The processes of the cluster, by job."""
    return {"ps": settings.ps, "worker": settings.workers}


def names(_: PlacementSettings, versions: Versions) -> dict[str, Any]:
    """How the program imports TF1, and whether tf.contrib, which has the greedy strategy, is there."""
    return {"tf1": versions.tensorflow_numbers < (2, 0)}


SETTERS, STRATEGIES = get_args(DeviceSetter), get_args(Strategy)

PLACEMENT = Experiment(
    name="placement",
    template="placement.py.jinja",
    settings=PlacementSettings,
    devices=lambda settings: task_names(tasks(settings)),
    context=names,
    runs_on=lambda versions: versions.tensorflow_numbers >= (1, 15),
    tasks=tasks,
    recorded=(
        {"device_setter": SETTERS},
        {"strategy": STRATEGIES, "ps": (1, 2, 3)},
        {"strategy": STRATEGIES, "partitioner": ("fixed_size",)},
        {"workers": (1, 3)},
        {"inner_device": ("cpu",), "merge_devices": ("yes", "no")},
    ),
)
