"""The page of the lesson on variable scopes."""

import streamlit as st

from lessons.variable_scope.lesson import LESSON
from pages.parts.lesson import lesson_page
from pages.parts.shell import lesson_texts, page_of, through_app

through_app()
lesson_page(LESSON)
st.page_link(
    page_of("placement"),
    label=lesson_texts(LESSON.name)("second_example"),
    icon=":material/arrow_forward:",
    query_params={"device_setter": "article"},
)
