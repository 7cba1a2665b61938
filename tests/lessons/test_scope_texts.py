"""The texts of the lesson on scope placement: none missing, none too many."""

from __future__ import annotations

import string
from pathlib import Path
from typing import get_args

from engine.experiments.scope_placement import ScopePlacementSettings
from lessons.language import LANGUAGES, Texts
from lessons.scope_placement.lesson import LESSON
from lessons.scope_placement.reading import Outcome
from tests.lessons.test_texts import loaded

FOLDER = Path(__file__).parents[2] / "lessons" / "scope_placement"


def test_every_setting_option_and_link_has_a_text() -> None:
    for language in LANGUAGES:
        texts = Texts(FOLDER, language)
        for setting in ScopePlacementSettings.declared():
            assert texts(f"controls.{setting.name}.label")
            assert texts(f"controls.{setting.name}.help")
            for option in setting.choices:
                assert texts(f"controls.{setting.name}.options.{option}.text")
        for link in LESSON.guide:
            assert texts(f"guide.{link.name}")
            assert texts(f"guide.{link.name}_help")


def test_no_text_is_for_a_setting_option_or_link_that_is_not_there() -> None:
    declared = {setting.name: set(setting.choices) for setting in ScopePlacementSettings.declared()}
    links = {name for link in LESSON.guide for name in (link.name, f"{link.name}_help")}
    for key in loaded(FOLDER, "en"):
        if key.startswith("controls."):
            _, name, kind, *option = key.split(".")
            assert name in declared
            assert kind != "options" or option[0] in declared[name], key
        elif key.startswith("guide."):
            assert key.removeprefix("guide.") in links


def test_every_outcome_that_is_no_failure_has_a_text() -> None:
    outcomes = {
        key.removeprefix("figure.outcome.") for key in loaded(FOLDER, "en") if key.startswith("figure.outcome.")
    }
    assert outcomes == set(get_args(Outcome)) - {"raised", "stopped"}


def test_chinese_sentences_have_chinese_punctuation() -> None:
    for key, text in loaded(FOLDER, "zh").items():
        outside_code = "".join(text.split("`")[::2]).replace("strategy.scope()", "")
        plain = "".join(part for part, *_ in string.Formatter().parse(outside_code))
        if any("\u4e00" <= letter <= "\u9fff" for letter in plain):
            assert not set(plain) & set(",;:?!()"), key


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(ScopePlacementSettings()) == frozenset()
    assert LESSON.unused(ScopePlacementSettings(loop="fit")) == {"step"}


def test_what_is_put_in_or_out_comes_first() -> None:
    assert LESSON.places == ("model_scope", "optimizer_scope", "apply_scope")
    assert set(LESSON.first) <= set(ScopePlacementSettings.model_fields)
