"""Runs that stay on the page, where no two are the same: looking again must not show another one."""

from __future__ import annotations

import streamlit as st

from engine.request import Request
from lessons.lesson import AnyLesson
from pages.parts.running import Shown

KEPT = "kept_runs"  # of a visit: which request, and how it was shown, by the place on the page


def kept_run(lesson: AnyLesson, request: Request, place: str) -> Shown | None:
    """The run that is shown there already, where each one is another: it stays until something else is asked for, or
    to run it again. None where there is none."""
    kept = st.session_state.get(KEPT, {}).get(place)
    if not differs(lesson) or kept is None or kept[0] != request.to_json():
        return None
    shown: Shown = kept[1]
    return shown


def keep_run(lesson: AnyLesson, request: Request, place: str, shown: Shown) -> None:
    """Keep a run that gave an answer for `kept_run`."""
    if differs(lesson) and shown.trace.answered:
        st.session_state.setdefault(KEPT, {})[place] = (request.to_json(), shown)


def differs(lesson: AnyLesson) -> bool:
    """Whether two runs with the same settings may come to different ends, and can be asked for by a button."""
    return lesson.actions is not None and not lesson.experiment.deterministic


def forget() -> None:
    """Have the next look run it anew (a callback)."""
    st.session_state.pop(KEPT, None)
