"""What moving figures share: a palette, play, pause, step and scrub in the browser, and how frames are made small.

A figure is a list of scatter traces, because Plotly moves those smoothly; what stays is shapes and annotations. One
unit of the y axis is one pixel, counted from the top; x runs from 0 to 1 over whatever width there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import plotly.graph_objects as go

from lessons.language import Texts

# Okabe and Ito's colours (blue, bluish green, orange, vermillion, reddish purple), darkened where white text lies on
# them, and greys that read on black and on white.
BLUE: Final = "#0072B2"
EQUAL: Final = "#007F5F"
DRIFTED: Final = "#E69F00"
FAILED: Final = "#C4500A"
PURPLE: Final = "#8E4585"
UNUSED: Final = "#7B7B7B"
PALE: Final = "rgba(128,128,128,0.13)"
EDGE: Final = "rgba(128,128,128,0.45)"
# Plain text: a grey that reads on both. The page's style gives text of just this colour the theme's own instead; a
# figure can't, as the server is not told when the theme is switched.
INK: Final = "#7F7F80"
CLEAR: Final = "rgba(0,0,0,0)"
LIGHT: Final = "#FFFFFF"
DARK: Final = "#1B1B1B"
DIAL: Final = "#22303C"

CONTROLS: Final = 100  # the height of the buttons and the slider, in pixels
MARGIN: Final = 6
NARROW: Final = 345  # the width of a telephone's page, for which texts are made to fit
HIDDEN: Final = "\u00a0"  # Plotly drops a point whose text is empty, and its neighbours would fly to take its place

# What of each trace is set in a frame: trace -> property -> value, in the traces' order.
State = list[dict[str, Any]]


class Points:
    """The points of one trace, gathered one by one."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}

    def add(self, x: float, y: float, text: str, **more: Any) -> None:
        """One more point: where it is, its text; for markers opacity, color, size and symbol; for text anchor, ink and
        pixels."""
        for name, value in {"x": x, "y": y, "text": text or HIDDEN, **more}.items():
            self.columns.setdefault(name, []).append(value)

    def trace(self) -> dict[str, Any]:
        """The properties of the trace."""
        names = {
            "opacity": "marker.opacity", "color": "marker.color", "size": "marker.size", "symbol": "marker.symbol",
            "anchor": "textposition", "ink": "textfont.color", "pixels": "textfont.size",
        }  # fmt: skip
        return {names.get(name, name): values for name, values in self.columns.items()}


def rectangles(boxes: Sequence[tuple[float, float, float, float]]) -> dict[str, Any]:
    """The outlines of boxes (x0, y0, x1, y1), for one trace that fills them; one that isn't there has no width."""
    x: list[float | None] = []
    y: list[float | None] = []
    for x0, y0, x1, y1 in boxes:
        x += [x0, x1, x1, x0, x0, None]
        y += [y0, y0, y1, y1, y0, None]
    return {"x": x[:-1], "y": y[:-1]}


def filled(color: str) -> dict[str, Any]:
    """What stays of a trace of rectangles."""
    # Not simplified, or the corners of a box without width would be one, and it could not grow.
    return {"mode": "lines", "fill": "toself", "line": {"width": 0, "simplify": False}, "fillcolor": color}


def figure(
    names: Sequence[str],
    states: Sequence[State],
    fixed: Sequence[dict[str, Any]],
    height: float,
    texts: Texts,
    **more: Any,
) -> go.Figure:
    """A figure that moves through these states, each the frame of that name, and opens with the last. `fixed` is what
    never changes of each trace, `more` what never changes of the layout (see `layout`)."""
    return go.Figure(
        data=traces(fixed, states[-1]),
        layout=layout(names, height, texts, **more),
        frames=frames(names, states, texts),
    )


def traces(fixed: Sequence[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """The traces, in drawing order, in that state: `fixed` is what never changes of each."""
    return [
        {"type": "scatter", "hoverinfo": "skip", "showlegend": False, "cliponaxis": False}
        | _merged(trace, _nested(values))
        for trace, values in zip(fixed, state, strict=True)
    ]


def frames(names: Sequence[str], states: Sequence[State], texts: Texts) -> list[dict[str, Any]]:
    """The frames of these names, with what changes between them and nothing else. A single state has none."""
    if len(names) == 1:
        return []
    varying = [
        [key for key in state if any(other[trace][key] != state[key] for other in states)]
        for trace, state in enumerate(states[0])
    ]
    moving = [trace for trace, keys in enumerate(varying) if keys]
    return [
        {
            "name": name,
            "traces": moving,
            "data": [_nested({key: state[trace][key] for key in varying[trace]}) for trace in moving],
            "layout": {"updatemenus": [{}, {"buttons": _step_buttons(names, place, texts)}]},
        }
        for place, (name, state) in enumerate(zip(names, states, strict=True))
    ]


def layout(
    names: Sequence[str], height: float, texts: Texts, *, keep_room: bool = False, **more: Any
) -> dict[str, Any]:
    """The layout of a figure that is `height` pixels high without its controls; those are there where frames are.

    With `keep_room` there is room for them in any case: the height then stays the same when frames come.
    """
    axis = {"visible": False, "fixedrange": True}
    moves = len(names) > 1
    foot = CONTROLS if moves or keep_room else MARGIN
    return {
        "height": height + MARGIN + foot,
        "margin": {"l": MARGIN, "r": MARGIN, "t": MARGIN, "b": foot, "pad": 0},
        "xaxis": {**axis, "range": [0, 1]},
        "yaxis": {**axis, "range": [height, 0]},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"color": INK},
        "showlegend": False,
        "hovermode": False,
        "dragmode": False,
        "updatemenus": _menus(names, texts) if moves else [],
        "sliders": [_slider(names)] if moves else [],
        **more,
    }


def note(x: float, y: float, text: str, align: str, size: int = 14) -> dict[str, Any]:
    """An annotation: text that stays. `align` says which part of it is at x."""
    return {
        "x": x, "y": y, "text": text, "showarrow": False, "xanchor": align, "yanchor": "middle", "font": {"size": size},
    }  # fmt: skip


def box(x0: float, y0: float, x1: float, y1: float, fill: str, edge: str, *, dash: str = "solid") -> dict[str, Any]:
    """A rectangle that stays, below the traces."""
    return {
        "type": "rect", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "fillcolor": fill, "layer": "below",
        "line": {"color": edge, "width": 1, "dash": dash},
    }  # fmt: skip


def line(x0: float, y0: float, x1: float, y1: float, color: str, width: int, dash: str = "solid") -> dict[str, Any]:
    """A line that stays, below the traces."""
    return {
        "type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "layer": "below",
        "line": {"color": color, "width": width, "dash": dash},
    }  # fmt: skip


# ---------------------------------------------------------------------------------------------------- the controls


def _animation(duration: int, transition: int, **more: Any) -> dict[str, Any]:
    # redraw: text, and the step buttons' targets, are renewed at the end of each transition.
    return {
        "mode": "immediate",
        "frame": {"duration": duration, "redraw": True},
        "transition": {"duration": transition, "easing": "cubic-in-out"},
        **more,
    }


def _menus(names: Sequence[str], texts: Texts) -> list[dict[str, Any]]:
    pace = 1000 if len(names) <= 12 else 600 if len(names) <= 24 else 350
    play = _animation(pace, int(pace * 0.7), fromcurrent=True)
    stop = _animation(0, 0)
    look = {
        "type": "buttons", "direction": "right", "showactive": False, "active": -1,
        "y": 0, "yanchor": "top", "bgcolor": "#E4EAF0", "bordercolor": "#8A97A5",
        "font": {"color": "#17212B", "size": 15},
    }  # fmt: skip
    return [
        {
            **look, "x": 0, "xanchor": "left", "pad": {"t": 10, "l": 0},
            "buttons": [
                {"label": texts("figure.play"), "method": "animate", "args": [None, play]},
                {"label": texts("figure.pause"), "method": "animate", "args": [[None], stop]},
            ],
        },
        {
            **look, "x": 1, "xanchor": "right", "pad": {"t": 10, "r": 0},
            "buttons": _step_buttons(names, len(names) - 1, texts),
        },
    ]  # fmt: skip


def _step_buttons(names: Sequence[str], place: int, texts: Texts) -> list[dict[str, Any]]:
    """Buttons to the frames before and after that one; after the last comes the first.

    Plotly's buttons know no "one on from here", so every frame renews where they lead.
    """
    move = _animation(450, 400)
    before, after = max(0, place - 1), (place + 1) % len(names)
    return [
        {"label": texts("figure.back"), "method": "animate", "args": [[names[before]], move]},
        {"label": texts("figure.forward"), "method": "animate", "args": [[names[after]], move]},
    ]


def _slider(names: Sequence[str]) -> dict[str, Any]:
    jump = _animation(0, 0)
    return {
        "active": len(names) - 1,
        "x": 0, "len": 1, "y": 0, "yanchor": "top", "pad": {"t": 56, "l": 8, "r": 8, "b": 0},
        "currentvalue": {"visible": False},
        "font": {"size": 8, "color": CLEAR},
        "bgcolor": "#9AA7B4", "bordercolor": CLEAR, "activebgcolor": BLUE,
        "ticklen": 5, "minorticklen": 5, "tickcolor": "#9AA7B4",
        "steps": [{"label": " ", "method": "animate", "args": [[name], jump]} for name in names],
    }  # fmt: skip


def _nested(values: dict[str, Any]) -> dict[str, Any]:
    """{"marker.size": 1} as {"marker": {"size": 1}}."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        outer, _, inner = key.partition(".")
        if inner:
            nested.setdefault(outer, {})[inner] = value
        else:
            nested[outer] = value
    return nested


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return one | {
        key: one[key] | value if isinstance(value, dict) and isinstance(one.get(key), dict) else value
        for key, value in other.items()
    }
