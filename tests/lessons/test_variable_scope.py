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
    assert "`var1` and `var3` are one object, `my_variable_scope/var1:0`" in said
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


# What TensorFlow's source says, and so is to be told: operations -> a part of a sentence in English, one in Chinese,
# and one in English that would be false.
TOLD: dict[str, tuple[str, str, str]] = {
    # variable_scope's own comment says that it allows no scope that does not inherit, and takes False as None
    "scope:s:reuse=True,scope:t:reuse=False,get:v:shape=1": (
        "`reuse=False` doesn't end `reuse=True` in `s/t/`. `tf.variable_scope` takes False as None",
        "`reuse=False` 不能取消 `s/t/` 里的 `reuse=True`：`tf.variable_scope` 把 False 当作 None",
        "was given no `reuse`",
    ),
    "scope:s,get:v:shape=1,close,scope:s:reuse=True,scope:@s:reuse=False,get:v": (
        "with None a scope that is entered by its object keeps the object's",
        "用对象进入的作用域遇到 None 就保留对象的设置",
        "inherits",
    ),
    # and that of _pure_variable_scope, that scopes within inherit reuse
    "scope:s:reuse=AUTO_REUSE,scope:t,get:v:shape=1": (
        "`s/t/` was given no `reuse`, and so inherits `reuse=AUTO_REUSE` from the scope around it.",
        "`s/t/` 没有写 `reuse`，于是沿用外层作用域的 `reuse=AUTO_REUSE`。",
        "doesn't end",
    ),
    "scope:s:reuse=False,get:v:shape=1": ("10 was written", "10 写入了", "reuse"),  # False, and nothing to inherit
    # its _new_name: self._old.name + "/" + name by name, that of the object by its object
    "scope:s,scope:s,get:v:shape=1": (
        '`variable_scope("s")` inside `s/` doesn\'t lead back to `s/`',
        '在 `s/` 里写 `variable_scope("s")` 并不会回到 `s/`',
        "entered again",
    ),
    "scope:s,scope:@s,get:v:shape=1,variable:w": (
        "`s/` was entered again inside itself, by its object: variables of `get_variable` keep that prefix",
        "在 `s/` 内部又用它的对象进入 `s/`",
        "doesn't lead back",
    ),
    "scope:s,close,scope:t,scope:@s,get:v:shape=1": (
        "object leads back to `s/` from anywhere",
        "用作用域对象，在哪里都能回到 `s/`",
        "inside itself",
    ),
    # a name scope of that name was there; the variable scope was not
    "name_scope:s,close,scope:s,get:v:shape=1": (
        "The name scope `s/` was in use, so `s/` got the name scope `s_1/`",
        "名称作用域 `s/` 已被占用，所以 `s/` 的名称作用域是 `s_1/`",
        "entered again",
    ),
    "scope:s,op:v,close,scope:s,op:v,close,scope:s,op:v": (
        "was a new one each time: `s_1/` and `s_2/`.",
        "新的名称作用域 `s_1/` 和 `s_2/`",
        "is now",
    ),
    # Graph.unique_name
    "op:v,get:v:shape=1": (
        "`v_1:0` has its number because the name without it was taken. "
        "`get_variable` itself doesn't look at that name: it goes on knowing the variable as `v`.",
        "`v_1:0` 带有编号，因为不带编号的名称已被占用。",
        "have their numbers",
    ),
    # get_variable, the function, has no reuse; the root scope is VariableScope(False)
    "get:v:shape=1,get:v": (
        "outside every `variable_scope` nothing can allow `reuse`",
        "在所有 `variable_scope` 之外，无从允许 `reuse`",
        "the scope's `reuse`",
    ),
    "op:v,get:v:shape=1,get:v": ("To have it again, use `var1`", "直接用 `var1`", "`v_1`"),  # v to get_variable
    "scope:s,get:v:shape=1,get:v": (
        "`s/v` is there already, and the scope's `reuse` is False",
        "`s/v` 已经存在，而作用域的 `reuse` 是 False",
        "outside",
    ),
    "scope:s,variable:v,close,scope:s:reuse=True,get:v": (
        "`s/v` is there, but `tf.Variable` made it",
        "`s/v` 虽然存在，却是 `tf.Variable` 创建的",
        "none made",
    ),
    "scope:s:reuse=True,get:v": ("none made `s/v`", "`s/v` 从未这样创建过", "tf.Variable"),
    # partitioned: min(2, 1) parts of a shape of [1]; without a partitioner they are found with reuse=True only
    "get:v:shape=1:partitioner=fixed_size_2": ("made one part only of `var1`", "只给 `var1` 建了一个分片", "several"),
    "scope:s:reuse=AUTO_REUSE,get:v:shape=4x2:partitioner=fixed_size_2,get:v": (
        "`s/v` is there in parts.",
        "`s/v` 已经存在，是分片的。",
        "TensorFlow's own words",
    ),
    # grammar by count
    "get:v:shape=1:regularizer=l2_loss": ("There is one regularization loss", "有 1 项", "Every variable"),
    "scope:s:reuse=AUTO_REUSE,get:v:shape=1,get:v,get:v": (
        "`var1`, `var2` and `var3` are one object, `s/v:0`. "
        "10 was written into `var1`, and `var2` and `var3` read 10 too",
        "`var1`、`var2` 和 `var3` 是同一个对象 `s/v:0`。10 写入了 `var1`，`var2` 和 `var3` 读到的也是 10",
        "reads",
    ),
    "scope:s:auxiliary_name_scope=False,op:v,close,scope:s:auxiliary_name_scope=False,op:v": (
        "With `auxiliary_name_scope=False`, `s/` opens no name scope",
        "`auxiliary_name_scope=False` 使 `s/` 不打开名称作用域",
        "entered again",
    ),
}
TOLD_EAGERLY: dict[str, tuple[str, str, str]] = {
    "variable:v,variable:v": (
        "`tf.Variable` makes a new variable each time",
        "`tf.Variable` 每次都新建变量",
        "get_variable",
    ),
    "get:v:shape=1,get:v:shape=1:partitioner=fixed_size_2": (
        "`var1` and `var2` have the same name, `v`, but are different variables.",
        "`var1` 和 `var2` 同名，都叫 `v`，却是不同的变量。",
        "`tf.Variable` makes",
    ),
    "scope:s:reuse=True,get:v:shape=1": ("`reuse` is without effect", "`reuse` 不起作用", "no variable is kept"),
    "get:v:shape=1,get:v": ("nobody said of what shape", "没有说明形状", "`reuse`"),
}


def test_what_is_told_is_what_tensorflows_source_says(engine: Engine) -> None:
    cases = [(words, "graph", parts) for words, parts in TOLD.items()]
    cases += [(words, "eager", parts) for words, parts in TOLD_EAGERLY.items()]
    requests = [Request.of("variable_scope", {"operations": words, "mode": mode}) for words, mode, _ in cases]
    tickets = [engine.submit(request) for request in requests]
    for (words, mode, (english, chinese, false)), ticket in zip(cases, tickets, strict=True):
        reading = read(ticket.result(240))
        said = {language: TEXTS[language].sentences(what_happened(reading, TEXTS[language])) for language in LANGUAGES}
        assert english in said["en"], (words, mode)
        assert chinese in said["zh"], (words, mode)
        assert false not in said["en"], (words, mode)


def test_what_tf_no_longer_has_is_named(traces: dict[str, Trace]) -> None:
    for name, attribute in {"plain": "tf.variable_scope", "plain session": "tf.Session"}.items():
        said = what_happened(read(traces[name]), TEXTS["en"])
        assert (
            said[-1]
            == f"TensorFlow {traces[name].start['tensorflow']} no longer has `{attribute}`; it is in `tf.compat.v1`."
        )


def test_a_fix_fixes(engine: Engine, traces: dict[str, Trace]) -> None:
    """Whatever is refused runs after its fix."""
    refused = {name: trace for name, trace in traces.items() if trace.error is not None}
    assert len(refused) > 15
    for name, trace in refused.items():
        fixed = engine.run(
            Request.of("variable_scope", {**trace.start["settings"], **(suggested_fix(read(trace)) or {})})
        )
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
    variants = {"exists_outside", "missing_variable", "no_shape_eager"}
    assert explained == {cause for _, cause in CAUSES} | variants


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(VariableScopeSettings()) == frozenset()
    assert LESSON.unused(VariableScopeSettings.parse({"operations": "op:v"})) == {"assign"}
