"""The curves: the loss of the replicas and of the reference, and beneath them how far apart their weights are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from lessons.language import Texts, number
from lessons.player import BLUE, DRIFTED, EDGE, EQUAL, FAILED, INK, PURPLE
from lessons.scaling.reading import ROUNDING, Reading

HEIGHT: Final = 440  # pixels, always: a live figure must not jump
LOWEST: Final = 1e-9  # of a logarithmic axis; a distance of nothing is drawn here
COLORS: Final = {
    "equal": EQUAL,
    "amplified": PURPLE,  # nothing is wrong there but the rounding
    "scaled": FAILED,
    "apart": FAILED,
    "empty": FAILED,
    "diverged": FAILED,
}


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """Loss and distance over the steps; a run that goes on has the same axes as one that has ended."""
    drawn = make_subplots(
        rows=2,
        shared_xaxes=True,
        row_heights=[0.56, 0.44],
        vertical_spacing=0.13,
        subplot_titles=[texts("figure.loss"), texts("figure.distance")],
    )
    x = [step.number for step in reading.steps]
    for name, values, color, dash, width in (
        ("replicas", [step.loss for step in reading.steps], BLUE, "solid", 3),
        ("reference", [step.reference_loss for step in reading.steps], DRIFTED, "dot", 3),
    ):
        drawn.add_trace(_curve(x, values, texts(f"figure.{name}"), color, dash, width), row=1, col=1)
    distances = [step.distance for step in reading.steps]
    color = COLORS.get(reading.outcome, EQUAL if reading.farthest < ROUNDING else FAILED)
    if reading.small_batches:
        color = PURPLE  # nothing is wrong there: the two are only meant to be near
    drawn.add_trace(_curve(x, distances, texts("figure.apart"), color, "solid", 3, fill="tozeroy"), row=2, col=1)
    drawn.add_hline(y=ROUNDING, row=2, col=1, line={"color": EDGE, "width": 2, "dash": "dash"})
    drawn.add_annotation(
        x=1, xref="x2 domain", y=math.log10(ROUNDING), yref="y2", text=texts("figure.rounding"), showarrow=False,
        xanchor="right", yanchor="bottom",
    )  # fmt: skip
    drawn.update_layout(
        height=HEIGHT,
        margin={"l": 58, "r": 12, "t": 54, "b": 62},
        legend={"orientation": "h", "x": 0, "y": -0.13, "yanchor": "top", "itemclick": False, "itemdoubleclick": False,
                "font": {"color": INK}},
        hovermode="x unified",
        dragmode=False,
        font={"color": INK},
    )  # fmt: skip
    drawn.update_annotations(font={"size": 13, "color": INK})
    for title in drawn.layout.annotations[:2]:
        title.update(x=0, xanchor="left")
    drawn.add_annotation(
        x=1, xref="paper", y=1, yref="paper", yanchor="bottom", xanchor="right", yshift=22, showarrow=False,
        text=f"<b>{headline(reading, texts)}</b>", font={"size": 15, "color": color},
    )  # fmt: skip
    last = int(reading.settings["steps"])
    drawn.update_xaxes(
        range=[0.5, last + 0.5], fixedrange=True, tickfont={"color": INK}, gridcolor=EDGE, zeroline=False
    )
    drawn.update_xaxes(title={"text": texts("figure.step"), "font": {"color": INK}, "standoff": 4}, row=2, col=1)
    drawn.update_yaxes(type="log", fixedrange=True, tickfont={"color": INK}, gridcolor=EDGE, exponentformat="power")
    ticks = [factor * 10**power for power in range(-4, 8) for factor in (1, 3)]
    drawn.update_yaxes(range=_range(reading), tickvals=ticks, ticktext=[number(tick) for tick in ticks], row=1, col=1)
    top = math.log10(max([reading.farthest if math.isfinite(reading.farthest) else 1.0, 10.0]))
    drawn.update_yaxes(range=[math.log10(LOWEST), top + 0.3], dtick=3, row=2, col=1)
    return drawn


def headline(reading: Reading, texts: Texts) -> str:
    """What came of it, in a few words."""
    first = reading.steps[0].factor if reading.steps else math.nan
    key = "small_batches" if reading.small_batches and reading.outcome in ("apart", "scaled") else reading.outcome
    return texts(
        f"figure.outcome.{key}",
        step=reading.steps[-1].number if reading.steps else 0,
        steps=reading.settings["steps"],
        factor=number(round(first, 3)),
        distance=small(reading.steps[-1].distance) if reading.steps else "",
        broken=reading.broken.number if reading.broken else "",
    )


def alternative(reading: Reading, texts: Texts) -> str:
    """The figure in words."""
    sentences = [
        texts(
            "alternative.run",
            replicas=texts("count.replicas", count=reading.replicas),
            steps=texts("count.steps", count=reading.settings["steps"]),
        )
    ]
    if reading.steps:
        first, last = reading.steps[0], reading.steps[-1]
        sentences += [
            texts("alternative.loss", first=number(first.loss), last=number(last.loss), step=last.number,
                  reference=number(last.reference_loss)),
            texts("alternative.distance", distance=small(last.distance), farthest=small(reading.farthest)),
        ]  # fmt: skip
    outcome = headline(reading, texts).lstrip("=≠ ")
    return texts.sentences([*sentences, texts("alternative.outcome", outcome=outcome)])


def small(value: float) -> str:
    """A distance: as people write it, or with a power of ten where it is but rounding."""
    if value == 0 or not math.isfinite(value) or value >= 10 * ROUNDING:
        return number(value)
    digits, _, power = f"{value:.0e}".partition("e")
    return f"{digits}·10{str(int(power)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _curve(
    x: Sequence[int], y: Sequence[float], name: str, color: str, dash: str, width: int, **more: Any
) -> go.Scatter:
    shown = [max(value, LOWEST) if math.isfinite(value) else None for value in y]
    return go.Scatter(
        x=list(x), y=shown, name=name, mode="lines" if len(x) > 1 else "markers",
        line={"color": color, "width": width, "dash": dash}, marker={"color": color, "size": 9},
        hovertemplate="%{y:.4g}", **more,
    )  # fmt: skip


def _range(reading: Reading) -> list[float]:
    """Of the loss: from 0.01 to 3, and as far beyond as it takes."""
    values = [value for step in reading.steps for value in (step.loss, step.reference_loss)]
    values = [value for value in values if math.isfinite(value) and value > 0]
    return [math.log10(min([0.01, *values])) - 0.1, math.log10(max([2.0, *values])) + 0.1]
