"""The moving figure: the scope with what was put into it, below it a time line of births, and what training did.

The program runs from left to right: model, dummy call, optimizer, first step. What was put into strategy.scope() is
seen in its box, the rest below it, and under each are the variables that came into being there, coloured by the
strategy that owns them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import plotly.graph_objects as go

from lessons import player
from lessons.language import Texts, number, numbers_apart
from lessons.player import (
    BLUE,
    CLEAR,
    DARK,
    DIAL,
    DRIFTED,
    EDGE,
    EQUAL,
    FAILED,
    HIDDEN,
    LIGHT,
    NARROW,
    PALE,
    PURPLE,
    UNUSED,
    Points,
    State,
    box,
    filled,
    line,
    note,
    rectangles,
)
from lessons.scope_placement.reading import Birth, Moment, Owner, Part, Reading, Step

MIRRORED: Final = BLUE
PLAIN: Final = PURPLE

# Heights in pixels, from the top.
_CHIP = 36
_INSIDE_AT, _INSIDE_END = 43, 64  # the middle of chips in the box; where the box ends
_OUTSIDE_AT, _OUTSIDE_END = 102, 121
_HEADING_AT, _LINE_AT, _ROWS = 134, 150, 161
_ROW, _SMALL_ROW = 44, 24  # what most variables get; what learning_rate gets
_BAR = 6
_TITLE, _CARD, _GAP, _BANNER, _CAPTION = 26, 74, 6, 34, 30
_PAD = 0.016

_SLOTS: Final = {"sgd": 0, "momentum": 1, "adam": 2, "adagrad": 1, "rmsprop": 1}


@dataclass(frozen=True)
class _Column:
    """One moment of the program, as a column: from left to right in parts of the width."""

    part: Part
    moment: Moment
    left: float
    right: float

    @property
    def middle(self) -> float:
        return (self.left + self.right) / 2


@dataclass(frozen=True)
class _Row:
    """One variable, as a row; `birth` is None for one that never came into being."""

    name: str
    birth: Birth | None
    top: float
    small: bool

    @property
    def label_at(self) -> float:
        return self.top + (12 if self.small else 10)

    @property
    def bar_at(self) -> float:
        return self.top + (12 if self.small else 31)


@dataclass(frozen=True)
class _Frame:
    """One frame: the column that the program has come to, or after all of them the place of a step."""

    column: int  # -1: before the first; as many as there are columns: in training
    index: int = -1
    failed: bool = False

    @property
    def name(self) -> str:
        return f"{self.column}.{self.index}{'x' if self.failed else ''}"


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """The figure of one run: at first its last state, complete; play shows it from the first line of the program.

    Its height in pixels depends on how many variables there are and whether it trained; its width is the page's.
    """
    return _Drawing(reading, texts).figure()


def alternative(reading: Reading, texts: Texts) -> str:
    """What the figure shows, in words, for those who cannot see it."""
    comma = texts("language.between_items")
    sentences = [
        texts(
            "alternative.place",
            part=texts(f"figure.part.{part}"),
            place=texts(f"alternative.{'inside' if reading.place(part) == 'in' else 'outside'}"),
        )
        for part in reading.parts
    ]
    sentences += [
        texts(
            "alternative.birth",
            name=texts("figure.slot", name=birth.name) if birth.role == "slot" else birth.name,
            moment=texts(f"alternative.moment.{birth.part if birth.moment == 'construction' else birth.moment}"),
            line=birth.line,
            kind=birth.kind,
            owner=texts(f"figure.{'mirrored' if birth.owner == 'MirroredStrategy' else 'plain'}"),
            devices=comma.join(birth.devices),
        )
        for birth in reading.births
    ]
    last, failure = reading.last, reading.failure
    if last:
        steps = texts("count.steps", count=last.number)
        copies = comma.join(numbers_apart(last.after))
        sentences.append(texts("alternative.copies", steps=steps, copies=copies, count=len(last.after)))
    if failure is None:
        sentences.append(texts("alternative.outcome", outcome=_outcome(reading, texts).lstrip("✓≠ ")))
    elif failure.raised:
        key = "failure" if failure.step else "failure_building"
        sentences.append(texts(f"alternative.{key}", kind=failure.kind, step=failure.step, line=failure.line or "?"))
    else:
        sentences.append(texts("alternative.stopped", kind=texts(f"ended.{failure.kind}")))
    return texts.sentences(sentences)


def _outcome(reading: Reading, texts: Texts) -> str:
    count = max(reading.last.iterations, default=0) if reading.last else 0
    steps = reading.last.number if reading.last else 0
    return texts(f"figure.outcome.{reading.outcome}", count=number(count), steps=steps)


def _color(owner: Owner) -> str:
    return MIRRORED if owner == "MirroredStrategy" else PLAIN


class _Drawing:
    """Builds one figure. Holds what several of its parts need to know."""

    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts
        self.columns = list(_columns(reading))
        self.rows = list(self._rows())
        last_row = self.rows[-1]
        self.rows_end = last_row.top + (_SMALL_ROW if last_row.small else _ROW)
        self.trained = bool(reading.steps)
        self.many = reading.replicas > 4
        self.cards = self.rows_end + 4 + _TITLE
        cards_end = self.cards + (_CARD * (2 if self.many else 1) + (_GAP if self.many else 0))
        self.banner = (cards_end if self.trained else self.rows_end) + 8
        self.height = self.banner + _BANNER + _CAPTION

    def figure(self) -> go.Figure:
        frames = list(self._frames())
        names = [frame.name for frame in frames]
        states = [self._state(frame) for frame in frames]
        shapes, annotations = list(self._shapes()), list(self._annotations())
        return player.figure(
            names, states, self._fixed(), self.height, self.texts, shapes=shapes, annotations=annotations
        )

    # ---- what there is ----

    def _rows(self) -> Iterator[_Row]:
        """The weight, the slots, iterations, and small the rest; also those that were to come and didn't."""
        reading, top = self.reading, float(_ROWS)
        slots: list[Birth | None] = list(reading.slots)
        missing = _SLOTS.get(reading.settings["optimizer"], 0) - len(slots)
        slots += [None] * missing if reading.failure else []
        main = [("weight", reading.weight)]
        main += [(self.texts("figure.slot", name=slot.name if slot else "").strip(), slot) for slot in slots]
        main.append(("iterations", reading.counter))
        for name, birth in main:
            yield _Row(name, birth, top, small=False)
            top += _ROW
        for birth in reading.births:
            if birth.role == "other":
                yield _Row(birth.name, birth, top, small=True)
                top += _SMALL_ROW

    def _column_of(self, part: Part, moment: Moment) -> int:
        """The place of that moment's column; after the last for a step as a whole."""
        for place, column in enumerate(self.columns):
            if (column.part, column.moment) == (part, moment):
                return place
        if moment == "compile":  # right after the optimizer was made, or built
            return max(place for place, column in enumerate(self.columns) if column.part == "optimizer")
        return len(self.columns)

    @cached_property
    def _struck(self) -> int | None:
        """The place of the column at which the run ended early; after the last where that was in training."""
        failure = self.reading.failure
        if failure is None:
            return None
        place = self._column_of(failure.part, failure.moment)
        if failure.moment == "run" and failure.step <= 1 and not self._applied:
            return len(self.columns) - 1
        return place

    @property
    def _applied(self) -> bool:
        """True where the first step came to its end in Python: what is reported of a failure has that one's line."""
        failed_at = self.reading.failure and self.reading.failure.line
        return any(
            birth.moment in ("first_apply", "first_fit") and birth.line != failed_at for birth in self.reading.births
        )

    def _frames(self) -> Iterator[_Frame]:
        struck, places = self._struck, len(self.columns)
        for place in range(places):
            if place == struck:
                yield _Frame(place, failed=True)
                return
            yield _Frame(place)
        for index in range(len(self.reading.steps)):
            yield _Frame(places, index)
        if struck is not None:
            yield _Frame(places, len(self.reading.steps) - 1, failed=True)

    def _born(self, birth: Birth) -> int:
        return self._column_of(birth.part, birth.moment)

    def _now(self, frame: _Frame) -> float:
        """How far the program has come, in parts of the width."""
        if frame.column < len(self.columns):
            column = self.columns[frame.column]
            if not frame.failed:
                return column.right
            # The error came after what was born there.
            born = any(self._born(birth) == frame.column for birth in self.reading.births)
            return column.left + (column.right - column.left) * (0.85 if born else 0.5)
        return 0.985 if frame.failed else 1.0

    def _step(self, frame: _Frame) -> Step | None:
        return self.reading.steps[frame.index] if frame.index >= 0 else None

    # ---- what moves ----

    def _fixed(self) -> list[dict[str, Any]]:
        """What stays of each trace, in drawing order."""
        text = {"mode": "markers+text", "textposition": "middle center"}
        return [
            filled(PALE),  # where the program is
            filled(MIRRORED),
            filled(PLAIN),
            filled(EQUAL),
            filled(DRIFTED),
            filled(FAILED),
            {**text, "textfont": {"size": 13, "color": LIGHT}},
            {"mode": "text"},
            {"mode": "text"},
        ]

    def _state(self, frame: _Frame) -> State:
        return [
            self._cursor(frame),
            self._owned(frame, "MirroredStrategy"),
            self._owned(frame, "default"),
            *self._copies(frame),
            self._strike(frame),
            self._markers(frame),
            self._ink(frame),
            self._plain(frame),
        ]

    def _cursor(self, frame: _Frame) -> dict[str, Any]:
        """The column that the program has come to."""
        if frame.column >= len(self.columns):
            return rectangles([(1, _HEADING_AT - 10, 1, self.rows_end)])
        column = self.columns[frame.column]
        return rectangles([(column.left, _HEADING_AT - 10, column.right, self.rows_end)])

    def _owned(self, frame: _Frame, owner: Owner) -> dict[str, Any]:
        """The chips that stand where that strategy is active, and the lives of the variables that it owns."""
        place = "in" if owner == "MirroredStrategy" else "out"
        at = _INSIDE_AT if place == "in" else _OUTSIDE_AT
        boxes = []
        for part in self.reading.parts:
            if self.reading.place(part) == place:
                left, right = self._span(part)
                reached = self._reached(frame, part)
                boxes.append((left, at - _CHIP / 2, right if reached else left, at + _CHIP / 2))
        for row in self.rows:
            if row.birth is not None and row.birth.owner == owner:
                born = self._born(row.birth)
                begin = self.columns[min(born, len(self.columns) - 1)].middle
                end = max(begin, self._now(frame)) if frame.column >= born else begin
                half = _BAR / 2 if not row.small else _BAR / 4
                boxes.append((begin, row.bar_at - half, end, row.bar_at + half))
        return rectangles(boxes or [(0, 0, 0, 0)])

    def _span(self, part: Part) -> tuple[float, float]:
        """From where to where a chip goes."""
        columns = [column for column in self.columns if column.part == part]
        return columns[0].left + 0.008, columns[-1].right - 0.008

    def _reached(self, frame: _Frame, part: Part) -> bool:
        first = next(place for place, column in enumerate(self.columns) if column.part == part)
        return frame.column >= first

    def _strike(self, frame: _Frame) -> dict[str, Any]:
        """The error: through every life at its moment, and named in a banner."""
        failed = frame.failed
        x = self._now(frame) if failed else 0.0
        half = 0.0035 if failed else 0.0
        # Only the lives are struck through, not the words over them.
        strikes = [
            (x - half, row.bar_at - (5 if row.small else 10), x + half, row.bar_at + (5 if row.small else 10))
            for row in self.rows
        ]
        return rectangles([*strikes, (0, self.banner, 1.0 if failed else 0.0, self.banner + _BANNER)])

    def _copies(self, frame: _Frame) -> tuple[dict[str, Any], dict[str, Any]]:
        """The cards of copies that are equal, and over them those of drifted ones; and the outcome's banner."""
        step = self._step(frame)
        equal, apart = [], []
        if self.trained:
            for replica, (left, top, right, bottom) in enumerate(self._card_boxes):
                held = step is not None and replica < len(step.after)
                off = step is not None and held and step.drifted[replica]
                equal.append((left, top, right if held else left, bottom))
                apart.append((left, top, right if off else left, bottom))
        done = not self.reading.failure and frame.index == len(self.reading.steps) - 1 and self.trained
        good = self.reading.outcome == "trained"
        top, bottom = self.banner, self.banner + _BANNER
        equal.append((0, top, 1 if done and good else 0, bottom))
        apart.append((0, top, 1 if done and not good else 0, bottom))
        return rectangles(equal), rectangles(apart)

    @cached_property
    def _card_boxes(self) -> list[tuple[float, float, float, float]]:
        """Where each replica's card stands: left, top, right, bottom."""
        across = min(self.reading.replicas, 4)
        width = 0.8 / across
        boxes = []
        for replica in range(self.reading.replicas):
            row, place = divmod(replica, 4)
            top = self.cards + row * (_CARD + _GAP)
            boxes.append((place * width, top, (place + 1) * width - 0.016, top + _CARD))
        return boxes

    def _markers(self, frame: _Frame) -> dict[str, Any]:
        """Births: a round marker for a mirrored variable, a square one for a plain one; and the mark of an error."""
        points = Points()
        for row in self.rows:
            birth = row.birth
            if birth is None:
                continue
            born = self._born(birth)
            shown = frame.column >= born
            mirrored = birth.owner == "MirroredStrategy"
            points.add(
                self.columns[min(born, len(self.columns) - 1)].middle,
                row.bar_at,
                f"<b>×{len(birth.devices)}</b>" if shown and not row.small else HIDDEN,
                opacity=int(shown),
                color=_color(birth.owner),
                size=(11 if row.small else 26) if shown else 4,
                symbol="circle" if mirrored else "square",
            )
        if self.reading.failure:
            x = self._now(frame) if frame.failed else 0.5
            text = "<b>✕</b>" if frame.failed else HIDDEN
            points.add(
                min(x, 0.97),
                self._strike_row.bar_at,
                text,
                opacity=int(frame.failed),
                color=FAILED,
                size=26,
                symbol="circle",
            )
        return points.trace() if points.columns else {"x": [0.5], "y": [0], "text": [HIDDEN], "marker.opacity": [0]}

    @cached_property
    def _strike_row(self) -> _Row:
        """The row of the variable that was about to come, or else of the weight."""
        missing = [row for row in self.rows if row.birth is None]
        return missing[0] if missing else self.rows[0]

    def _ink(self, frame: _Frame) -> dict[str, Any]:
        """Text on coloured ground: chips, what the copies hold, iterations, the banner."""
        points = Points()
        for part in self.reading.parts:
            left, right = self._span(part)
            at = _INSIDE_AT if self.reading.place(part) == "in" else _OUTSIDE_AT
            ink = LIGHT if self._reached(frame, part) else UNUSED
            points.add((left + right) / 2, at, self._chip_words(part), anchor="middle center", ink=ink, pixels=13)
        step = self._step(frame)
        if self.trained:
            self._card_words(points, step)
        text, ink = self._banner_words(frame)
        points.add(0.5, self.banner + _BANNER / 2, text, anchor="middle center", ink=ink, pixels=15)
        return points.trace()

    def _chip_words(self, part: Part) -> str:
        name = f"<b>{self.texts(f'figure.part.{part}')}</b>"
        if part == "dummy_call":
            return name.replace(" ", "<br>")
        if part != "step" or (self.reading.enters(part) and self.reading.place(part) == "out"):
            return name
        return f"{name}<br><span style='font-size:12px'>{self._how}</span>"

    @property
    def _how(self) -> str:
        return self.texts(f"figure.how.{'fit' if self.reading.fit else self.reading.settings['step']}")

    def _card_words(self, points: Points, step: Step | None) -> None:
        for replica, (left, top, *_) in enumerate(self._card_boxes):
            held = step is not None and replica < len(step.after)
            apart = step is not None and held and step.drifted[replica]
            ink = UNUSED if not held else DARK if apart else LIGHT
            at = left + _PAD
            device = f"CPU:{replica}" + (" ≠" if apart else "")
            points.add(at, top + 13, device, anchor="middle right", ink=ink, pixels=13)
            gradient = HIDDEN
            if step is not None and not self.reading.fit:
                known = replica < len(step.gradients)
                gradient = f"∇ {number(step.gradients[replica])}" if known else "∇ –"
            points.add(at, top + 32, gradient, anchor="middle right", ink=ink, pixels=13)
            text = "–"
            if step is not None and held:
                before = step.before[replica]
                past = f"{number(before)} → " if self._tells_past else ""
                text = f"{past}<b style='font-size:{self._value_size}px'>{numbers_apart(step.after)[replica]}</b>"
            points.add(at, top + (46 if self.reading.fit else 57), text, anchor="middle right", ink=ink, pixels=13)
        counts = step.iterations if step else ()
        text = "–" if not counts else number(counts[0]) if len(set(counts)) == 1 else "≠"
        wrong = step is not None and any(count != step.number for count in counts)
        middle = (self.cards + self._cards_end) / 2
        points.add(
            0.9, middle + 10, f"<b>{text}</b>", anchor="middle center", ink=DRIFTED if wrong else LIGHT, pixels=22
        )
        points.add(0.9, middle - 18, self.texts("figure.iterations"), anchor="middle center", ink=LIGHT, pixels=12)

    @property
    def _cards_end(self) -> float:
        return self._card_boxes[-1][3]

    @cached_property
    def _tells_past(self) -> bool:
        """True where a card on a telephone has room for what a copy held before the step too."""
        moves = [
            move for step in self.reading.steps for move in zip(step.before, numbers_apart(step.after), strict=True)
        ]
        longest = max((len(number(old) + new) for old, new in moves), default=0)
        return self.reading.replicas <= 2 and longest <= 14

    @cached_property
    def _value_size(self) -> int:
        """The size of bold digits with which the longest of these fits into a card on a telephone."""
        width = NARROW * (0.8 / min(self.reading.replicas, 4) - 0.016 - 1.5 * _PAD)
        size = 20
        for step in self.reading.steps:
            for old, new in zip(step.before, numbers_apart(step.after), strict=True):
                past = len(f"{number(old)} → ") * 7 if self._tells_past else 0
                size = min(size, int((width - past) / (0.58 * len(new))))
        return max(12, size)

    def _banner_words(self, frame: _Frame) -> tuple[str, str]:
        """The end of the run, in a few words, and their colour."""
        reading, texts = self.reading, self.texts
        failure = reading.failure
        if failure and frame.failed:
            kind = failure.kind if failure.raised else texts(f"ended.{failure.kind}")
            label = f"✕ <b>{kind}</b>"
            if failure.raised:
                label += " · " + (texts("figure.step", step=failure.step) if failure.step else texts("figure.building"))
            if failure.line is not None:
                label += " · " + texts("figure.line", line=failure.line)
            return label, LIGHT
        if not failure and (not reading.steps or frame.index == len(reading.steps) - 1):
            ink = LIGHT if reading.outcome == "trained" else DARK if self.trained else UNUSED
            return f"<b>{_outcome(reading, texts)}</b>", ink
        return HIDDEN, LIGHT

    def _plain(self, frame: _Frame) -> dict[str, Any]:
        """Text that takes its colour from the page: names of variables, what they are, the caption."""
        points = Points()
        for row in self.rows:
            birth = row.birth
            size = 12 if row.small else 14
            name = row.name if row.small else f"<b>{row.name}</b>"
            points.add(0.0, row.label_at, name, anchor="middle right", pixels=size)
            text = HIDDEN
            if birth is not None and frame.column >= self._born(birth):
                text = HIDDEN if row.small else f"{birth.kind} · {_devices(birth.devices)}"
            elif birth is None and frame.failed:
                text = self.texts("figure.not_made")
            points.add(1.0, row.label_at, text, anchor="middle left", pixels=12)
        points.add(0.0, self.height - _CAPTION / 2 + 2, self._caption(frame), anchor="middle right", pixels=15)
        return points.trace()

    def _caption(self, frame: _Frame) -> str:
        texts, step = self.texts, self._step(frame)
        failure = self.reading.failure
        if frame.failed and failure:
            text = texts(f"figure.phase.{'error' if failure.raised else 'stopped'}")
        elif step is not None:
            text = texts("figure.phase.step")
        else:
            column = self.columns[frame.column]
            phase = column.part if column.moment in ("construction", "dummy_call") else column.moment
            text = texts(f"figure.phase.{phase}")
        if step is None:
            return text
        where = texts("figure.step_of", step=step.number, steps=int(self.reading.settings["steps"]))
        if step.loss is not None and not frame.failed:
            text = texts("figure.loss", loss=number(step.loss))
        return f"<b>{where}</b> · {text}"

    # ---- what stays ----

    def _shapes(self) -> Iterator[dict[str, Any]]:
        yield box(0, 2, 1, _INSIDE_END, "rgba(0,114,178,0.12)", MIRRORED)
        for part in self.reading.parts:
            left, right = self._span(part)
            at = _INSIDE_AT if self.reading.place(part) == "in" else _OUTSIDE_AT
            yield box(left, at - _CHIP / 2, right, at + _CHIP / 2, PALE, EDGE)
            if self.reading.enters(part) and self.reading.place(part) == "out":
                # It stands outside, and what it runs is inside all the same.
                yield box(left, _INSIDE_AT - _CHIP / 2, right, _INSIDE_AT + _CHIP / 2, CLEAR, MIRRORED, dash="dot")
            if at == _INSIDE_AT:
                middle = (left + right) / 2
                yield line(middle, _OUTSIDE_AT - _CHIP / 2 + 2, middle, _HEADING_AT - 10, EDGE, 1)
        yield line(0, _HEADING_AT - 10, 1, _HEADING_AT - 10, EDGE, 1)
        for row in self.rows:
            yield line(0, row.bar_at, 1, row.bar_at, EDGE, 1, "dot")
        for column in self.columns[1:]:
            yield line(column.left, _HEADING_AT - 10, column.left, self.rows_end, "rgba(128,128,128,0.25)", 1, "dot")
        if self.trained:
            for left, top, right, bottom in self._card_boxes:
                yield box(left, top, right, bottom, PALE, EDGE)
            yield box(0.8, self.cards, 1.0, self._cards_end, DIAL, EDGE)
        yield box(0, self.banner, 1, self.banner + _BANNER, PALE, CLEAR)

    def _annotations(self) -> Iterator[dict[str, Any]]:
        texts = self.texts
        yield note(_PAD, 14, f"<b>{texts('figure.inside')}</b>", "left", 13)
        yield note(1 - _PAD, 14, f"<span style='color:{MIRRORED}'>●</span> {texts('figure.mirrored')}", "right", 13)
        yield note(_PAD, 73, f"<b>{texts('figure.outside')}</b>", "left", 13)
        yield note(1 - _PAD, 73, f"<span style='color:{PLAIN}'>■</span> {texts('figure.plain')}", "right", 13)
        for part in self.reading.parts:
            if self.reading.enters(part) and self.reading.place(part) == "out":
                left, right = self._span(part)
                how = "run" if part == "dummy_call" else self._how  # there is little room over a single column
                yield note((left + right) / 2, _INSIDE_AT, f"▲ {how}", "center", 12)
        for place, column in enumerate(self.columns):
            yield note(column.middle, _HEADING_AT, texts(f"figure.moment.{column.moment}"), "center", 13)
            lines = {birth.line for birth in self.reading.births if self._born(birth) == place}
            if lines:
                yield note(column.middle, _LINE_AT, texts("figure.line", line=min(lines)), "center", 12)
        if self.trained:
            one = "_one" if self.reading.replicas == 1 else ""
            key = f"copies{one}{'_fit' if self.reading.fit else ''}"
            yield note(0.0, self.cards - 13, texts(f"figure.{key}"), "left", 13)


def _columns(reading: Reading) -> Iterator[_Column]:
    moments: list[tuple[Part, Moment]] = [("model", "construction")]
    if reading.settings["dummy_call"] != "none":
        moments.append(("dummy_call", "dummy_call"))
    moments.append(("optimizer", "construction"))
    if reading.settings["optimizer_build"] == "yes":
        moments.append(("optimizer", "build"))
    moments += [("step", "first_fit")] if reading.fit else [("step", "first_call"), ("step", "first_apply")]
    for place, (part, moment) in enumerate(moments):
        yield _Column(part, moment, place / len(moments), (place + 1) / len(moments))


def _devices(devices: Sequence[str]) -> str:
    return ", ".join(devices) if len(devices) <= 2 else f"{devices[0]} … {devices[-1]}"
