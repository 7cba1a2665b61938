"""Cells of a table of runs: what came of one, as a badge with a colour, a sign and words, and a link to it."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import streamlit as st

from engine.experiments import Experiment
from engine.offers import Offer
from engine.request import Request
from engine.settings import Settings
from lessons import LESSONS
from lessons.language import Texts
from lessons.outcome import Kind, Outcome
from lessons.versions.flavour import Flavour
from pages.parts.markdown import plain
from pages.parts.shell import LESSONS_FOLDER, chosen_language
from pages.parts.version import version_words

COLORS: Final[dict[Kind, str]] = {"right": "green", "odd": "orange", "raised": "red", "none": "gray"}
SIGNS: Final[dict[Kind, str]] = {
    "right": ":material/check:",
    "odd": ":material/warning:",
    "raised": ":material/error:",
    "none": ":material/hourglass_disabled:",
}


def get_versions_texts() -> Texts:
    """The texts of tables of versions, in the visitor's language."""
    return Texts(LESSONS_FOLDER / "versions", chosen_language())


def badge(outcome: Outcome) -> str:
    """An outcome as Markdown."""
    return sign(outcome.kind, outcome.text)


def sign(kind: Kind, text: str) -> str:
    """Words with a kind's colour and sign, as Markdown."""
    return f":{COLORS[kind]}-badge[{SIGNS[kind]} {plain(text)}]"


def linked(markdown: str, request: Request, default: Offer | None, flavour: Flavour) -> str:
    """Markdown as a link to the lesson that shows this run; as it is where no lesson does."""
    if all(lesson.experiment is not request.experiment for lesson in LESSONS):
        return markdown
    return f"[{markdown}]({address(request.experiment, request.settings, flavour.offer, default)})"


def address(experiment: Experiment[Settings], settings: Settings, offer: Offer, default: Offer | None) -> str:
    """Where the lesson shows these settings on this version, from any page."""
    words = {**settings.to_words(changed_only=True), **version_words(offer, default)}
    if "lang" in st.query_params:
        words["lang"] = st.query_params["lang"]
    return f"{experiment.name}?{urlencode(words)}" if words else experiment.name
