"""The texts of the lesson in its languages, and the language helper."""

from __future__ import annotations

import math
import re
import shutil
import string
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from babel import Locale

from lessons import LESSONS
from lessons.aggregation.story import ERRORS
from lessons.language import (
    LANGUAGES,
    SHARED,
    Language,
    Texts,
    is_plural,
    languages_by_name,
    negotiate,
    number,
    numbers_apart,
)

ROOT = Path(__file__).parents[2]
FOLDERS = [folder.parent for folder in sorted((ROOT / "lessons").glob("*/en.toml"))]
LESSON = ROOT / "lessons" / "aggregation"


def flat(table: dict[str, Any], path: str = "") -> dict[str, str]:
    """Dotted key -> text. Of plural forms, the last, which has every placeholder."""
    texts: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, dict) and is_plural(value):
            texts[f"{path}{key}"] = value["other"]
        else:
            texts |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return texts


def plurals(table: dict[str, Any], path: str = "") -> dict[str, dict[str, str]]:
    """Dotted key -> plural forms."""
    found: dict[str, dict[str, str]] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            found |= {f"{path}{key}": value} if is_plural(value) else plurals(value, f"{path}{key}.")
    return found


def loaded(folder: Path, language: Language) -> dict[str, str]:
    return flat(tomllib.loads((folder / f"{language}.toml").read_text(encoding="utf-8")))


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("language", LANGUAGES[1:])
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_languages_have_the_same_keys_and_placeholders(folder: Path, language: Language) -> None:
    english, other = loaded(folder, "en"), loaded(folder, language)
    assert sorted(english) == sorted(other)
    for key, text in english.items():
        assert placeholders(text) == placeholders(other[key]), key


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_plural_forms_are_those_of_the_language(folder: Path, language: Language) -> None:
    """Which there are, CLDR says, from another source than the texts; a form has no placeholder that `other` lacks."""
    rules = Locale.parse(language).plural_form
    for key, forms in plurals(tomllib.loads((folder / f"{language}.toml").read_text(encoding="utf-8"))).items():
        assert set(forms) == {*rules.tags, "other"}, key
        for form, text in forms.items():
            assert placeholders(text) <= placeholders(forms["other"]), f"{key}.{form}"


def test_no_lesson_says_again_what_is_shared() -> None:
    """Under a shared key a lesson may have a text of its own, but not the same."""
    for language in LANGUAGES:
        shared = loaded(SHARED, language)
        for folder in FOLDERS:
            again = {key for key, text in loaded(folder, language).items() if shared.get(key) == text}
            assert folder == SHARED or not again, (folder.name, language)


def test_what_three_say_alike_is_shared() -> None:
    for language in LANGUAGES:
        said: dict[str, set[str]] = {}
        for folder in FOLDERS:
            for text in loaded(folder, language).values():
                said.setdefault(text, set()).add(folder.name)
        assert not {text: names for text, names in said.items() if len(names) > 2}, language


def test_another_language_needs_its_files_and_nothing_else(tmp_path: Path) -> None:
    """A third one, in a copy of the app's code: as English, but for its name. It is found, and each lesson has it."""
    for room in ("engine", "lessons"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("recordings", "__pycache__"))
    for file in tmp_path.glob("lessons/*/en.toml"):
        text = re.sub(r' = "(?!"")', ' = "DE ', file.read_text(encoding="utf-8"))
        of_itself = {"name": "Deutsch", "word": "Sprache", "locale": "de", "between_sentences": " "}
        for key, value in of_itself.items() if file.parent.name == SHARED.name else ():
            text = re.sub(rf'^{key} = ".*?"', f'{key} = "{value}"', text, count=1, flags=re.MULTILINE)
        file.with_name("de.toml").write_text(text, encoding="utf-8")
    script = (
        "from lessons import COMPARISONS, LESSONS\n"
        "from lessons.language import LANGUAGES, negotiate\n"
        "print(LANGUAGES, negotiate('de-AT, en'))\n"
        "print([each.texts('de')(key) for each in LESSONS for key in ('title', 'page.code')])\n"
        "print(LESSONS[0].texts('de').list(['a', 'b']), LESSONS[0].texts('de')('count.steps', count=2))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    found, titles, listed = done.stdout.splitlines()
    assert found == "('en', 'de', 'zh') de"
    assert titles.count("DE Code") == len(LESSONS)
    assert "DE Aggregation" in titles
    assert listed == "a und b DE 2 steps"


def test_every_explained_error_has_a_text() -> None:
    texts = loaded(LESSON, "en")
    assert {f"story.error.{name}" for _, name in ERRORS} < set(texts)


def test_a_text_is_filled_in() -> None:
    assert Texts(LESSON, "en")("figure.replica", replica=3) == "replica 3"
    assert Texts(LESSON, "zh")("figure.replica", replica=3) == "副本 3"


@pytest.mark.parametrize("key", ["nothing.here", "figure", "figure.replica.deeper", ""])
def test_a_missing_text_names_key_and_file(key: str) -> None:
    with pytest.raises(KeyError, match=rf"{key}.*zh\.toml"):
        Texts(LESSON, "zh")(key)


def test_a_count_chooses_the_plural_form() -> None:
    english, chinese = Texts(LESSON, "en"), Texts(LESSON, "zh")
    assert [english("count.steps", count=count) for count in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [chinese("count.steps", count=count) for count in (0, 1, 2)] == ["0 步", "1 步", "2 步"]
    with pytest.raises(KeyError, match=r"count\.steps.*no count"):
        english("count.steps")


@pytest.mark.parametrize(
    ("parts", "english", "chinese"),
    [
        ([], "", ""),
        (["a"], "a", "a"),
        (["1", "−2"], "1 and −2", "1 和 −2"),
        (["a", "b"], "a and b", "a 和 b"),
        (["a", "b", "c"], "a, b and c", "a、b 和 c"),
    ],
)
def test_a_list_in_a_sentence(parts: list[str], english: str, chinese: str) -> None:
    assert Texts(LESSON, "en").list(parts) == english
    assert Texts(LESSON, "zh").list(parts) == chinese


def test_sentences_and_items_side_by_side() -> None:
    assert Texts(LESSON, "en").sentences(["A.", "B."]) == "A. B."
    assert Texts(LESSON, "zh").sentences(["甲。", "乙。"]) == "甲。乙。"
    assert Texts(LESSON, "en").items(["1", "2"]) == "1, 2"


def test_languages_are_found_from_their_files() -> None:
    assert LANGUAGES == ("en", "zh")
    assert languages_by_name() == {"en": "English", "zh": "中文"}
    for folder in FOLDERS:
        assert {file.stem for file in folder.glob("*.toml")} == set(LANGUAGES), folder.name


def test_a_placeholder_without_a_value_is_named() -> None:
    with pytest.raises(KeyError, match=r"figure\.replica.*replica"):
        Texts(LESSON, "en")("figure.replica")


@pytest.mark.parametrize(
    ("accepted", "language"),
    [
        ("zh-CN", "zh"),
        ("zh-TW", "zh"),
        ("zh-Hans", "zh"),
        ("zh-Hans-CN", "zh"),
        ("zh_CN", "zh"),
        ("ZH-cn", "zh"),
        ("zh", "zh"),
        ("en", "en"),
        ("en-GB", "en"),
        ("fr", "en"),
        ("zha", "en"),  # Zhuang
        ("", "en"),
        (None, "en"),
        ("*", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.8", "en"),
        ("en;q=0.3, zh-CN;q=0.7", "zh"),
        ("fr-CH, fr;q=0.9, zh;q=0.5, en;q=0.4", "zh"),
        ("zh;q=0, en", "en"),
        ("zh;q=rubbish", "en"),
        (";;,=,;q=", "en"),
    ],
)
def test_the_browser_chooses_the_language(accepted: str | None, language: Language) -> None:
    assert negotiate(accepted) == language


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.149999976158142, "1.15"),
        (0.10000000149011612, "0.1"),
        (0.30000000447034836, "0.3"),
        (-0.0, "0"),
        (0.0, "0"),
        (2.0, "2"),
        (2, "2"),
        (160.0, "160"),
        (-2.6, "\u22122.6"),
        (-5, "\u22125"),
        (1.1666666269302368, "1.1667"),
        (0.16666667, "0.1667"),
        (0.016666667, "0.01667"),
        (0.001, "0.001"),
        (0.0005, "0.0005"),
        (0.9999999, "1"),
        (0.09999996423721313, "0.1"),
        (-2.9802322387695312e-08, "0"),
        (123.456789, "123.4568"),
        (12345.6787, "12345.68"),
        (999999.94, "999999.9"),
        (16777216.0, "16777216"),
        (123456789, "123456789"),
        (math.inf, "∞"),
        (-math.inf, "\u2212∞"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_people_do(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([1.1, 1.2], ["1.1", "1.2"]),  # as number() writes them
        ([0.5, 0.5], ["0.5", "0.5"]),
        ([0.66642, 0.66644], ["0.66642", "0.66644"]),  # which number() both writes 0.6664
        ([8e-06, 0.0], ["8e-06", "0"]),  # and these 0
        ([-8e-06, 2e-06, 2e-06], ["−8e-06", "2e-06", "2e-06"]),
        ([1234567.4, 1234567.0], ["1234567.4", "1234567"]),
    ],
)
def test_numbers_that_are_said_to_differ_are_seen_to(values: list[float], written: list[str]) -> None:
    assert numbers_apart(values) == written
