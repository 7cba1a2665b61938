"""The moving figure: replicas, what they send, the merge, the copies, the counters; played in the browser.

What moves, how it is played, and the units of both axes are the player's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, Literal

import plotly.graph_objects as go

from lessons import player
from lessons.aggregation.reading import Count, Merge, Reading, Step, Values, differ
from lessons.language import MINUS, Texts, number
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
)

Phase = Literal["start", "contribute", "merge", "apply", "count", "error"]

# What a replica sent, and what merges it.
SENT: Final = BLUE
OPTIMIZER: Final = PURPLE
MERGE: Final = "#3D5166"

# Heights in pixels, from the top.
_CHIP_ROW, _HEADINGS, _BANNER, _COUNTERS, _CAPTION = 36, 28, 40, 118, 30
_HEADING_AT = _CHIP_ROW + _HEADINGS / 2 - 1
_TOKEN_LETTERS = 5
_STEPS_IN_FULL = 10  # longer runs show copies and counters change in one frame
_PAD = 0.016  # between a card's edge and its text


@dataclass(frozen=True)
class _Columns:
    """Where things stand, from left to right, in parts of the width."""

    card: float
    sent: float
    node: float
    delivered: float
    copy: float
    copy_end: float
    read: float
    node_size: int  # in pixels


_PLAIN = _Columns(card=0.23, sent=0.305, node=0.465, delivered=0.625, copy=0.7, copy_end=1.0, read=1.0, node_size=72)
_READ_OWN = _Columns(
    card=0.22, sent=0.295, node=0.395, delivered=0.47, copy=0.475, copy_end=0.745, read=0.89, node_size=74
)
_READ_MERGED = _Columns(
    card=0.175, sent=0.238, node=0.368, delivered=0.502, copy=0.565, copy_end=0.79, read=0.908, node_size=64
)


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """The figure of one run: at first its last state, complete; play shows it from the first step.

    Its height in pixels is fixed by the number of replicas; its width is the page's.
    """
    return _Drawing(reading, texts).figure()


def alternative(reading: Reading, texts: Texts) -> str:
    """What the figure shows, in words, for those who cannot see it."""
    step = reading.last
    parts = [
        texts(
            "alternative.run",
            replicas=reading.replicas,
            steps=len(reading.steps),
            aggregation=reading.aggregation,
            route=reading.route,
        )
    ]
    if step:
        comma = texts("language.between_items")
        parts.append(texts("alternative.sent", gradients=comma.join(_texts(step.gradients))))
        parts.append(texts(f"alternative.{'equal' if step.equal else 'differ'}", copies=comma.join(_copies(step))))
        if step.read is not None and reading.on_read:
            parts.append(texts("alternative.read", value=number(step.read)))
        if step.counts:
            counts = comma.join(f"{count.name} {number(count.value)}" for count in step.counts)
            parts.append(texts("alternative.counters", counts=counts))
    if reading.failure:
        parts.append(
            texts("alternative.failure", kind=_kind(reading, texts), step=reading.failure.step)
            if reading.failure.step
            else texts("alternative.failure_at_creation", kind=_kind(reading, texts))
        )
    return texts.sentences(parts)


def _copies(step: Step) -> list[str]:
    """What the copies hold: one number where they are equal, else one per replica."""
    return _texts(step.after[:1] if step.equal else step.after)


def _texts(values: Values) -> list[str]:
    return [_text(value) for value in values]


def _kind(reading: Reading, texts: Texts) -> str:
    """An exception's type, or in words how the run was stopped."""
    failure = reading.failure
    assert failure is not None
    return failure.kind if failure.raised else texts(f"ended.{failure.kind}")


@dataclass(frozen=True)
class _Frame:
    """One frame: a phase of a step; `index` is the step's place in `reading.steps`, -1 before them."""

    index: int
    phase: Phase


class _Drawing:
    """Builds one figure. Holds what several of its parts need to know."""

    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts
        self.replicas = reading.replicas
        last = reading.last
        self.merge: Merge | None = last.merge if last else None
        # Where no step was finished, the lanes are drawn as the route would have had them.
        self.separate = self.merge == "own" or (
            self.merge is None
            and not reading.with_optimizer
            and (reading.asked != "write" or reading.aggregation == "NONE")
        )
        self.columns = (_READ_OWN if self.separate else _READ_MERGED) if reading.on_read else _PLAIN
        pitch = {1: 124, 2: 88, 3: 80, 4: 74, 5: 64, 6: 58}.get(self.replicas, 56) + (12 if self._stacked else 0)
        self.card_height = min(pitch - 8, 82)
        top = _CHIP_ROW + _HEADINGS
        self.lanes = [top + pitch * (replica + 0.5) for replica in range(self.replicas)]
        self.middle = top + pitch * self.replicas / 2
        self.bottom = top + pitch * self.replicas
        self.banner = self.bottom + 4
        self.counters = self.bottom + (_BANNER if reading.failure else 0) + 8
        self.height = self.counters + _COUNTERS + _CAPTION

    # ---- the parts ----

    def figure(self) -> go.Figure:
        frames = list(self._frames())
        names = [self._name(frame) for frame in frames]
        states = [self._state(frame) for frame in frames]
        return player.figure(
            names,
            states,
            self._fixed(),
            self.height,
            self.texts,
            shapes=self._shapes(),
            annotations=self._annotations(),
        )

    def _frames(self) -> Iterator[_Frame]:
        failure = self.reading.failure
        if not self.reading.steps or (failure and failure.place == "creation"):
            yield _Frame(-1, "error" if failure else "start")
            return
        for index, step in enumerate(self.reading.steps):
            yield _Frame(index, "contribute")
            failed = failure is not None and failure.step == step.number
            if step.finished:
                yield _Frame(index, "merge")
                if len(self.reading.steps) <= _STEPS_IN_FULL:
                    yield _Frame(index, "apply")
                yield _Frame(index, "error" if failed else "count")
            elif failed:
                yield _Frame(index, "error")

    def _name(self, frame: _Frame) -> str:
        return f"{frame.index}{frame.phase}"

    # ---- what moves ----

    def _fixed(self) -> list[dict[str, Any]]:
        """What stays of each trace, in drawing order."""
        text = {"mode": "markers+text", "textposition": "middle center"}
        return [
            filled(EQUAL),
            filled(DRIFTED),
            filled(FAILED),
            {**text, "textfont": {"size": 14, "color": LIGHT}},
            {**text, "textfont": {"color": LIGHT}},
            {"mode": "text"},
            {"mode": "text"},
        ]

    def _state(self, frame: _Frame) -> State:
        equal, drift = self._boxes(frame)
        return [
            equal,
            drift,
            self._banner(frame),
            self._tokens(frame),
            self._nodes(frame),
            self._ink(frame),
            self._plain(frame),
        ]

    def _step(self, frame: _Frame) -> Step | None:
        return self.reading.steps[frame.index] if frame.index >= 0 else None

    def _applied(self, frame: _Frame) -> bool:
        """True where the copies already hold what the step left."""
        step = self._step(frame)
        return frame.phase == "count" or (frame.phase == "error" and step is not None and step.finished)

    def _held(self, frame: _Frame) -> Values:
        """What the copies hold in that frame."""
        step = self._step(frame)
        if step is None:
            return self.reading.start
        return step.after if self._applied(frame) else step.before

    def _boxes(self, frame: _Frame) -> tuple[dict[str, Any], dict[str, Any]]:
        """The copies' cards, and over them others where they differ; one that isn't there has no width. Where copies
        differ, none of them is the right one."""
        held = self._held(frame)
        there = [value is not None for value in held]
        apart = [shown and differ(held) for shown in there]
        half = self.card_height / 2

        def cards(shown: Sequence[bool]) -> dict[str, Any]:
            x: list[float | None] = []
            y: list[float | None] = []
            for lane, show in zip(self.lanes, shown, strict=True):
                left, right = self.columns.copy, self.columns.copy_end if show else self.columns.copy
                x += [left, right, right, left, left, None]
                y += [lane - half, lane - half, lane + half, lane + half, lane - half, None]
            return {"x": x[:-1], "y": y[:-1]}

        return cards(there), cards(apart)

    def _banner(self, frame: _Frame) -> dict[str, Any]:
        right = 1.0 if frame.phase == "error" else 0.0
        top, bottom = self.banner, self.banner + _BANNER - 8
        return {"x": [0, right, right, 0, 0], "y": [top, top, bottom, bottom, top]}

    def _tokens(self, frame: _Frame) -> dict[str, Any]:
        """Round tokens: those sent (two sets, used in turn, so that none is seen to fly back), those that
        enter the merge or pass it, and those that reach the copies."""
        columns, phase, points = self.columns, frame.phase, Points()
        step = self._step(frame)
        unknown: Values = (None,) * self.replicas
        contributions = step.contributions if step else unknown
        applied = step.applied if step else unknown
        used: tuple[bool | None, ...] = step.used if step else (None,) * self.replicas
        known = step is not None and None not in contributions
        decided = step is not None and step.finished and phase != "contribute"
        # There is no room for tokens between merge and copy.
        straight_in = self.separate and self.reading.on_read

        def token(x: float, y: float, text: str, shown: bool, color: str, size: int) -> None:
            points.add(x, y, text if shown else HIDDEN, opacity=int(shown), color=color, size=size)

        for parity in (0, 1):
            turn = known and frame.index % 2 == parity
            # The other set fades where it is; it goes back when nobody sees it.
            at = columns.sent if turn != (phase == "contribute") else columns.card
            for lane, value, use in zip(self.lanes, contributions, used, strict=True):
                ignored = decided and use is False
                text = f"<s>{_short(value)}</s>" if ignored else f"<b>{_short(value)}</b>"
                token(at, lane, text, turn, UNUSED if ignored else SENT, self._sent_size)
        for lane, value, use in zip(self.lanes, contributions, used, strict=True):
            moving = decided and phase in ("merge", "apply") and use is not False
            into_copy = straight_in and phase == "apply"
            token(
                (columns.copy if into_copy else columns.node) if moving else columns.card,
                lane if self.separate or not moving else self.middle,
                f"<b>{_short(value)}</b>",
                moving and (phase == "merge" or into_copy),
                SENT,
                self._sent_size,
            )
        for lane, change in zip(self.lanes, applied, strict=True):
            waiting = phase == "merge"  # unseen, where it will come from
            token(
                columns.node if waiting else columns.delivered,
                self.middle if waiting and not self.separate else lane,
                HIDDEN if change is None else f"<b>{self._change(change)}</b>",
                change is not None and phase in ("apply", "count", "error") and decided and not straight_in,
                SENT if self.separate else self._merge_color,
                self._change_size,
            )
        return points.trace()

    def _change(self, change: float) -> str:
        """What is done to a copy: +0.1, −0.1, or =0.1 for assign."""
        if self.reading.method == "assign":
            return f"={_short(change)}"
        words = _short(change)
        return words if words.startswith(MINUS) else f"+{words}"

    @cached_property
    def _sent_size(self) -> int:
        return _token_size(
            _short(value) for step in self.reading.steps for value in step.contributions if value is not None
        )

    @cached_property
    def _change_size(self) -> int:
        return _token_size(
            self._change(value) for step in self.reading.steps for value in step.applied if value is not None
        )

    @cached_property
    def _merge_color(self) -> str:
        if self.merge == "same":
            return UNUSED
        return OPTIMIZER if self.reading.with_optimizer else MERGE

    def _nodes(self, frame: _Frame) -> dict[str, Any]:
        """The merge and, where the variable is synchronised on read, the read."""
        columns, points = self.columns, Points()
        step, failure = self._step(frame), self.reading.failure
        failed = frame.phase == "error"
        at_read = failed and self.reading.on_read and failure is not None and failure.place == "read"
        # The merged value is seen once the tokens are in.
        decided = step is not None and step.finished and frame.phase not in ("contribute", "merge")

        def node(x: float, text: str, broken: bool, color: str, shown: bool = True) -> None:
            points.add(
                x,
                self.middle,
                "<b>✕</b>" if broken else text,
                opacity=int(shown or broken),
                color=FAILED if broken else color,
                size=columns.node_size,
                pixels=30 if broken else 13,
            )

        words = HIDDEN if self.separate else self._merge_words(step if decided else None)
        node(columns.node, words, failed and not at_read, self._merge_color, not self.separate)
        if self.reading.on_read:
            node(columns.read, self._read_words(frame), at_read, MERGE)
        return points.trace()

    def _merge_words(self, step: Step | None) -> str:
        """What the merge does, and once it has, its value."""
        merge = step.merge if step else self.merge
        if step and step.why and merge == "other":
            rule = self.texts(f"figure.why.{step.why}")
        else:
            rule = self.texts(f"figure.merge.{merge or 'unknown'}")
        return rule if step is None else _titled(rule, "≠" if step.merged is None else number(step.merged))

    def _read_words(self, frame: _Frame) -> str:
        step = self._counted(frame)
        if step is None or step.read is None:
            return "–"
        return _titled(self.texts(f"figure.merge.{step.read_merge}"), number(step.read))

    def _counted(self, frame: _Frame) -> Step | None:
        """The last step whose counters and read have been shown."""
        step = self._step(frame)
        if frame.phase == "count" or (frame.phase == "error" and step is not None and step.counts):
            return step
        return self.reading.steps[frame.index - 1] if frame.index > 0 else None

    def _ink(self, frame: _Frame) -> dict[str, Any]:
        """Text on coloured ground: what the copies hold, what the counters say, the error."""
        points = Points()
        held, step = self._held(frame), self._step(frame)
        left = self.columns.copy + _PAD
        apart = differ(held)
        for replica, (lane, value) in enumerate(zip(self.lanes, held, strict=True)):
            ink = UNUSED if value is None else DARK if apart else LIGHT
            device = self.reading.devices[replica] + (" ≠" if apart else "")
            before = step.before[replica] if step and self._applied(frame) else None
            past = "" if before is None else f"{number(before)} → "
            now = f"<b style='font-size:{self._value_size}px'>{_text(value)}</b>"
            points.add(left, lane + self._label_at, device, anchor="middle right", ink=ink, pixels=self._label_size)
            if self._stacked:
                below = lane + self._label_at + 18
                points.add(left, below, past, anchor="middle right", ink=ink, pixels=self._label_size)
                past = ""
            points.add(left, lane + self._value_at, past + now, anchor="middle right", ink=ink, pixels=14)
        counted = self._counted(frame)
        for name, (start, end) in zip(self._counter_names, self._counter_boxes, strict=True):
            count = counted.count(name) if counted else None
            wrong = counted is not None and count is not None and count.value != counted.number
            text = "–" if count is None else number(count.value) if count.agree else "≠"
            points.add(
                (start + end) / 2,
                self.counters + 75,
                f"<b>{text}</b>",
                anchor="middle center",
                ink=DRIFTED if wrong else LIGHT,
                pixels=22,
            )
        if self.reading.failure:
            text = self._failure_words() if frame.phase == "error" else HIDDEN
            points.add(0.5, self.banner + (_BANNER - 8) / 2, text, anchor="middle center", ink=LIGHT, pixels=15)
        return points.trace()

    def _failure_words(self) -> str:
        failure = self.reading.failure
        assert failure is not None
        words = f"✕ <b>{_kind(self.reading, self.texts)}</b>"
        if failure.step:
            words += " · " + self.texts("figure.step", step=failure.step)
        if failure.line is not None:
            words += " · " + self.texts("figure.line", line=failure.line)
        return words

    def _plain(self, frame: _Frame) -> dict[str, Any]:
        """Text that takes its colour from the page: gradients, what counters should say, the caption."""
        points = Points()
        step = self._step(frame)
        gradients: Values = step.gradients if step else (None,) * self.replicas
        for replica, (lane, gradient) in enumerate(zip(self.lanes, gradients, strict=True)):
            label = self.texts("figure.replica", replica=replica)
            points.add(_PAD, lane + self._label_at, label, anchor="middle right", pixels=self._label_size)
            text = "–" if gradient is None else f"<b>{number(gradient)}</b>"
            at = lane + self._label_at + (24 if self.replicas <= 4 else 18)
            points.add(_PAD, at, text, anchor="middle right", pixels=self._gradient_size)
        counted = self._counted(frame)
        for name, (start, end) in zip(self._counter_names, self._counter_boxes, strict=True):
            count = counted.count(name) if counted else None
            text = "" if counted is None or count is None else self._expectation(count, counted.number)
            points.add((start + end) / 2, self.counters + 105, text, anchor="middle center", pixels=14)
        points.add(self.columns.copy, _HEADING_AT, self._copies_words(frame), anchor="middle right", pixels=14)
        caption = self.counters + _COUNTERS + 18
        points.add(0.0, caption, self._caption(frame, step), anchor="middle right", pixels=15)
        return points.trace()

    def _copies_words(self, frame: _Frame) -> str:
        """The heading over the copies, which says whether they hold the same."""
        held = self._held(frame)
        if None in held or self.replicas == 1:
            return self.texts("figure.copies")
        return self.texts("figure.copies_drifted" if differ(held) else "figure.copies_equal")

    def _expectation(self, count: Count, step: int) -> str:
        """What a counter should say, and why: one of the steps, or of every replica in every step."""
        words = f"{self.replicas} × {step}" if count.expected != step else self.texts("figure.as_steps")
        return f"{'=' if count.as_expected else '≠'} {words}"

    def _caption(self, frame: _Frame, step: Step | None) -> str:
        phase = frame.phase
        if phase == "merge" or (phase == "apply" and self.separate):
            phase_key = f"{phase}_{self._merge_caption}"
        elif phase == "error" and self.reading.failure and not self.reading.failure.raised:
            phase_key = "stopped"
        elif phase == "contribute" and self.reading.route == "cross_replica":
            phase_key = "contribute_once"
        else:
            phase_key = phase
        text = self.texts(f"figure.phase.{phase_key}")
        if step is None:
            return text
        where = self.texts("figure.step_of", step=step.number, steps=int(self.reading.settings["steps"]))
        return f"<b>{where}</b> · {text}"

    @cached_property
    def _merge_caption(self) -> str:
        merge = self.merge or "other"
        return "optimizer" if self.reading.with_optimizer and merge in ("sum", "other") else merge

    @cached_property
    def _counter_names(self) -> tuple[str, ...]:
        names = ["SUM", "MEAN", "ONLY_FIRST_REPLICA"]
        return tuple([*names, "iterations"] if self.reading.with_optimizer else names)

    @cached_property
    def _counter_boxes(self) -> tuple[tuple[float, float], ...]:
        count = len(self._counter_names)
        return tuple(((place + 0.1) / count, (place + 0.9) / count) for place in range(count))

    @cached_property
    def _value_size(self) -> int:
        """The size of what the copies hold."""
        values = [value for step in self.reading.steps for value in step.after]
        return self._size_that_fits(values, self.columns.copy_end - self.columns.copy)

    @cached_property
    def _gradient_size(self) -> int:
        """The size of the gradients in their cards."""
        values = [value for step in self.reading.steps for value in step.gradients]
        return self._size_that_fits(values, self.columns.card)

    def _size_that_fits(self, values: Sequence[float | None], card: float) -> int:
        """The size of bold digits with which the longest of these fits into a card on a telephone."""
        longest = max((len(_text(value)) for value in values), default=1)
        largest = 24 if self.replicas <= 4 else 16
        return max(13, min(largest, int(NARROW * (card - 1.5 * _PAD) / (0.56 * longest))))

    @cached_property
    def _label_at(self) -> float:
        """Where a card's label is, from the card's middle."""
        return (14 if self.replicas <= 4 else 11) - self.card_height / 2

    @cached_property
    def _label_size(self) -> int:
        return 14 if self.replicas <= 4 else 13

    @cached_property
    def _value_at(self) -> float:
        """Where a copy's value is, from the card's middle."""
        return self.card_height / 2 - (18 if self.replicas <= 4 else 15)

    @cached_property
    def _stacked(self) -> bool:
        """True where before and after don't fit beside each other on a telephone."""
        widths = [
            len(number(old)) * 7.2 + 20 + len(number(new)) * self._value_size * 0.54
            for step in self.reading.steps
            for old, new in zip(step.before, step.after, strict=True)
            if old is not None and new is not None
        ]
        return max(widths, default=0) > NARROW * (self.columns.copy_end - self.columns.copy - _PAD)

    # ---- what stays ----

    def _shapes(self) -> list[dict[str, Any]]:
        columns = self.columns
        half = self.card_height / 2
        shapes: list[dict[str, Any]] = []
        last = self.reading.last
        used: tuple[bool | None, ...] = last.used if last else (None,) * self.replicas
        unsure = self.merge in ("same", None)
        for lane, use in zip(self.lanes, used, strict=True):
            shapes += self._lines(lane, use, "dot" if unsure else "solid")
        if self.separate:
            top, bottom = _CHIP_ROW + _HEADINGS, self.bottom
            shapes.append(box(columns.node - 0.05, top, columns.node + 0.05, bottom, PALE, EDGE, dash="dash"))
        elif self.reading.asked == "write":
            shapes.append(line(columns.node, 28, columns.node, self.middle, self._merge_color, 2))
        if self.reading.asked == "read":
            shapes.append(line(columns.read, 28, columns.read, self.middle, MERGE, 2))
        for lane in self.lanes:
            shapes.append(box(0, lane - half, columns.card, lane + half, PALE, EDGE))
            shapes.append(box(columns.copy, lane - half, columns.copy_end, lane + half, PALE, EDGE))
        shapes += self._bars()
        for left, right in self._counter_boxes:
            shapes.append(box(left, self.counters + 58, right, self.counters + 92, DIAL, EDGE))
        return shapes

    def _lines(self, lane: float, use: bool | None, dash: str) -> Iterator[dict[str, Any]]:
        """The way of one replica's contribution, and of the merged value to its copy."""
        columns = self.columns
        if self.separate:
            yield line(columns.card, lane, columns.copy, lane, EDGE, 3, dash)
        else:
            if use is False:
                yield line(columns.card, lane, columns.sent, lane, EDGE, 2, "dot")
            else:
                yield line(columns.card, lane, columns.sent, lane, EDGE, 3, dash)
                yield line(columns.sent, lane, columns.node, self.middle, EDGE, 3, dash)
            yield line(columns.node, self.middle, columns.delivered, lane, EDGE, 3, dash)
            yield line(columns.delivered, lane, columns.copy, lane, EDGE, 3, dash)
        if self.reading.on_read:
            first_only = self.reading.aggregation == "ONLY_FIRST_REPLICA" and lane != self.lanes[0]
            kind = "dot" if first_only or self.reading.aggregation == "NONE" else "solid"
            yield line(columns.copy_end, lane, columns.read, self.middle, EDGE, 2, kind)

    def _bars(self) -> Iterator[dict[str, Any]]:
        """Each replica's gradient as a bar at the foot of its card, from its left or, with negative ones, its
        middle."""
        step = next((step for step in self.reading.steps if None not in step.gradients), None)
        gradients = [value for value in step.gradients if value is not None] if step else []
        largest = max(map(abs, gradients), default=0) or 1
        left, right = _PAD, self.columns.card - _PAD
        zero = (left + right) / 2 if any(value < 0 for value in gradients) else left
        for lane, gradient in zip(self.lanes, gradients, strict=False):
            foot = lane + self.card_height / 2 - 6
            yield box(zero, foot - 6, zero + (right - zero) * gradient / largest, foot, SENT, CLEAR)

    def _annotations(self) -> list[dict[str, Any]]:
        columns, texts = self.columns, self.texts
        words = [note(0.0, _HEADING_AT, texts("figure.sends"), "left")]
        if self.separate:
            # With a read there is less room on the right.
            x, align = (columns.node + 0.05, "right") if self.reading.on_read else (columns.node, "center")
            words.append(note(x, _HEADING_AT, texts("figure.separate"), align))
        elif self.reading.with_optimizer:
            name = texts("figure.sgd" if self.reading.on_read else "figure.optimizer")
            words.append(note(columns.node, _HEADING_AT, f"<b>{name}</b>", "center"))
            rate = f"× {number(-self.reading.rate)}"
            words.append(note(columns.node, self.middle + columns.node_size / 2 + 12, rate, "center"))
        words.append(self._chip())
        for name, (left, right) in zip(self._counter_names, self._counter_boxes, strict=True):
            label = name.replace("FIRST_", "FIRST_<br>")
            words.append(note((left + right) / 2, self.counters + 40, label, "center"))
        once = "once" if self.reading.route == "cross_replica" else "each"
        words.append(note(0.0, self.counters + 10, texts(f"figure.counters.{once}"), "left"))
        return words

    def _chip(self) -> dict[str, Any]:
        """The variable's aggregation: tied to what asks it, or left aside."""
        asked = self.reading.asked
        words = self.texts(f"figure.asked.{asked}", aggregation=self.reading.aggregation)
        x, align = {"write": (self.columns.node, "center"), "read": (1.0, "right"), "never": (0.5, "center")}[asked]
        chip = note(x, 16, words, align)
        if asked == "never":
            return chip | {"bordercolor": EDGE, "borderwidth": 1, "borderpad": 4}
        color = self._merge_color if asked == "write" else MERGE
        return chip | {"bordercolor": color, "borderwidth": 2, "borderpad": 4}


def _token_size(texts: Iterator[str]) -> int:
    """The diameter of a round token that holds the longest of these, in pixels."""
    return max(36, 10 + 7 * max(map(len, texts), default=0))


def _text(value: float | None) -> str:
    return "?" if value is None else number(value)


@lru_cache(maxsize=4096)
def _short(value: float | None) -> str:
    """A number as it fits into a token, rounded where it is long; a card has it in full."""
    if value is None:
        return "?"
    words = [number(float(f"{value:.{digits}g}")) for digits in (4, 3, 2)]
    return next((word for word in [number(value), *words] if len(word) <= _TOKEN_LETTERS), words[-1])


def _titled(title: str, value: str) -> str:
    """Two lines inside a node; a long value is set smaller."""
    return f"{title}<br><b style='font-size:{20 if len(value) < 6 else 15}px'>{value}</b>"
