"""The one engine that all pages and visitors of this server share, and the recordings beside it."""

from __future__ import annotations

import atexit
import contextlib
import uuid

import streamlit as st

from engine.engine import Engine
from engine.recordings import Recordings
from engine.runtimes import RuntimeMissingError


@st.cache_resource(show_spinner=False)
def shared_engine() -> Engine:
    """The engine, started with the first visit; its TensorFlow is being imported from then on."""
    engine = Engine()
    atexit.register(engine.close)
    # Without TensorFlow, a page that wants to run something says so, where the visitor can read it.
    with contextlib.suppress(RuntimeMissingError):
        engine.warm_up()
    return engine


@st.cache_resource(show_spinner=False)
def shared_recordings() -> Recordings:
    """What was recorded, for the versions that are not installed."""
    return Recordings()


def session() -> str:
    """A name for this visitor's tab, by which the engine's queue is fair."""
    name: str = st.session_state.setdefault("session", uuid.uuid4().hex)
    return name
