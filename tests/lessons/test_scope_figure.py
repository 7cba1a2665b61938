"""The figure of a scope: what is put where, births, training or the error, and that every picture is complete."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from engine.recordings import Recordings
from engine.request import Request
from engine.trace import Trace
from lessons.language import LANGUAGES, Language, Texts
from lessons.player import DRIFTED, EQUAL, FAILED
from lessons.player import INK as PLAIN_TEXT
from lessons.scope_placement.figure import MIRRORED as BLUE
from lessons.scope_placement.figure import PLAIN as PURPLE
from lessons.scope_placement.figure import alternative, figure
from lessons.scope_placement.reading import read
from tests.lessons.scope_traces import MIRRORED, PLAIN, scope_trace
from tests.lessons.test_figure import pictures, words
from tests.lessons.test_scope_reading import ALONE, AVERAGED, DIRECT, MESSAGES, SUMMED
from tests.lessons.traces import cut

LESSON = Path(__file__).parents[2] / "lessons" / "scope_placement"
TEXTS = {language: Texts(LESSON, language) for language in LANGUAGES}
# the traces: fills, then markers, text on colour, plain text
CURSOR, OWNED, PLAIN_OWNED, GOOD, BAD, STRIKE, MARKERS, INK, PLAIN_WORDS = range(9)
TEXT_LAYERS = (MARKERS, INK, PLAIN_WORDS)


def drawn(run: Trace, language: Language = "en") -> go.Figure:
    return figure(read(run), TEXTS[language])


def text_of(chart: go.Figure) -> str:
    """All text of the first picture."""
    texts = [text for layer in chart.data for text in (layer.text or ())]
    texts += [annotation.text for annotation in chart.layout.annotations]
    return " | ".join(words(text) for text in texts if words(text))


def boxes(layer: dict[str, Any]) -> list[tuple[float, float, float, float]]:
    """The rectangles of a filled trace that have a width: left, top, right, bottom."""
    found = []
    for place in range(0, len(layer["x"]), 6):
        x, y = layer["x"][place : place + 5], layer["y"][place : place + 5]
        if max(x) > min(x):
            found.append((min(x), min(y), max(x), max(y)))
    return found


def last(run: Trace) -> list[dict[str, Any]]:
    return [layer.to_plotly_json() for layer in drawn(run).data]


RUNS: list[Trace] = [
    scope_trace(*SUMMED),
    scope_trace(*AVERAGED, loop="fit", model="subclassed", apply_scope="out"),
    scope_trace(*AVERAGED, loop="fit", model_scope="out", weight=PLAIN, slots=PLAIN),
    scope_trace([0.9] * 8, optimizer="adam", replicas=8, optimizer_build="yes", dummy_call="in_replica"),
    scope_trace([0.9], optimizer="adam", replicas=1, dummy_call="out_of_scope", model="sequential_deferred"),
    scope_trace([0.9, 0.81], optimizer_build="yes", optimizer_scope="out", slots=PLAIN, counter=PLAIN, counts=[[2]]),
    scope_trace(*[[each, 1.0] for each in ALONE], tensorflow="2.5.0", **DIRECT),
    scope_trace(*[[each] for each in ALONE], weight=PLAIN, slots=PLAIN, counter=PLAIN, **DIRECT),
    scope_trace(*[[each, each] for each in ALONE], **DIRECT),
    scope_trace([0.4, 0.4]),
    scope_trace([-123456.78, 1e-3], [0.7, -1e6], gradients=[-99.5, 33.3]),
    scope_trace(),
    *[scope_trace(error=error, slots=None) for error in MESSAGES.values()],
    *[scope_trace([0.7, 0.7], error=error) for error in MESSAGES.values()],
    scope_trace(
        error=MESSAGES["no_build"], at="optimizer.build(model.trainable_variables)", error_step=0, optimizer_build="yes"
    ),
]


def test_everything_inside_trains() -> None:
    chart = drawn(scope_trace(*SUMMED))
    text = text_of(chart)
    for expected in ("model", "optimizer", "first step strategy.run", "×2", "0.7 → 0.13", "∇ 2", "✓ Trains as one"):
        assert expected in text
    assert "MirroredVariable · CPU:0, CPU:1" in text
    assert "slot momentum" in text
    layers = last(scope_trace(*SUMMED))
    # three chips, and the lives of weight, slot, iterations and learning rate
    assert len(boxes(layers[OWNED])) == 3 + 4
    assert boxes(layers[PLAIN_OWNED]) == []
    assert len(boxes(layers[GOOD])) == 2 + 1  # the copies, and the outcome
    assert boxes(layers[BAD]) == boxes(layers[STRIKE]) == []
    assert layers[GOOD]["fillcolor"] == EQUAL


def test_what_is_put_outside_is_seen_below_the_box_and_born_in_another_colour() -> None:
    inside, outside = (last(scope_trace(*SUMMED, optimizer_scope=place, counter=MIRRORED)) for place in ("in", "out"))
    (chip,) = boxes(outside[PLAIN_OWNED])
    above = [box for box in boxes(inside[OWNED]) if box[0] == chip[0]]
    assert len(above) == 1
    assert above[0][3] < chip[1]  # the same chip, higher up
    layers = last(scope_trace(*SUMMED, optimizer_scope="out", counter=PLAIN))
    marks = layers[MARKERS]["marker"]
    assert marks["color"] == [BLUE, BLUE, PURPLE, PURPLE]  # weight, slot, iterations, learning rate
    assert marks["symbol"] == ["circle", "circle", "square", "square"]
    assert [words(text) for text in layers[MARKERS]["text"]][:3] == ["×2", "×2", "×1"]


def test_births_stand_in_the_columns_of_their_moments() -> None:
    chart = drawn(scope_trace(*SUMMED))
    # model, optimizer, first call, first apply: the middles of four columns
    assert list(chart.data[MARKERS].x) == [0.125, 0.875, 0.375, 0.375]
    deferred = drawn(scope_trace(*SUMMED, model="sequential_deferred", dummy_call="in_scope", optimizer_build="yes"))
    # model, dummy call, optimizer, build, first call, first apply
    assert list(deferred.data[MARKERS].x) == pytest.approx([1.5 / 6, 3.5 / 6, 2.5 / 6, 2.5 / 6])


def test_a_step_outside_by_strategy_run_is_also_seen_inside() -> None:
    assert "▲ strategy.run" in text_of(drawn(scope_trace(*SUMMED, apply_scope="out")))
    assert "▲" not in text_of(drawn(scope_trace(*SUMMED)))
    assert "▲" not in text_of(drawn(scope_trace(**DIRECT)))
    assert "first step direct call" in text_of(drawn(scope_trace(**DIRECT)))


def test_play_builds_it_up_moment_by_moment() -> None:
    chart = drawn(scope_trace(*SUMMED))
    frames = pictures(chart)
    assert len(frames) == 4 + 2
    shown = [sum(layers[MARKERS]["marker"]["opacity"]) for layers in frames]
    assert shown == [1, 3, 3, 4, 4, 4]  # the weight; iterations and learning rate; -; the slot
    assert [len(boxes(layers[GOOD])) for layers in frames] == [0, 0, 0, 0, 2, 3]
    lives = [max(box[2] for box in boxes(layers[OWNED]) if box[1] > 130) for layers in frames]
    assert lives == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    held = [[words(text) for text in layers[INK]["text"]] for layers in frames]
    assert "1 → 0.7" in held[4]
    assert "0.7 → 0.13" in held[5]
    assert all("→" not in text for text in held[3])


def test_buttons_lead_one_picture_on_and_back() -> None:
    chart = drawn(scope_trace(*SUMMED))
    names = [frame.name for frame in chart.frames]
    assert len(set(names)) == len(names)
    for place, frame in enumerate(chart.frames):
        back, forward = (button.args[0][0] for button in frame.layout.updatemenus[1].buttons)
        assert back == names[max(0, place - 1)]
        assert forward == names[(place + 1) % len(names)]


@pytest.mark.parametrize("run", RUNS)
def test_the_first_picture_is_the_last_frame(run: Trace) -> None:
    chart = drawn(run)
    assert pictures(chart)[-1] == [layer.to_plotly_json() for layer in chart.data]


def test_drift_is_set_off_and_said() -> None:
    run = scope_trace(*[[each, 1.0] for each in ALONE], tensorflow="2.5.0", **DIRECT)
    layers = last(run)
    assert layers[BAD]["fillcolor"] == DRIFTED
    assert len(boxes(layers[BAD])) == 1 + 1  # the copy that stayed behind, and the outcome
    text = text_of(drawn(run))
    assert "CPU:1 ≠" in text
    assert "∇ –" in text  # it had no gradient
    assert "≠ Only one copy trains. No error" in text


def test_a_plain_weight_leaves_the_other_device_empty() -> None:
    run = scope_trace(*[[each] for each in ALONE], weight=PLAIN, slots=PLAIN, counter=PLAIN, **DIRECT)
    layers = last(run)
    (copy, outcome) = boxes(layers[GOOD])[0], boxes(layers[BAD])[0]
    assert copy[2] < 0.5
    assert outcome[2] == 1
    assert "≠ Not distributed: a plain weight" in text_of(drawn(run))


def test_an_error_strikes_at_its_moment() -> None:
    run = scope_trace(error=MESSAGES["mixing"], slots=None, counter=PLAIN, optimizer_scope="out")
    chart = drawn(run)
    assert len(chart.frames) == 4
    text = text_of(chart)
    assert re.search(r"✕ RuntimeError · step 1 · line \d+", text)
    assert "not made" in text
    layers = last(run)
    assert layers[STRIKE]["fillcolor"] == FAILED
    *strikes, banner = boxes(layers[STRIKE])
    assert len(strikes) == 4
    assert banner[:1] + banner[2:3] == (0, 1)
    for left, _, right, _ in strikes:
        assert (left + right) / 2 == pytest.approx(0.875)  # the first apply
    assert max(box[2] for box in boxes(layers[OWNED]) if box[1] > 130) == pytest.approx(0.875)  # lives end there
    assert layers[MARKERS]["x"][-1] == pytest.approx(0.875)
    assert layers[MARKERS]["y"][-1] > layers[MARKERS]["y"][0]  # at the slot's row, not the weight's
    assert boxes(pictures(chart)[2][STRIKE]) == []


def test_an_error_in_a_later_step_leaves_the_steps_before_it() -> None:
    chart = drawn(scope_trace([0.7, 0.7], error=MESSAGES["placeholder"], steps=3))
    assert len(chart.frames) == 4 + 1 + 1
    text = text_of(chart)
    assert "✕ InvalidArgumentError · step 2" in text
    assert "1 → 0.7" in text


def test_an_error_before_the_first_step() -> None:
    run = RUNS[-1]
    text = text_of(drawn(run))
    assert "✕ AttributeError · before step 1" in text
    assert "Trains" not in text


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("run", RUNS)
def test_every_run_can_be_drawn_and_told(run: Trace, language: Language) -> None:
    text = text_of(drawn(run, language)) + alternative(read(run), TEXTS[language])
    assert "{" not in text
    assert "None" not in text


@pytest.mark.parametrize("run", RUNS)
def test_no_text_is_empty_because_plotly_would_drop_its_point(run: Trace) -> None:
    for layers in pictures(drawn(run)):
        for place in TEXT_LAYERS:
            assert all(layers[place]["text"])
            assert len({len(layers[place][key]) for key in ("x", "y", "text")}) == 1


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("settings", [{}, {"loop": "fit"}, {"model": "subclassed", "dummy_call": "in_scope"}])
def test_a_run_that_was_cut_off_anywhere_can_be_drawn_and_told(settings: dict[str, Any], language: Language) -> None:
    whole = scope_trace(*SUMMED, **settings)
    for length in range(1, len(whole.events)):
        for status in ("killed", "timeout", "cancelled"):
            run = cut(whole, length, status)
            assert "✕" in text_of(drawn(run, language))
            assert alternative(read(run), TEXTS[language])


@pytest.mark.parametrize("run", RUNS)
def test_text_keeps_a_size_that_can_be_read(run: Trace) -> None:
    chart = drawn(run)
    sizes = [size for place in (INK, PLAIN_WORDS) for size in chart.data[place].textfont.size]
    assert min(sizes) >= 12
    assert all(annotation.font.size >= 12 for annotation in chart.layout.annotations)


def test_plain_text_has_the_colour_that_the_page_replaces() -> None:
    assert drawn(RUNS[0]).layout.font.color == PLAIN_TEXT


def test_the_height_does_not_grow_with_the_steps() -> None:
    short, long = ([[0.9, 0.9]] * steps for steps in (1, 20))
    assert drawn(scope_trace(*short, steps=1)).layout.height == drawn(scope_trace(*long, steps=20)).layout.height


def test_the_largest_figure_is_small_and_quickly_built() -> None:
    run = scope_trace(*[[0.9] * 8] * 20, replicas=8, steps=20, optimizer="adam", dummy_call="in_scope")
    spent = []
    for _ in range(5):
        began = time.process_time()  # not on the clock, as other processes take their share of that
        chart = drawn(run)
        spent.append(time.process_time() - began)
    assert len(json.dumps(chart.to_plotly_json())) < 300_000
    assert min(spent) < 0.6  # 0.03 on an idle machine; this only notices a change of another order


def test_the_alternative_says_the_outcome() -> None:
    said = alternative(
        read(scope_trace(*SUMMED, optimizer_scope="out", counter=PLAIN, optimizer="momentum")), TEXTS["en"]
    )
    for sentence in (
        "model: inside strategy.scope(). optimizer: outside strategy.scope(). first step: inside strategy.scope().",
        "weight was created when the model was made (line 91): MirroredVariable, MirroredStrategy, on CPU:0, CPU",
        "iterations was created when the optimizer was made (line 92): ResourceVariable, default strategy, on",
        "momentum was created when gradients were first applied (line 94): MirroredVariable, MirroredStrategy, on",
        "After 2 steps the copies of the weight hold 0.13, 0.13. Trains as one.",
    ):
        assert sentence in said
    text = alternative(read(scope_trace(error=MESSAGES["mixing"], slots=None)), TEXTS["en"])
    assert re.search(r"RuntimeError in step 1, line \d+\.$", text)


@pytest.mark.parametrize(
    ("version", "settings", "column"),
    [
        # Raised in strategy.run, in the first apply_gradients, after it had made iterations.
        ("2.5.0", {"model_scope": "out", "optimizer": "sgd"}, 3),
        ("2.4.1", {"model_scope": "out"}, 3),
        # Raised by the graph, after the step had been traced to its end.
        ("2.21.0", {"mode": "function"}, 4),
    ],
)
def test_where_an_error_strikes(version: str, settings: dict[str, str], column: int) -> None:
    """Columns: model, optimizer, first call, first apply; after them the run of what was traced."""
    recording = Recordings().find(Request.of("scope_placement", settings, version))
    assert recording is not None
    assert figure(read(recording.trace), TEXTS["en"]).frames[-1].name == f"{column}.-1x"
    assert "not made" not in text_of(drawn(recording.trace)).partition("iterations")[2].partition("learning_rate")[0]
