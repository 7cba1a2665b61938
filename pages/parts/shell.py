"""The frame around every page: navigation, language, and the way in."""

from __future__ import annotations

import json
from pathlib import Path

import streamlit as st
from streamlit.navigation.page import Page

from lessons import LESSONS
from lessons.language import LANGUAGES, SHARED, Language, Texts, languages_by_name, negotiate
from pages.parts.address import tell_unknown

ROOT = Path(__file__).parents[2]
LESSONS_FOLDER = ROOT / "lessons"
OPENED = "opened_through_app"
CHOSEN_LANGUAGE = "chosen_language"
ICON = ROOT / "pages" / "parts" / "icon.svg"
STYLE = ROOT / "pages" / "parts" / "style.css"


def get_app_texts(language: Language | None = None) -> Texts:
    """The app-wide texts, in the visitor's language."""
    return Texts(SHARED, language or chosen_language())


def chosen_language() -> Language:
    """The language of this visit: the one in the URL (`lang`), or chosen before, or what the browser prefers."""
    for chosen in (st.query_params.get("lang"), st.session_state.get(CHOSEN_LANGUAGE)):
        for language in LANGUAGES:
            if language == chosen:
                return language
    return negotiate(st.context.locale)


def choose_language() -> Language:
    """The language switch, at the top right of every page. What is chosen goes into the URL, and stays there.

    Not by the widget's own binding: that would write the language's name as it is shown.
    """
    language = chosen_language()
    if "lang" in st.query_params:
        st.session_state[CHOSEN_LANGUAGE] = language
        tell_unknown("lang", st.query_params["lang"], LANGUAGES, get_app_texts(language))
    elif CHOSEN_LANGUAGE in st.session_state:
        st.query_params["lang"] = language  # Streamlit drops it from the URL when the page is switched
    st.session_state["language"] = language
    with st.container(key="language-switch", gap=None):
        st.segmented_control(
            " · ".join(get_app_texts(each)("language.word") for each in LANGUAGES),
            LANGUAGES,
            required=True,
            format_func=languages_by_name().__getitem__,
            key="language",
            on_change=_keep_language,
            label_visibility="collapsed",
        )
        # Streamlit's document says "en" whatever it holds; by this a screen reader chooses its voice, and the browser
        # the forms of Chinese characters. The script's only value is from the language's file.
        html = json.dumps(get_app_texts(language)("language.html"))
        st.html(f"<script>document.documentElement.lang = {html}</script>", unsafe_allow_javascript=True)
    return language


def _keep_language() -> None:
    st.session_state[CHOSEN_LANGUAGE] = st.query_params["lang"] = st.session_state["language"]


def style() -> None:
    """What Streamlit's theme can't say: where the language switch is, and how a program with marked lines looks."""
    st.html(STYLE)


def navigation(language: Language) -> Page:
    """Register every page with Streamlit, and return the one that the URL names."""
    app_texts = get_app_texts(language)
    home = st.Page(
        page_of("home"),
        title=app_texts("app.home"),
        icon=":material/home:",
        default=True,
        help=app_texts("app.home_help"),
    )
    versions_texts = Texts(LESSONS_FOLDER / "versions", language)
    lessons = [
        st.Page(
            page_of(lesson.name),
            title=lesson.texts(language)("title"),
            icon=":material/science:",
            help=lesson.texts(language)("question"),
        )
        for lesson in LESSONS
    ]
    versions = st.Page(
        page_of("versions"),
        title=versions_texts("title"),
        icon=":material/compare_arrows:",
        help=versions_texts("question"),
    )
    status = st.Page(
        page_of("status"),
        title=app_texts("app.status"),
        icon=":material/monitor_heart:",
        help=app_texts("app.status_help"),
    )
    return st.navigation([home, *lessons, versions, status], position="top")


def page_of(name: str) -> Path:
    """The file of the page of that name, as Streamlit's links take it."""
    return ROOT / "pages" / f"{name}.py"


def mark_as_opened() -> None:
    """Called by app.py in every run, just before the page, so that `through_app` can tell that it ran."""
    st.session_state[OPENED] = True


def through_app() -> None:
    """Called first by every page: have app.py run around it, even if Streamlit opened the page alone.

    Streamlit still finds a `pages` folder by itself, until `st.navigation` is first called in a server's life. So the
    first visitor after a start who opens a page's own link would get the page without app.py. Registering the pages
    ends that for this server, and the rerun goes through app.py, to the same page with the same query.
    """
    if not st.session_state.pop(OPENED, False):
        navigation(negotiate(st.context.locale))
        st.rerun()
