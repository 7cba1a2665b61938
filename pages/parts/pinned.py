"""Runs that stay on the page, where no two are the same: looking again must not show another one."""

from __future__ import annotations

import streamlit as st

from engine.request import Request
from lessons.lesson import AnyLesson
from pages.parts.running import Shown

PINNED = "pinned_runs"  # of a visit: which request, and how it was shown, by the place on the page


def pinned_run(lesson: AnyLesson, request: Request, place: str) -> Shown | None:
    """The run that is shown there already, where each one is another: it stays until something else is asked for, or
    to run it again. None where there is none."""
    pinned = st.session_state.get(PINNED, {}).get(place)
    if not differs(lesson) or pinned is None or pinned[0] != request.to_json():
        return None
    shown: Shown = pinned[1]
    return shown


def pin_run(lesson: AnyLesson, request: Request, place: str, shown: Shown) -> None:
    """Keep a run that gave an answer for `pinned_run`."""
    if differs(lesson) and shown.trace.answered:
        st.session_state.setdefault(PINNED, {})[place] = (request.to_json(), shown)


def differs(lesson: AnyLesson) -> bool:
    """Whether two runs with the same settings may come to different ends, and can be asked for by a button."""
    return lesson.actions is not None and not lesson.experiment.deterministic


def forget() -> None:
    """Have the next look run it anew (a callback)."""
    st.session_state.pop(PINNED, None)
