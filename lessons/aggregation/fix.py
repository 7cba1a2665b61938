"""The smallest change of settings after which every replica's number counts and the copies agree."""

from __future__ import annotations

from typing import Any

from lessons.aggregation.reading import Reading

# Parts of messages whose fix does not follow from the settings alone.
NO_GPU = "list_physical_devices finds no GPU"  # the program itself
NO_KERNEL = "No registered 'ResourceApply"  # TensorFlow 2.4 and 2.5, of an int32 weight


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run; None where nothing is wrong.

    Every rule is a finding of runs on TensorFlow 2.4.1 to 2.21; tests run what this gives.
    """
    if not reading.wrong:
        return None
    settings = reading.settings
    fixed = _fixed({**settings}, reading.failure.message if reading.failure else "")
    return {name: value for name, value in fixed.items() if value != settings[name]} or None


def _fixed(settings: dict[str, Any], message: str) -> dict[str, Any]:
    """The settings with all changed that would be refused, or go wrong, one after the other. `message` is the error's,
    where there was one."""
    replicas = int(settings["replicas"])
    on_read = settings["synchronization"] == "ON_READ"
    if NO_GPU in message:
        settings["devices"] = "cpu"
    if settings["dtype"] == "int32" and (
        settings["aggregation"] == "MEAN" or _is_cut(settings) or NO_KERNEL in message
    ):
        settings["dtype"] = "float32"
    if settings["route"].startswith("optimizer"):
        settings |= {"route": "optimizer", "value": "tensor"}
        if settings["cross_device"] == "hierarchical_copy" and replicas % 2:
            settings["cross_device"] = "default"
    elif settings["route"] == "cross_replica":
        adds = on_read and settings["aggregation"] == "SUM" and settings["update"] != "assign"
        if adds or (settings["value"] == "tensor" and replicas > 1):
            settings["route"] = settings["update"]
    if settings["route"].startswith("assign") and not on_read:
        _merge_at_write(settings)
    if on_read and settings["aggregation"] == "NONE":
        # Outside the replicas a SUM can't be added to, and its parts of an int32 may be cut.
        once = settings["route"] == "cross_replica"
        settings["aggregation"] = "SUM" if not once else _alike(settings)
    return settings


def _merge_at_write(settings: dict[str, Any]) -> None:
    """In the replicas: tensors that are merged, or a plain number where it is the same for all."""
    if settings["value"] == "python":
        zero = settings["aggregation"] == "MEAN" and not settings["gradients"][0]
        if settings["aggregation"] == "SUM" or zero:
            settings["value"] = "tensor"
    elif settings["aggregation"] == "NONE" and int(settings["replicas"]) > 1:
        # What is added counts from every replica; what is set is one value.
        settings["aggregation"] = _alike(settings) if settings["route"] == "assign" else "SUM"


def _alike(settings: dict[str, Any]) -> str:
    """What makes one value of several that are meant to be alike; whole numbers have no mean."""
    return "ONLY_FIRST_REPLICA" if settings["dtype"] == "int32" else "MEAN"


def _is_cut(settings: dict[str, Any]) -> bool:
    """True where a whole weight cuts a learning rate, has no norm to clip by, or cuts the parts of a sum that is set
    outside the replicas."""
    if settings["route"].startswith("optimizer"):
        return settings["clipnorm"] is not None or not float(settings["learning_rate"]).is_integer()
    parts = settings["route"] == "cross_replica" and settings["update"] == "assign" and settings["value"] == "python"
    summed = settings["synchronization"] == "ON_READ" and settings["aggregation"] == "SUM"
    return parts and summed and bool(settings["gradients"][0] % int(settings["replicas"]))
