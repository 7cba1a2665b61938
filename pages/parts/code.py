"""The Code tab: the program that ran, with the lines marked that the last change made different."""

from __future__ import annotations

import difflib
import html
from collections.abc import Collection

from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES


def changed_lines(before: str | None, now: str) -> set[int]:
    """The numbers (from 1) of the lines of `now` that `before` does not have; none where there is no before."""
    if before is None:
        return set()
    matcher = difflib.SequenceMatcher(None, before.splitlines(), now.splitlines(), autojunk=False)
    return {
        line + 1
        for tag, _, _, begin, end in matcher.get_opcodes()
        if tag in ("replace", "insert")
        for line in range(begin, end)
    }


def program_html(program: str, changed: Collection[int], raised: int | None = None, fold: str = "") -> str:
    """The program as HTML, numbered and coloured (see style.css). `raised`: the line at which TensorFlow raised.
    `fold` is what stands over the part that only reports, which is folded up: every program has the same."""
    lines = [""]
    for kind, text in lex(program, PythonLexer(stripnl=False)):
        name = STANDARD_TYPES.get(kind, "")
        for number, part in enumerate(text.split("\n")):
            if number:
                lines.append("")
            if part:
                escaped = html.escape(part)
                lines[-1] += f'<span class="{name}">{escaped}</span>' if name else escaped
    while lines and not lines[-1]:
        lines.pop()
    rows = []
    for number, line in enumerate(lines, 1):
        marks = ["line"] + ["changed"] * (number in changed) + ["raised"] * (number == raised)
        rows.append(f'<span class="{" ".join(marks)}" data-number="{number}">{line}</span>')
    begin, end = _reporting(program)
    if fold and begin < end:
        head = f'<summary class="line">{html.escape(fold)}</summary>'
        rows[begin:end] = [f"<details>{head}{''.join(rows[begin:end])}</details>"]
    return f'<div class="program" tabindex="0"><pre><code>{"".join(rows)}</code></pre></div>'


def _reporting(program: str) -> tuple[int, int]:
    """Where the lines begin and end (from 0) that every program has, which print its events; (0, 0) without."""
    lines = program.splitlines()
    first, last = "def report(event, **fields):", "sys.excepthook = report_error"
    return (lines.index(first), lines.index(last) + 1) if first in lines and last in lines else (0, 0)
