"""The parts of the status page: the warm processes and the queue, looked at again and again, and the versions."""

from __future__ import annotations

import streamlit as st

from engine.engine import Engine, ParentState
from engine.experiments import EXPERIMENTS
from engine.messages import Versions
from engine.runtimes import Entry, catalogue_state
from lessons.language import Texts
from pages.parts.engine import shared_recordings
from pages.parts.markdown import plain
from pages.parts.version import RECORDED

REDRAW_SECONDS = 2.0  # seconds between two looks


def status_page(engine: Engine, texts: Texts) -> None:
    """The whole page."""
    st.title(texts("status.question"), anchor=False)
    live = st.fragment(_live, run_every=REDRAW_SECONDS)
    live(engine, texts)
    st.subheader(texts("status.installed"), anchor=False)
    st.markdown(texts("status.installed_about"))
    st.table(_versions(_entries(), texts), border="horizontal", alt=texts("status.installed_about"))
    st.caption(texts("status.all"))


def _live(engine: Engine, texts: Texts) -> None:
    parents = engine.parents()
    running, waiting = engine.load()
    known = [parent.memory for parent in parents if parent.memory is not None]
    total = _memory(sum(known) if known or not parents else None, texts)
    with st.container(horizontal=True):
        st.metric(texts("status.running"), running, border=True)
        st.metric(texts("status.waiting"), waiting, border=True)
        st.metric(texts("status.slots"), engine.slots, border=True)
        st.metric(texts("status.total"), total, border=True)
    st.subheader(texts("status.parents"), anchor=False)
    st.markdown(texts("status.parents_about", minutes=f"{engine.limits.idle / 60:.0f}", most=engine.limits.parents))
    if parents:
        st.table(_parents(parents, texts), border="horizontal", alt=texts("status.parents"))
        for sentence in dict.fromkeys(_network(parent.info, texts) for parent in parents if parent.info):
            st.caption(sentence)
    else:
        st.info(texts("status.parents_none"), icon=":material/bedtime:")


def _parents(parents: list[ParentState], texts: Texts) -> dict[str, list[str]]:
    return {
        texts("status.runtime"): [plain(parent.runtime.name) for parent in parents],
        texts("status.keras"): [parent.runtime.versions.keras for parent in parents],
        texts("status.state"): [_state(parent, texts) for parent in parents],
        texts("status.seconds"): [texts("badge.seconds", seconds=f"{parent.seconds:.0f}") for parent in parents],
        texts("status.memory"): [_memory(parent.memory, texts) for parent in parents],
        texts("status.runs"): [str(parent.runs) for parent in parents],
        texts("status.now"): [str(parent.running) for parent in parents],
    }


def _network(info: Versions, texts: Texts) -> str:
    """What the runs of a parent can reach."""
    return texts(f"status.network_{info.network}", reason=plain(info.network_reason))


def _memory(value: float | None, texts: Texts) -> str:
    return texts("status.unknown") if value is None else texts("status.mebibytes", value=f"{value:.0f}")


def _state(parent: ParentState, texts: Texts) -> str:
    state = parent.state
    if state.name == "starting":
        return f":orange[:material/hourglass_top:] {texts('status.starting', percent=int(100 * state.progress))}"
    if state.name == "ready":
        return f":green[:material/check:] {texts('status.ready')}"
    return f":red[:material/error:] {plain(texts('status.failed', reason=state.reason))}"


@st.cache_data(ttl=30, show_spinner=False)
def _entries() -> list[Entry]:
    """Kept for a while: to know whether a version could be installed, interpreters are looked for and run."""
    return catalogue_state()


def _versions(entries: list[Entry], texts: Texts) -> dict[str, list[str]]:
    columns = {
        texts("status.version"): [plain(entry.name) for entry in entries],
        texts("status.keras"): [entry.keras or "" for entry in entries],
        texts("status.here"): [_here(entry, texts) for entry in entries],
        texts("status.how"): [f"`{entry.command}`" if entry.command else "" for entry in entries],
        texts("status.recorded"): [_recorded(entry, texts) for entry in entries],
    }
    return {head: cells for head, cells in columns.items() if any(cells)}


def _here(entry: Entry, texts: Texts) -> str:
    if entry.runtime is not None:
        return f":green[:material/check:] {texts('status.is_here')}"
    key = {"no python": "no_python", "no release": "no_release"}.get(entry.missing, "not_installed")
    said = texts(f"status.{key}", pythons=", ".join(entry.pythons)) if key == "no_python" else texts(f"status.{key}")
    return f":gray[:material/close:] {said}"


def _recorded(entry: Entry, texts: Texts) -> str:
    """What there is to be seen where it is not installed."""
    made = {
        name: made[entry.name].date
        for name, experiment in EXPERIMENTS.items()
        if entry.name in (made := shared_recordings().made_with(experiment))
    }
    if not made:
        return texts("status.not_recorded")
    return f"{RECORDED} {', '.join(map(plain, made))} · {max(made.values())}"
