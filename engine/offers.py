"""Offers: the versions that an experiment can be shown on, live where they are installed, else as recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.experiments import Experiment
from engine.recordings import Provenance, Recordings
from engine.runtimes import Runtime, UnknownVersionError, runtime_name, wanted
from engine.versions import Versions


@dataclass(frozen=True)
class Offer:
    """One version. `runtime` is None where it is not installed, `provenance` where nothing was recorded on it; one of
    them is there."""

    versions: Versions
    other_keras: bool
    runtime: Runtime | None
    provenance: Provenance | None

    @property
    def name(self) -> str:
        """The name of the runtime, whether it is here or not."""
        return runtime_name(self.versions.tensorflow, self.versions.keras if self.other_keras else None)

    @property
    def live(self) -> bool:
        return self.runtime is not None

    @property
    def command(self) -> str:
        """How a person gets it; "" where it is here, or where that is not known."""
        return (
            "" if self.live else how_to_get(self.versions.tensorflow, self.versions.keras if self.other_keras else None)
        )


def how_to_get(tensorflow: str, keras: str | None = None) -> str:
    """The command that installs a version; "" where there is no known way."""
    try:
        return wanted(tensorflow, keras).command
    except UnknownVersionError:
        return ""


def offers(experiment: Experiment[Any], runtimes: Mapping[str, Runtime], recordings: Recordings) -> dict[str, Offer]:
    """Every version that this experiment can be shown on, by name: the app's own first (`runtimes` has it first), or
    where there is none, the newest that was recorded."""
    recorded = recordings.made_with(experiment)
    found = {
        name: Offer(runtime.versions, runtime.other_keras, runtime, recorded.get(name))
        for name, runtime in runtimes.items()
        if experiment.runs_on(runtime.versions)
    }
    for name, provenance in recorded.items():
        found.setdefault(name, Offer(provenance.versions, provenance.other_keras, None, provenance))
    return found
