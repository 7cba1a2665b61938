"""Predict first: a run is kept covered until the visitor has said what will come of it, if that is switched on."""

from __future__ import annotations

import streamlit as st

from engine.request import Request
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import AnyLesson

PREDICT = "predict"  # the word in the URL
SAID, NOTHING = "predictions", ""


def predict_switch(texts: Texts) -> None:
    """The switch, which is in the URL, so that a teacher's link can ask."""
    st.session_state[PREDICT] = PREDICT in st.query_params
    st.toggle(texts("predict.switch"), key=PREDICT, help=texts("predict.help"), on_change=_switched)


def is_asked(lesson: AnyLesson, request: Request | None) -> bool:
    """Whether this run is still covered."""
    asks = PREDICT in st.query_params and lesson.prediction is not None and "held" not in st.query_params
    return asks and request is not None and request.to_json() not in _said()


def ask(lesson: AnyLesson, request: Request, texts: Texts) -> None:
    """The question, and a button for each answer."""
    assert lesson.prediction is not None
    with st.container(border=True, key="predict-question"):
        st.subheader(texts("predict.question"), anchor=False)
        for option in lesson.prediction.options:
            st.button(
                texts(f"predict.options.{option}"),
                key=f"predict-{option}",
                width="stretch",
                on_click=_say,
                args=(request, option),
            )
        st.button(
            texts("predict.skip"),
            key="predict-nothing",
            icon=":material/visibility:",
            type="tertiary",
            on_click=_say,
            args=(request, NOTHING),
        )


def verdict(lesson: AnyLesson, request: Request, trace: Trace, texts: Texts) -> None:
    """What was predicted, beside what came; an answer that was wrong gets its own word."""
    said = _said().get(request.to_json(), NOTHING)
    if PREDICT not in st.query_params or lesson.prediction is None or said == NOTHING or not trace.answered:
        return
    right = lesson.prediction.answers(trace)
    if right.isdisjoint(lesson.prediction.options):
        return  # none of the answers fits this run, so none of them was wrong
    option = texts(f"predict.options.{said}")
    if said in right:
        st.success(texts("predict.right", option=option), icon=":material/check:")
    else:
        missed = texts(f"predict.missed.{said}")
        st.warning(texts("predict.wrong", option=option, missed=missed), icon=":material/lightbulb:")


def _said() -> dict[str, str]:
    """What was said in this visit, by request."""
    said: dict[str, str] = st.session_state.setdefault(SAID, {})
    return said


def _say(request: Request, option: str) -> None:
    _said()[request.to_json()] = option


def _switched() -> None:
    if st.session_state[PREDICT]:
        st.query_params[PREDICT] = "first"
    else:
        st.query_params.pop(PREDICT, None)
