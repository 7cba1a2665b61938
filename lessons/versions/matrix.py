"""The matrices of the experiment `scope_placement`: every place on every version."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from engine.experiments.scope_placement import MODELS, ScopePlacementSettings
from engine.settings import Settings

Which = Literal["placements", "direct"]
OPTIMIZERS: Final = ("sgd", "momentum", "adam")
MODES: Final = ("eager", "function")


@dataclass(frozen=True)
class Row:
    """A row: the settings that are its own, and all settings of its runs."""

    own: dict[str, str]
    settings: Settings


def placements(optimizer: str, mode: str) -> list[Row]:
    """Each model with model and optimizer in or out. Where the first step is called changes nothing by strategy.run."""
    return [
        _row(
            {"model": model, "model_scope": model_scope, "optimizer_scope": optimizer_scope},
            optimizer=optimizer,
            mode=mode,
        )
        for model, model_scope, optimizer_scope in itertools.product(MODELS, ("in", "out"), ("in", "out"))
    ]


def direct(apply_scope: str, mode: str) -> list[Row]:
    """Each model and optimizer with the step called without strategy.run; model and optimizer made in the scope."""
    return [
        _row({"model": model, "optimizer": optimizer}, step="direct", apply_scope=apply_scope, mode=mode, steps=3)
        for model, optimizer in itertools.product(MODELS, OPTIMIZERS)
    ]


def _row(own: dict[str, str], **others: Any) -> Row:
    return Row(own, ScopePlacementSettings.parse({**own, **others}))


def cells(rows: Sequence[Row], columns: int) -> list[tuple[int, int]]:
    """Row and column of every cell, in the order in which they are run: a row after the other."""
    return list(itertools.product(range(len(rows)), range(columns)))
