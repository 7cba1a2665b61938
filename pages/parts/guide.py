"""What leads on: buttons to runs worth a look, over the figure, and one that fixes a run, under its story."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher

import streamlit as st

from engine.request import Request
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import AnyLesson, Link
from pages.parts.address import PAGE_WORDS, control_values
from pages.parts.controls import choose, chosen
from pages.parts.version import KERAS, TF


def guide(lesson: AnyLesson, request: Request | None, texts: Texts) -> None:
    """Buttons to the runs that the lesson leads to; the one that is shown is marked."""
    if not lesson.guide:
        return
    with st.container(horizontal=True, gap="small", key="guide"):
        for link in lesson.guide:
            st.button(
                texts(f"guide.{link.name}"),
                key=f"guide-{link.name}",
                help=texts(f"guide.{link.name}_help"),
                type="primary" if _is_shown(lesson, link, request) else "secondary",
                on_click=_follow,
                args=(lesson, link),
            )


def offer_fix(lesson: AnyLesson, trace: Trace, texts: Texts) -> None:
    """A button that makes the smallest change after which this run goes right, where the lesson knows one."""
    change = lesson.fix(trace) if lesson.fix else None
    if change:
        st.button(
            texts("page.fix", change=_change_text(lesson, trace, change)),
            key="fix",
            icon=":material/build:",
            on_click=_change,
            args=(lesson, change),
        )


def _change_text(lesson: AnyLesson, trace: Trace, change: Mapping[str, str]) -> str:
    """The change in few words: of a sequence, the words that are new in it, and those that go without a new one."""
    kinds = {setting.name: setting.kind for setting in lesson.experiment.settings.declared()}
    parts = []
    for name, value in change.items():
        if kinds[name] == "words":
            before, after = trace.start["settings"][name], value.split(",")
            for kind, start, end, new_start, new_end in SequenceMatcher(None, before, after).get_opcodes():
                if kind == "delete":
                    parts += [f"~~`{word}`~~" for word in before[start:end]]
                elif kind != "equal":
                    parts += [f"`{word}`" for word in after[new_start:new_end]]
        else:
            parts.append(f"`{name}={value}`")
    return ", ".join(parts)


def _is_shown(lesson: AnyLesson, link: Link, request: Request | None) -> bool:
    version = (st.query_params.get(TF), st.query_params.get(KERAS))
    settings = lesson.experiment.settings.parse(link.settings)
    there = link.tensorflow is None or version == (link.tensorflow or None, None)
    return request is not None and request.settings == settings and there


def _follow(lesson: AnyLesson, link: Link) -> None:
    """Go to that run as a link would, in one step of the browser's history (a callback)."""
    kept = {name: st.query_params.get_all(name) for name in st.query_params if name in PAGE_WORDS}
    if link.tensorflow is not None:
        kept.pop(TF, None)
        kept.pop(KERAS, None)
    version = {TF: link.tensorflow} if link.tensorflow else {}
    settings = lesson.experiment.settings.parse(link.settings).to_words(changed_only=True)
    st.query_params.from_dict({**kept, **version, **settings})


def _change(lesson: AnyLesson, change: Mapping[str, str]) -> None:
    """Change these settings and no others (a callback)."""
    model = lesson.experiment.settings
    values = control_values(model.parse({**chosen(model), **change}))
    choose(model, lesson.name, {name: values[name] for name in change})
