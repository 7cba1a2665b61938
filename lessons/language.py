"""The languages of the app: which one a visitor gets, its texts, and how numbers are written."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, Literal, get_args

from babel.core import negotiate_locale

Language = Literal["en", "zh"]
LANGUAGES: Final[tuple[Language, ...]] = get_args(Language)

MINUS = "−"  # a real minus sign: as wide as a digit, never a line break after it
_NOISE = 1e-5  # what is smaller is what float32 arithmetic leaves of 0, for values around 1


def negotiate(accepted: str | None) -> Language:
    """The language for a browser's locale ("zh-CN") or Accept-Language list ("fr;q=0.9, zh-TW;q=0.8"); else
    "en"."""
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
    return "zh" if negotiate_locale(tags, LANGUAGES, sep="-") == "zh" else "en"


@dataclass(frozen=True)
class Texts:
    """The texts that a folder keeps in one language: `Texts(folder, "en")("controls.replicas.label")`."""

    folder: Path
    language: Language

    def __call__(self, key: str, **values: object) -> str:
        """The text under a dotted key, its {placeholders} filled in.

        Raises KeyError, naming key and file, for a key that is not there or names a table, and for a
        placeholder that got no value.
        """
        file = self.folder / f"{self.language}.toml"
        text: Any = _load(file)
        for part in key.split("."):
            text = text.get(part) if isinstance(text, dict) else None
        if not isinstance(text, str):
            raise KeyError(f"{key} in {file}")
        try:
            return text.format(**values)
        except (KeyError, IndexError) as missing:
            raise KeyError(f"{key} in {file}: no value for {missing}") from None


def joined(parts: Sequence[str], texts: Texts) -> str:
    """The parts as a list in a sentence: a, b and c."""
    if len(parts) < 2:
        return "".join(parts)
    return texts("list.comma").join(parts[:-1]) + texts("list.last") + parts[-1]


@cache
def _load(file: Path) -> dict[str, Any]:
    return tomllib.loads(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=4096)
def number(value: float) -> str:
    """A number as people write it: 1.149999976 is "1.15", -0.0 is "0", -2.6 is "−2.6".

    Four decimals, or four significant digits below 0.1; at most seven digits in all, which is what a float32
    holds.
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
    else:
        before_point = math.floor(math.log10(size)) + 1  # 0 for 0.1 to 1, negative below
        decimals = max(0, min(4 if size >= 0.1 else 4 - before_point, 7 - before_point))
        text = f"{size:.{decimals}f}"
        if "." in text:
            text = text.rstrip("0").rstrip(".")
    return f"{MINUS}{text}" if value < 0 and text != "0" else text
