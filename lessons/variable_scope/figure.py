"""The moving figure: the operations as nested scopes with their variables, which of these are one object, and what the
process holds.

One row per operation, indented as in the program. A variable has a marker; names of one object share shape and colour,
and a line joins them. At the right stands the one process, with a marker and a value for each variable that there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import plotly.graph_objects as go

from lessons import player
from lessons.language import Texts
from lessons.player import (
    BLUE,
    CLEAR,
    DRIFTED,
    EDGE,
    EQUAL,
    FAILED,
    HIDDEN,
    LIGHT,
    PALE,
    PURPLE,
    UNUSED,
    Points,
    State,
    box,
    filled,
    note,
    rectangles,
)
from lessons.variable_scope.reading import Item, Reading, short
from lessons.variable_scope.story import value_in_words

_ROW, _TOP, _BANNER, _CAPTION, _GAP = 44, 6, 34, 30, 8
_SCOPE_END, _LANE, _LANES, _CARD = 0.6, 0.63, 0.025, 0.74  # where boxes end, the first lane, their distance, the card
_INDENT: Final = 0.022
_HEAD, _ENTRY = 44, 40  # of the card: its heading, and each variable
_LONGEST: Final = 26  # letters of a name, which is what a telephone has room for
COLORS: Final = (BLUE, DRIFTED, EQUAL, PURPLE)
SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "star", "hexagon", "pentagon", "triangle-down")


@dataclass(frozen=True)
class _Frame:
    """One frame: how many operations are done, and how many times values were read."""

    done: int
    read: int = 0
    failed: bool = False

    @property
    def name(self) -> str:
        return f"{self.done}.{self.read}{'x' if self.failed else ''}"


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """The figure of one run: at first its last state, complete; play shows it from the first operation."""
    return _Drawing(reading, texts).figure()


def alternative(reading: Reading, texts: Texts) -> str:
    """What the figure shows, in words, for those who cannot see it."""
    sentences = []
    for item in reading.items:
        if item.event is None:
            break
        called = _called(item)
        if item.statement.operation.is_block:
            sentences.append(texts("alternative.scope", call=called))
        elif item.shared:
            sentences.append(
                texts("alternative.same", variable=item.statement.variable, name=item.name, root=item.root)
            )
        else:
            key = "made" if item.name else "nameless"
            sentences.append(texts(f"alternative.{key}", variable=item.statement.variable, name=item.name))
    for step, values in enumerate(reading.values):
        held = texts.items(f"{name} {value_in_words(value)}" for name, value in values.items())
        sentences.append(texts(f"alternative.{'after' if step else 'before'}", values=held))
    failure = reading.failure
    if failure and failure.raised:
        sentences.append(texts("alternative.failure", kind=failure.kind, line=failure.at_line))
    elif failure:
        sentences.append(texts(f"story.stopped.{failure.kind}"))
    return texts.sentences(sentences)


def _called(item: Item) -> str:
    """The call in a few letters."""
    operation = item.statement.operation
    if operation.kind == "scope":
        name = f"{operation.name}_scope" if operation.captured else f'"{operation.name}"'
        reuse = operation.options.get("reuse")
        return f"variable_scope({name.replace('_scope_scope', '_scope')}{f', reuse={reuse}' if reuse else ''})"
    if operation.kind == "name_scope":
        return f'name_scope("{operation.name}")'
    call = {"get": "get_variable", "variable": "Variable", "op": "constant"}[operation.kind]
    return f'{item.statement.variable} = {call}("{operation.name}")'


def _cut(name: str, longest: int = _LONGEST) -> str:
    return name if len(name) <= longest else f"…{name[-longest + 1 :]}"


class _Drawing:
    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts
        self.roots = list(reading.objects)
        self.rows_end = _TOP + _ROW * len(reading.items)
        self.card_end = max(self.rows_end, _TOP + _HEAD + _ENTRY * len(self.roots))
        self.banner = self.card_end + _GAP
        self.height = self.banner + _BANNER + _CAPTION

    def figure(self) -> go.Figure:
        frames = list(self._frames())
        names = [frame.name for frame in frames]
        states = [self._state(frame) for frame in frames]
        annotations = [
            note(_CARD + 0.015, _TOP + 13, f"<b>{self.texts('figure.process')}</b>", "left", 13),
            note(_CARD + 0.015, _TOP + 31, self._devices, "left", 12),
        ]
        shapes = list(self._shapes())
        return player.figure(
            names, states, self._fixed(), self.height, self.texts, shapes=shapes, annotations=annotations
        )

    @property
    def _devices(self) -> str:
        return short(self.reading.devices[0]) if self.reading.devices else "–"

    def _frames(self) -> Iterator[_Frame]:
        failure = self.reading.failure
        reached = len(self.reading.items) if failure is None or failure.place is None else failure.place
        for done in range(1, reached + 1):
            yield _Frame(done)
        for read in range(1, len(self.reading.values) + 1):
            yield _Frame(reached, read)
        if failure:
            yield _Frame(reached, len(self.reading.values), failed=True)

    # ---- where things are ----

    def _top(self, place: int) -> float:
        return _TOP + _ROW * place

    def _color(self, root: str) -> str:
        return COLORS[self.roots.index(root) % len(COLORS)]

    def _symbol(self, root: str) -> str:
        return SYMBOLS[self.roots.index(root) % len(SYMBOLS)]

    @cached_property
    def _lanes(self) -> dict[str, float]:
        """Where each object's marker stands: those that have several names on a line of their own."""
        shared = [root for root, items in self.reading.objects.items() if len(items) > 1]
        return {root: _LANE + _LANES * (shared.index(root) + 1 if root in shared else 0) for root in self.roots}

    # ---- what moves ----

    def _fixed(self) -> list[dict[str, Any]]:
        shared = [root for root, items in self.reading.objects.items() if len(items) > 1]
        return [
            filled(PALE),
            filled(FAILED),
            filled(EQUAL),
            *(
                {"mode": "lines", "line": {"width": 4, "color": self._color(root), "simplify": False}}
                for root in shared
            ),
            {"mode": "markers+text", "textposition": "middle center"},
            {"mode": "text"},
            {"mode": "text"},
        ]

    def _state(self, frame: _Frame) -> State:
        joins = [self._join(root, frame) for root, items in self.reading.objects.items() if len(items) > 1]
        done = not frame.failed and self._is_last(frame) and not self.reading.failure
        place = frame.done if frame.failed and frame.done < len(self.reading.items) else None
        strikes = [(0.0, float(self.banner), float(frame.failed), float(self.banner + _BANNER))]
        top = self._top(place) if place is not None else 0.0
        strikes.append((0.0, top + 4, 0.012 if place is not None else 0.0, top + _ROW - 4))
        at = self._top(frame.done - 1) if frame.done else _TOP
        here = frame.read == 0 and not frame.failed
        return [
            rectangles([(0.0, at, _SCOPE_END if here else 0.0, at + _ROW)]),
            rectangles(strikes),
            rectangles([(0.0, self.banner, 1.0 if done else 0.0, self.banner + _BANNER)]),
            *joins,
            self._markers(frame),
            self._plain(frame),
            self._ink(frame),
        ]

    def _is_last(self, frame: _Frame) -> bool:
        return frame.done == len(self.reading.items) and frame.read == len(self.reading.values)

    def _join(self, root: str, frame: _Frame) -> dict[str, Any]:
        """The line through the names of one object, as far as they are there."""
        rows = [item.statement.number - 1 for item in self.reading.objects[root]]
        shown = [row for row in rows if row < frame.done] or rows[:1]
        x = self._lanes[root]
        return {"x": [x, x], "y": [self._top(shown[0]) + _ROW / 2, self._top(shown[-1]) + _ROW / 2]}

    def _markers(self, frame: _Frame) -> dict[str, Any]:
        points = Points()
        points.add(0.5, 0, HIDDEN, opacity=0, color=UNUSED, size=1, symbol="circle")
        for place, item in enumerate(self.reading.items):
            shown = int(place < frame.done)
            if item.statement.operation.makes_variable and item.event:
                points.add(
                    self._lanes[item.root],
                    self._top(place) + _ROW / 2,
                    HIDDEN,
                    opacity=shown,
                    color=self._color(item.root),
                    size=17,
                    symbol=self._symbol(item.root),
                )
            elif item.statement.operation.kind == "op" and item.event:
                y = self._top(place) + _ROW / 2
                points.add(_LANE, y, HIDDEN, opacity=shown, color=UNUSED, size=11, symbol="circle-open")
        for entry, root in enumerate(self.roots):
            first = self.reading.objects[root][0].statement.number
            y = _TOP + _HEAD + _ENTRY * entry + _ENTRY / 2
            points.add(
                _CARD + 0.028,
                y,
                HIDDEN,
                opacity=int(first <= frame.done),
                color=self._color(root),
                size=14,
                symbol=self._symbol(root),
            )
        return points.trace()

    def _plain(self, frame: _Frame) -> dict[str, Any]:
        """Text that takes its colour from the page."""
        points = Points()
        for place, item in enumerate(self.reading.items):
            x = 0.02 + _INDENT * item.statement.depth
            top = self._top(place)
            block = item.statement.operation.is_block
            call = _called(item)
            points.add(x, top + 14, f"<b>{call}</b>" if block else call, anchor="middle right", pixels=12)
            summary = self._summary(item) if place < frame.done else HIDDEN
            if frame.failed and place == frame.done and self.reading.failure:
                summary = f"<b style='color:{FAILED}'>✕ {self.reading.failure.kind}</b>"
            points.add(x, top + 31, summary, anchor="middle right", pixels=13 if not block else 12)
        for entry, root in enumerate(self.roots):
            items = [item for item in self.reading.objects[root] if item.statement.number <= frame.done]
            y = _TOP + _HEAD + _ENTRY * entry
            called = " = ".join(item.statement.variable for item in items) or HIDDEN
            points.add(_CARD + 0.062, y + 11, called, anchor="middle right", pixels=12)
            values = [read[root] for read in self.reading.values[: frame.read] if root in read]
            held = value_in_words(values[-1]) if values else ("–" if items else HIDDEN)
            points.add(_CARD + 0.062, y + 28, f"<b>{held}</b>", anchor="middle right", pixels=15)
        points.add(0.0, self.height - _CAPTION / 2 + 2, self._caption(frame), anchor="middle right", pixels=15)
        return points.trace()

    def _summary(self, item: Item) -> str:
        """What an operation got."""
        event: Mapping[str, Any] = item.event or {}
        if item.statement.operation.is_block:
            prefix = f"{event['variable_scope']}/" if event.get("variable_scope") else ""
            names = f"{event['name_scope']}/" if event.get("name_scope") else ""
            if "name_scope" not in event:  # executed eagerly, there is no graph to ask
                return self.texts("figure.prefix", prefix=_cut(prefix or "–"))
            if prefix == names:
                return self.texts("figure.both", prefix=_cut(prefix or "–"))
            return self.texts("figure.prefixes", prefix=_cut(prefix or "–", 9), names=_cut(names or "–", 12))
        return f"<b>{_cut(item.name or '–')}</b>"

    def _ink(self, frame: _Frame) -> dict[str, Any]:
        """The banner."""
        points, failure = Points(), self.reading.failure
        text, ink = HIDDEN, LIGHT
        if failure and frame.failed:
            kind = failure.kind if failure.raised else self.texts(f"ended.{failure.kind}")
            text = f"✕ <b>{kind}</b>"
            if failure.line is not None:
                text += " · " + self.texts("figure.line", line=failure.line)
        elif not failure and self._is_last(frame):
            text = f"<b>{self.outcome}</b>"
        points.add(0.5, self.banner + _BANNER / 2, text, anchor="middle center", ink=ink, pixels=15)
        return points.trace()

    @property
    def outcome(self) -> str:
        names = len(self.reading.variables)
        objects = self.reading.count
        return self.texts("figure.outcome", names=names, objects=objects)

    def _caption(self, frame: _Frame) -> str:
        if frame.failed:
            return self.texts("figure.phase.refused")
        if frame.read == 2:
            return self.texts("figure.phase.written", variable=self.reading.written or "")
        if frame.read == 1:
            return self.texts("figure.phase.initialised")
        kind = self.reading.items[frame.done - 1]
        key = "found" if kind.shared else kind.statement.operation.kind
        return self.texts(f"figure.phase.{key}")

    # ---- what stays ----

    def _shapes(self) -> Iterator[dict[str, Any]]:
        items = self.reading.items
        for place, item in enumerate(items):
            if not item.statement.operation.is_block:
                continue
            end = place + 1
            while end < len(items) and items[end].statement.depth > item.statement.depth:
                end += 1
            depth = item.statement.depth
            inset = _INDENT * depth
            named = item.statement.operation.kind == "scope"
            fill, edge = ("rgba(0,114,178,0.10)", BLUE) if named else (PALE, UNUSED)
            yield box(
                0.008 + inset,
                self._top(place) + 2,
                _SCOPE_END - 0.006 * depth,
                self._top(end) - 2 - 2 * depth,
                fill,
                edge,
                dash="solid" if named else "dot",
            )
        yield box(_CARD, _TOP + 2, 1.0, self.card_end, PALE, EDGE)
        yield box(0.0, self.banner, 1.0, self.banner + _BANNER, PALE, CLEAR)
