"""The moving figure: a box per process with the variables that it holds, and worker 0's write on its way to the others.

Parameter servers are above, workers below. A bar is as long as its variable has bytes; a dot is a value on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import plotly.graph_objects as go

from lessons import player
from lessons.language import Texts, number
from lessons.placement.reading import Copy, Process, Reading
from lessons.placement.story import name, size
from lessons.player import (
    BLUE,
    DARK,
    DRIFTED,
    EDGE,
    EQUAL,
    FAILED,
    INK,
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

PHASES: Final = ("graph", "placed", "write", "read")
_TITLE, _ROW, _FOOT, _BETWEEN, _BANNER = 30, 34, 30, 26, 44
_PAD = 0.012


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """The figure of one run: at first its last state; play shows it from the graph that has no places yet."""
    return _Drawing(reading, texts).figure()


def alternative(reading: Reading, texts: Texts) -> str:
    """What the figure shows, in words, for those who cannot see it."""
    sentences = []
    for process in reading.processes:
        held = [f"{copy.variable} ({size(copy.bytes)})" for copy in reading.copies if copy.process == process]
        what = texts.items(held) or texts("alternative.nothing")
        sentences.append(texts("alternative.holds", process=name(process, texts), what=what))
    sentences.append(texts("alternative.outcome", outcome=outcome(reading, texts)))
    return texts.sentences(sentences)


def outcome(reading: Reading, texts: Texts) -> str:
    """What came of it, in a few words."""
    kind = reading.failure.kind if reading.failure else ""
    return texts(f"figure.outcome.{reading.outcome}", kind=kind)


class _Drawing:
    """Builds one figure. Holds what several of its parts need to know."""

    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts
        self.most = max((copy.bytes for copy in reading.copies), default=1)
        rows = {job: max((len(self.held(each)) for each in self.of(job)), default=0) for job in ("ps", "worker")}
        self.tops = {"ps": 0.0}
        self.bottoms = {"ps": _TITLE + _ROW * rows["ps"] + 8.0}
        self.tops["worker"] = self.bottoms["ps"] + _BETWEEN
        self.bottoms["worker"] = self.tops["worker"] + _TITLE + _ROW * rows["worker"] + _FOOT
        self.height = self.bottoms["worker"] + _BANNER

    def of(self, job: str) -> list[Process]:
        return [process for process in self.reading.processes if process[0] == job]

    def held(self, process: Process) -> list[Copy]:
        return [copy for copy in self.reading.copies if copy.process == process]

    def figure(self) -> go.Figure:
        phases = PHASES if self.reading.read else PHASES[:3] if self.reading.written else PHASES[:1]
        states = [self._state(phase) for phase in phases]
        shapes, annotations = list(self._shapes()), list(self._annotations())
        return player.figure(
            phases, states, self._fixed(), self.height, self.texts, shapes=shapes, annotations=annotations
        )

    # ---- places ----

    def span(self, process: Process) -> tuple[float, float]:
        """From where to where a process's box goes."""
        count = len(self.of(process[0]))
        return process[1] / count + _PAD / 2, (process[1] + 1) / count - _PAD / 2

    def row(self, copy: Copy) -> float:
        """Where a variable's row begins, from the top."""
        return self.tops[copy.process[0]] + _TITLE + _ROW * self.held(copy.process).index(copy)

    def hand(self, worker: int) -> tuple[float, float]:
        """Where a worker has what it writes or has read."""
        left, _ = self.span(("worker", worker))
        return left + _PAD + 0.008, self.bottoms["worker"] - _FOOT / 2

    def end(self, copy: Copy) -> tuple[float, float]:
        """Where a value comes to a variable."""
        _, right = self.span(copy.process)
        return right - _PAD - 0.012, self.row(copy) + 10

    # ---- what moves ----

    def _fixed(self) -> list[dict[str, Any]]:
        return [
            filled(BLUE),
            filled(PURPLE),
            filled(EQUAL),
            filled(DRIFTED),
            filled(FAILED),
            {"mode": "markers", "marker": {"line": {"width": 0}}},
            {"mode": "text"},
            {"mode": "text"},
        ]

    def _state(self, phase: str) -> State:
        return [
            self._bars(phase, "ps"),
            self._bars(phase, "worker"),
            *(self._banner(phase, kind) for kind in ("shared", "differs", "raised")),
            self._dots(phase),
            self._values(phase),
            self._words(phase),
        ]

    def _bars(self, phase: str, job: str) -> dict[str, Any]:
        boxes = []
        for copy in self.reading.copies:
            if copy.process[0] == job:
                left, right = self.span(copy.process)
                whole = right - left - 2 * _PAD
                long = 0 if phase == "graph" else max(0.02 * whole, whole * copy.bytes / self.most)
                top = self.row(copy) + 20
                boxes.append((left + _PAD, top, left + _PAD + long, top + 8))
        return rectangles(boxes or [(0, 0, 0, 0)])

    def _value(self, copy: Copy, phase: str) -> float:
        writes = self.reading.uses.get(0, {}).get(copy.variable) == copy.process
        return self.reading.written.get(copy.variable, 0) if writes and phase in ("write", "read") else 0

    def _dots(self, phase: str) -> dict[str, Any]:
        points = Points()
        for copy in self.reading.copies:
            if self.reading.uses.get(0, {}).get(copy.variable) == copy.process:
                at = self.end(copy) if phase in ("write", "read") else self.hand(0)
                shown = phase == "write"
                points.add(*at, "", opacity=float(shown), color=EQUAL, size=11)
        for worker in self.reading.read:
            for copy in self.reading.copies:
                if self.reading.uses[worker].get(copy.variable) == copy.process:
                    at = self.hand(worker) if phase == "read" else self.end(copy)
                    arrived = self._value(copy, "read") == self.reading.written.get(copy.variable)
                    color = EQUAL if arrived else DRIFTED
                    points.add(*at, "", opacity=0.0 if phase != "read" else 0.85, color=color, size=11)
        if not points.columns:
            points.add(0, 0, "", opacity=0.0, color=PALE, size=1)
        return points.trace()

    def _values(self, phase: str) -> dict[str, Any]:
        points = Points()
        for copy in self.reading.copies:
            value = self._value(copy, phase)
            x, y = self.end(copy)
            text = "" if phase == "graph" else f"<b>{number(value)}</b>"
            points.add(x, y, text, ink=INK if value else UNUSED, pixels=14, anchor="middle center")
        if not points.columns:
            points.add(0, 0, "", ink=INK, pixels=12, anchor="middle center")
        return points.trace()

    @property
    def _kind(self) -> str:
        """Which colour the outcome has; "" for none."""
        if self.reading.outcome in ("shared", "raised"):
            return self.reading.outcome
        return "differs" if self.reading.outcome in ("own", "mixed") else ""

    def _ends(self, phase: str) -> bool:
        """Whether this frame tells the outcome: it is the last."""
        return phase == "read" or not self.reading.written or (phase == "write" and not self.reading.read)

    def _banner(self, phase: str, kind: str) -> dict[str, Any]:
        """The ground of the outcome, there in the last frame."""
        top, bottom = self.height - _BANNER + 6, self.height - 4
        here = self._ends(phase) and self._kind == kind
        return rectangles([(0.5 - _PAD / 2, top, 0.5 - _PAD / 2, bottom) if not here else (0.006, top, 0.994, bottom)])

    def _words(self, phase: str) -> dict[str, Any]:
        reading, texts = self.reading, self.texts
        points = Points()
        for _, worker in self.of("worker"):
            x, y = self.hand(worker)
            text = ""
            if reading.outcome == "raised" and reading.failure is not None:
                text = reading.failure.kind
            elif worker == 0 and reading.written and phase in ("write", "read"):
                text = texts("figure.writes", value=number(max(reading.written.values())))
            elif worker in reading.read and phase == "read":
                values = sorted(set(reading.read[worker].values()))
                text = texts("figure.reads", value=texts.items(map(number, values)))
            points.add(x, y, f"{'&nbsp;' * 4}<b>{text}</b>" if text else "", ink=INK, pixels=14, anchor="middle right")
        ends = self._ends(phase)
        text = outcome(reading, texts) if ends else texts(f"figure.phase.{phase}")
        ink = {"shared": LIGHT, "raised": LIGHT, "differs": DARK}.get(self._kind, INK) if ends else INK
        points.add(0.5, self.height - _BANNER / 2 + 1, f"<b>{text}</b>", ink=ink, pixels=15, anchor="middle center")
        return points.trace()

    # ---- what stays ----

    def _shapes(self) -> Iterator[dict[str, Any]]:
        for process in self.reading.processes:
            left, right = self.span(process)
            yield box(left, self.tops[process[0]], right, self.bottoms[process[0]], PALE, EDGE)

    def _annotations(self) -> Iterator[dict[str, Any]]:
        narrow = max(len(self.of("ps")), len(self.of("worker"))) > 2
        for process in self.reading.processes:
            left, right = self.span(process)
            top = self.tops[process[0]] + 15
            yield note(left + _PAD, top, f"<b>{name(process, self.texts)}</b>", "left", 12 if narrow else 15)
            held = self.reading.bytes_on(process)
            if held and not (narrow and process[0] == "worker"):
                yield note(right - _PAD, top, size(held), "right", 10 if narrow else 13)
            for copy in self.held(process):
                label = copy.variable.replace("/part_", "/")
                text = label if narrow else f"{label}  {size(copy.bytes)}"
                yield note(left + _PAD, self.row(copy) + 10, text, "left", 11 if narrow else 13)
