"""The experiment `sync_replicas`: SyncReplicasOptimizer on a live cluster: tokens, stale gradients, deadlocks."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from engine.experiments.base import Experiment, task_names
from engine.settings import RuleError, Settings, is_left_out
from engine.versions import Versions

Gradient = Annotated[float, Field(ge=-1000, le=1000)]
Delay = Annotated[float, Field(ge=0, le=1)]

GROUPS = {"conv": 1, "fc_w": 10, "fc_b": 20}  # the variables, and how many times the learning rate each gets
DECAY = 0.5  # of the moving averages
USUAL_DELAY = 0.05  # seconds; a worker that takes no time at all takes the tokens of those that are not up yet
PATIENCE = 3.0  # seconds without any change that make a deadlock; a worker's own delay is a second at most


class SyncReplicasSettings(Settings):
    """`optimizers` variables, 0 at first, each with its own optimizer, on one parameter server; `workers` train them
    until the global step is `steps`. Worker i's gradient is `gradients[i]`, and takes it `delays[i]` seconds a step.

    `global_step` says what apply_gradients gets: article (the first optimizer only), shared (all the same), own (a
    variable for each), composite (one SyncReplicasOptimizer around one optimizer that hands each variable to its own).
    `tokens` is the chief's part: hook (make_session_run_hook), zero (the same with num_tokens=0), twice (and
    get_init_tokens_op once more), first_hook_only (of the first optimizer), none (no hook). With `barrier` all
    workers begin their first step together. `sync` is no for the optimizers by themselves, asynchronous.
    """

    workers: int = Field(default=2, ge=1, le=4)
    replicas_to_aggregate: int = Field(default=2, ge=1, le=8)
    total_num_replicas: int = Field(default=2, ge=1, le=8)
    steps: int = Field(default=6, ge=1, le=20)
    optimizers: int = Field(default=1, ge=1, le=3)
    global_step: Literal["article", "shared", "own", "composite"] = "shared"
    tokens: Literal["hook", "zero", "twice", "none", "first_hook_only"] = "hook"
    barrier: Literal["yes", "no"] = "yes"
    sync: Literal["yes", "no"] = "yes"
    gradients: tuple[Gradient, ...] | None = Field(default=None, description="worker")
    delays: tuple[Delay, ...] | None = Field(default=None, description="worker")
    learning_rate: float = Field(default=0.1, ge=0.001, le=100)
    momentum: float = Field(default=0.0, ge=0, le=0.99)
    moving_average: Literal["none", "own", "all"] = "none"
    kill_worker: int | None = Field(default=None, ge=0, le=3)
    kill_step: int = Field(default=3, ge=1, le=20)

    @model_validator(mode="before")
    @classmethod
    def _follow_workers(cls, data: dict[str, object]) -> dict[str, object]:
        """As many replicas as workers; gradients -1, -2, -3, ..., and a short delay."""
        count = cls.count_of("workers", data)
        if count is None:
            return data
        defaults: dict[str, object] = {
            "replicas_to_aggregate": count,
            "total_num_replicas": count,
            "gradients": tuple(-float(worker + 1) for worker in range(count)),
            "delays": (USUAL_DELAY,) * count,
        }
        return {**data, **{name: value for name, value in defaults.items() if is_left_out(data.get(name))}}

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.kill_worker is not None and self.kill_worker >= self.workers:
            last = self.workers - 1
            allowed = f"0-{last} or none, as workers={self.workers}"
            raise RuleError("kill_worker", "one_of_the_workers", allowed, last=last, workers=self.workers)
        return self


def names(settings: SyncReplicasSettings, versions: Versions) -> dict[str, Any]:
    """The variables with their rates, the step variables, how many steps one worker can make, and TensorFlow's name."""
    groups = list(GROUPS.items())[: settings.optimizers]
    own = settings.global_step == "own"
    each_step = max(settings.total_num_replicas, settings.replicas_to_aggregate)
    # A step takes a token of each optimizer, and there are these, at the most (twice); asynchronously each step counts.
    tokens = 2 * settings.replicas_to_aggregate + each_step * (settings.steps + 1)
    return {
        "module": "tensorflow.compat.v1" if versions.tensorflow_numbers >= (2, 0) else "tensorflow",
        "rates": {name: round(settings.learning_rate * times, 6) for name, times in groups},
        "step_names": ["global_step", *(f"global_step_{i}" for i in range(1, settings.optimizers) if own)],
        "most": 1 + (tokens if settings.sync == "yes" else settings.steps),
        "decay": DECAY,
        "patience": PATIENCE,
    }


def cluster(settings: SyncReplicasSettings) -> dict[str, int]:
    """A parameter server, and the workers."""
    return {"ps": 1, "worker": settings.workers}


def killed(settings: SyncReplicasSettings) -> list[str]:
    """The worker that the program is to kill."""
    return [] if settings.kill_worker is None else [f"worker:{settings.kill_worker}"]


SYNC_REPLICAS = Experiment(
    name="sync_replicas",
    template="sync_replicas.py.jinja",
    settings=SyncReplicasSettings,
    devices=lambda settings: task_names(cluster(settings)),
    context=names,
    runs_on=lambda versions: versions.tensorflow_numbers >= (1, 15),
    deterministic=False,
    tasks=cluster,
    may_be_killed=killed,
    seconds=60,
)
