"""What holds of the texts of every lesson: nothing that is shown is without one, and none is for what is not there."""

from __future__ import annotations

import importlib
import re
import string
from pathlib import Path

import pytest

from lessons.lesson import AnyLesson
from pages.parts.shell import LESSONS
from tests.lessons.test_texts import FOLDERS, loaded

ALL: dict[str, AnyLesson] = {name: importlib.import_module(f"lessons.{name}.lesson").LESSON for name in LESSONS}
FOLDER_OF = {folder.name: folder for folder in FOLDERS}


@pytest.mark.parametrize("name", LESSONS)
def test_every_setting_option_link_and_answer_has_a_text_and_no_text_has_none(name: str) -> None:
    lesson = ALL[name]
    wanted = set()
    for setting in lesson.experiment.settings.declared():
        wanted |= {f"controls.{setting.name}.{part}" for part in ("label", "help")}
        wanted |= {f"controls.{setting.name}.options.{option}.text" for option in setting.choices}
    wanted |= {f"guide.{link.name}{part}" for link in lesson.guide for part in ("", "_help")}
    if lesson.prediction is not None:
        wanted.add("predict.question")
        wanted |= {f"predict.{part}.{option}" for option in lesson.prediction.options for part in ("options", "missed")}
    texts = {key for key in loaded(FOLDER_OF[name], "en") if key.split(".")[0] in ("controls", "guide", "predict")}
    assert texts == wanted


@pytest.mark.parametrize("name", LESSONS)
def test_the_settings_that_a_lesson_names_are_there(name: str) -> None:
    lesson = ALL[name]
    assert {*lesson.first, *lesson.places} <= set(lesson.experiment.settings.model_fields)
    for link in lesson.guide:
        assert lesson.experiment.settings.parse(link.settings)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_chinese_sentences_have_chinese_punctuation(folder: Path) -> None:
    for key, text in loaded(folder, "zh").items():
        outside_code = re.sub(r"[\w.]+\((?:x²)?\)", "", "".join(text.split("`")[::2]))
        plain = "".join(part for part, *_ in string.Formatter().parse(outside_code))
        if any("\u4e00" <= letter <= "\u9fff" for letter in plain):
            assert not set(plain) & set(",;:?!()"), key
