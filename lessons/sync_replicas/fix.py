"""The smallest change of settings after which training goes on to its end, and global_step counts the updates."""

from __future__ import annotations

from lessons.sync_replicas.reading import Reading


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run; None where nothing is wrong, or no single change fixes it."""
    settings, outcome = reading.settings, reading.outcome
    many = len(reading.variables) > 1
    if outcome == "raised":
        cause = reading.failure.cause if reading.failure else "other"
        return {"no_global_step": {"global_step": "composite"}, "too_few_tokens": {"tokens": "hook"}}.get(cause)
    if outcome == "miscounted":
        return {"global_step": "composite"} if many and settings["global_step"] == "shared" else None
    if outcome == "deadlock":
        return {
            "no_hook": {"tokens": "hook"},
            "first_hook_only": {"tokens": "hook"},
            "crossed": {"global_step": "composite"},
            "worker_dead": {"replicas_to_aggregate": str(len(reading.workers) - len(reading.dead))},
        }.get(reading.lock)
    if outcome == "right" and settings["tokens"] == "twice" and reading.lost:
        return {"tokens": "hook"}
    return None
