"""The lesson on variable scopes: what it reads, draws and tells of real runs, its remedies, its editing, its texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.engine import Engine
from engine.experiments.variable_scope import (
    MAX_OPERATIONS,
    PRESETS,
    Operation,
    VariableScopeSettings,
)
from engine.request import Request
from engine.trace import Trace
from lessons.language import LANGUAGES, Texts
from lessons.variable_scope import editing
from lessons.variable_scope.figure import alternative, figure
from lessons.variable_scope.fix import suggested_fix
from lessons.variable_scope.lesson import LESSON
from lessons.variable_scope.reading import CAUSES, read
from lessons.variable_scope.story import what_happened
from tests.engine.test_variable_scope import SITUATIONS
from tests.lessons.test_texts import loaded

FOLDER = Path(__file__).parents[2] / "lessons" / "variable_scope"
TEXTS = {language: Texts(FOLDER, language) for language in LANGUAGES}


@pytest.fixture(scope="module")
def traces(engine: Engine) -> dict[str, Trace]:
    """Every situation and preset, and some that end otherwise."""
    choices: dict[str, dict[str, Any]] = {name: {"operations": words} for name, (words, _) in SITUATIONS.items()}
    choices |= {f"preset {name}": {"operations": words} for name, words in PRESETS.items()}
    choices |= {f"eager {name}": {"operations": words, "mode": "eager"} for name, words in PRESETS.items()}
    choices |= {"plain": {"api": "tf"}, "plain session": {"api": "tf", "operations": "name_scope:n,variable:v"}}
    tickets = {name: engine.submit(Request.of("variable_scope", choice)) for name, choice in choices.items()}
    return {name: ticket.result(240) for name, ticket in tickets.items()}


def texts_of(trace: Trace) -> str:
    return json.dumps(figure(read(trace), TEXTS["en"]).to_plotly_json(), ensure_ascii=False, default=list)


def test_whatever_tensorflow_answers_is_drawn_and_told(traces: dict[str, Trace]) -> None:
    for name, trace in traces.items():
        reading = read(trace)
        if reading.failure:
            assert reading.failure.cause != "other", (name, reading.failure.message)
        for language in LANGUAGES:
            assert what_happened(reading, TEXTS[language]) or not reading.variables, name
            assert alternative(reading, TEXTS[language]), name
        drawn = figure(reading, TEXTS["en"])
        assert len(drawn.frames) in (0, *range(2, 20))
        for item in reading.variables:
            assert item.root in reading.objects


def test_the_article_is_read_as_two_variables_with_four_names(traces: dict[str, Trace]) -> None:
    reading = read(traces["the article"])
    called = {root: [item.statement.variable for item in items] for root, items in reading.objects.items()}
    assert called == {"var1": ["var1", "var3"], "var2": ["var2", "var4"]}
    assert [held["var3"] for held in reading.values] == [[1], [10]]
    drawn = texts_of(traces["the article"])
    assert "Python names: 4 · variables: 2" in drawn
    assert "var1 = var3" in drawn
    said = " ".join(what_happened(reading, TEXTS["en"]))
    assert "`var3` and `var1` are one object, `my_variable_scope/var1:0`" in said
    assert "`my_variable_scope_1/`" in said
    assert "`var3` reads 10 too" in said


def test_names_of_one_object_have_one_marker_and_a_line(traces: dict[str, Trace]) -> None:
    """And each object another one."""
    reading = read(traces["the article"])
    drawn = figure(reading, TEXTS["en"])
    (markers,) = [trace for trace in drawn.data if trace.mode == "markers+text"]
    shown = list(zip(markers.x, markers.marker.symbol, markers.marker.color, strict=True))[1:]
    # var1, var2, var3, var4, and the two of the process
    assert shown[0] == shown[2]
    assert shown[1] == shown[3]
    assert shown[0] != shown[1]
    assert [mark[1:] for mark in shown[4:]] == [mark[1:] for mark in shown[:2]]
    lines = [trace for trace in drawn.data if trace.mode == "lines" and trace.line.width]
    assert [line.x[0] for line in lines] == [shown[0][0], shown[1][0]]
    apart = figure(read(traces["two names"]), TEXTS["en"])
    assert not [trace for trace in apart.data if trace.mode == "lines" and trace.line.width]


def test_an_error_strikes_at_its_operation(traces: dict[str, Trace]) -> None:
    reading = read(traces["in a scope that is opened again"])  # scope, get, scope, get: the fourth
    assert reading.failure is not None
    assert reading.failure.place == 3
    assert "ValueError" in texts_of(traces["in a scope that is opened again"])
    after = read(traces["plain session"])
    assert after.failure is not None
    assert after.failure.place is None


def test_eager_variables_of_one_name_are_told_apart(traces: dict[str, Trace]) -> None:
    reading = read(traces["eager auto_reuse"])
    assert len(reading.objects) == 2
    said = " ".join(what_happened(reading, TEXTS["en"]))
    assert "`var1` and `var2` have the same name, `s/v:0`" in said
    assert "`VariableScope.get_variable` sets `reuse` to False" in said


def test_a_fix_fixes(engine: Engine, traces: dict[str, Trace]) -> None:
    """Whatever is refused runs after its fix; where one fix leads to another, after both."""
    refused = {name: trace for name, trace in traces.items() if trace.error is not None}
    assert len(refused) > 15
    for name, trace in refused.items():
        fixed = trace
        for _ in range(3):
            change = suggested_fix(read(fixed))
            if change is None:
                break
            fixed = engine.run(Request.of("variable_scope", {**fixed.start["settings"], **change}))
        assert fixed.status == "ok", (name, fixed.error)


def test_what_went_right_needs_no_fix(traces: dict[str, Trace]) -> None:
    assert not [name for name, trace in traces.items() if trace.status == "ok" and suggested_fix(read(trace))]


# ------------------------------------------------------------------------------------------------------ editing


def written(operations: tuple[Operation, ...] | None) -> str:
    return "" if operations is None else ",".join(each.word for each in operations)


START = editing.explicit(["scope:s", "get:v", "close", "op:w"])


@pytest.mark.parametrize(
    ("place", "by", "expected"),
    [
        (0, 1, "op:w,scope:s,get:v,close"),  # a block goes with what is in it
        (0, -1, ""),
        (1, -1, "get:v,scope:s,close,op:w"),
        (1, 1, "scope:s,close,get:v,op:w"),
        (2, -1, "scope:s,close,get:v,op:w"),
        (2, 1, "scope:s,get:v,op:w,close"),
        (3, -1, "scope:s,get:v,op:w,close"),
        (3, 1, ""),
    ],
)
def test_an_operation_is_moved(place: int, by: int, expected: str) -> None:
    assert written(editing.moved(START, place, by)) == expected


def test_a_block_does_not_end_before_it_begins() -> None:
    assert editing.moved(editing.explicit(["scope:s", "close", "op:v"]), 1, -1) is None


def test_an_operation_is_removed_and_added() -> None:
    assert written(editing.removed(START, 0)) == "get:v,op:w"
    assert written(editing.removed(START, 3)) == "scope:s,get:v,close"
    assert editing.removed((Operation.parse("op:v"),), 0) is None
    captured = editing.explicit(["scope:s", "close", "scope:@s"])
    assert editing.removed(captured, 0) is None  # whose object is asked for
    assert written(editing.added(START, "scope")) == "scope:s,get:v,close,op:w,scope:s,close"
    assert written(editing.added(editing.explicit(["scope:s"]), "op")) == "scope:s,op:v,close"
    assert editing.added(editing.explicit(["op:v"] * MAX_OPERATIONS), "op") is None


@given(st.data())
def test_whatever_is_edited_is_accepted(data: st.DataObject) -> None:
    operations = editing.explicit(data.draw(st.sampled_from(list(PRESETS.values()))).split(","))
    for _ in range(6):
        place = data.draw(st.integers(0, len(operations) - 1))
        changes = [editing.moved(operations, place, -1), editing.moved(operations, place, 1)]
        changes += [editing.removed(operations, place)] if operations[place].kind != "close" else []
        changes += [editing.added(operations, data.draw(st.sampled_from(list(editing.NEW))))]
        possible = [change for change in changes if change is not None and editing.words(change) is not None]
        operations = data.draw(st.sampled_from(possible)) if possible else operations
        words = editing.words(operations)
        assert words is not None
        assert VariableScopeSettings.parse({"operations": words}).operations == words
        operations = editing.explicit(words)


# -------------------------------------------------------------------------------------------------------- texts


def test_every_cause_has_a_text() -> None:
    explained = {key.removeprefix("story.error.") for key in loaded(FOLDER, "en") if key.startswith("story.error.")}
    assert explained == {cause for _, cause in CAUSES} | {"other", "no_shape_eager"}


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(VariableScopeSettings()) == frozenset()
    assert LESSON.unused(VariableScopeSettings.parse({"operations": "op:v"})) == {"assign"}
