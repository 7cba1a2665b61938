"""The parts of the status page: the warm processes and the queue, looked at again and again, and the versions."""

from __future__ import annotations

import streamlit as st

from engine.engine import Engine, ParentState
from engine.experiments import EXPERIMENTS
from engine.runtimes import Entry, catalogue_state
from lessons.language import Texts
from pages.parts.cells import plain
from pages.parts.engine import shared_recordings
from pages.parts.version import RECORDED

REDRAW_SECONDS = 2.0  # seconds between two looks


def status_page(engine: Engine, words: Texts) -> None:
    """The whole page."""
    st.title(words("status.question"), anchor=False)
    live = st.fragment(_live, run_every=REDRAW_SECONDS)
    live(engine, words)
    st.subheader(words("status.installed"), anchor=False)
    st.markdown(words("status.installed_about"))
    st.table(_versions(_entries(), words), border="horizontal", alt=words("status.installed_about"))
    st.caption(words("status.all"))


def _live(engine: Engine, words: Texts) -> None:
    parents = engine.parents()
    running, waiting = engine.load()
    known = [parent.memory for parent in parents if parent.memory is not None]
    total = _memory(sum(known) if known or not parents else None, words)
    with st.container(horizontal=True):
        st.metric(words("status.running"), running, border=True)
        st.metric(words("status.waiting"), waiting, border=True)
        st.metric(words("status.slots"), engine.slots, border=True)
        st.metric(words("status.total"), total, border=True)
    st.subheader(words("status.parents"), anchor=False)
    st.markdown(words("status.parents_about", minutes=f"{engine.limits.idle / 60:.0f}", most=engine.limits.parents))
    if parents:
        st.table(_parents(parents, words), border="horizontal", alt=words("status.parents"))
    else:
        st.info(words("status.parents_none"), icon=":material/bedtime:")


def _parents(parents: list[ParentState], words: Texts) -> dict[str, list[str]]:
    return {
        words("status.runtime"): [plain(parent.runtime.name) for parent in parents],
        words("status.keras"): [parent.runtime.versions.keras for parent in parents],
        words("status.state"): [_state(parent, words) for parent in parents],
        words("status.seconds"): [words("badge.seconds", seconds=f"{parent.seconds:.0f}") for parent in parents],
        words("status.memory"): [_memory(parent.memory, words) for parent in parents],
        words("status.runs"): [str(parent.runs) for parent in parents],
        words("status.now"): [str(parent.running) for parent in parents],
    }


def _memory(value: float | None, words: Texts) -> str:
    return words("status.unknown") if value is None else words("status.mebibytes", value=f"{value:.0f}")


def _state(parent: ParentState, words: Texts) -> str:
    state = parent.state
    if state.name == "starting":
        return f":orange[:material/hourglass_top:] {words('status.starting', percent=int(100 * state.progress))}"
    if state.name == "ready":
        return f":green[:material/check:] {words('status.ready')}"
    return f":red[:material/error:] {plain(words('status.failed', reason=state.reason))}"


@st.cache_data(ttl=30, show_spinner=False)
def _entries() -> list[Entry]:
    """Kept for a while: to know whether a version could be installed, interpreters are looked for and run."""
    return catalogue_state()


def _versions(entries: list[Entry], words: Texts) -> dict[str, list[str]]:
    columns = {
        words("status.version"): [plain(entry.name) for entry in entries],
        words("status.keras"): [entry.keras or "" for entry in entries],
        words("status.here"): [_here(entry, words) for entry in entries],
        words("status.how"): [f"`{entry.command}`" if entry.command else "" for entry in entries],
        words("status.recorded"): [_recorded(entry, words) for entry in entries],
    }
    return {head: cells for head, cells in columns.items() if any(cells)}


def _here(entry: Entry, words: Texts) -> str:
    if entry.runtime is not None:
        return f":green[:material/check:] {words('status.is_here')}"
    key = {"no python": "no_python", "no release": "no_release"}.get(entry.missing, "not_installed")
    said = words(f"status.{key}", pythons=", ".join(entry.pythons)) if key == "no_python" else words(f"status.{key}")
    return f":gray[:material/close:] {said}"


def _recorded(entry: Entry, words: Texts) -> str:
    """What there is to be seen where it is not installed."""
    made = {
        name: made[entry.name].date
        for name, experiment in EXPERIMENTS.items()
        if entry.name in (made := shared_recordings().made_with(experiment))
    }
    if not made:
        return words("status.not_recorded")
    return f"{RECORDED} {', '.join(map(plain, made))} · {max(made.values())}"
