"""Experiments: parametrised TensorFlow programs, and the settings each accepts."""

from __future__ import annotations

from typing import Any

from engine.experiments.aggregation import AGGREGATION
from engine.experiments.base import CannotRunError, Experiment, UnknownExperimentError
from engine.experiments.fit import FIT
from engine.experiments.multi_worker import MULTI_WORKER
from engine.experiments.placement import PLACEMENT
from engine.experiments.scaling import SCALING
from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.experiments.sync_replicas import SYNC_REPLICAS
from engine.experiments.variable_scope import VARIABLE_SCOPE

ALL = (AGGREGATION, SCALING, SCOPE_PLACEMENT, VARIABLE_SCOPE, PLACEMENT, SYNC_REPLICAS, MULTI_WORKER, FIT)
EXPERIMENTS: dict[str, Experiment[Any]] = {experiment.name: experiment for experiment in ALL}


def find_experiment(name: str) -> Experiment[Any]:
    """The experiment of that name. Raises UnknownExperimentError, which says which there are."""
    try:
        return EXPERIMENTS[name]
    except KeyError:
        raise UnknownExperimentError(name, EXPERIMENTS) from None


__all__ = ["EXPERIMENTS", "CannotRunError", "Experiment", "UnknownExperimentError", "find_experiment"]
