"""The sweep: learning rates x replicas, each cell a run of its own; how well it has learned, as colour and number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from engine.experiments.scaling import ScalingSettings
from engine.trace import Trace
from lessons.language import Texts, number
from lessons.player import INK
from lessons.scaling.reading import read

RATES: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
REPLICAS: Final = (1, 2, 4, 8)
STEPS: Final = 50
HEIGHT: Final = 380
# Dark is well learned, pale badly; text on both.
SCALE: Final = ((0.0, "#0B3C5D"), (0.35, "#2C7FB8"), (0.7, "#A9CFE5"), (1.0, "#F7E6CC"))
LOWEST, HIGHEST = 0.03, 1.2  # of the colours; a model that says nothing has ln 3 = 1.1


def settings_of(chosen: ScalingSettings) -> list[ScalingSettings]:
    """The runs, row by row: rates from the lowest, and for each the replicas. All else is as it was chosen."""
    return [
        ScalingSettings.parse({**chosen.to_words(), "learning_rate": rate, "replicas": replicas, "steps": STEPS})
        for rate in RATES
        for replicas in REPLICAS
    ]


def figure(traces: Mapping[int, Trace], texts: Texts) -> go.Figure:
    """The heat map of the runs that have ended, by their place in `settings_of`."""
    losses = {place: _loss(trace) for place, trace in traces.items()}
    rows = range(len(RATES))
    grid = [[losses.get(row * len(REPLICAS) + column) for column in range(len(REPLICAS))] for row in rows]
    colors = [[None if value is None else math.log10(_bounded(value)) for value in row] for row in grid]
    ticks = (0.03, 0.1, 0.3, 1.0)
    drawn = go.Figure(
        go.Heatmap(
            z=colors,
            zmin=math.log10(LOWEST),
            zmax=math.log10(HIGHEST),
            colorscale=[list(stop) for stop in SCALE],
            xgap=3,
            ygap=3,
            hoverinfo="skip",
            colorbar={
                "title": {"text": texts("sweep.loss"), "side": "right", "font": {"color": INK}},
                "tickvals": [math.log10(value) for value in ticks],
                "ticktext": [number(value) for value in ticks],
                "tickfont": {"color": INK},
                "thickness": 12,
            },
        )
    )
    for row in rows:
        for column in range(len(REPLICAS)):
            value = grid[row][column]
            pale = value is not None and _bounded(value) > 0.2
            drawn.add_annotation(
                x=column, y=row, showarrow=False,
                text="…" if value is None else f"<b>{number(round(value, 3))}</b>",
                font={"size": 14, "color": INK if value is None else "#1B1B1B" if pale else "#FFFFFF"},
            )  # fmt: skip
    drawn.update_layout(height=HEIGHT, margin={"l": 64, "r": 8, "t": 12, "b": 52}, dragmode=False, font={"color": INK})
    drawn.update_xaxes(**_axis("replicas", [str(replicas) for replicas in REPLICAS]))
    drawn.update_yaxes(**_axis("learning_rate", [number(rate) for rate in RATES]))
    return drawn


def _axis(title: str, ticks: Sequence[str]) -> dict[str, Any]:
    """A place for each of these words."""
    return {
        "title": {"text": title, "font": {"color": INK}}, "tickvals": list(range(len(ticks))), "ticktext": list(ticks),
        "range": [-0.5, len(ticks) - 0.5], "tickfont": {"color": INK}, "fixedrange": True, "showgrid": False,
        "zeroline": False,
    }  # fmt: skip


def alternative(traces: Mapping[int, Trace], texts: Texts) -> str:
    """The heat map in words."""
    sentences = [texts("sweep.alternative")]
    for place, trace in sorted(traces.items()):
        row, column = divmod(place, len(REPLICAS))
        loss = _loss(trace)
        sentences.append(
            texts(
                "sweep.cell",
                rate=number(RATES[row]),
                replicas=texts("count.replicas", count=REPLICAS[column]),
                loss="?" if loss is None else number(round(loss, 3)),
            )
        )
    return texts.sentences(sentences)


def _loss(trace: Trace) -> float | None:
    """The mean loss over all flowers at the end; None where a run gave no answer."""
    result = read(trace).results.get("replicas")
    return None if result is None else result.loss


def _bounded(value: float) -> float:
    return min(max(value, LOWEST), HIGHEST) if math.isfinite(value) else HIGHEST
