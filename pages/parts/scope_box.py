"""strategy.scope() as a box: what is in it, and what is not, as buttons that move from one to the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import streamlit as st

from engine.settings import SettingsError
from lessons.language import Texts
from lessons.lesson import AnyLesson
from pages.parts.controls import choose, chosen

# Where a thing is, and where its button moves it, with a sign for the way.
MOVES: Final[Mapping[str, tuple[str, str]]] = {
    "in": ("out", ":material/arrow_downward:"),
    "out": ("in", ":material/arrow_upward:"),
}


def scope_box(lesson: AnyLesson, texts: Texts) -> None:
    """A box that is the scope, and what is outside of it below: a click on a thing moves it to the other."""
    places = _places(lesson)
    for here, (there, icon) in MOVES.items():
        with st.container(key=f"scope-{here}", gap="xsmall"):
            st.markdown(texts(f"places.{here}"))
            with st.container(horizontal=True, gap="xsmall", height="content"):
                things = [name for name, place in places.items() if place == here]
                for name in things:
                    st.button(
                        texts(f"places.{name}"),
                        key=f"place-{name}",
                        icon=icon,
                        help=texts(f"places.{there}_help"),
                        on_click=choose,
                        args=(lesson.experiment.settings, lesson.name, {name: there}),
                    )
                if not things:
                    st.caption(texts("places.nothing"))


def _places(lesson: AnyLesson) -> dict[str, str]:
    """Where each thing is, as the controls have it; as by default while another control has what is not accepted."""
    model = lesson.experiment.settings
    try:
        settings = model.parse(chosen(model))
    except SettingsError:
        settings = model()
    return {name: getattr(settings, name) for name in lesson.places}
