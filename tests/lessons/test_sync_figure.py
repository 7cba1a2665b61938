"""The figure of a cluster: lanes, tokens, accumulators, counters, and that every picture is complete."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from engine.trace import Trace
from lessons.language import LANGUAGES, Language, Texts
from lessons.player import DRIFTED, EQUAL, FAILED
from lessons.player import INK as PLAIN_TEXT
from lessons.sync_replicas.figure import COMPUTES, DROPPED, TAKEN, alternative, figure
from lessons.sync_replicas.reading import read
from tests.lessons.sync_traces import RUNS, Script, crossed, in_step, killed, miscounted, so_far, wasted_round
from tests.lessons.test_figure import pictures, words
from tests.lessons.test_scope_figure import boxes

LESSON = Path(__file__).parents[2] / "lessons" / "sync_replicas"
TEXTS = {language: Texts(LESSON, language) for language in LANGUAGES}
# the traces: lanes, bars, lines, then what came of it, markers, text on colour, plain text
LANES, BUSY, WAITING, AVERAGES, UPDATES, COUNTED, NOW, GOOD, ODD, BAD, MARKERS, INK, PLAIN_WORDS = range(13)
TEXT_LAYERS = (MARKERS, INK, PLAIN_WORDS)


def drawn(run: Trace, language: Language = "en") -> go.Figure:
    return figure(read(run), TEXTS[language])


def last(run: Trace) -> list[dict[str, Any]]:
    return [layer.to_plotly_json() for layer in drawn(run).data]


def said(layer: dict[str, Any]) -> list[str]:
    return [words(text) for text in layer["text"]]


def text_of(chart: go.Figure) -> str:
    texts = [text for layer in chart.data for text in (layer.text or ())]
    texts += [annotation.text for annotation in chart.layout.annotations]
    return " | ".join(words(text) for text in texts if words(text))


def lengths(layer: dict[str, Any]) -> list[float]:
    """How long each bar is."""
    return [round(layer["x"][place + 1] - layer["x"][place], 4) for place in range(0, len(layer["x"]), 3)]


def shown(layer: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Colour, symbol and text of the markers that can be seen."""
    marker = layer["marker"]
    columns = zip(marker["opacity"], marker["color"], marker["symbol"], layer["text"], strict=True)
    return [(color, symbol, words(text)) for opacity, color, symbol, text in columns if opacity]


def test_counters_and_outcome_of_a_run_in_step() -> None:
    layers = last(in_step(3).end())
    assert said(layers[INK])[:4] == ["3", "3", "6", "0"]  # updates, global_step, pushed, dropped
    assert "✓ 3 updates, and global_step is 3" in said(layers[INK])
    assert "6 pushed = 6 averaged + 0 dropped + 0 left" in said(layers[INK])
    assert len(boxes(layers[GOOD])) == 1
    assert boxes(layers[ODD]) == boxes(layers[BAD]) == []
    assert layers[GOOD]["fillcolor"] == EQUAL


def test_each_push_has_its_fate() -> None:
    marks = [mark for mark in shown(last(wasted_round().end())[MARKERS]) if mark[1] != "circle" or mark[2]]
    assert marks.count((TAKEN, "circle", "✓")) == 4
    assert marks.count((DROPPED, "square", "✕")) == 2


def test_play_tells_one_thing_after_another() -> None:
    chart = drawn(in_step(2).end())
    frames = pictures(chart)
    counts = [[int(text) for text in said(layers[INK])[:4]] for layers in frames]
    assert counts[0] == [0, 0, 0, 0]
    assert counts[-1] == [2, 2, 4, 0]
    for before, after in pairwise(counts):
        assert all(one <= other for one, other in zip(before, after, strict=True))
    assert all(boxes(layers[GOOD]) == [] for layers in frames[:-1])
    assert lengths(frames[0][BUSY]) == [0.0] * 4
    assert all(length > 0 for length in lengths(frames[-1][BUSY]))


def test_the_accumulator_fills_with_whose_gradients_they_are() -> None:
    frames = pictures(drawn(in_step(1).end()))
    inside = [{text for color, symbol, text in shown(layers[MARKERS]) if symbol == "square" and color == COMPUTES}
              for layers in frames]  # fmt: skip
    assert {"0"} in inside
    assert {"0", "1"} in inside
    assert inside[-1] == set()


def test_tokens_are_seen_and_counted() -> None:
    frames = pictures(drawn(in_step(1).end()))
    counted = {said(layers[PLAIN_WORDS])[3] for layers in frames}
    assert {"0", "2"} <= counted  # none at first, two after the average
    two = next(layers for layers in frames if said(layers[PLAIN_WORDS])[3] == "2")
    tokens = [mark for mark in shown(two[MARKERS]) if mark == (DRIFTED, "circle", "")]
    assert len(tokens) == 2


def test_the_staircases_part_where_the_step_is_miscounted() -> None:
    layers = last(miscounted().end())
    top = min(layers[COUNTED]["y"])
    assert min(layers[UPDATES]["y"]) > top  # y grows downwards: one update, and the step says two
    floor = max(layers[COUNTED]["y"])
    assert floor - min(layers[UPDATES]["y"]) == pytest.approx(
        (floor - top) / 2, abs=0.11
    )  # 1 of 2, to a tenth of a pixel
    assert boxes(layers[ODD])
    assert "≠ global_step is 2, updates of each variable: 1" in said(layers[INK])


def test_a_killed_worker_s_lane_ends() -> None:
    layers = last(killed(1).end())
    lanes = boxes(layers[LANES])
    assert lanes[0][2] == 1.0
    assert lanes[1][2] < 0.9
    assert (FAILED, "circle", "✕") in shown(layers[MARKERS])
    assert "killed" in said(layers[PLAIN_WORDS])
    first = pictures(drawn(killed(1).end()))[0]
    assert [box[2] for box in boxes(first[LANES])] == [1.0, 1.0]  # not yet


def test_a_deadlock_says_who_holds_and_who_waits() -> None:
    chart = drawn(crossed().end())
    text = text_of(chart)
    assert "■ Deadlock, updates before it: 0" in text
    assert "Held: conv 1/2, fc_w 1/2 · tokens: 2" not in text
    assert "Held: conv 1/2, fc_w 1/2 · tokens: 0" in text
    assert "Waiting for a token: worker:0, worker:1" in text
    assert "waits: fc_w" in text
    assert "waits: conv" in text
    assert "Nothing has moved for 4 s." in text
    assert boxes(last(crossed().end())[BAD])


def test_an_error_before_the_first_step() -> None:
    text = text_of(drawn(RUNS["article"]))
    assert "✕ ValueError" in text
    assert "Line 260 of the program" in text
    assert "failed" in text


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_the_first_picture_is_the_last_frame(run: Trace) -> None:
    chart = drawn(run)
    if chart.frames:
        assert pictures(chart)[-1] == [layer.to_plotly_json() for layer in chart.data]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_every_run_can_be_drawn_and_told_however_far_it_has_come(run: Trace, language: Language) -> None:
    """Also while it runs: then there is nothing to play, and the figure is as high as it will be."""
    height = drawn(run, language).layout.height
    ends = ["running", "killed", "cancelled", "timeout"]
    for length in range(1, len(run.events), 2):
        status = ends[length // 2 % 4] if length % 4 == 1 else "running"
        part = so_far(run, length, status)
        chart = drawn(part, language)
        text = text_of(chart) + alternative(read(part), TEXTS[language])
        assert "{" not in text
        assert "None" not in text
        assert chart.layout.height == height
        assert status != "running" or not chart.frames


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_no_text_is_empty_because_plotly_would_drop_its_point(run: Trace) -> None:
    for layers in pictures(drawn(run)):
        for place in TEXT_LAYERS:
            assert all(layers[place]["text"])
            assert len({len(layers[place][key]) for key in ("x", "y", "text")}) == 1


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_every_picture_has_as_many_points(run: Trace) -> None:
    """Plotly moves points to their next places only where they are as many."""
    frames = pictures(drawn(run))
    for place in range(len(frames[0]) if frames else 0):
        assert len({len(layers[place]["x"]) for layers in frames}) == 1


@pytest.mark.parametrize("run", RUNS.values(), ids=list(RUNS))
def test_text_keeps_a_size_that_can_be_read(run: Trace) -> None:
    chart = drawn(run)
    sizes = [size for place in (INK, PLAIN_WORDS) for size in chart.data[place].textfont.size]
    assert min(sizes) >= 12
    assert all(annotation.font.size >= 12 for annotation in chart.layout.annotations)
    assert chart.layout.font.color == PLAIN_TEXT


def test_the_height_does_not_grow_with_the_steps() -> None:
    assert drawn(in_step(1).end()).layout.height == drawn(in_step(20).end()).layout.height


def test_the_largest_figure_is_small_enough_to_send() -> None:
    """Four workers, three optimizers, twenty steps."""
    script = Script(workers=4, optimizers=3, steps=20, global_step="own")
    for done in range(20):
        script.step(0, 1, 2, 3)
        for variable in ("conv", "fc_w", "fc_b"):
            for worker in range(4):
                script.push(worker, done, variable)
            script.average(*[(worker, done + 1) for worker in range(4)], variable=variable)
        script.state(done + 1, done + 1, done + 1, tokens=12)
        for worker in range(4):
            script.token(worker, done + 1).after(worker, done + 1, conv=1.0, fc_w=2.0, fc_b=3.0)
    chart = drawn(script.end())
    assert len(chart.frames) <= 40
    assert len(json.dumps(chart.to_plotly_json())) < 1_000_000
