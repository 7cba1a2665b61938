"""The texts of the lesson in its languages, and the language helper."""

from __future__ import annotations

import math
import string
import tomllib
from pathlib import Path
from typing import Any

import pytest

from lessons.aggregation.story import ERRORS
from lessons.language import Language, Texts, negotiate, number

FOLDERS = [folder.parent for folder in sorted((Path(__file__).parents[2] / "lessons").glob("*/en.toml"))]
LESSON = Path(__file__).parents[2] / "lessons" / "aggregation"


def flat(table: dict[str, Any], path: str = "") -> dict[str, str]:
    """Dotted key -> text."""
    texts: dict[str, str] = {}
    for key, value in table.items():
        texts |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {f"{path}{key}": value}
    return texts


def loaded(folder: Path, language: Language) -> dict[str, str]:
    return flat(tomllib.loads((folder / f"{language}.toml").read_text(encoding="utf-8")))


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_languages_have_the_same_keys_and_placeholders(folder: Path) -> None:
    english, chinese = loaded(folder, "en"), loaded(folder, "zh")
    assert sorted(english) == sorted(chinese)
    for key, text in english.items():
        assert placeholders(text) == placeholders(chinese[key]), key


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
