"""The wait for runs: what the visitor sees meanwhile, and the end of a run that nobody waits for any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.engine import Engine, Ticket
from engine.experiments import CannotRunError
from engine.offers import how_to_get
from engine.recordings import Provenance, Recordings
from engine.request import EngineBusyError, Request
from engine.runtimes import RuntimeMissingError
from engine.settings import SettingsError
from engine.trace import Trace
from lessons.language import Texts
from pages.parts.address import problem_text
from pages.parts.engine import session, shared_recordings

WAIT_NOTICE_AFTER = 0.3  # seconds before the page says that it waits: most runs are done by then
REDRAW_SECONDS = 0.25  # seconds between two pictures of a run that goes on, at least
MAX_IN_FLIGHT = 24  # runs that one page asks for at once; the others follow as these end


@dataclass(frozen=True)
class Shown:
    """A run as a page shows it: its trace, and the program that ran. `cached` says that it ran here before; a
    `recording` says that it did not run here, and where it did."""

    trace: Trace
    program: str
    cached: bool = False
    recording: Provenance | None = None


def run(
    engine: Engine, request: Request, app_texts: Texts, during: Callable[[Trace], None] | None = None
) -> Shown | None:
    """Run and wait; or, where that version is not installed, take its recording. None where it was told why neither
    can be. `during` is called with what the run has said so far, whenever there is more of it, but not too often.

    A newer choice, or another page, interrupts this at the next word to the visitor; the run is then cancelled.
    """
    try:
        ticket = engine.submit(request, session())
    except RuntimeMissingError as error:
        recorded = _recorded(request, shared_recordings())
        if recorded is None:
            st.info(_missing(request, error, app_texts), icon=":material/download:")
        return recorded
    except (SettingsError, CannotRunError) as error:
        _refuse(error, request, app_texts)
        return None
    except EngineBusyError:
        st.warning(app_texts("run.busy"), icon=":material/hourglass_disabled:")
        st.button(app_texts("run.again"))
        return None
    holder, begun = st.empty(), time.monotonic()
    drawn, events = begun, 1  # the `run` event is nothing to draw
    try:
        while not ticket.wait(0.05):
            # A word to the visitor is where Streamlit lets a newer choice in; at first that word is nothing.
            if time.monotonic() - begun < WAIT_NOTICE_AFTER:
                holder.empty()
            elif during is not None and len((trace := ticket.so_far()).events) > 1:
                holder.empty()
                if time.monotonic() - drawn > REDRAW_SECONDS and len(trace.events) != events:
                    during(trace)
                    drawn, events = time.monotonic(), len(trace.events)
            else:
                _say(holder, engine, ticket, request, app_texts)
        holder.empty()
    finally:
        if not ticket.done:
            ticket.cancel()
    return _ran(ticket)


class Together:
    """Several runs at once, of which each can be shown as it ends. See `together`."""

    def __init__(self, engine: Engine, requests: Sequence[Request], recordings: Recordings) -> None:
        self._engine = engine
        self._requests = requests
        self._recordings = recordings
        self._next = 0
        self._tickets: dict[int, Ticket] = {}

    @property
    def done(self) -> bool:
        return self._next == len(self._requests) and not self._tickets

    def ended(self, seconds: float = 0.1) -> dict[int, Shown | None]:
        """The runs that have ended since the last call, by their place; waits that long for one. None for one that can
        neither run nor has a recording."""
        found: dict[int, Shown | None] = {}
        while self._next < len(self._requests) and len(self._tickets) < MAX_IN_FLIGHT:
            request = self._requests[self._next]
            try:
                self._tickets[self._next] = self._engine.submit(request, session())
            except RuntimeMissingError:
                found[self._next] = _recorded(request, self._recordings)
            except (SettingsError, CannotRunError):
                found[self._next] = None
            except EngineBusyError:
                break  # it is asked for again when some have ended
            self._next += 1
        if self._tickets and not found:
            next(iter(self._tickets.values())).wait(seconds)
        elif not self._tickets and not found and not self.done:
            time.sleep(seconds)
        for place, ticket in list(self._tickets.items()):
            if ticket.done:
                found[place] = _ran(ticket)
                del self._tickets[place]
        return found

    def cancel(self) -> None:
        for ticket in self._tickets.values():
            ticket.cancel()


@contextmanager
def together(engine: Engine, requests: Sequence[Request]) -> Iterator[Together]:
    """Ask for several runs. Those that have not ended when the block is left, for whatever reason, are cancelled."""
    runs = Together(engine, requests, shared_recordings())
    try:
        yield runs
    finally:
        runs.cancel()


def _ran(ticket: Ticket) -> Shown:
    return Shown(ticket.result(), ticket.program, ticket.cached)


def _recorded(request: Request, recordings: Recordings) -> Shown | None:
    recording = recordings.find(request)
    if recording is None:
        return None
    return Shown(recording.trace, recording.program, recording=recording.provenance)


def _missing(request: Request, error: RuntimeMissingError, app_texts: Texts) -> str:
    if request.tensorflow is None:
        return app_texts("run.missing", reason=str(error))
    name = request.tensorflow + (f" + Keras {request.keras}" if request.keras else "")
    command = how_to_get(request.tensorflow, request.keras)
    if not command:
        return app_texts("run.missing", reason=str(error))
    return app_texts("run.no_recording", version=name, command=command)


def _refuse(error: SettingsError | CannotRunError, request: Request, app_texts: Texts) -> None:
    if isinstance(error, CannotRunError):
        st.error(app_texts("page.not_run", problem=str(error)), icon=":material/error:")
        return
    for problem in error.problems:
        said = problem_text(problem, type(request.settings), app_texts)
        st.error(app_texts("page.not_run", problem=said), icon=":material/error:")


def _say(holder: DeltaGenerator, engine: Engine, ticket: Ticket, request: Request, app_texts: Texts) -> None:
    """Where the run is: TensorFlow is being imported, others are before it, or it is under way."""
    state = engine.state(request.tensorflow, request.keras)
    place = ticket.place
    if state.name == "starting":
        version = engine.runtime(request.tensorflow, request.keras).versions.tensorflow
        percent, seconds = int(100 * state.progress), f"{state.seconds:.0f}"
        holder.progress(state.progress, app_texts("run.starting", version=version, percent=percent, seconds=seconds))
    elif place:
        holder.info(app_texts("run.queued", place=place), icon=":material/hourglass_top:")
    else:
        holder.info(app_texts("run.running"), icon=":material/play_circle:")
