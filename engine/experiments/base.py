"""What an experiment is: a name, a template, the settings it accepts, and what is known about its runs beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from engine.settings import Settings
from engine.versions import Versions

S = TypeVar("S", bound=Settings)


class UnknownExperimentError(ValueError):
    """A name that no experiment has."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        super().__init__(f"experiment: {name!r} was given; allowed: {', '.join(known)}")


class CannotRunError(ValueError):
    """A runtime on which an experiment can't run."""

    def __init__(self, experiment: str, runtime: str, able: Iterable[str]) -> None:
        self.experiment = experiment
        self.runtime = runtime
        self.able = tuple(able)
        super().__init__(
            f"tf: {runtime!r} was given, on which {experiment} can't run; allowed, of what is installed here: "
            f"{', '.join(self.able) or 'none'}"
        )


def any_tensorflow_2(versions: Versions) -> bool:
    """True for TensorFlow 2.0 and newer."""
    return versions.tensorflow_numbers >= (2, 0)


def task_names(tasks: Mapping[str, int]) -> list[str]:
    """The tasks of a cluster one by one: {"ps": 1, "worker": 2} is ps:0, worker:0, worker:1."""
    return [f"{job}:{index}" for job, count in tasks.items() for index in range(count)]


@dataclass(frozen=True)
class Experiment(Generic[S]):
    """A parametrised TensorFlow program plus the settings it accepts.

    `template` is a file of engine/programs. `devices` names the logical devices that a run with these settings
    asks TensorFlow for. `context` gives what a template needs besides the settings: what differs from one version
    of TensorFlow or Keras to another. `runs_on` says on which versions it can run at all. A `deterministic`
    experiment gives equal traces (times aside) for equal settings, so that a finished one may be kept and shown
    again. `seconds` is the deadline of one run. `recorded` says which choices are kept as recordings: of each mapping,
    every combination of the options that it names, the other settings at their defaults. `on_each_keras` says that
    the Keras release decides what it shows, so that it is recorded on each, not on each TensorFlow only.

    A program whose `tasks` are not empty, {"ps": 1, "worker": 2}, is a cluster: it is started once a task, those that
    serve first, each with its own TF_CONFIG and with BEGAN, the time.monotonic() from which its events count (see
    programs/cluster.py.jinja). They are one run: it is over when all have ended but those of a job in `serving`, and
    they end together. A task that ends with a signal, or with a status but 0 and no error reported, is told as an
    event, {"event": "died", "task": "worker:1", "signal": "SIGKILL"} (or "status": 1), and the run then ends a few
    seconds later; unless the task is one of `may_be_killed`, which the program itself may end: then the others go on.
    """

    name: str
    template: str
    settings: type[S]
    devices: Callable[[S], list[str]]
    context: Callable[[S, Versions], dict[str, Any]] = lambda settings, versions: {}
    runs_on: Callable[[Versions], bool] = any_tensorflow_2
    deterministic: bool = True
    seconds: float = 30.0
    recorded: tuple[Mapping[str, Sequence[Any]], ...] = ()
    on_each_keras: bool = False
    tasks: Callable[[S], Mapping[str, int]] = lambda settings: {}
    serving: Callable[[S], Sequence[str]] = lambda settings: ("ps",)
    may_be_killed: Callable[[S], Sequence[str]] = lambda settings: ()
