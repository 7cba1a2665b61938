"""Predict first: a question about a run, asked before it is shown, and the answer beside the truth."""

from __future__ import annotations

import streamlit as st

from engine.engine import Request
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import AnyLesson

PREDICT = "predict"  # in the URL, so that a teacher's link may ask first
SAID = "predictions"


def predict_switch(lesson: AnyLesson, words: Texts) -> None:
    """The switch that has the page ask, for a lesson that has a question."""
    if lesson.predict is None:
        return
    st.session_state["predict-switch"] = PREDICT in st.query_params

    def write() -> None:
        if st.session_state["predict-switch"]:
            st.query_params[PREDICT] = "1"
        else:
            st.query_params.pop(PREDICT, None)

    st.toggle(words("page.predict"), key="predict-switch", help=words("page.predict_help"), on_change=write)


def waits(lesson: AnyLesson, request: Request) -> bool:
    """True where the learner is asked and has not yet answered."""
    if lesson.predict is None or PREDICT not in st.query_params or not lesson.predict.options(request.settings):
        return False
    return _said(request) is None


def asked(lesson: AnyLesson, request: Request, own: Texts) -> bool:
    """Ask, where that is wanted. True where the run may be shown."""
    if lesson.predict is None or not waits(lesson, request):
        return True
    prediction = lesson.predict
    with st.container(border=True, key="prediction"):
        st.markdown(f"**{own('predict.question')}**")
        with st.container(horizontal=True, gap="small"):
            for option in prediction.options(request.settings):
                st.button(
                    prediction.said(option, own), key=f"predict-{option}", on_click=_answer, args=(request, option)
                )
    return False


def tell_prediction(lesson: AnyLesson, request: Request, trace: Trace, words: Texts, own: Texts) -> None:
    """What was said, beside what came of it."""
    said = _said(request)
    truth = lesson.predict.truth(trace) if lesson.predict and PREDICT in st.query_params else None
    if lesson.predict is None or said is None or truth is None:
        return
    told = {"said": lesson.predict.said(said, own), "truth": lesson.predict.said(truth, own)}
    if said == truth:
        st.success(words("page.predict_right", **told), icon=":material/check:")
    else:
        st.info(words("page.predict_wrong", **told), icon=":material/lightbulb:")


def _said(request: Request) -> str | None:
    answer: str | None = st.session_state.get(SAID, {}).get(request.to_json())
    return answer


def _answer(request: Request, option: str) -> None:
    st.session_state.setdefault(SAID, {})[request.to_json()] = option
