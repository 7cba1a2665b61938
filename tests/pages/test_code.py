"""The Code tab: every line of the program is there, those that only report folded up."""

from __future__ import annotations

import html
import re

from engine.experiments import EXPERIMENTS
from engine.program import render
from engine.versions import Versions
from pages.parts.code import changed_lines, program_html


def program(**settings: str) -> str:
    experiment = EXPERIMENTS["aggregation"]
    return render(experiment, experiment.settings.parse(settings), Versions("2.21.0", "3.15.1"))


def lines(shown: str) -> list[str]:
    """The lines as a reader sees them, unfolded."""
    without_head = re.sub(r"<summary.*?</summary>", "", shown)
    rows = re.findall(
        r'<span class="line[^"]*" data-number="\d+">(.*?)</span>(?=<span class="line|<details|</)', without_head
    )
    return [html.unescape(re.sub(r"<[^>]+>", "", row)) for row in rows]


def test_nothing_of_the_program_is_left_out() -> None:
    text = program()
    for shown in (program_html(text, ()), program_html(text, (), fold="reporting")):
        assert lines(shown) == text.rstrip("\n").split("\n")


def test_what_reports_is_folded_up_and_what_runs_is_not() -> None:
    shown = program_html(program(), (), fold="<reporting>")
    (folded,) = re.findall(r"<details>(.*?)</details>", shown)
    assert "&lt;reporting&gt;" in folded
    assert "excepthook" in folded
    assert "MirroredStrategy" not in folded
    assert "MirroredStrategy" in shown


def test_the_lines_of_a_change_are_marked() -> None:
    before, now = program(aggregation="SUM"), program(aggregation="MEAN")
    changed = changed_lines(before, now)
    text = now.split("\n")
    assert changed
    assert all("MEAN" in text[number - 1] for number in changed)
    assert changed_lines(None, now) == set()
