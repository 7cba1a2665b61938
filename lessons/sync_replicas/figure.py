"""The moving figure: one lane per worker over time, the step counter beside the updates, and the parameter server.

Time runs from left to right, from the first step of any worker. What stands on the parameter server (the token queue,
the accumulators, the weights), the counters and the words are those of the moment that play has come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import Any, Final

import plotly.graph_objects as go

from lessons import player
from lessons.language import Texts, number
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
    INK,
    LIGHT,
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
from lessons.sync_replicas.reading import Push, Reading, Step, Worker, in_short

COMPUTES: Final = BLUE
WAITS: Final = DRIFTED
TAKEN: Final = EQUAL
DROPPED: Final = FAILED
COUNTED: Final = PURPLE

# Heights in pixels, from the top.
_DIALS, _CAPTION, _LEGEND = 56, 28, 22
_NAME, _PUSHES, _BAR, _GAP = 18, 15, 16, 10  # of a lane: its words, a row of pushes, its bar
_AXIS, _TITLE, _STAIRS = 20, 24, 84
_ROW, _BANNER = 30, 62
_SLOT, _FIRST_SLOT = 0.058, 0.29  # in parts of the width
_TOKENS = 9  # that are drawn one by one
_LEFT, _RIGHT = 0.006, 0.978  # where time begins and ends
_QUIET = 0.2  # the part of the width that a deadlock's wait gets, however long it is
_PICTURES = 40  # at most; what happens in between is shown with the next
_SHORTEST = 0.4  # seconds that a run's time line has at least


def figure(reading: Reading, texts: Texts) -> go.Figure:
    """The figure of one run: its last state, complete; play shows it from the first step. Without play while it runs.

    Its height in pixels follows from the settings alone; its width is the page's.
    """
    return _Drawing(reading, texts).figure()


def alternative(reading: Reading, texts: Texts) -> str:
    """What the figure shows, in words, for those who cannot see it."""
    sentences = [_counted(reading, texts)]
    for worker in reading.workers:
        mine = [push.fate for push in worker.pushes]
        sentences.append(
            texts(
                "alternative.worker" if reading.sync else "alternative.worker_asynchronous",
                worker=worker.name,
                steps=texts("count.steps", count=len(worker.steps)),
                gradients=texts("count.gradients", count=mine.count("taken")),
                dropped=mine.count("dropped"),
            )
        )
        if worker.killed is not None:
            sentences.append(texts("alternative.killed", worker=worker.name))
    sentences += [
        texts("alternative.weight", variable=variable, value=number(value))
        for variable, value in reading.weights.items()
    ]
    head, details = _outcome(reading, texts)
    sentences += [texts("alternative.outcome", outcome=line) for line in (head.lstrip("✓≠✕■ "), *details)]
    return texts.sentences(sentences)


def _counted(reading: Reading, texts: Texts) -> str:
    return texts(
        "alternative.counters" if reading.sync else "alternative.applied",
        updates=in_short(reading.updates()),
        step=in_short(reading.steps()),
        pushed=len(reading.pushes),
        dropped=reading.fates["dropped"],
    )


def _outcome(reading: Reading, texts: Texts) -> tuple[str, list[str]]:
    """What came of the run, and what there is to say of it, a short line each."""
    outcome, updates, comma = reading.outcome, in_short(reading.updates()), texts("language.between_items")
    most = max(reading.updates().values())  # that this noun is of
    if outcome == "running":
        return texts("figure.outcome.running"), []
    if outcome == "deadlock":
        deadlock = reading.deadlock
        assert deadlock is not None
        held = [f"{variable} {count}/{deadlock.needed}" for variable, count in deadlock.held.items()]
        return texts("figure.outcome.deadlock", count=most, updates=updates), [
            texts("figure.outcome.held", held=comma.join(held), tokens=deadlock.tokens),
            texts("figure.outcome.waiting", workers=comma.join(deadlock.stuck)),
        ]
    if outcome == "raised":
        assert reading.failure is not None
        return f"✕ {reading.failure.kind}", [texts("figure.outcome.raised", line=reading.failure.line or "?")]
    if outcome == "stopped":
        assert reading.failure is not None
        return f"✕ {texts(f'ended.{reading.failure.kind}')}", []
    head = texts(f"figure.outcome.{outcome}", count=most, updates=updates, step=in_short(reading.steps()))
    if not reading.sync:
        return head, [texts("figure.outcome.asynchronous")]
    fates = reading.fates
    pushed, taken, lost = len(reading.pushes), fates["taken"], fates["dropped"]
    return head, [texts("figure.outcome.pushes", pushed=pushed, taken=taken, lost=lost, left=pushed - taken - lost)]


class _Drawing:
    """Builds one figure. Holds what several of its parts need to know."""

    def __init__(self, reading: Reading, texts: Texts) -> None:
        self.reading = reading
        self.texts = texts
        self.variables = reading.variables
        self.rows_of_pushes = len(self.variables)
        self.lane = _NAME + self.rows_of_pushes * _PUSHES + _BAR + _GAP
        self.lanes = float(_DIALS + _CAPTION + _LEGEND)
        self.axis = self.lanes + self.lane * len(reading.workers)
        self.stairs = self.axis + _AXIS + _TITLE
        self.stairs_end = self.stairs + _STAIRS
        self.server = self.stairs_end + _TITLE + 8
        self.queues = 1 if reading.sync else 0
        self.banner = self.server + _ROW * (self.queues + len(self.variables)) + 6
        self.height = self.banner + _BANNER

    def figure(self) -> go.Figure:
        running = self.reading.outcome == "running"
        times = [self.end] if running else list(self._times())
        names = [str(place) for place in range(len(times))]
        states = [self._state(t, place == len(times) - 1) for place, t in enumerate(times)]
        shapes, annotations = list(self._shapes()), list(self._annotations())
        return player.figure(
            names,
            states,
            self._fixed(),
            self.height,
            self.texts,
            shapes=shapes,
            annotations=annotations,
            keep_room=True,
        )

    # ---- time ----

    @cached_property
    def begin(self) -> float:
        """The second at which the first worker began; where none did, that at which the run did."""
        return self.reading.began or 0.0

    @cached_property
    def end(self) -> float:
        """The second at which there is no more to show."""
        reading = self.reading
        if reading.deadlock:
            return reading.deadlock.t
        moments = [self.begin]
        if reading.outcome == "running" or reading.began is None:
            moments.append(reading.seconds)
        for worker in reading.workers:
            moments += [push.t for push in worker.pushes]
            moments += [t for step in worker.steps for t in (step.start, step.pushed, step.end) if t is not None]
            moments += [t for t in (worker.killed, worker.failed) if t is not None]
        moments += [average.t for average in reading.averages]
        return max(moments)

    def _seen(self, t: float) -> float:
        """Until when looks at the parameter server count: at the end all do, the last of them come a moment later."""
        return float("inf") if t >= self.end and self.reading.deadlock is None else t

    def _x(self, t: float) -> float:
        """Where second `t` lies, in parts of the width."""
        deadlock = self.reading.deadlock
        end = self.end if deadlock is None else deadlock.since
        wide = _RIGHT - _LEFT - (_QUIET if deadlock else 0.0)
        if t <= end or deadlock is None:
            span = max(end - self.begin, _SHORTEST if deadlock is None else 0.001)
            part = (min(max(t, self.begin), end) - self.begin) / span
            return round(_LEFT + wide * part, 4)
        part = min(1.0, (t - end) / (deadlock.t - end))
        return round(_LEFT + wide + _QUIET * part, 4)

    def _times(self) -> Iterator[float]:
        """The moments of the frames: the beginning, everything that happens (what is close together in one), and the
        end."""
        reading = self.reading
        yield self.begin
        moments = {push.t for push in reading.pushes} | {average.t for average in reading.averages}
        for worker in reading.workers:
            moments |= {step.end for step in worker.steps if step.end is not None}
            moments |= {step.start for step in worker.steps}
            moments |= {worker.killed} if worker.killed is not None else set()
        seen = [look for look in reading.looks if look.tokens is not None]
        moments |= {after.t for before, after in pairwise(seen) if before.tokens != after.tokens}
        last = self.end if reading.deadlock is None else reading.deadlock.since
        apart = (last - self.begin) / (_PICTURES - 3)
        inside = sorted(moment for moment in moments if self.begin < moment <= last)
        group: list[float] = []
        for moment in inside:
            if group and moment - group[0] > apart:
                yield group[-1]
                group = []
            group.append(moment)
        if group and group[-1] < self.end:
            yield group[-1]
        if self.end > self.begin:
            yield self.end

    # ---- what moves ----

    def _fixed(self) -> list[dict[str, Any]]:
        """What stays of each trace, in drawing order."""

        def lines(color: str, width: float) -> dict[str, Any]:
            return {"mode": "lines", "line": {"color": color, "width": width, "simplify": False}}

        text = {"mode": "markers+text", "textposition": "middle center"}
        return [
            filled(PALE),  # the lanes, as long as they live
            lines(COMPUTES, _BAR),
            lines(WAITS, _BAR),
            lines(TAKEN, 1),  # the averages
            {**lines(TAKEN, 7), "opacity": 0.55},
            lines(COUNTED, 2.5),
            filled(UNUSED),  # now
            filled(EQUAL),
            filled(DRIFTED),
            filled(FAILED),
            {**text, "textfont": {"size": 11, "color": LIGHT}},
            {"mode": "text"},
            {"mode": "text"},
        ]

    def _state(self, t: float, last: bool) -> State:
        return [
            self._lives(t),
            self._bars(t, waiting=False),
            self._bars(t, waiting=True),
            self._verticals(t),
            self._staircase(t, updates=True),
            self._staircase(t, updates=False),
            self._now(t),
            *self._banners(last),
            self._markers(t),
            self._ink(t, last),
            self._plain(t),
        ]

    def _lane_of(self, worker: Worker) -> float:
        return self.lanes + worker.index * self.lane

    def _bar_at(self, worker: Worker) -> float:
        return self._lane_of(worker) + _NAME + self.rows_of_pushes * _PUSHES + _BAR / 2

    def _lives(self, t: float) -> dict[str, Any]:
        """A lane goes as far as its worker's life."""
        boxes = []
        for worker in self.reading.workers:
            dead = next((at for at in (worker.killed, worker.failed) if at is not None and at <= t), None)
            at = self._bar_at(worker)
            boxes.append((0.0, at - _BAR / 2, 1.0 if dead is None else self._x(dead), at + _BAR / 2))
        return rectangles(boxes)

    def _bars(self, t: float, *, waiting: bool) -> dict[str, Any]:
        x: list[float | None] = []
        y: list[float | None] = []
        for worker in self.reading.workers:
            for step in worker.steps:
                begin, end = self._span(worker, step, waiting)
                x += [self._x(min(begin, t)), self._x(min(end, t)), None]
                y += [self._bar_at(worker)] * 2 + [None]
        return {"x": x[:-1] or [0], "y": y[:-1] or [0]}

    def _span(self, worker: Worker, step: Step, waiting: bool) -> tuple[float, float]:
        """From when to when this step computes, or waits."""
        over = min(self.end, worker.killed or worker.failed or self.end)
        pushed = over if step.pushed is None else step.pushed
        end = over if step.end is None else min(step.end, over)
        if not self.reading.sync:  # nobody waits
            end = pushed
        return (pushed, max(pushed, end)) if waiting else (step.start, pushed)

    def _verticals(self, t: float) -> dict[str, Any]:
        """Each average, in the lanes whose gradients are in it, and at the staircase."""
        x: list[float | None] = []
        y: list[float | None] = []
        for average in self.reading.averages:
            at, shown = self._x(average.t), average.t <= t
            spans = [
                self._marks_of(worker)
                for worker in self.reading.workers
                if any(task == worker.name for task, _ in average.pushes)
            ]
            for top, bottom in [*spans, (self.stairs, self.stairs_end)]:
                x += [at, at, None]
                y += [bottom, top if shown else bottom, None]
        return {"x": x[:-1] or [0], "y": y[:-1] or [0]}

    def _marks_of(self, worker: Worker) -> tuple[float, float]:
        """From where to where a lane's marks go: its pushes, and its bar; not its words."""
        return self._lane_of(worker) + _NAME, self._bar_at(worker) + _BAR / 2

    @cached_property
    def _highest(self) -> int:
        return max(self._counted, 1)

    @cached_property
    def _counted(self) -> int:
        """The most that the staircase comes to."""
        return max(self.reading.global_step(), *self.reading.updates().values(), 0)

    def _stair(self, count: int) -> float:
        return round(self.stairs_end - 3 - (_STAIRS - 10) * count / self._highest, 1)

    def _staircase(self, t: float, *, updates: bool) -> dict[str, Any]:
        """The counter over time. The points are always as many: those to come wait at the end of what is there."""
        reading = self.reading
        changes: list[tuple[float, int]] = []
        if updates:
            count = dict.fromkeys(self.variables, 0)
            for average in reading.averages:
                count[average.variable] += 1
                changes.append((average.t, max(count.values())))
        else:
            highest = 0
            for look in reading.looks:
                if look.steps is not None and min(look.steps.values()) > highest:
                    highest = min(look.steps.values())
                    changes.append((look.t, highest))
        x, y = [_LEFT], [self._stair(0)]
        value = 0
        for when, after in changes:
            now = min(when, t)
            x += [self._x(now), self._x(now)]
            value_now = after if when <= self._seen(t) else value
            y += [self._stair(value), self._stair(value_now)]
            value = value_now
        return {"x": [*x, self._x(t)], "y": [*y, self._stair(value)]}

    def _now(self, t: float) -> dict[str, Any]:
        x = self._x(t)
        half = 0.0009
        spans = [*(self._marks_of(worker) for worker in self.reading.workers), (self.stairs, self.stairs_end)]
        return rectangles([(x - half, top, x + half, bottom) for top, bottom in spans])

    def _banners(self, last: bool) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """What came of it: on green where it is as it should be, on orange where it counts wrong, else on red."""
        outcome = self.reading.outcome
        kinds = (("right",), ("miscounted",), ("deadlock", "raised", "stopped"))
        good, odd, bad = (
            rectangles([(0, self.banner, 1.0 if last and outcome in kind else 0.0, self.banner + _BANNER)])
            for kind in kinds
        )
        return good, odd, bad

    def _markers(self, t: float) -> dict[str, Any]:
        """Pushes with their fate, the mark of a death, the tokens, and what each accumulator holds."""
        points = Points()
        for worker in self.reading.workers:
            for push in worker.pushes:
                self._push(points, worker, push, t)
            over = worker.killed if worker.killed is not None else worker.failed
            if over is not None:
                shown = over <= t
                points.add(
                    min(self._x(over), 0.97), self._bar_at(worker), "<b>✕</b>" if shown else "",
                    opacity=int(shown), color=FAILED, size=22, symbol="circle",
                )  # fmt: skip
        if self.reading.sync:
            count = self.reading.tokens(self._seen(t))
            for place in range(_TOKENS):
                points.add(
                    _FIRST_SLOT + place * _SLOT, self.server + _ROW / 2, "",
                    opacity=int(place < count), color=WAITS, size=17, symbol="circle",
                )  # fmt: skip
            for row, variable in enumerate(self.variables):
                held = self.reading.held(variable, t)
                for place in range(self._slots):
                    here = held[place] if place < len(held) else None
                    points.add(
                        _FIRST_SLOT + place * _SLOT, self._row_at(row),
                        here.task.removeprefix("worker:") if here else "",
                        opacity=int(here is not None), color=COMPUTES, size=18, symbol="square",
                    )  # fmt: skip
        return points.trace() if points.columns else {"x": [0.5], "y": [0], "text": [HIDDEN], "marker.opacity": [0]}

    def _push(self, points: Points, worker: Worker, push: Push, t: float) -> None:
        row = self.variables.index(push.variable)
        settled = push.settled is not None and push.settled <= t
        color, symbol, text = {
            "taken": (TAKEN, "circle", "✓"),
            "dropped": (DROPPED, "square", "✕"),
        }.get(push.fate or "" if settled else "", (COMPUTES, "diamond", ""))
        if push.fate is None:
            color, text = UNUSED, "?"
        points.add(
            self._x(push.t),
            self._lane_of(worker) + _NAME + row * _PUSHES + _PUSHES / 2,
            text if push.t <= t else "",
            opacity=int(push.t <= t),
            color=color,
            size=13 if symbol != "diamond" else 10,
            symbol=symbol,
        )

    @property
    def _slots(self) -> int:
        """The places of an accumulator that are drawn."""
        return min(8, self.reading.needed + 2)

    def _row_at(self, row: int) -> float:
        return self.server + _ROW * (row + self.queues) + _ROW / 2

    def _ink(self, t: float, last: bool) -> dict[str, Any]:
        """Text on coloured ground: the counters and the banner."""
        points, reading = Points(), self.reading
        updates = reading.updates(t)
        step = in_short(reading.steps(self._seen(t)))
        pushed = sum(push.t <= t for push in reading.pushes)
        values = [in_short(updates), step, str(pushed), str(reading.dropped(t))]
        wrong = step != in_short(updates) and reading.outcome == "miscounted"
        inks = [LIGHT, "#FFC24D" if wrong else LIGHT, LIGHT, LIGHT]
        for place, (value, ink) in enumerate(zip(values, inks, strict=True)):
            points.add((place + 0.5) / 4, 36, f"<b>{value}</b>", anchor="middle center", ink=ink, pixels=20)
        shown = last and reading.outcome != "running"
        ink = DARK if reading.outcome == "miscounted" else LIGHT
        head, details = _outcome(reading, self.texts)
        lines = [f"<b>{head}</b>", *details]
        for place, said in enumerate(lines):
            at = self.banner + _BANNER / 2 + (place - (len(lines) - 1) / 2) * 18
            points.add(0.5, at, said if shown else "", anchor="middle center", ink=ink, pixels=13)
        return points.trace()

    def _plain(self, t: float) -> dict[str, Any]:
        """Text that changes: what happens now, what each worker does, and what lies on the parameter server."""
        points, reading, texts = Points(), self.reading, self.texts
        points.add(0.0, _DIALS + 16, self._caption(t), anchor="middle right", ink=INK, pixels=13)
        for worker in reading.workers:
            points.add(
                1.0, self._lane_of(worker) + 10, self._doing(worker, t), anchor="middle left", ink=INK, pixels=12
            )
        if reading.sync:
            tokens = reading.tokens(self._seen(t))
            points.add(1.0, self.server + _ROW / 2, str(tokens), anchor="middle left", ink=INK, pixels=13)
            for row, variable in enumerate(self.variables):
                over = len(reading.held(variable, t)) - self._slots
                at = _FIRST_SLOT + (self._slots - 0.4) * _SLOT
                points.add(
                    at, self._row_at(row), f"+{over}" if over > 0 else "", anchor="middle right", ink=INK, pixels=12
                )
        for row, variable in enumerate(self.variables):
            said = texts("figure.weight", value=number(reading.weight(variable, self._seen(t))))
            points.add(1.0, self._row_at(row), said, anchor="middle left", ink=INK, pixels=13)
        return points.trace()

    def _doing(self, worker: Worker, t: float) -> str:
        """What that worker does at that second."""
        texts, deadlock = self.texts, self.reading.deadlock
        if worker.killed is not None and worker.killed <= t:
            return texts("figure.doing.killed")
        if worker.failed is not None and worker.failed <= t:
            return texts("figure.doing.failed")
        step = next((step for step in reversed(worker.steps) if step.start <= t), None)
        if step is None:
            return texts("figure.doing.ready" if self.reading.began is not None else "figure.doing.starting")
        if deadlock is not None and t >= deadlock.since and worker.name in deadlock.stuck:
            if self.reading.optimizers == 1:
                return texts("figure.doing.stuck")
            missing = [self.variables[optimizer] for optimizer in deadlock.stuck[worker.name]]
            return texts("figure.doing.stuck_for", variables=texts.items(missing))
        if step.end is not None and step.end <= t:
            return texts("figure.doing.done", step=step.number)
        if step.pushed is not None and step.pushed <= t:
            key = "waits" if self.reading.sync else "done"
            return texts(f"figure.doing.{key}", step=step.number)
        return texts("figure.doing.computes", step=step.number)

    def _caption(self, t: float) -> str:
        """The last thing that happened by then, and when."""
        reading, texts = self.reading, self.texts
        if reading.began is None:
            if reading.outcome == "running":
                return texts("figure.now.starting", up=reading.up, tasks=len(reading.workers) + 1)
            return texts("figure.now.never")
        seconds = number(round(t - self.begin, 2))
        said = texts("figure.now.begin")
        if reading.deadlock and t >= reading.deadlock.t:
            return texts("figure.now.deadlock", seconds=number(round(reading.deadlock.waited, 1)))
        moment = self.begin
        for push in reading.pushes:
            when = push.settled if push.fate == "dropped" and push.settled is not None else push.t
            if moment <= when <= t:
                key = "dropped" if push.fate == "dropped" else "push"
                said = texts(f"figure.now.{key}", worker=push.task, value=number(push.value))
                moment = when
        for average in reading.averages:
            if moment <= average.t <= t:
                said = texts(
                    f"figure.now.{'average' if reading.sync else 'applied'}",
                    variable=average.variable,
                    value=number(average.value),
                    count=len(average.pushes),
                    worker=average.pushes[0][0],
                )
                moment = average.t
        for worker in reading.dead:
            if worker.killed is not None and moment <= worker.killed <= t:
                said = texts("figure.now.killed", worker=worker.name)
                moment = worker.killed
        return texts("figure.now.at", seconds=seconds, said=said)

    # ---- what stays ----

    def _shapes(self) -> Iterator[dict[str, Any]]:
        for place in range(4):
            yield box(place / 4 + 0.004, 0, (place + 1) / 4 - 0.004, _DIALS - 6, DIAL, EDGE)
        deadlock = self.reading.deadlock
        if deadlock is not None:
            yield box(self._x(deadlock.since), self.lanes - 2, 1, self.stairs_end, "rgba(196,80,10,0.10)", CLEAR)
        for second in self._ticks():
            x = self._x(second)
            yield line(x, self.axis, x, self.stairs_end, "rgba(128,128,128,0.3)", 1, "dot")
        yield line(0, self.stairs_end, 1, self.stairs_end, EDGE, 1)
        yield box(0, self.server - 2, 1, self.banner - 4, PALE, CLEAR)
        if self.reading.sync:
            for row in range(len(self.variables)):
                for place in range(self.reading.needed):
                    x = _FIRST_SLOT + place * _SLOT
                    yield box(x - 0.026, self._row_at(row) - 11, x + 0.026, self._row_at(row) + 11, CLEAR, EDGE)
        yield box(0, self.banner, 1, self.banner + _BANNER, PALE, CLEAR)

    def _key(self, signs: list[tuple[str, str, str]]) -> str:
        """What signs stand for, in a line."""
        said = [
            f"<span style='color:{color}'>{sign}</span> {self.texts(f'figure.key.{name}')}"
            for sign, color, name in signs
        ]
        return " &nbsp;".join(said)

    def _ticks(self) -> list[float]:
        """The seconds that get a line: few, and round ones."""
        last = self.end if self.reading.deadlock is None else self.reading.deadlock.since
        span = max(last - self.begin, 0.01)
        apart = next((each for each in (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if span / each <= 5), 10.0)
        return [self.begin + apart * place for place in range(int(span / apart) + 1)]

    def _annotations(self) -> Iterator[dict[str, Any]]:
        texts, reading = self.texts, self.reading
        for place, name in enumerate(("updates", "global_step", "pushed", "dropped")):
            label = f"<span style='color:#C9D3DC'>{texts(f'figure.counter.{name}')}</span>"
            yield note((place + 0.5) / 4, 13, label, "center", 12)
        for worker in reading.workers:
            chief = texts("figure.chief") if worker.chief else ""
            said = f"<b>{worker.name}</b>{chief} · ∇ {number(worker.gradient)}"
            yield note(0, self._lane_of(worker) + 10, said, "left", 13)
        for second in self._ticks():
            said = f"{number(round(second - self.begin, 3))} s"
            yield note(max(self._x(second), 0.01), self.axis + 8, said, "center" if second > self.begin else "left", 12)
        deadlock = reading.deadlock
        if deadlock is not None:
            middle = (self._x(deadlock.since) + 1) / 2
            yield note(
                middle, self.axis + 8, texts("figure.quiet", seconds=number(round(deadlock.waited, 1))), "center", 12
            )
        yield note(0, self.stairs - 12, self._key([("■", TAKEN, "updates"), ("■", COUNTED, "global_step")]), "left", 12)
        marks = [("■", COMPUTES, "computes"), ("■", WAITS, "waits")]
        if reading.sync:
            marks += [("●", TAKEN, "taken"), ("■", DROPPED, "dropped"), ("◆", COMPUTES, "held")]
        else:
            marks = [("■", COMPUTES, "computes"), ("●", TAKEN, "applied")]
        yield note(0, _DIALS + _CAPTION + 8, self._key(marks), "left", 12)
        yield note(1, self._stair(self._counted), str(self._counted), "right", 12)
        yield note(0, self.server - 14, f"<b>{texts('figure.server')}</b>", "left", 13)
        if reading.sync:
            yield note(0.01, self.server + _ROW / 2, texts("figure.queue"), "left", 13)
        for row, variable in enumerate(self.variables):
            rate = number(reading.rate(variable))
            said = f"<b>{variable}</b> <span style='font-size:12px'>{texts('figure.rate', rate=rate)}</span>"
            yield note(0.01, self._row_at(row), said, "left", 13)
