"""The wait for a run: what the visitor sees meanwhile, and the end of a run that nobody waits for any more."""

from __future__ import annotations

import time

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.engine import Engine, EngineBusyError, Request, Ticket
from engine.runtimes import RuntimeMissingError
from engine.trace import Trace
from lessons.language import Texts
from pages.parts.engine import session

PATIENCE = 0.3  # seconds before the page says that it waits: most runs are done by then


def run(engine: Engine, request: Request, words: Texts) -> tuple[Trace, bool] | None:
    """Run and wait. Returns the trace, and whether it was there already; None where it was told why it can't run.

    A newer choice, or another page, interrupts this at the next word to the visitor; the run is then cancelled.
    """
    try:
        ticket = engine.submit(request, session())
    except RuntimeMissingError as error:
        st.error(words("run.missing", reason=str(error)), icon=":material/error:")
        return None
    except EngineBusyError:
        st.warning(words("run.busy"), icon=":material/hourglass_disabled:")
        st.button(words("run.again"))
        return None
    holder, begun = st.empty(), time.monotonic()
    try:
        while not ticket.wait(0.05):
            # A word to the visitor is where Streamlit lets a newer choice in; at first that word is nothing.
            if time.monotonic() - begun < PATIENCE:
                holder.empty()
            else:
                _say(holder, engine, ticket, request, words)
        holder.empty()
    finally:
        if not ticket.done:
            ticket.cancel()
    return ticket.result(), ticket.kept


def _say(holder: DeltaGenerator, engine: Engine, ticket: Ticket, request: Request, words: Texts) -> None:
    """Where the run is: TensorFlow is being imported, others are before it, or it is under way."""
    state = engine.state(request.tensorflow, request.keras)
    place = ticket.place
    if state.name == "starting":
        version = engine.runtime(request.tensorflow, request.keras).versions.tensorflow
        percent, seconds = int(100 * state.progress), f"{state.seconds:.0f}"
        holder.progress(state.progress, words("run.starting", version=version, percent=percent, seconds=seconds))
    elif place:
        holder.info(words("run.queued", place=place), icon=":material/hourglass_top:")
    else:
        holder.info(words("run.running"), icon=":material/play_circle:")
