"""What a lesson is: an experiment, what a page needs to know of its settings, and what it makes of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import plotly.graph_objects as go

from engine.experiments import Experiment
from engine.settings import Settings
from engine.trace import Trace
from lessons.language import Language, Texts
from lessons.outcome import Outcome

S = TypeVar("S", bound=Settings)


OWN: Final = ""  # the TensorFlow that the app itself has


@dataclass(frozen=True)
class Link:
    """A run worth a look: settings (those not named are at their defaults), and the TensorFlow version: OWN for the
    app's own, None for the one that is chosen already.

    Its texts are `guide.{name}`, which is short, and `guide.{name}_help`, a sentence.
    """

    name: str
    settings: Mapping[str, str]
    tensorflow: str | None = None


@dataclass(frozen=True)
class Action:
    """A change that one click makes, to what is named by `subject`: settings and what their controls then hold.

    Its texts are `actions.{name}`, which is short, and `actions.{name}_help`, a sentence; that gets `subject` and
    `values`.
    """

    name: str
    subject: str
    change: Mapping[str, Any]
    values: Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """A question on a run that is not shown yet: its answers, and which of them a trace shows to be right.

    Its texts are `predict.question`, `predict.options.{option}`, and `predict.missed.{option}`: what to think of for
    those who chose it and were wrong.
    """

    options: Sequence[str]
    answers: Callable[[Trace], frozenset[str]]


@dataclass(frozen=True)
class Successor:
    """What one would write today: an experiment with the settings that fit the lesson's, and its traces beside it.

    `choice` is a setting of it that the visitor chooses. `table` gives columns, and `sentences` says how the two
    differ, from the lesson's trace and its own. Its texts are `successor.title` and `successor.about`.
    """

    experiment: Experiment[Any]
    choice: str
    settings: Callable[[Any], Mapping[str, Any]]
    table: Callable[[Trace, Trace, Texts], Mapping[str, Sequence[str]]]
    sentences: Callable[[Trace, Trace, Texts], Sequence[str]]


@dataclass(frozen=True)
class Sweep:
    """A picture of many runs. `settings` are theirs, for those that are chosen; `figure` and `alternative` are made of
    the traces there are, by their place among these. Its texts are `sweep.title` and `sweep.about`."""

    settings: Callable[[Any], Sequence[Settings]]
    figure: Callable[[Mapping[int, Trace], Texts], go.Figure]
    alternative: Callable[[Mapping[int, Trace], Texts], str]


@dataclass(frozen=True)
class Comparison(Generic[S]):
    """An experiment whose runs on several versions can stand side by side.

    Its texts are in the folder lessons/`name`: `experiment` names it in a list, `controls.{setting}` its settings.
    `first` are the settings that are shown first; the rest are one click away. `outcome` says in a few words what came
    of a run that gave an answer.
    """

    name: str
    experiment: Experiment[S]
    first: tuple[str, ...]
    outcome: Callable[[Trace, Texts], Outcome]

    def texts(self, language: Language) -> Texts:
        """Its texts in that language."""
        return Texts(Path(__file__).parent / self.name, language)


@dataclass(frozen=True)
class Lesson(Comparison[S]):
    """Text, controls and figures around one experiment. Its page is pages/`name`.py.

    Before the `first` settings come `places`: those that say `in` or `out`, shown as things in a box that is the scope,
    or outside of it. `unused` names, for a choice of settings, those that change nothing then; `captions`, for those
    whose option means something else in that company, the text that says it: `controls.{setting}.captions.{name}`.
    `figure`, `alternative`
    (the figure in words, for those who can't see it) and `story` (what happened, a sentence each) are written from a
    trace. So is `fix`, where there is one: the settings to change so that the run goes right, or None. `guide` leads
    through runs worth a look, and `actions` gives the changes that a click under the figure makes, those to one subject
    together. A `live` figure is drawn again and again while its run goes on, from a trace of status `running`; its runs
    take longer than the blink of an eye, and its height is always the same. A `sweep` and a `successor` are each shown
    in a tab, and run when that is opened. `in_versions` says whether the page Versions offers it; `see_also` is another
    lesson and settings there, linked at the end of the page under the text `see_also`.
    """

    figure: Callable[[Trace, Texts], go.Figure]
    alternative: Callable[[Trace, Texts], str]
    story: Callable[[Trace, Texts], Sequence[str]]
    unused: Callable[[S], frozenset[str]] = lambda settings: frozenset()
    fix: Callable[[Trace], Mapping[str, str] | None] | None = None
    guide: Sequence[Link] = ()
    places: tuple[str, ...] = ()
    captions: Callable[[S], Mapping[str, str]] = lambda settings: {}
    prediction: Prediction | None = None
    actions: Callable[[S], Iterable[Action]] | None = None
    live: bool = False
    successor: Successor | None = None
    sweep: Sweep | None = None
    in_versions: bool = True
    see_also: tuple[str, Mapping[str, str]] | None = None


AnyLesson = Lesson[Any]
