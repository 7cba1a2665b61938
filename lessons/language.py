"""The languages of the app: which one a visitor gets, its texts, and how numbers are written.

A language is the files `*.toml` of its code: lessons/texts/{code}.toml, which names it and has what lessons share, and
one in the folder of each lesson. Nothing else knows which languages there are.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

from babel import Locale
from babel.core import negotiate_locale
from babel.lists import format_list

Language = str  # the code that its files are named by: "en"
SHARED: Final = Path(__file__).parent / "texts"  # what several lessons, or pages, say alike
FALLBACK: Final[Language] = "en"  # for whose browser asks for none of these
LANGUAGES: Final[tuple[Language, ...]] = tuple(
    sorted((file.stem for file in SHARED.glob("*.toml")), key=lambda code: (code != FALLBACK, code))
)

MINUS = "−"  # a real minus sign: as wide as a digit, never a line break after it
# Between a Han character and a letter, digit or code: a narrow gap, as in all texts here, which Babel leaves out.
_BESIDE_HAN = re.compile(rf"(?<=[\u4e00-\u9fff])(?=[!-~{MINUS}])|(?<=[!-~])(?=[\u4e00-\u9fff])")
_HUGE = 1e9
_NOISE = 1e-5  # what is smaller is what float32 arithmetic leaves of 0, for values around 1


def negotiate(accepted: str | None) -> Language:
    """The language for a browser's locale ("zh-CN") or Accept-Language list ("fr;q=0.9, zh-TW;q=0.8"); else
    FALLBACK."""
    wanted: list[tuple[float, str]] = []
    for part in (accepted or "").split(","):
        tag, _, quality = part.partition(";")
        try:
            weight = float(quality.partition("=")[2]) if quality else 1.0
        except ValueError:
            weight = 0.0
        if tag.strip() and weight > 0:
            wanted.append((weight, tag.strip().lower().replace("_", "-")))
    tags = [tag for _, tag in sorted(wanted, key=lambda pair: -pair[0])]  # stable: equal weights keep their order
    return negotiate_locale(tags, LANGUAGES, sep="-") or FALLBACK


@dataclass(frozen=True)
class Texts:
    """The texts of a folder in one language, and behind them the shared ones: `Texts(folder, "en")("page.code")`."""

    folder: Path
    language: Language

    def __call__(self, key: str, **values: object) -> str:
        """The text under a dotted key, its {placeholders} filled in.

        A text may be a table of plural forms, of which `count` among the values chooses one: `one = "{count} step"`
        and `other = "{count} steps"`, under the names of CLDR's plural rules; a language has those it needs.

        Raises KeyError, naming key and file, for a key that is not there or names another table, and for a
        placeholder that got no value.
        """
        file = self.folder / f"{self.language}.toml"
        text = _find(file, key)
        if text is None and self.folder != SHARED:
            text = _find(SHARED / file.name, key)
        if isinstance(text, dict) and is_plural(text):
            if "count" not in values:
                raise KeyError(f"{key} in {file}: no count to choose a plural form by")
            form = _locale(self.language).plural_form(float(str(values["count"])))
            text = text.get(form, text["other"])
        if not isinstance(text, str):
            raise KeyError(f"{key} in {file}")
        try:
            return text.format(**values)
        except (KeyError, IndexError) as missing:
            raise KeyError(f"{key} in {file}: no value for {missing}") from None

    def list(self, parts: Iterable[str]) -> str:
        """The parts as a list in a sentence: "a, b and c"."""
        return _BESIDE_HAN.sub(" ", format_list([*parts], locale=_locale(self.language)))

    def items(self, items: Iterable[str]) -> str:
        """Things side by side, in no sentence: "a, b, c"."""
        return self("language.between_items").join(items)

    def sentences(self, sentences: Iterable[str]) -> str:
        """Sentences one after the other, as this language sets them."""
        return self("language.between_sentences").join(sentences)


def is_plural(table: Mapping[str, Any]) -> bool:
    """True for a table of the plural forms of one text."""
    return "other" in table and set(table) <= {"zero", "one", "two", "few", "many", "other"}


def languages_by_name() -> dict[Language, str]:
    """Each language's code, and its name in itself."""
    return {language: Texts(SHARED, language)("language.name") for language in LANGUAGES}


@cache
def _locale(language: Language) -> Locale:
    return Locale.parse(Texts(SHARED, language)("language.locale"))


def _find(file: Path, key: str) -> Any:
    """The text or table under a dotted key, None where there is none."""
    found: Any = _load(file)
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


@cache
def _load(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=4096)
def number(value: float) -> str:
    """A number as people write it: 1.149999976 is "1.15", -0.0 is "0", -2.6 is "−2.6".

    Four decimals, or four significant digits below 0.1; at most seven digits in all, which is what a float32
    holds, and from ten digits before the point on, "1.329e+36".
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    size = abs(value)
    if isinstance(value, int):
        text = str(size)
    elif size < _NOISE:
        text = "0"
    elif size >= _HUGE:
        text = f"{size:.3e}"
    else:
        before_point = math.floor(math.log10(size)) + 1  # 0 for 0.1 to 1, negative below
        decimals = max(0, min(4 if size >= 0.1 else 4 - before_point, 7 - before_point))
        text = f"{size:.{decimals}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
    return f"{MINUS}{text}" if value < 0 and text != "0" else text


def numbers_apart(values: Sequence[float]) -> list[str]:
    """Numbers some of which are said to differ: where `number` writes all alike, with as many digits as show it."""
    written = [number(value) for value in values]
    for digits in range(5, 18):
        if len(set(written)) > 1 or len(set(values)) < 2:
            break
        written = [
            f"{value:.{digits}g}".replace("-", MINUS, 1) if value < 0 else f"{value:.{digits}g}" for value in values
        ]
    return written
