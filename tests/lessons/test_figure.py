"""The moving figure: what its pictures hold, that every picture is complete, and that it stays small and
quick."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest

from engine.trace import Trace
from lessons.aggregation.figure import alternative, figure
from lessons.aggregation.reading import read
from lessons.language import LANGUAGES, Language, Texts
from lessons.player import DRIFTED, EQUAL
from lessons.player import INK as PLAIN_TEXT
from tests.lessons.test_story import GRID, MESSAGES
from tests.lessons.traces import cut, trace

LESSON = Path(__file__).parents[2] / "lessons" / "aggregation"
TEXTS = {language: Texts(LESSON, language) for language in LANGUAGES}
# the traces that hold text: tokens, nodes, text on colour, plain text
TOKENS, NODES, INK, PLAIN = 3, 4, 5, 6


def drawn(run: Trace, language: Language = "en") -> go.Figure:
    return figure(read(run), TEXTS[language])


def words(text: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


def text_of(chart: go.Figure) -> str:
    """All text of the first picture."""
    texts = [text for layer in chart.data for text in (layer.text or ())]
    texts += [annotation.text for annotation in chart.layout.annotations]
    return " | ".join(words(text) for text in texts if words(text))


def pictures(chart: go.Figure) -> list[list[dict[str, Any]]]:
    """The traces of every frame, complete: what the frame changes laid over what the figure begins with."""
    first = [layer.to_plotly_json() for layer in chart.data]
    complete = []
    for frame in chart.frames:
        layers = [dict(layer) for layer in first]
        for place, change in zip(frame.traces, frame.data, strict=True):
            for key, value in change.to_plotly_json().items():
                old = layers[place].get(key)
                layers[place][key] = {**old, **value} if isinstance(old, dict) else value
        complete.append(layers)
    return complete


def test_at_first_the_last_state_is_shown_with_its_numbers() -> None:
    chart = drawn(trace([1.15, 1.15], [1.3, 1.3], aggregation="MEAN", steps=2))
    text = text_of(chart)
    for expected in (
        "0.1",
        "0.2",
        "mean 0.15",
        "+0.15",
        "1.15 → 1.3",
        "Copies: equal",
        "Step 2 of 2",
        "= 2 × 2",
    ):
        assert expected in text
    assert "aggregation=MEAN" in text
    assert chart.layout.sliders[0].active == len(chart.frames) - 1


def test_the_first_picture_is_the_last_frame() -> None:
    chart = drawn(trace([1.1, 1.2], [1.2, 1.4], steps=2))
    assert pictures(chart)[-1] == [layer.to_plotly_json() for layer in chart.data]


def test_four_phases_a_step_and_what_each_shows() -> None:
    chart = drawn(trace([1.3, 1.3], [1.6, 1.6], aggregation="SUM", steps=2))
    assert [frame.name for frame in chart.frames] == [
        f"{step}{phase}" for step in (0, 1) for phase in ("contribute", "merge", "apply", "count")
    ]
    contribute, merge, apply, count = pictures(chart)[4:]
    shown = [[words(text) for text in layers[NODES]["text"]] for layers in (contribute, merge, apply, count)]
    assert [text for (text,) in shown] == ["Σ sum", "Σ sum", "Σ sum 0.3", "Σ sum 0.3"]
    held = [words(layers[INK]["text"][1]) for layers in (contribute, merge, apply, count)]
    assert held == ["1.3", "1.3", "1.3", "1.3 → 1.6"]
    # the counters of the step before stay until this step's are known
    sums = [words(layers[INK]["text"][4]) for layers in (contribute, merge, apply, count)]
    assert sums == ["2", "2", "2", "4"]


def test_tokens_leave_the_cards_and_enter_the_merge() -> None:
    chart = drawn(trace([1.3, 1.3], aggregation="SUM"))
    contribute, merge, apply, _ = (layers[TOKENS] for layers in pictures(chart))
    sent, entering, delivered = slice(0, 2), slice(4, 6), slice(6, 8)
    assert contribute["marker"]["opacity"][sent] == [1, 1]
    assert contribute["x"][0] < merge["x"][0] < merge["x"][4]
    assert merge["marker"]["opacity"][entering] == [1, 1]
    assert len(set(merge["y"][entering])) == 1  # they meet
    assert merge["marker"]["opacity"][delivered] == [0, 0]
    assert apply["marker"]["opacity"][delivered] == [1, 1]
    assert apply["x"][6] > apply["x"][0]


def test_own_numbers_pass_in_their_own_lanes() -> None:
    chart = drawn(trace([1.1, 1.2, 1.3], gradients=[0.1, 0.2, 0.3]))
    merge = pictures(chart)[1][TOKENS]
    assert len(set(merge["y"][6:9])) == 3
    assert pictures(chart)[1][NODES]["marker"]["opacity"] == [0]
    assert "unmerged" in text_of(chart)
    assert "Copies: differ" in text_of(chart)
    assert text_of(chart).count("≠") == 3  # at each copy: none is the right one


@pytest.mark.parametrize(
    ("copies", "apart"),
    [([1.15, 1.15, 1.15], 0), ([1.1, 1.2, 1.3], 3), ([1.1, 1.1, 1.3], 3)],
)
def test_of_copies_that_differ_none_has_the_colour_of_the_right_one(copies: list[float], apart: int) -> None:
    """The second layer of boxes lies over the first; a box that isn't there has no width."""
    chart = drawn(trace(copies, gradients=[0.1, 0.2, 0.3]))
    equal, over = chart.data[:2]
    assert (equal.fillcolor, over.fillcolor) == (EQUAL, DRIFTED)
    widths = [over.x[start + 1] - over.x[start] for start in range(0, len(over.x), 6)]
    assert [width > 0 for width in widths] == [True] * apart + [False] * (3 - apart)


def test_of_a_call_outside_the_replicas_no_replica_is_said_to_contribute() -> None:
    first = pictures(drawn(trace([1.1, 1.1], gradients=[0.1, 0.1], route="cross_replica", value="python")))[0]
    said = " ".join(words(text) for text in first[PLAIN]["text"])
    assert "one call brings the numbers" in said
    assert "contributes" not in said


def test_what_is_not_used_is_struck_through() -> None:
    chart = drawn(trace([1.1] * 3, gradients=[0.1, 0.2, 0.3], aggregation="ONLY_FIRST_REPLICA"))
    tokens = chart.data[TOKENS]
    struck = [text for text in tokens.text if text.startswith("<s>")]
    assert struck == ["<s>0.2</s>", "<s>0.3</s>"]
    assert tokens.marker.color[1] == tokens.marker.color[2] != tokens.marker.color[0]


def test_an_optimizer_leaves_the_aggregation_aside() -> None:
    text = text_of(drawn(trace([0.97, 0.97], route="optimizer", learning_rate=0.1, aggregation="MEAN")))
    assert "aggregation=MEAN · not asked" in text
    assert "optimizer SGD" in text
    assert "× −0.1" in text
    assert "Σ sum 0.3" in text
    assert "−0.03" in text
    assert "iterations" in text


def test_on_read_merges_at_the_read() -> None:
    text = text_of(drawn(trace([1.1, 1.2], reads=[2.3], synchronization="ON_READ", aggregation="SUM")))
    assert "aggregation=SUM · asked at the read" in text
    assert "unmerged" in text
    assert "Σ sum 2.3" in text


def test_what_cannot_be_told_is_not_drawn_as_known() -> None:
    text = text_of(drawn(trace([1.2, 1.2], gradients=[0.2, 0.2], aggregation="MEAN")))
    assert "can’t tell 0.2" in text


def test_an_error_strikes_where_it_happened() -> None:
    run = trace([1.3, 1.3], error=("ValueError", MESSAGES["python_sum"]), steps=3, aggregation="SUM")
    chart = drawn(run)
    assert [frame.name for frame in chart.frames][-2:] == ["1contribute", "1error"]
    text = text_of(chart)
    assert "✕ ValueError · step 2 · line 41" in text
    assert "Step 2 of 3 · TensorFlow raises an error" in text
    assert "ValueError" not in "".join(words(text) for layers in pictures(chart)[:-1] for text in layers[INK]["text"])


def test_an_error_at_the_read_leaves_the_copies() -> None:
    run = trace([1.1, 1.2], reads=[], error=("ValueError", MESSAGES["read_none"]), synchronization="ON_READ")
    chart = drawn(run)
    assert [frame.name for frame in chart.frames] == ["0contribute", "0merge", "0apply", "0error"]
    assert words(chart.data[NODES].text[1]) == "✕"
    assert "1 → 1.2" in text_of(chart)


def test_an_error_before_the_first_step_is_one_picture_without_controls() -> None:
    chart = drawn(trace(error=("ValueError", MESSAGES["mean_int"]), start=[]))
    assert not chart.frames
    assert not chart.layout.updatemenus
    assert not chart.layout.sliders
    assert "✕ ValueError · line 41" in text_of(chart)


def test_buttons_lead_one_picture_on_and_back_from_every_frame() -> None:
    chart = drawn(trace([1.1, 1.2], [1.2, 1.4], steps=2))
    names = [frame.name for frame in chart.frames]
    for place, frame in enumerate(chart.frames):
        back, forward = (button.args[0][0] for button in frame.layout.updatemenus[1].buttons)
        assert back == names[max(0, place - 1)]
        assert forward == names[(place + 1) % len(names)]
    assert [step.args[0][0] for step in chart.layout.sliders[0].steps] == names


def test_no_text_is_empty_because_plotly_would_drop_its_point() -> None:
    for copies, settings in GRID:
        for layers in pictures(drawn(trace(*copies, **settings))):
            for place in (TOKENS, NODES, INK, PLAIN):
                assert all(layers[place]["text"])
                assert len({len(layers[place][key]) for key in ("x", "y", "text")}) == 1


@pytest.mark.parametrize(("copies", "settings"), GRID)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_merge_can_be_drawn_and_told(
    copies: list[list[float]], settings: dict[str, Any], language: Language
) -> None:
    run = trace(*copies, **settings)
    text = text_of(drawn(run, language)) + alternative(read(run), TEXTS[language])
    assert "{" not in text
    assert "None" not in text


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_run_that_was_cut_off_anywhere_can_be_drawn_and_told(language: Language) -> None:
    whole = trace([1.1, 1.2], [1.2, 1.4], steps=2)
    for length in range(1, len(whole.events)):
        for status in ("killed", "timeout", "cancelled"):
            run = cut(whole, length, status)
            assert "✕" in text_of(drawn(run, language))
            assert alternative(read(run), TEXTS[language])


@pytest.mark.parametrize("replicas", range(1, 9))
def test_the_height_grows_with_the_replicas_not_with_the_steps(replicas: int) -> None:
    gradients = [0.1] * replicas
    height = drawn(trace([1.1] * replicas, gradients=gradients)).layout.height
    assert height == drawn(trace([1.1] * replicas, [1.2] * replicas, gradients=gradients, steps=2)).layout.height
    if replicas > 2:
        smaller = drawn(trace([1.1] * (replicas - 1), gradients=gradients[1:])).layout.height
        assert 0 < height - smaller < 100


def test_text_keeps_a_size_that_can_be_read() -> None:
    chart = drawn(trace([-11.3456, 1.0001, 8.77], gradients=[-12.3456, 0.0001, 7.77]))
    sizes = [size for place in (NODES, INK, PLAIN) for size in chart.data[place].textfont.size]
    assert min(sizes) >= 13
    assert all(annotation.font.size >= 13 for annotation in chart.layout.annotations)


def test_plain_text_has_the_colour_that_the_style_replaces() -> None:
    """#7F7F80, which style.css knows as rgb(127, 127, 128)."""
    assert drawn(trace([1.1, 1.2])).layout.font.color == PLAIN_TEXT
    style = (Path(__file__).parents[2] / "pages" / "parts" / "style.css").read_text()
    numbers = ", ".join(str(int(PLAIN_TEXT[at : at + 2], 16)) for at in (1, 3, 5))
    assert f"rgb({numbers})" in style


def longest_run() -> Trace:
    gradients = [round(0.1 * (replica + 1), 1) for replica in range(8)]
    copies = [[round(1 + step * each, 1) for each in gradients] for step in range(1, 21)]
    return trace(*copies, gradients=gradients, steps=20)


def test_the_largest_figure_is_small() -> None:
    assert len(json.dumps(drawn(longest_run()).to_plotly_json())) < 600_000


def test_a_figure_is_built_quickly() -> None:
    run, spent = longest_run(), []
    for _ in range(5):
        began = time.process_time()  # not on the clock, as other processes take their share of that
        drawn(run)
        spent.append(time.process_time() - began)
    assert min(spent) < 0.6  # 0.06 on an idle machine; this only notices a change of another order


def test_the_alternative_says_the_outcome() -> None:
    run = trace([1.1, 1.2], reads=[2.3], synchronization="ON_READ", aggregation="SUM")
    assert alternative(read(run), TEXTS["en"]) == (
        "Replicas: 2, steps: 1, route: assign_add, aggregation: SUM. Sent: 0.1, 0.2. "
        "The copies differ: 1.1, 1.2. A cross-replica read gives 2.3. "
        "Counters: SUM 2, MEAN 1, ONLY_FIRST_REPLICA 1."
    )
    run = trace([1.3, 1.3], error=("ValueError", "no"), aggregation="SUM", steps=2)
    assert alternative(read(run), TEXTS["en"]).endswith(
        "Every copy holds 1.3. Counters: SUM 2, MEAN 1, ONLY_FIRST_REPLICA 1. ValueError in step 2."
    )
