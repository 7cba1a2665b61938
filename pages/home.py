"""The home page: what this is, in three sentences and one picture that has just been run."""

import streamlit as st

from engine.request import Request
from lessons.aggregation.lesson import LESSON
from pages.parts.charts import PLOTLY
from pages.parts.engine import shared_engine
from pages.parts.running import run
from pages.parts.shell import LESSONS, lesson_texts, page_of, texts, through_app

through_app()
words, own = texts(), lesson_texts(LESSON.name)
left, right = st.columns([2, 3], gap="large", vertical_alignment="center")
with left:
    st.title(words("home.title"), anchor=False)
    for sentence in ("first", "second", "third"):
        st.markdown(words(f"home.{sentence}"))
    if st.button(words("home.begin"), type="primary", icon=":material/arrow_forward:"):
        st.switch_page("pages/aggregation.py")
with right:
    shown = run(shared_engine(), Request.of(LESSON.name, {"aggregation": "NONE", "steps": 3}), words)
    if shown is not None:
        trace = shown.trace
        st.plotly_chart(LESSON.figure(trace, own), config=PLOTLY, alt=LESSON.alternative(trace, own))
st.subheader(words("home.lessons"), anchor=False)
with st.container(horizontal=True, gap="small", key="lessons"):
    for name in (*LESSONS, "versions"):
        of = lesson_texts(name)
        with st.container(border=True, width=260, gap="xsmall"):
            st.page_link(page_of(name), label=f"**{of('title')}**", icon=":material/arrow_forward:")
            st.caption(of("question"))
