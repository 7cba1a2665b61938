"""What holds of the texts of every lesson: nothing that is shown is without one, and none is for what is not there."""

from __future__ import annotations

import contextlib
import itertools
import re
import string
from pathlib import Path

import pytest

from engine.settings import SettingsError
from lessons import COMPARISONS, LESSONS
from lessons.language import LANGUAGES
from lessons.lesson import AnyLesson
from tests.lessons.test_texts import FOLDERS, loaded

ROOT = Path(__file__).parents[2]
each_lesson = pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)


def captions(lesson: AnyLesson) -> set[tuple[str, str]]:
    """Every setting and name that a lesson's `captions` gives for any two choices, the others at their defaults."""
    choices = [(each.name, option) for each in lesson.experiment.settings.declared() for option in each.choices]
    found: set[tuple[str, str]] = set()
    for pair in itertools.combinations_with_replacement(choices, 2):
        with contextlib.suppress(SettingsError):  # not all go together
            found |= lesson.captions(lesson.experiment.settings.parse(dict(pair))).items()
    return found


@each_lesson
def test_every_setting_option_link_and_answer_has_a_text_and_no_text_has_none(lesson: AnyLesson) -> None:
    wanted = set()
    for setting in lesson.experiment.settings.declared():
        wanted |= {f"controls.{setting.name}.{part}" for part in ("label", "help")}
        wanted |= {f"controls.{setting.name}.options.{option}.text" for option in setting.choices}
    wanted |= {f"controls.{setting}.captions.{name}" for setting, name in captions(lesson)}
    wanted |= {f"guide.{link.name}{part}" for link in lesson.guide for part in ("", "_help")}
    if lesson.prediction is not None:
        wanted.add("predict.question")
        wanted |= {f"predict.{part}.{option}" for option in lesson.prediction.options for part in ("options", "missed")}
    of_choices = ("controls", "guide", "predict")
    own, shared = (
        {key for key in loaded(ROOT / "lessons" / name, "en") if key.split(".")[0] in of_choices}
        for name in (lesson.name, "texts")
    )
    assert wanted <= own | shared
    assert own <= wanted


@each_lesson
def test_the_settings_that_a_lesson_names_are_there(lesson: AnyLesson) -> None:
    assert {*lesson.first, *lesson.places} <= set(lesson.experiment.settings.model_fields)
    for link in lesson.guide:
        assert lesson.experiment.settings.parse(link.settings)


def test_what_versions_offers_has_a_name_in_its_list() -> None:
    for comparison in COMPARISONS:
        for language in LANGUAGES:
            assert comparison.texts(language)("experiment")


def test_every_lesson_has_a_folder_a_page_and_a_row_in_the_readme() -> None:
    names = [lesson.name for lesson in LESSONS]
    assert {file.parent.name for file in ROOT.glob("lessons/*/lesson.py")} == set(names)
    assert len({(ROOT / "pages" / f"{name}.py").read_text() for name in names}) == 1
    section = (ROOT / "README.md").read_text().partition("## The lessons")[2].partition("\n## ")[0]
    table = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)
    assert table == ["lesson", "---", *(lesson.texts("en")("title") for lesson in LESSONS)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_chinese_sentences_have_chinese_punctuation(folder: Path) -> None:
    for key, text in loaded(folder, "zh").items():
        outside_code = re.sub(r"[\w.]+\((?:x²)?\)", "", "".join(text.split("`")[::2]))
        plain = "".join(part for part, *_ in string.Formatter().parse(outside_code))
        if any("\u4e00" <= letter <= "\u9fff" for letter in plain):
            assert not set(plain) & set(",;:?!()"), key
