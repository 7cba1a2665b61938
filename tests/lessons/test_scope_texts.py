"""The texts of the lesson on scope placement: none missing, none too many."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from engine.experiments.scope_placement import ScopePlacementSettings
from lessons.scope_placement.lesson import LESSON
from lessons.scope_placement.reading import Outcome
from tests.lessons.test_texts import loaded

FOLDER = Path(__file__).parents[2] / "lessons" / "scope_placement"


def test_every_outcome_that_is_no_failure_has_a_text() -> None:
    outcomes = {
        key.removeprefix("figure.outcome.") for key in loaded(FOLDER, "en") if key.startswith("figure.outcome.")
    }
    assert outcomes == set(get_args(Outcome)) - {"raised", "stopped"}


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(ScopePlacementSettings()) == frozenset()
    assert LESSON.unused(ScopePlacementSettings(loop="fit")) == {"step"}


def test_what_is_put_in_or_out_comes_first() -> None:
    assert LESSON.places == ("model_scope", "optimizer_scope", "apply_scope")
    assert set(LESSON.first) <= set(ScopePlacementSettings.model_fields)
