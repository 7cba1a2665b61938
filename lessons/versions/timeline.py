"""The time line: the same tiny fit on one Keras after another, beside what arithmetic says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from engine.experiments.fit import FitSettings
from engine.trace import Trace
from lessons.language import Texts, number, numbers_apart
from lessons.player import BLUE, DRIFTED, EDGE, EQUAL, FAILED, INK
from lessons.versions.fit import Epoch, Reading, arithmetic, read, why_loss, why_weight
from lessons.versions.flavour import Flavour

# The runs of each flavour: three epochs of one batch, and one of many, over which an error in a metric grows.
SHORT: Final = FitSettings()
LONG: Final = FitSettings(repeats=200)
RUNS: Final = (SHORT, LONG)

Panel = Literal["weight", "loss", "long"]
PANELS: Final[tuple[Panel, ...]] = ("weight", "loss", "long")
HEIGHT: Final = 560  # pixels
_SYMBOLS: Final = ("circle", "diamond")
_COLORS: Final = (BLUE, DRIFTED)
_ROOM: Final = 1.45  # how much higher a panel is than its highest point; what is not finite is drawn at `_ABOVE`
_ABOVE: Final = 1.12


@dataclass(frozen=True)
class Point:
    """One flavour's runs: None where one is not there yet, or not at all. `recorded` says that they ran elsewhere."""

    flavour: Flavour
    short: Trace | None
    long: Trace | None
    recorded: bool

    @cached_property
    def last(self) -> Epoch | None:
        """The last epoch of the short run."""
        return _epoch(self.short, -1)

    @cached_property
    def first_of_long(self) -> Epoch | None:
        """The first epoch of the long run."""
        return _epoch(self.long, 0)

    @property
    def right(self) -> bool | None:
        """True where weights and both losses are as arithmetic has them; None where a run is not there."""
        last, long = self.last, self.first_of_long
        if last is None or long is None:
            return None
        return last.weight_right and last.loss_right and long.loss_right


def figure(points: Sequence[Point], texts: Texts) -> go.Figure:
    """Weight of each replica, the loss reported for the last of three epochs, and of an epoch of 200 batches."""
    drawn = make_subplots(
        rows=len(PANELS),
        shared_xaxes=True,
        vertical_spacing=0.1,
        subplot_titles=[texts(f"timeline.panel.{panel}") for panel in PANELS],
    )
    names = [_label(point.flavour) for point in points]
    for row, panel in enumerate(PANELS, 1):
        # The line of what is right is there before the first run is.
        drawn.add_trace(_right(panel, names, texts), row=row, col=1)
        for trace in _traces(panel, points, names, texts):
            drawn.add_trace(trace, row=row, col=1)
    before = sum(
        point.flavour.offer.versions.keras_numbers < (3, 0) or "tf_keras" in point.flavour.name for point in points
    )
    if 0 < before < len(points):
        drawn.add_vline(x=before - 0.5, line={"color": EDGE, "width": 1, "dash": "dot"})
        for x, anchor, key in ((before - 0.56, "right", "keras_2"), (before - 0.44, "left", "keras_3")):
            drawn.add_annotation(
                x=x, y=1.0, xref="x", yref="paper", xanchor=anchor, yanchor="bottom", yshift=22, showarrow=False,
                text=texts(f"timeline.{key}", version=points[-1].flavour.offer.versions.tensorflow),
            )  # fmt: skip
    drawn.update_layout(
        height=HEIGHT,
        margin={"l": 44, "r": 12, "t": 62, "b": 64},
        legend={
            "orientation": "h",
            "yref": "container",
            "y": 0.01,
            "yanchor": "bottom",
            "x": 0,
            "itemclick": False,
            "itemdoubleclick": False,
            "font": {"color": INK},
        },
        hovermode="x unified",
        dragmode=False,
    )
    drawn.update_xaxes(
        type="category", categoryorder="array", categoryarray=names, range=[-0.6, len(names) - 0.4], fixedrange=True
    )
    drawn.update_yaxes(rangemode="tozero", fixedrange=True, nticks=5)
    drawn.update_xaxes(tickfont={"color": INK}, automargin=True)
    drawn.update_yaxes(tickfont={"color": INK})
    drawn.update_annotations(font={"size": 13, "color": INK})
    for title in drawn.layout.annotations[: len(PANELS)]:
        title.update(x=0, xanchor="left")
    for row, panel in enumerate(PANELS, 1):
        drawn.update_yaxes(range=[0, _top(panel, points)], row=row, col=1)
    return drawn


def alternative(points: Sequence[Point], texts: Texts) -> str:
    """The figure in words."""
    sentences = [texts("timeline.alternative", weight=number(_expected("weight")))]
    for point in points:
        last, long = point.last, point.first_of_long
        if last is not None and long is not None:
            copies = texts.items(numbers_apart(last.copies))
            sentences.append(
                texts(
                    "timeline.alternative_point",
                    keras=point.flavour.keras,
                    copies=copies,
                    loss=number(last.loss),
                    long=number(long.loss),
                )
            )
    return texts.sentences(sentences)


def verdict(point: Point, texts: Texts) -> str:
    """What a flavour does, what would be right, and why it is not so; "" where its runs are not there."""
    last, long = point.last, point.first_of_long
    if point.short is None or point.long is None or last is None or long is None:
        return ""
    sentences = [texts("timeline.weight.right")]
    if not last.weight_right:
        *copies, expected = numbers_apart([*last.copies, last.weight_expected])
        copies = copies[:1] if len(set(copies)) == 1 else copies
        why = texts.sentences(why_weight(read(point.short), texts))
        sentences = [texts("timeline.weight.wrong", copies=texts.list(copies), expected=expected, why=why)]
    if last.loss_right:
        sentences.append(texts("timeline.reported.right"))
    else:
        sentences.append(_loss_wrong("wrong", read(point.short), last, texts))
    if last.loss_right and not long.loss_right:
        sentences.append(_loss_wrong("long_wrong", read(point.long), long, texts))
    return texts.sentences(sentences)


def _loss_wrong(key: str, reading: Reading, epoch: Epoch, texts: Texts) -> str:
    reported, expected = numbers_apart([epoch.loss, epoch.loss_expected])
    return texts(
        f"timeline.reported.{key}",
        loss=reported,
        expected=expected,
        batches=reading.settings["repeats"],
        why=why_loss(reading, epoch, texts),
    )


def _epoch(trace: Trace | None, place: int) -> Epoch | None:
    epochs = read(trace).epochs if trace is not None else ()
    return epochs[place] if epochs else None


def _expected(panel: Panel) -> float:
    """What arithmetic says."""
    if panel == "long":
        return next(iter(arithmetic(LONG.model_dump())))[1]
    *_, (weight, loss) = arithmetic(SHORT.model_dump())
    return weight if panel == "weight" else loss


def _top(panel: Panel, points: Sequence[Point]) -> float:
    values = [_expected(panel)]
    for point in points:
        values += [value for value in _values(panel, point) if value is not None and math.isfinite(value)]
    return _ROOM * max(values)


def _values(panel: Panel, point: Point) -> list[float | None]:
    last, long = point.last, point.first_of_long
    if panel == "weight":
        return list(last.copies) if last else [None, None]
    if panel == "loss":
        return [last.loss if last else None]
    return [long.loss if long else None]


def _right(panel: Panel, names: Sequence[str], texts: Texts) -> go.Scatter:
    value = _expected(panel)
    return go.Scatter(
        x=list(names),
        y=[value] * len(names),
        mode="lines",
        line={"color": EQUAL, "width": 2, "dash": "dash"},
        name=texts("timeline.right"),
        legendgroup="right",
        showlegend=panel == "weight",
        hovertemplate=f"{texts('timeline.right')} {number(value)}<extra></extra>",
    )


def _traces(panel: Panel, points: Sequence[Point], names: Sequence[str], texts: Texts) -> list[go.Scatter]:
    kinds = ["replica_0", "replica_1"] if panel == "weight" else ["loss"]
    traces = []
    for place, kind in enumerate(kinds):
        shape, color = (_SYMBOLS[place], _COLORS[place]) if panel == "weight" else ("square", FAILED)
        values = [_values(panel, point)[place] for point in points]
        infinite = [value is not None and not math.isfinite(value) for value in values]
        top = _top(panel, points) / _ROOM
        name = texts(f"timeline.{kind}")
        said = [
            texts("timeline.nan") if odd else "" if value is None else number(value)
            for value, odd in zip(values, infinite, strict=True)
        ]
        # What is right is said once, at the first point.
        near = [
            number(_expected(panel)) == word and point is not points[0]
            for word, point in zip(said, points, strict=True)
        ]
        labels = list(zip(said, near, points, strict=True))
        traces.append(
            go.Scatter(
                x=list(names),
                y=[_ABOVE * top if odd else value for value, odd in zip(values, infinite, strict=True)],
                mode="markers+text",
                text=["" if near or (place and _equal(point)) else word for word, near, point in labels],
                textposition="bottom center" if place else "top center",
                textfont={"size": 11, "color": [FAILED if odd else INK for odd in infinite]},
                cliponaxis=False,
                marker={
                    "size": [12 if place == 0 or panel != "weight" else 9] * len(points),
                    "color": color,
                    "opacity": 1,
                    "symbol": [
                        "x-thin" if odd else shape + ("-open" if point.recorded else "")
                        for point, odd in zip(points, infinite, strict=True)
                    ],
                    "line": {"width": 2, "color": color},
                },
                name=name,
                legendgroup=kind,
                showlegend=panel in ("weight", "loss"),
                customdata=said,
                hovertemplate=f"{name} %{{customdata}}<extra></extra>",
            )
        )
    return traces


def _equal(point: Point) -> bool:
    last = point.last
    return last is not None and len({number(copy) for copy in last.copies}) == 1


def _label(flavour: Flavour) -> str:
    """What stands below a point: the Keras, and below that what it is in."""
    keras = flavour.keras.removeprefix("Keras ").replace("tf_keras ", "tf_keras<br>")
    if "tf_keras" in keras or flavour.offer.versions.keras_numbers >= (3, 0):
        return keras
    return f"{keras}<br>TF {flavour.offer.versions.tensorflow}"
