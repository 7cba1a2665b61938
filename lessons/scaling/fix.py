"""The smallest change of settings after which a run keeps to its reference."""

from __future__ import annotations

from lessons.scaling.reading import Reading


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> value; None where the run keeps to the reference, or can't: against small batches it never does, it
    only comes nearest with the linear rule."""
    if reading.outcome in ("running", "equal", "nothing", "raised", "stopped"):
        return None
    settings = reading.settings
    change: dict[str, str] = {}
    if reading.small_batches:
        # N means added are the linear rule already.
        if settings["loss"] == "global_mean" and settings["gradient"] != "mean" and settings["rule"] != "linear":
            return {"rule": "linear"}
        if settings["loss"] == "global_mean" and settings["gradient"] == "mean":
            return {"gradient": "sum", "rule": "linear"}
        keeps = settings["loss"] == "per_replica_mean" and settings["rule"] == "none"
        return None if keeps else _global(settings) or None
    if reading.loss_factor != 1 or (settings["last_batch"] == "keep" and settings["loss"] != "global_mean"):
        change |= _global(settings)
    if settings["rule"] != "none":
        change["rule"] = "none"
    if settings["normalization"] == "per_replica":
        change["normalization"] = "synchronized"
    if settings["last_batch"] == "keep":
        change["last_batch"] = "keep_counted"
    return change or None


def _global(settings: dict[str, object]) -> dict[str, str]:
    """The mean over the global batch, summed by the optimizer."""
    change = {} if settings["loss"] == "global_mean" else {"loss": "global_mean"}
    return change | ({"gradient": "sum"} if settings["gradient"] == "mean" else {})
