"""Text that Markdown is not to take for its own: whatever comes from a visitor or a message goes through here."""

from __future__ import annotations

import re


def plain(text: str) -> str:
    """Text in which nothing is Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>$~|#])", r"\\\1", text)


def code(text: str) -> str:
    """Text as code, in one line; what would end it is a ' instead."""
    return f"`{inside_code(text)}`"


def inside_code(text: str) -> str:
    """Text for between two backticks."""
    return " ".join(text.replace("`", "'").split()) or " "
