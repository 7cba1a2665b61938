"""A matrix of outcomes as HTML (see style.css): rows in groups, and cells that are links."""

from __future__ import annotations

import html
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lessons.outcome import Kind, Outcome

# Names of Material symbols, the font of which Streamlit brings.
SYMBOLS: Final[dict[Kind, str]] = {"right": "check", "odd": "warning", "raised": "error", "none": "hourglass_disabled"}
RECORDED: Final = "history"


@dataclass(frozen=True)
class Cell:
    """What a cell says: an outcome, and a link to its run; or words where there is none."""

    outcome: Outcome | None
    words: str = ""
    address: str = ""
    recorded: str = ""  # what is told of a recording, "" where it ran here


def grid_html(
    name: str,
    heads: Sequence[str],
    columns: Sequence[tuple[str, str]],
    rows: Sequence[tuple[Sequence[str], Sequence[Cell]]],
) -> str:
    """`heads` are over the words that each row begins with, of which the first is written once for all rows that share
    it; `columns` are over the cells, in two lines."""
    top = "".join(f'<th scope="col">{html.escape(head)}</th>' for head in heads)
    top += "".join(
        f'<th scope="col">{html.escape(first)}<small>{html.escape(second)}</small></th>' for first, second in columns
    )
    body = ""
    for group, members in itertools.groupby(rows, key=lambda row: row[0][0]):
        lines = list(members)
        for place, (words, cells) in enumerate(lines):
            name_of_group = html.escape(group).replace("_", "_<wbr>")
            head = f'<th scope="rowgroup" rowspan="{len(lines)}">{name_of_group}</th>' if place == 0 else ""
            own = "".join(f'<td class="own">{html.escape(word)}</td>' for word in words[1:])
            begin = '<tr class="first">' if place == 0 else "<tr>"
            body += f"{begin}{head}{own}{''.join(map(_cell, cells))}</tr>"
    return (
        # It scrolls by itself, also in the moment before the page's style is there.
        f'<div class="grid" style="overflow-x: auto" tabindex="0"><table aria-label="{html.escape(name)}">'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def legend_html(kinds: Sequence[tuple[Kind, str]], recorded: str) -> str:
    """What the colours and signs mean."""
    keys = "".join(
        f'<span class="key {kind}">{_symbol(SYMBOLS[kind])}{html.escape(words)}</span>' for kind, words in kinds
    )
    return f'<div class="grid-legend">{keys}<span class="key">{_symbol(RECORDED)}{html.escape(recorded)}</span></div>'


def _cell(cell: Cell) -> str:
    if cell.outcome is None:
        return f'<td class="none"><span>{html.escape(cell.words)}</span></td>'
    outcome = cell.outcome
    mark = (
        f'<span class="mark" title="{html.escape(cell.recorded)}">{_symbol(RECORDED)}</span>' if cell.recorded else ""
    )
    detail = f"<small>{html.escape(outcome.detail)}</small>" if outcome.detail else ""
    said = f"{_symbol(SYMBOLS[outcome.kind])}<span>{html.escape(outcome.head)}{mark}{detail}</span>"
    return f'<td class="{outcome.kind}"><a href="{html.escape(cell.address)}">{said}</a></td>'


def _symbol(name: str) -> str:
    return f'<span class="symbol" aria-hidden="true">{name}</span>'
