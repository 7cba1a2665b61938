"""The experiment `multi_worker`: what replaced SyncReplicasOptimizer, with the same model and gradients."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from engine.experiments.base import Experiment, task_names
from engine.experiments.sync_replicas import GROUPS, Gradient
from engine.settings import Problem, Settings, SettingsError, is_left_out
from engine.versions import Versions


class MultiWorkerSettings(Settings):
    """The model of sync_replicas: `optimizers` variables, 0 at first, and worker i's gradient is `gradients[i]`.

    multi_worker: no parameter server, every worker has the variables, and each of the `steps` waits for all gradients.
    parameter_server: a chief sends `steps` steps to whichever worker is free, and each is applied by itself.
    """

    strategy: Literal["multi_worker", "parameter_server"] = "multi_worker"
    workers: int = Field(default=2, ge=1, le=4)
    steps: int = Field(default=6, ge=1, le=20)
    optimizers: int = Field(default=1, ge=1, le=3)
    gradients: tuple[Gradient, ...] | None = Field(default=None, description="worker")
    learning_rate: float = Field(default=0.1, ge=0.001, le=100)
    momentum: float = Field(default=0.0, ge=0, le=0.99)

    @model_validator(mode="before")
    @classmethod
    def _follow_workers(cls, data: dict[str, object]) -> dict[str, object]:
        count = cls.count_of("workers", data)
        if count is None or not is_left_out(data.get("gradients")):
            return data
        return {**data, "gradients": tuple(-float(worker + 1) for worker in range(count))}


def names(settings: MultiWorkerSettings, versions: Versions) -> dict[str, Any]:
    """The variables with their rates, and whether an optimizer's own variables can be made beforehand.

    Raises SettingsError where ParameterServerStrategy isn't there yet under this name."""
    if settings.strategy == "parameter_server" and versions.tensorflow_numbers < (2, 6):
        allowed = f"multi_worker, as TensorFlow {versions.tensorflow} has ParameterServerStrategy as an experiment only"
        values = {"version": versions.tensorflow}
        raise SettingsError([Problem("strategy", settings.strategy, allowed, "no_parameter_server", values)])
    groups = list(GROUPS.items())[: settings.optimizers]
    return {
        "rates": {name: round(settings.learning_rate * times, 6) for name, times in groups},
        "k": "tf.keras",
        "build": versions.keras_numbers >= (2, 11),
    }


def cluster(settings: MultiWorkerSettings) -> dict[str, int]:
    """The tasks, by job."""
    if settings.strategy == "multi_worker":
        return {"worker": settings.workers}
    return {"chief": 1, "ps": 1, "worker": settings.workers}


def serving(settings: MultiWorkerSettings) -> tuple[str, ...]:
    """The jobs that do what a chief sends them, and go on for ever."""
    return () if settings.strategy == "multi_worker" else ("ps", "worker")


MULTI_WORKER = Experiment(
    name="multi_worker",
    template="multi_worker.py.jinja",
    settings=MultiWorkerSettings,
    devices=lambda settings: task_names(cluster(settings)),
    context=names,
    tasks=cluster,
    serving=serving,
    deterministic=False,
    seconds=60,
)
