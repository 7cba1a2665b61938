"""The wait for a run: what the visitor sees meanwhile, and the end of a run that nobody waits for any more."""

from __future__ import annotations

import streamlit as st

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
    try:
        if not ticket.wait(PATIENCE):
            _wait(engine, ticket, request, words)
    finally:
        if not ticket.done:
            ticket.cancel()
    return ticket.result(), ticket.kept


def _wait(engine: Engine, ticket: Ticket, request: Request, words: Texts) -> None:
    holder = st.empty()
    version = engine.runtime(request.tensorflow).versions.tensorflow
    while not ticket.wait(0.1):
        state = engine.state(request.tensorflow)
        place = ticket.place
        if state.name == "starting":
            said = words(
                "run.starting",
                version=version,
                percent=int(100 * state.progress),
                seconds=f"{state.seconds:.0f}",
            )
            holder.progress(state.progress, said)
        elif place:
            holder.info(words("run.queued", place=place), icon=":material/hourglass_top:")
        else:
            holder.info(words("run.running"), icon=":material/play_circle:")
    holder.empty()
