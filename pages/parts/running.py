"""The wait for runs: what the visitor sees meanwhile, and the end of a run that nobody waits for any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import streamlit as st

from engine.engine import Engine
from engine.experiments import CannotRunError
from engine.job import Ticket
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
POLL_SECONDS = 0.05  # seconds between two looks at a run
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
    engine: Engine,
    request: Request,
    texts: Texts,
    during: Callable[[Trace], None] | None = None,
    waiting: Callable[[str], None] | None = None,
) -> Shown | None:
    """Run and wait; or, where that version is not installed, take its recording. None where it was told why neither
    can be. `during` is called with what the run has said so far, whenever there is more of it, but not too often;
    `waiting`, once, with the program, where the run is not there at once.

    A newer choice, or another page, interrupts this at the next word to the visitor; the run is then cancelled.
    """
    try:
        ticket = engine.submit(request, session())
    except RuntimeMissingError:
        recorded = _recorded(request, shared_recordings())
        if recorded is None:
            st.info(_missing(request, texts), icon=":material/download:")
        return recorded
    except (SettingsError, CannotRunError) as error:
        _refuse(error, request, texts)
        return None
    except EngineBusyError as error:
        busy = "run.busy_session" if error.of_session else "run.busy"
        st.warning(texts(busy, limit=error.limit), icon=":material/hourglass_disabled:")
        st.button(texts("run.again"))
        return None
    holder, begun = st.empty(), time.monotonic()
    drawn, events = begun, 1  # the `run` event is nothing to draw
    notice: tuple[str, str, float | None] | None = None
    try:
        while not ticket.wait(POLL_SECONDS):
            yield_to_newer_choice()
            if time.monotonic() - begun < WAIT_NOTICE_AFTER:
                continue
            if waiting is not None:
                waiting(ticket.program)
                waiting = None
            if during is not None and len((trace := ticket.so_far()).events) > 1:
                if notice is not None:
                    holder.empty()
                    notice = None
                if time.monotonic() - drawn > REDRAW_SECONDS and len(trace.events) != events:
                    during(trace)
                    drawn, events = time.monotonic(), len(trace.events)
            elif (newer := _notice(engine, ticket, request, texts)) != notice:
                notice = newer
                text, icon, progress = notice
                if progress is None:
                    holder.info(text, icon=icon)
                else:
                    holder.progress(progress, text)
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
        yield_to_newer_choice()
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


def _missing(request: Request, texts: Texts) -> str:
    if request.tensorflow is None:
        return texts("run.none_installed")
    name = request.tensorflow + (f" + Keras {request.keras}" if request.keras else "")
    command = how_to_get(request.tensorflow, request.keras)
    return texts("run.no_recording" if command else "run.not_installable", version=name, command=command)


def _refuse(error: SettingsError | CannotRunError, request: Request, texts: Texts) -> None:
    if isinstance(error, CannotRunError):
        key = "run.cannot" if error.able else "run.cannot_here"
        st.error(texts(key, version=error.runtime, able=texts.items(error.able)), icon=":material/error:")
        return
    for problem in error.problems:
        said = problem_text(problem, type(request.settings), texts)
        st.error(texts("page.not_run", problem=said), icon=":material/error:")


def yield_to_newer_choice() -> None:
    """Let Streamlit end this script where the visitor has chosen something else. It does so whenever the session's
    state is looked at (`SafeSessionState`), without a word to the browser: one that is told something twenty times a
    second does nothing but take it in, and draws no control whose code it still has to load: React takes up again what
    waited for code only when there is nothing newer to draw."""
    _ = "yield" in st.session_state


def _notice(engine: Engine, ticket: Ticket, request: Request, texts: Texts) -> tuple[str, str, float | None]:
    """Where the run is: TensorFlow is being imported (with how much of that is done), others are before it, there is no
    memory, or it is under way. Text, icon, progress."""
    state = engine.state(request.tensorflow, request.keras)
    place = ticket.place
    if state.name == "starting":
        version = engine.runtime(request.tensorflow, request.keras).versions.tensorflow
        percent, seconds = int(100 * state.progress), f"{state.seconds:.0f}"
        text = texts("run.starting", version=version, percent=percent, seconds=seconds)
        return text, "", percent / 100
    if place:
        queued = "run.no_memory" if ticket.waits_for == "memory" else "run.queued"
        return texts(queued, place=place), ":material/hourglass_top:", None
    return texts("run.running"), ":material/play_circle:", None
