"""What a lesson is: an experiment, what a page needs to know of its settings, and what it makes of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import plotly.graph_objects as go

from engine.experiments import Experiment
from engine.settings import Settings
from engine.trace import Trace
from lessons.language import Texts

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class Link:
    """A run worth a look: settings (those not named are at their defaults), and the TensorFlow version, or None for
    the app's own.

    Its texts are `guide.{name}`, which is short, and `guide.{name}_help`, a sentence.
    """

    name: str
    settings: Mapping[str, str]
    tensorflow: str | None = None


@dataclass(frozen=True)
class Prediction(Generic[S]):
    """What a learner may say before a run is shown. `options` are the answers that there are for a choice of settings,
    none where there is nothing to ask; `truth` is the one that a trace gives, None where it gives none.

    Its texts are `predict.question`, and in `said` what each answer is called.
    """

    options: Callable[[S], Sequence[str]]
    truth: Callable[[Trace], str | None]
    said: Callable[[str, Texts], str]


@dataclass(frozen=True)
class Lesson(Generic[S]):
    """Text, controls and figures around one experiment. Its texts are in the folder lessons/`name`.

    `first` names the settings that are shown first and large; the rest are one click away. `unused` names, for a
    choice of settings, those that change nothing then. `figure`, `alternative` (the figure in words, for those who
    can't see it) and `story` (what happened, a sentence each) are written from a trace. So is `remedy`, where there is
    one: the settings to change so that the run goes right, or None. `guide` leads through runs worth a look. `predict`,
    where there is one, asks first.
    """

    name: str
    experiment: Experiment[S]
    first: tuple[str, ...]
    unused: Callable[[S], frozenset[str]]
    figure: Callable[[Trace, Texts], go.Figure]
    alternative: Callable[[Trace, Texts], str]
    story: Callable[[Trace, Texts], Sequence[str]]
    remedy: Callable[[Trace], Mapping[str, str] | None] | None = None
    guide: Sequence[Link] = ()
    predict: Prediction[S] | None = None


AnyLesson = Lesson[Any]
