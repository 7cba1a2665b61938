"""Changes that one click makes, over the figure: a line of buttons for each thing that they change."""

from __future__ import annotations

from itertools import groupby

import streamlit as st

from engine.engine import Request
from lessons.language import Texts
from lessons.lesson import Action, AnyLesson
from pages.parts.controls import choose
from pages.parts.running import Shown

ICONS = {"slow": ":material/hourglass_top:", "kill": ":material/skull:"}  # those that undo these have none


KEPT = "kept_runs"  # of a visit: which request, and how it was shown, by the place on the page


def kept_run(lesson: AnyLesson, request: Request, place: str) -> Shown | None:
    """The run that is shown there already, where each one is another: it stays until something else is asked for, or
    to run it again. None where there is none."""
    kept = st.session_state.get(KEPT, {}).get(place)
    if not _has_run_again(lesson) or kept is None or kept[0] != request.to_json():
        return None
    shown: Shown = kept[1]
    return shown


def keep_run(lesson: AnyLesson, request: Request, place: str, shown: Shown) -> None:
    """Keep a run that gave an answer for `kept_run`."""
    if _has_run_again(lesson) and shown.trace.answered:
        st.session_state.setdefault(KEPT, {})[place] = (request.to_json(), shown)


def _has_run_again(lesson: AnyLesson) -> bool:
    return lesson.actions is not None and not lesson.experiment.deterministic


def _forget() -> None:
    st.session_state.pop(KEPT, None)


def actions(lesson: AnyLesson, request: Request | None, words: Texts, own: Texts) -> None:
    """The buttons that the lesson has for these settings, those of one subject together; and one to run it again, where
    that may come to something else."""
    if lesson.actions is None or request is None:
        return
    with st.container(horizontal=True, gap="small", key="actions"):
        for subject, group in groupby(lesson.actions(request.settings), key=lambda action: action.subject):
            with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
                st.markdown(f"**{subject}**", width="content")
                for action in group:
                    _button(lesson, action, own)
        if _has_run_again(lesson):
            st.button(words("run.again"), key="run-again", icon=":material/replay:", on_click=_forget)


def _button(lesson: AnyLesson, action: Action, own: Texts) -> None:
    st.button(
        own(f"actions.{action.name}"),
        key=f"action-{action.name}-{action.subject}",
        icon=ICONS.get(action.name),
        type="secondary" if action.name in ICONS else "primary",
        help=own(f"actions.{action.name}_help", subject=action.subject, **action.values),
        on_click=choose,
        args=(lesson.experiment.settings, lesson.name, dict(action.change)),
    )
