"""What came of a run, in a few words: for a cell of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from lessons.language import Texts, number, numbers_apart

MAX_SEPARATE: Final = 4  # copies that are named one by one

# "right": as it is meant to be. "odd": TensorFlow said nothing, and it is not. "raised": TensorFlow's own error.
# "none": the run gave no answer.
Kind = Literal["right", "odd", "raised", "none"]


@dataclass(frozen=True)
class Outcome:
    """A kind, a word or two, and perhaps a detail: plain text. Equal outcomes say that two runs came to the same.

    `why` is in sentences, as Markdown: what would be right where that is not seen, and why it is not so.
    """

    kind: Kind
    head: str
    detail: str = ""
    why: str = ""

    @property
    def text(self) -> str:
        """All of it, in a line."""
        return f"{self.head} · {self.detail}" if self.detail else self.head


def raised(kind: str, cause: str | None, texts: Texts, why: str = "") -> Outcome:
    """The outcome of a run in which TensorFlow raised that; the cause, if it is known, is a text `outcome.{cause}`."""
    return Outcome("raised", kind, texts(f"outcome.{cause}") if cause else "", why)


def nothing(texts: Texts) -> Outcome:
    """The outcome of a run that made no step."""
    return Outcome("none", texts("outcome.nothing"))


def values(copies: Sequence[float], texts: Texts, *, apart: bool = False) -> str:
    """Each copy's value, or one for all of many that are equal; those that are `apart` are seen to differ."""
    numbers = numbers_apart(copies) if apart else [number(copy) for copy in copies]
    if len(numbers) > MAX_SEPARATE and len(set(numbers)) == 1:
        return texts("outcome.each", value=numbers[0], count=len(numbers))
    return texts.items(numbers)
