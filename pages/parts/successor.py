"""What one would write today, in a tab of a lesson: run when that is opened, beside the lesson's own run."""

from __future__ import annotations

import streamlit as st

from engine.engine import Engine
from engine.request import Request
from engine.settings import as_words
from engine.trace import Trace
from lessons.language import Texts
from lessons.lesson import Successor
from pages.parts.code import program_html
from pages.parts.running import run
from pages.parts.version import offered, request_on

CHOSEN = "successor"


def successor(engine: Engine, what: Successor, request: Request, before: Trace, texts: Texts) -> None:
    """The choice, the two side by side, how they differ, and the program. On the lesson's version, where it can run."""
    st.markdown(texts("successor.about"))
    (setting,) = (each for each in what.experiment.settings.declared() if each.name == what.choice)
    st.session_state.setdefault(CHOSEN, setting.default)
    chosen = st.segmented_control(texts("successor.choice"), setting.choices, key=CHOSEN, required=True)
    offers = offered(engine, what.experiment)
    same = [offer for offer in offers.values() if _is_same(offer.versions.tensorflow, before)]
    offer = next(iter([*same, *offers.values()]), None)
    given = {name: as_words(value) for name, value in what.settings(request.settings).items()}
    asked = what.experiment.settings.parse({**given, what.choice: chosen})
    shown = run(engine, request_on(offer, what.experiment, asked), texts)
    if shown is None or not shown.trace.answered:
        return
    start = shown.trace.start
    with st.container(horizontal=True, gap="small"):
        st.badge(f"TensorFlow {start['tensorflow']} · Keras {start['keras']}", color="orange")
        st.badge(", ".join(start["devices"]), color="gray", help=texts("badge.devices"))
    if shown.trace.error is not None:
        st.code(f"{shown.trace.error['type']}: {shown.trace.error['message'].strip()}", language=None, wrap_lines=True)
    else:
        sentences = what.sentences(before, shown.trace, texts)
        st.markdown(texts.sentences(sentences))
        columns = {name: list(values) for name, values in what.table(before, shown.trace, texts).items()}
        st.table(columns, border="horizontal", alt=texts("successor.title"))
    name = f"{what.experiment.name}.py"
    st.download_button(
        name, shown.program, file_name=name, mime="text/x-python", icon=":material/download:", on_click="ignore",
        key="successor-program",
    )  # fmt: skip
    raised = shown.trace.error["line"] if shown.trace.error else None
    st.html(program_html(shown.program, frozenset(), raised, texts("code.reporting")))


def _is_same(version: str, trace: Trace) -> bool:
    return version == str(trace.start.get("tensorflow", ""))
