"""The smallest change of settings after which training goes on to its end, and global_step counts the updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any, Final

from lessons.sync_replicas.reading import Reading

_MOST: Final = 8  # replicas, as the settings allow


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run, as few as will do; None where nothing is wrong, or none of these fix it.

    Where training went right and gradients were lost to tokens that were put in twice, or moving averages were moved
    too often, what mends that."""
    settings = reading.settings
    if reading.outcome == "right":
        better = _improvement(reading)
        return _words(better) if better and goes_right({**settings, **better}) else None
    if reading.outcome in ("running", "stopped") or (reading.failure and reading.failure.cause == "other"):
        return None
    change = smallest_change(settings)
    return _words(change) if change else None


def smallest_change(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The fewest changes after which such a run goes right; none where it does already, None where none of these do."""
    changes = [*_changes(settings)]
    for count in range(len(changes) + 1):
        for several in combinations(changes, count):
            change = {name: value for each in several for name, value in each.items()}
            if len(change) == count and goes_right({**settings, **change}):
                return change
    return None


def goes_right(settings: Mapping[str, Any]) -> bool:
    """True where, by what TensorFlow does, such a run always comes to its end and counts right, whoever is first.

    From sync_replicas_optimizer.py: an update takes `replicas_to_aggregate` gradients that are not stale, and puts in
    as many tokens, or `total_num_replicas`, if that is more. A worker pushes once, and once more for each token."""
    several = settings["optimizers"] > 1
    if settings["sync"] == "no":
        return not several or settings["global_step"] != "shared"
    if several and settings["global_step"] != "composite":
        return False  # refused (article), counted by each (shared), or one queue for all of them (own)
    needed, replicas, workers = (
        settings[name] for name in ("replicas_to_aggregate", "total_num_replicas", "workers")
    )  # fmt: skip
    dies, step = settings["kill_worker"], settings["kill_step"]
    if settings["tokens"] == "none" or dies == 0:
        return False  # nobody takes averages and puts in tokens
    if settings["tokens"] == "zero" and needed > min(replicas, workers - (dies is not None and step == 1)):
        return False  # refused, or not enough gradients before the first token
    # Who dies in a later step takes a token with it.
    return dies is None or step == 1 or replicas > needed


def _changes(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Single changes that may be part of a fix, the likeliest first."""
    needed, replicas = settings["replicas_to_aggregate"], settings["total_num_replicas"]
    if settings["kill_worker"] is not None and settings["sync"] == "yes":
        workers = settings["workers"]
        if 1 <= workers - 1 < needed:
            yield {"replicas_to_aggregate": workers - 1}
        if replicas <= needed < _MOST:
            yield {"total_num_replicas": needed + 1}
        if 1 <= replicas - 1 < needed:
            yield {"replicas_to_aggregate": replicas - 1}
        if replicas < workers:
            yield {"total_num_replicas": workers}
    if settings["tokens"] in ("none", "zero"):
        yield {"tokens": "hook"}
    yield {"global_step": "composite"}


def _improvement(reading: Reading) -> dict[str, Any]:
    """What is better than a run that went right."""
    change: dict[str, Any] = {}
    if reading.sync and reading.settings["tokens"] == "twice" and reading.lost:
        change["tokens"] = "hook"
    if change or not reading.own_averages:
        change |= {"global_step": "composite"} if reading.optimizers > 1 else {}
    return change


def _words(change: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in change.items()}
