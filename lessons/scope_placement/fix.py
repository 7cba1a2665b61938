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
    # The losses of Keras 2 refuse to take a mean in a loop of one's own under a strategy.
    if settings["loss"] != "output" and not reading.fit and reading.era != "keras3":
        change["loss"] = "output"
    if reading.direct:
        change["step"] = "strategy_run"
    born_early = settings["model"] in BUILT
    if settings["model_scope"] == "out" and (born_early or (reading.fit and not _fit_makes_it_right(reading))):
        change["model_scope"] = "in"
    traced = _traced(reading)
    if not born_early and (settings["dummy_call"] == "out_of_scope" or (traced and settings["dummy_call"] == "none")):
        change["dummy_call"] = "in_scope"
    weights_at_build = born_early or change.get("dummy_call", settings["dummy_call"]) != "none"
    build = settings["optimizer_build"] == "yes"
    if build and (reading.era == "legacy" or not weights_at_build):
        change["optimizer_build"] = "no"
        build = False
    # Keras 3 binds an optimizer to the strategy it is made in; what is built there is, with any Keras.
    if settings["optimizer_scope"] == "out" and (reading.era == "keras3" or build):
        change["optimizer_scope"] = "in"
    if traced and reading.has_slots and not build:
        change["optimizer_build"] = "yes"
    return change or None


def keras_needed(reading: Reading) -> str:
    """The Keras from which on a run goes right that no setting makes right on its own; "" where it is not that."""
    if reading.outcome in ("trained", "nothing", "stopped") or not beyond_fixing(reading):
        return ""
    return "3.8" if reading.fit else "3.5"


def beyond_fixing(reading: Reading) -> bool:
    """True on a Keras 3 that trains wrongly whatever is chosen: before 3.5 replicas keep their gradients to themselves,
    and before 3.8 fit makes its steps too long."""
    return reading.era == "keras3" and reading.keras_numbers < ((3, 8) if reading.fit else (3, 5))


def _fit_makes_it_right(reading: Reading) -> bool:
    """True where Keras 3's fit, called in the scope, gives a model made outside its weight there."""
    return reading.era == "keras3" and reading.settings["apply_scope"] == "in" and reading.settings["mode"] == "eager"


def _traced(reading: Reading) -> bool:
    """True where Keras 3 would make variables while tf.function traces, which the default collectives can't take."""
    settings = reading.settings
    makes = reading.has_slots or (settings["model"] not in BUILT and settings["dummy_call"] == "none")
    return (
        makes
        and reading.era == "keras3"
        and not reading.fit
        and settings["mode"] == "function"
        and settings["cross_device"] == "default"
        and reading.replicas > 1
    )
