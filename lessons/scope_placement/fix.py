"""The smallest change of settings after which a run trains as one, on the versions that it ran on."""

from __future__ import annotations

from lessons.scope_placement.reading import BUILT, Reading


def suggested_fix(reading: Reading) -> dict[str, str] | None:
    """Setting -> the value that fixes the run; None where nothing is wrong, or no setting fixes it.

    Every rule is a finding of runs on TensorFlow 2.4.1, 2.5.0, 2.15.1 and 2.21 with both of its Kerases; tests run
    what this gives.
    """
    if reading.outcome in ("trained", "nothing", "stopped") or beyond_fixing(reading):
        return None
    settings, change = reading.settings, {}
    if reading.direct:
        change["step"] = "strategy_run"
    born_early = settings["model"] in BUILT
    if settings["model_scope"] == "out" and (born_early or (reading.fit and not _fit_makes_it_right(reading))):
        change["model_scope"] = "in"
    if not born_early and settings["dummy_call"] == "out_of_scope":
        change["dummy_call"] = "in_scope"
    weights_at_build = born_early or settings["dummy_call"] != "none"
    build = settings["optimizer_build"] == "yes"
    if build and (reading.era == "legacy" or not weights_at_build):
        change["optimizer_build"] = "no"
        build = False
    # Keras 3 binds an optimizer to the strategy it is made in; what is built there is, with any Keras.
    if settings["optimizer_scope"] == "out" and (reading.era == "keras3" or build):
        change["optimizer_scope"] = "in"
    if _traced(reading, weights_at_build) and not build:
        # Slots can be made beforehand; where the weight itself is made in the trace, only other collectives help.
        if weights_at_build:
            change["optimizer_build"] = "yes"
        else:
            change["cross_device"] = "reduction_to_one"
    return change or None


def beyond_fixing(reading: Reading) -> bool:
    """True on a Keras 3 that trains wrongly whatever is chosen: before 3.5 replicas keep their gradients to themselves,
    and before 3.8 fit makes its steps too long."""
    return reading.era == "keras3" and reading.keras_numbers < ((3, 8) if reading.fit else (3, 5))


def _fit_makes_it_right(reading: Reading) -> bool:
    """True where Keras 3's fit, called in the scope, gives a model made outside its weight there."""
    return reading.era == "keras3" and reading.settings["apply_scope"] == "in" and reading.settings["mode"] == "eager"


def _traced(reading: Reading, weights_at_build: bool) -> bool:
    """True where Keras 3 would make variables while tf.function traces, which the default collectives can't take."""
    settings = reading.settings
    makes = reading.has_slots or (settings["model"] == "sequential_deferred" and not weights_at_build)
    return (
        makes
        and reading.era == "keras3"
        and not reading.fit
        and settings["mode"] == "function"
        and settings["cross_device"] == "default"
        and reading.replicas > 1
    )
