"""Requests: what the engine is asked to run, how that travels as JSON, and why it may be refused."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.experiments import CannotRunError, Experiment, find_experiment
from engine.runtimes import Runtime
from engine.settings import Settings


class EngineBusyError(RuntimeError):
    """As many runs are waiting as may: `limit` in all, or `of_session` those of one session."""

    def __init__(self, limit: int, *, of_session: bool = False) -> None:
        self.limit = limit
        self.of_session = of_session
        whose = " of this session" if of_session else ""
        super().__init__(f"{limit} runs{whose} are waiting already, as many as may; try again in a moment")


class EngineClosedError(RuntimeError):
    """The engine was closed; nothing can be run with it any more."""


@dataclass(frozen=True)
class Request:
    """What is to be run: an experiment, its settings, and on which runtime: the TensorFlow version (None: the app's
    own; a runtime's name will do), and the Keras version (None: the one which that TensorFlow came with)."""

    experiment: Experiment[Any]
    settings: Settings
    tensorflow: str | None = None
    keras: str | None = None

    @classmethod
    def of(
        cls,
        experiment: str,
        given: Mapping[str, Any],
        tensorflow: str | None = None,
        keras: str | None = None,
    ) -> Request:
        """From names and words. Raises UnknownExperimentError or SettingsError."""
        found = find_experiment(experiment)
        return cls(found, found.settings.parse(given), tensorflow, keras)

    @property
    def command(self) -> str:
        """How a person asks for it on the command line."""
        words = [f"{name}={value}" for name, value in self.settings.to_words(changed_only=True).items()]
        for option, version in (("--tf", self.tensorflow), ("--keras", self.keras)):
            words += [option, version] if version else []
        return shlex.join(["python", "-m", "engine", "run", self.experiment.name, *words])

    def to_json(self) -> str:
        """{"experiment": ..., "settings": {...}, "runtime": {"tensorflow": ..., "keras": ...}}."""
        return json.dumps(
            {
                "experiment": self.experiment.name,
                "settings": self.settings.model_dump(mode="json"),
                "runtime": {"tensorflow": self.tensorflow, "keras": self.keras},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Request:
        """What `to_json` wrote; `runtime` may also be a version, or a runtime's name, by itself.

        Raises ValueError (of which SettingsError is one)."""
        data = json.loads(text)
        if not isinstance(data, dict) or not isinstance(data.get("settings", {}), dict):
            raise ValueError("a request is a JSON object: {experiment, settings, runtime}")
        runtime = data.get("runtime")
        if runtime is None or isinstance(runtime, str):
            runtime = {"tensorflow": runtime}
        if not isinstance(runtime, dict) or not all(isinstance(word, str | None) for word in runtime.values()):
            raise ValueError("a runtime is a version, or a JSON object: {tensorflow, keras}")
        return cls.of(
            str(data.get("experiment")),
            data.get("settings", {}),
            runtime.get("tensorflow"),
            runtime.get("keras"),
        )


def check_runs_on(experiment: Experiment[Any], runtime: Runtime, runtimes: Mapping[str, Runtime]) -> None:
    """Raises CannotRunError where that experiment can't run on that runtime; it says on which of these it can."""
    if not experiment.runs_on(runtime.versions):
        able = [name for name, other in runtimes.items() if experiment.runs_on(other.versions)]
        raise CannotRunError(experiment.name, runtime.name, able)


def request_key(runtime: Runtime, request: Request) -> str:
    """What equal runs have in common."""
    return json.dumps([runtime.name, request.experiment.name, request.settings.model_dump(mode="json")])
