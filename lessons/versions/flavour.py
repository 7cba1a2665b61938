"""Flavours: what stands side by side. A version, and where two Kerases are installed in one, each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.experiments import Experiment
from engine.offers import Offer
from engine.request import Request
from engine.runtimes import version_key
from engine.settings import Settings


@dataclass(frozen=True)
class Flavour:
    """An offer, and the settings that choose a Keras in it, for experiments that have such a setting."""

    offer: Offer
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of this flavour and no other: "2.4.1", "2.21.0 tf_keras"."""
        return " ".join([self.offer.name, *(value for value in self.settings.values() if value != "bundled")])

    @property
    def keras(self) -> str:
        """The Keras in it: "Keras 3.15.1", "tf_keras 2.21.0"."""
        versions = self.offer.versions
        return f"tf_keras {versions.tf_keras}" if "tf_keras" in self.settings.values() else f"Keras {versions.keras}"

    def request(self, experiment: Experiment[Any], settings: Settings) -> Request:
        """A request for these settings on this flavour."""
        chosen = settings.model_copy(update=dict(self.settings)) if self.settings else settings
        keras = self.offer.versions.keras if self.offer.other_keras else None
        return Request(experiment, chosen, self.offer.versions.tensorflow, keras)


def flavours(experiment: Experiment[Any], offers: Mapping[str, Offer]) -> list[Flavour]:
    """Each that an experiment can be shown on, from old to new, Keras 2 before Keras 3. Other Kerases than the one
    that TensorFlow comes with are among them only where the experiment is about these."""
    found: list[Flavour] = []
    for offer in sorted(offers.values(), key=_age):
        if offer.other_keras and not experiment.on_each_keras:
            continue
        both: Sequence[str] = ()
        if "keras" in experiment.settings.model_fields and offer.versions.tf_keras:
            both = ("bundled",) if offer.other_keras else ("tf_keras", "bundled")
        found += [Flavour(offer, {"keras": keras}) for keras in both] or [Flavour(offer)]
    # tf_keras is Keras 2, whatever Keras 3 is beside it.
    return sorted(
        found, key=lambda flavour: flavour.offer.versions.keras_numbers >= (3, 0) and not _is_tf_keras(flavour)
    )


def _is_tf_keras(flavour: Flavour) -> bool:
    return flavour.settings.get("keras") == "tf_keras"


def _age(offer: Offer) -> tuple[list[int], list[int]]:
    return version_key(offer.versions.tensorflow), version_key(offer.versions.keras)
