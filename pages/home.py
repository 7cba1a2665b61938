"""The home page: what this is, in three sentences and one picture that has just been run."""

import streamlit as st

from engine.request import Request
from lessons import LESSONS
from pages.parts.cells import get_versions_texts
from pages.parts.charts import PLOTLY
from pages.parts.engine import shared_engine
from pages.parts.running import run
from pages.parts.shell import chosen_language, get_app_texts, page_of, through_app

through_app()
first, app_texts = LESSONS[0], get_app_texts()
left, right = st.columns([2, 3], gap="large", vertical_alignment="center")
with left:
    st.title(app_texts("home.title"), anchor=False)
    for sentence in ("first", "second", "third"):
        st.markdown(app_texts(f"home.{sentence}"))
    if st.button(app_texts("home.begin"), type="primary", icon=":material/arrow_forward:"):
        st.switch_page(page_of(first.name))
st.subheader(app_texts("home.lessons"), anchor=False)
of_each = {lesson.name: lesson.texts(chosen_language()) for lesson in LESSONS} | {"versions": get_versions_texts()}
with st.container(horizontal=True, gap="small", key="lessons"):
    for name, texts in of_each.items():
        with st.container(border=True, width=260, gap="xsmall"):
            st.page_link(page_of(name), label=f"**{texts('title')}**", icon=":material/arrow_forward:")
            st.caption(texts("question"))
with right:  # last: what is above and below does not wait for the run
    shown = run(shared_engine(), Request.of(first.name, {"aggregation": "NONE", "steps": 3}), app_texts)
    if shown is not None:
        texts = of_each[first.name]
        st.plotly_chart(first.figure(shown.trace, texts), config=PLOTLY, alt=first.alternative(shown.trace, texts))
