"""Changes that one click makes, over the figure: a line of buttons for each thing that they change."""

from __future__ import annotations

from itertools import groupby

import streamlit as st

from engine.request import Request
from lessons.language import Texts
from lessons.lesson import Action, AnyLesson
from pages.parts.controls import choose
from pages.parts.pinned import differs, forget

ICONS = {"slow": ":material/hourglass_top:", "kill": ":material/skull:"}  # those that undo these have none


def actions(lesson: AnyLesson, request: Request | None, texts: Texts) -> None:
    """The buttons that the lesson has for these settings, those of one subject together; and one to run it again, where
    that may come to something else."""
    if lesson.actions is None or request is None:
        return
    with st.container(horizontal=True, gap="small", key="actions"):
        for subject, group in groupby(lesson.actions(request.settings), key=lambda action: action.subject):
            with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
                st.markdown(f"**{subject}**", width="content")
                for action in group:
                    _button(lesson, action, texts)
        if differs(lesson):
            st.button(texts("run.again"), key="run-again", icon=":material/replay:", on_click=forget)


def _button(lesson: AnyLesson, action: Action, texts: Texts) -> None:
    st.button(
        texts(f"actions.{action.name}"),
        key=f"action-{action.name}-{action.subject}",
        icon=ICONS.get(action.name),
        type="secondary" if action.name in ICONS else "primary",
        help=texts(f"actions.{action.name}_help", subject=action.subject, **action.values),
        on_click=choose,
        args=(lesson.experiment.settings, lesson.name, dict(action.change)),
    )
