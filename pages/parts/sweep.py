"""The Sweep tab: many runs in one picture, which fills in as they end, and can be stopped."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

import streamlit as st

from engine.engine import Engine
from engine.request import Request
from lessons.language import Texts
from lessons.lesson import Sweep
from pages.parts.cells import get_versions_texts
from pages.parts.charts import PLOTLY
from pages.parts.filling import fill
from pages.parts.running import Shown


def sweep_tab(engine: Engine, sweep: Sweep, chosen: Request, texts: Texts) -> None:
    """Run what the sweep asks for beside the chosen settings, on the same version, and draw it as it comes."""
    st.markdown(texts("sweep.about"))
    requests = [replace(chosen, settings=settings) for settings in sweep.settings(chosen.settings)]
    place, pictures = st.container(), itertools.count()

    def draw(found: Mapping[int, Shown]) -> None:
        nonlocal place  # of the picture itself, once there is one
        traces = {number: shown.trace for number, shown in found.items()}
        key = f"sweep-{next(pictures)}"
        place = place.plotly_chart(
            sweep.figure(traces, texts), key=key, config=PLOTLY, alt=sweep.alternative(traces, texts)
        )

    fill(engine, "".join(request.to_json() for request in requests), requests, draw, get_versions_texts())
