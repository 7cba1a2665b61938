"""The experiment `variable_scope`: names and sharing, by TensorFlow's documented rules, written down by hand.

The rules are those of the docstrings of tf.compat.v1.variable_scope, get_variable and name_scope, and of the guide
"Sharing variables" of TensorFlow 1; `python/ops/variable_scope.py` is where they are kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.experiments.variable_scope import ARTICLE, OPTIONS, Operation, VariableScopeSettings
from engine.job import Ticket
from engine.program import render
from engine.settings import SettingsError
from engine.trace import Trace
from engine.versions import Versions

Run = Callable[..., Trace]
Submit = Callable[..., Ticket]
VERSIONS = ("1.15.5", "2.21")

EXISTS = ("ValueError", "already exists, disallowed")
MISSING = ("ValueError", "does not exist, or was not created with tf.get_variable()")
G = "get:v:shape=1:initializer=1.0"  # what makes v, or finds it

# Operations, and what each that is no scope gets: its full name, and for a variable that was there before, "=" and the
# first name that this object had in the program. An error, last, is its type and a part of its message.
Situation = tuple[str, list[str | tuple[str, str]]]
SITUATIONS: dict[str, Situation] = {
    # ---- names
    "a variable of its own": (G, ["v:0"]),
    "in a scope": (f"scope:s,{G}", ["s/v:0"]),
    "in two scopes": (f"scope:s,scope:t,{G}", ["s/t/v:0"]),
    "in three": (f"scope:s,scope:t,scope:n,{G}", ["s/t/n/v:0"]),
    "the same name in two scopes": (f"scope:s,{G},close,scope:t,{G}", ["s/v:0", "t/v:0"]),
    "the same name inside and outside": (f"{G},scope:s,{G}", ["v:0", "s/v:0"]),
    "after a scope was left": (f"scope:s,{G},close,{G}", ["s/v:0", "v:0"]),
    "two names": ("scope:s,get:v:shape=1,get:w:shape=1", ["s/v:0", "s/w:0"]),
    "a scope within one of its own name": (f"scope:s,{G},scope:s,{G}", ["s/v:0", "s/s/v:0"]),
    "get_variable ignores a name scope": (f"name_scope:n,{G}", ["v:0"]),
    "a name scope around a variable scope": (f"name_scope:n,scope:s,{G}", ["s/v:0"]),
    "a name scope within a variable scope": (f"scope:s,name_scope:n,{G}", ["s/v:0"]),
    "tf.Variable takes a name scope": ("name_scope:n,variable:v", ["n/v:0"]),
    "tf.Variable takes the name scope of a variable scope": ("scope:s,variable:v", ["s/v:0"]),
    "tf.Variable takes both": ("scope:s,name_scope:n,variable:v", ["s/n/v:0"]),
    "and the other way round": ("name_scope:n,scope:s,variable:v", ["n/s/v:0"]),
    "an operation takes them too": ("scope:s,name_scope:n,op:v", ["s/n/v:0"]),
    "an operation by itself": ("op:v", ["v:0"]),
    # ---- one name twice
    "get_variable twice": (f"{G},{G}", ["v:0", EXISTS]),
    "twice in a scope": (f"scope:s,{G},{G}", ["s/v:0", EXISTS]),
    "in a scope that is opened again": (f"scope:s,{G},close,scope:s,{G}", ["s/v:0", EXISTS]),
    "tf.Variable twice": ("variable:v,variable:v", ["v:0", "v_1:0"]),
    "three times": ("variable:v,variable:v,variable:v", ["v:0", "v_1:0", "v_2:0"]),
    "an operation twice": ("op:v,op:v", ["v:0", "v_1:0"]),
    "get_variable, then tf.Variable": (f"{G},variable:v", ["v:0", "v_1:0"]),
    "get_variable, then an operation": (f"{G},op:v", ["v:0", "v_1:0"]),
    "tf.Variable is not known to get_variable": (f"variable:v,{G}", ["v:0", "v_1:0"]),
    "nor can it be reused": ("scope:s,variable:v,close,scope:s:reuse=True,get:v", ["s/v:0", MISSING]),
    # ---- a scope entered again: its variables keep their prefix, its name scope gets a number
    "tf.Variable in a scope that is opened again": (
        "scope:s,variable:v,close,scope:s,variable:v",
        ["s/v:0", "s_1/v:0"],
    ),
    "and a third time": ("scope:s,op:v,close,scope:s,op:v,close,scope:s,op:v", ["s/v:0", "s_1/v:0", "s_2/v:0"]),
    "a name scope opened again": ("name_scope:n,op:v,close,name_scope:n,op:v", ["n/v:0", "n_1/v:0"]),
    "a name scope of a variable scope's name": ("scope:s,op:v,close,name_scope:s,op:v", ["s/v:0", "s_1/v:0"]),
    "get_variable and an operation in one": (
        f"scope:s,{G},op:w,close,scope:s:reuse=True,get:v,op:w",
        ["s/v:0", "s/w:0", "=var1", "s_1/w:0"],
    ),
    "another variable in it": ("scope:s,get:v:shape=1,close,scope:s,get:w:shape=1", ["s/v:0", "s/w:0"]),
    "a variable scope of a name scope's name": (
        f"name_scope:s,op:w,close,scope:s,{G},op:w",
        ["s/w:0", "s/v:0", "s_1/w:0"],
    ),
    "a name scope between two variable scopes": (f"scope:s,name_scope:n,scope:t,{G},op:w", ["s/t/v:0", "s/n/t/w:0"]),
    "an operation, then get_variable": (f"op:v,{G}", ["v:0", "v_1:0"]),
    # ---- reuse
    "the article": (",".join(ARTICLE), ["my_variable_scope/var1:0", "my_variable_scope/var2:0", "=var1", "=var2"]),
    "reuse=True": (f"scope:s,{G},close,scope:s:reuse=True,get:v", ["s/v:0", "=var1"]),
    "reuse=True, and once more": (f"scope:s,{G},close,scope:s:reuse=True,get:v,get:v", ["s/v:0", "=var1", "=var1"]),
    "reuse=True of what isn't there": ("scope:s:reuse=True,get:v:shape=1", [MISSING]),
    "reuse=True of another name": (f"scope:s,{G},close,scope:s:reuse=True,get:w", ["s/v:0", MISSING]),
    "reuse=True in another scope": (f"scope:s,{G},close,scope:t:reuse=True,get:v", ["s/v:0", MISSING]),
    "reuse=True asked with the same shape": (f"scope:s,{G},close,scope:s:reuse=True,{G}", ["s/v:0", "=var1"]),
    "reuse=True asked with another shape": (
        f"scope:s,{G},close,scope:s:reuse=True,get:v:shape=2",
        ["s/v:0", ("ValueError", "Trying to share variable s/v, but specified shape (2,) and found shape (1,)")],
    ),
    "reuse=True and another initializer: the first holds": (
        f"scope:s,{G},close,scope:s:reuse=True,get:v:shape=1:initializer=2.0",
        ["s/v:0", "=var1"],
    ),
    "reuse is inherited": (
        f"scope:s,scope:t,{G},close,close,scope:s:reuse=True,scope:t,get:v",
        ["s/t/v:0", "=var1"],
    ),
    "reuse=False within reuse=True changes nothing: False is None there": (
        f"scope:s,scope:t,{G},close,close,scope:s:reuse=True,scope:t:reuse=False,get:v",
        ["s/t/v:0", "=var1"],
    ),
    "nor can it make a variable": (f"scope:s:reuse=True,scope:t:reuse=False,{G}", [MISSING]),
    "reuse=False": (f"scope:s:reuse=False,{G}", ["s/v:0"]),
    "reuse=False is no licence to reuse": (f"scope:s,{G},close,scope:s:reuse=False,{G}", ["s/v:0", EXISTS]),
    "AUTO_REUSE makes it": (f"scope:s:reuse=AUTO_REUSE,{G}", ["s/v:0"]),
    "AUTO_REUSE finds it": (f"scope:s:reuse=AUTO_REUSE,{G},get:v", ["s/v:0", "=var1"]),
    "AUTO_REUSE in two blocks": (
        f"scope:s:reuse=AUTO_REUSE,{G},close,scope:s:reuse=AUTO_REUSE,{G}",
        ["s/v:0", "=var1"],
    ),
    "AUTO_REUSE is inherited": (f"scope:s:reuse=AUTO_REUSE,scope:t,{G},{G}", ["s/t/v:0", "=var1"]),
    "AUTO_REUSE within reuse=True may make one": (f"scope:s:reuse=True,scope:t:reuse=AUTO_REUSE,{G}", ["s/t/v:0"]),
    "AUTO_REUSE asked with another shape": (
        f"scope:s:reuse=AUTO_REUSE,{G},get:v:shape=2",
        ["s/v:0", ("ValueError", "Trying to share variable s/v, but specified shape (2,) and found shape (1,)")],
    ),
    "AUTO_REUSE is not kept for the next": (f"scope:s:reuse=AUTO_REUSE,{G},close,scope:s,{G}", ["s/v:0", EXISTS]),
    "reuse=True within AUTO_REUSE": (f"scope:s:reuse=AUTO_REUSE,scope:t:reuse=True,{G}", [MISSING]),
    "tf.Variable knows no reuse": (
        "scope:s,variable:v,close,scope:s:reuse=AUTO_REUSE,variable:v",
        ["s/v:0", "s_1/v:0"],
    ),
    # ---- by its object: the scope's whole name, from wherever it is
    "by its object": (f"scope:s,{G},close,scope:@s:reuse=True,get:v", ["s/v:0", "=var1"]),
    "by its object without reuse": (f"scope:s,{G},close,scope:@s,{G}", ["s/v:0", EXISTS]),
    "by its object from within another": (f"scope:s,{G},close,scope:t,scope:@s:reuse=True,get:v", ["s/v:0", "=var1"]),
    "by its name from within another": (f"scope:s,{G},close,scope:t,scope:s,{G}", ["s/v:0", "t/s/v:0"]),
    "an object keeps its own reuse": (
        f"scope:s:reuse=AUTO_REUSE,{G},close,scope:t,scope:@s,get:v",
        ["s/v:0", "=var1"],
    ),
    "and takes none from around it": (f"scope:s,{G},close,scope:t:reuse=True,scope:@s,{G}", ["s/v:0", EXISTS]),
    "operations in it are named by where it is opened": (
        "scope:s,op:v,close,scope:t,scope:@s,op:v",
        ["s/v:0", "t/s/v:0"],
    ),
    "by its object within itself": (f"scope:s,scope:@s,{G},op:w", ["s/v:0", "s/s/w:0"]),
    "by the object of one that was in another: its whole name, the last part as name scope": (
        f"scope:s,scope:t,close,close,scope:@t,{G},op:w",
        ["s/t/v:0", "t/w:0"],
    ),
    "of two of one name the last is meant": (
        f"scope:s,close,scope:t,scope:s,close,close,scope:@s,{G}",
        ["t/s/v:0"],
    ),
    "its name scope is numbered anew, its variables are not": (
        f"scope:s,{G},op:w,close,scope:@s:reuse=True,get:v,op:w",
        ["s/v:0", "s/w:0", "=var1", "s_1/w:0"],
    ),
    # ---- auxiliary_name_scope
    "no name scope": ("scope:s:auxiliary_name_scope=False,op:v", ["v:0"]),
    "no name scope, for tf.Variable": ("scope:s:auxiliary_name_scope=False,variable:v", ["v:0"]),
    "but a prefix for get_variable": (f"scope:s:auxiliary_name_scope=False,{G}", ["s/v:0"]),
    "none beyond the one around": ("name_scope:n,scope:s:auxiliary_name_scope=False,op:v", ["n/v:0"]),
    "no number when it is entered again": (
        "scope:s,op:v,close,scope:@s:auxiliary_name_scope=False,op:v",
        ["s/v:0", "v:0"],
    ),
    "none beyond that of the variable scope around": (
        f"scope:s,scope:t:auxiliary_name_scope=False,{G},op:w",
        ["s/t/v:0", "s/w:0"],
    ),
    # ---- partitioner
    "two parts": ("scope:s,get:v:shape=4x2:partitioner=fixed_size_2", ["s/v"]),
    "two parts, and again": (
        "scope:s:reuse=AUTO_REUSE,get:v:shape=4x2:partitioner=fixed_size_2,get:v:partitioner=fixed_size_2:shape=4x2",
        ["s/v", "=var1"],
    ),
    "two parts that are there": (
        "get:v:shape=4x2:partitioner=fixed_size_2,get:v:shape=4x2:partitioner=fixed_size_2",
        ["v", ("ValueError", "Partitioned variable with name v already exists")],
    ),
    "a whole that is there in parts": (
        "get:v:shape=4x2:partitioner=fixed_size_2,scope:s:reuse=AUTO_REUSE,get:v:shape=4x2",
        ["v", "s/v:0"],
    ),
    "in parts, where it is whole": (
        "scope:s:reuse=AUTO_REUSE,get:v:shape=4x2,get:v:shape=4x2:partitioner=fixed_size_2",
        ["s/v:0", ("ValueError", "an unpartitioned version of the variable was found")],
    ),
    "no shape, nothing to make": ("get:v", [("ValueError", "`shape`")]),
}


@pytest.fixture(scope="module", params=VERSIONS)
def situations(request: pytest.FixtureRequest, submit_on: Submit) -> dict[str, Trace]:
    """Every situation, run on one version."""
    tickets = {
        name: submit_on(request.param, "variable_scope", operations=words) for name, (words, _) in SITUATIONS.items()
    }
    return {name: ticket.result(240) for name, ticket in tickets.items()}


def names(trace: Trace) -> list[Any]:
    """What each variable and operation got, as SITUATIONS has it."""
    told: list[Any] = []
    for event in trace.events:
        if event["event"] == "placement" and event["same_as"]:
            told.append(f"={event['same_as']}")
        elif event["event"] in ("placement", "op"):
            told.append(event["name"])
    return told


@pytest.mark.parametrize("name", SITUATIONS)
def test_names_and_sharing(situations: dict[str, Trace], name: str) -> None:
    _, expected = SITUATIONS[name]
    trace = situations[name]
    *good, last = expected
    if isinstance(last, tuple):
        assert trace.error is not None
        assert trace.error["type"] == last[0]
        assert last[1] in trace.error["message"]
        assert names(trace) == good
    else:
        assert trace.status == "ok", trace.error
        assert names(trace) == expected


def test_the_same_object_has_the_same_name_and_value(situations: dict[str, Trace]) -> None:
    """And what is written into the first is read by every name of it, and by no other."""
    for name, trace in situations.items():
        if trace.status != "ok":
            continue
        made = {event["variable"]: event for event in trace.of("placement")}
        values = {(event["variable"], event["step"]): event["value"] for event in trace.of("variable")}
        for variable, event in made.items():
            root = event["same_as"] or variable
            assert made[root]["name"] == event["name"], name
            assert values[variable, 0] == values[root, 0], name
            written = root == "var1"
            assert (set(_flat(values[variable, 1])) == {10}) == written, name
            assert written or values[variable, 1] == values[variable, 0], name
        distinct = [event["name"] for event in made.values() if not event["same_as"]]
        assert len(set(distinct)) == len(distinct), name
        collected = {event["collection"]: event["names"] for event in trace.of("collection")}
        parts = [part for event in made.values() if not event["same_as"] for part in event["parts"]]
        assert collected.get("variables", []) == collected.get("trainable_variables", []) == parts, name
        assert all(event["device"] == "" for event in made.values()), "a scope places nothing"


def _flat(value: Any) -> list[float]:
    return [number for part in value for number in _flat(part)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("assign", ["none", "last"])
def test_the_article(run_on: Run, version: str, assign: str) -> None:
    """[1.], [2.], [1.], [2.], as it says; on 1.15 with tf itself, as it was typed, on 2.x with compat.v1."""
    trace = run_on(version, "variable_scope", assign=assign, api="tf" if version == "1.15.5" else "compat.v1")
    assert [event["value"] for event in trace.of("variable") if event["step"] == 0] == [[1], [2], [1], [2]]
    after = [event["value"] for event in trace.of("variable") if event["step"] == 1]
    assert after == ([] if assign == "none" else [[1], [10], [1], [10]])
    scopes = [(event["variable_scope"], event["reuse"], event["name_scope"]) for event in trace.of("scope")]
    assert scopes == [
        ("my_variable_scope", False, "my_variable_scope"),
        ("my_variable_scope", True, "my_variable_scope_1"),
    ]
    (session,) = trace.of("session")
    assert session["devices"][0] == "/job:localhost/replica:0/task:0/device:CPU:0"


@pytest.mark.parametrize("version", ["2.4.1", "2.21"])
def test_the_article_as_it_was_typed_on_tensorflow_2(run_on: Run, version: str) -> None:
    trace = run_on(version, "variable_scope", api="tf")
    assert trace.error is not None
    assert trace.error["type"] == "AttributeError"
    assert "has no attribute 'variable_scope'" in trace.error["message"]
    assert _line(trace) == 'with tf.variable_scope("my_variable_scope"):'


def _line(trace: Trace) -> str:
    """The line of the program at which an error was raised."""
    assert trace.error is not None
    experiment = EXPERIMENTS["variable_scope"]
    settings = experiment.settings.parse(trace.start["settings"])
    program = render(experiment, settings, Versions(trace.start["tensorflow"], trace.start["keras"]))
    line: int = trace.error["line"]
    return program.splitlines()[line - 1].strip()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_is_at_its_line(run_on: Run, version: str) -> None:
    trace = run_on(version, "variable_scope", operations=f"scope:s,get:w:shape=2,close,scope:s,{G},get:w")
    assert _line(trace) == 'var3 = tf.get_variable(name="w")'


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("reuse", ["AUTO_REUSE", "True"])
def test_executed_eagerly_nothing_is_shared(run_on: Run, version: str, reuse: str) -> None:
    """VariableScope.get_variable sets reuse to False there, and the store keeps no variable ("we do not want to keep
    default references to Variable objects"): the same name, another object; neither a write nor a collection shared."""
    words = f"scope:s,{G},close,scope:s:reuse={reuse},get:v:shape=1:initializer=2.0"
    trace = run_on(version, "variable_scope", operations=words, mode="eager")
    assert trace.status == "ok"
    first, second = trace.of("placement")
    assert first["name"] == second["name"] == "s/v:0"
    assert second["same_as"] is None
    assert [event["value"] for event in trace.of("variable")] == [[1], [2], [10], [2]]
    assert first["device"] == second["device"] == "/job:localhost/replica:0/task:0/device:CPU:0"
    assert [event["reuse"] for event in trace.of("scope")] == ["AUTO_REUSE"] * 2  # whatever was asked


@pytest.mark.parametrize("version", VERSIONS)
def test_why_nothing_is_shared_is_in_tensorflows_source(engine: Engine, submit_on: Submit, version: str) -> None:
    """The lesson names the place: VariableScope.get_variable, and what _VariableStore keeps."""
    submit_on(version, "variable_scope").result(240)  # skips where the version isn't installed
    environment = engine.runtime(version).python.parents[1]
    found = [*environment.glob("lib/python3*/site-packages/tensorflow*/python/ops/variable_scope.py")]
    source = max((file.read_text(encoding="utf-8") for file in found), key=len)
    assert re.search(r"if context\.executing_eagerly\(\):\n +reuse = False\n", source)
    graph_only = r"if not context\.executing_eagerly\(\) or self\._store_eager_variables:\n"
    kept = graph_only + r"(?: +#.*\n)+ +self\._vars\[name\] = v\n"
    assert re.search(kept, source)


@pytest.mark.parametrize("version", VERSIONS)
def test_executed_eagerly_names_are_not_made_unique(run_on: Run, version: str) -> None:
    words = f"scope:s,variable:v,close,scope:s,variable:v,{G},name_scope:n,variable:v,op:v"
    trace = run_on(version, "variable_scope", operations=words, mode="eager")
    assert names(trace) == ["s/v:0", "s/v:0", "s/v:0", "s/n/v:0", None]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_partitioner_makes_several_variables(run_on: Run, version: str) -> None:
    words = "scope:s,get:v:shape=4x2:initializer=2.0:partitioner=fixed_size_2:regularizer=l2_loss,get:w:shape=1"
    trace = run_on(version, "variable_scope", operations=words)
    whole, single = trace.of("placement")
    assert (whole["kind"], whole["shape"]) == ("PartitionedVariable", [4, 2])
    assert whole["parts"] == ["s/v/part_0:0", "s/v/part_1:0"]
    assert single["parts"] == ["s/w:0"]
    assert trace.of("variable")[0]["value"] == [[2, 2]] * 4
    collected = {event["collection"]: event["names"] for event in trace.of("collection")}
    assert collected["variables"] == [*whole["parts"], "s/w:0"]
    losses = [name.partition("/Regularizer/")[0] for name in collected["regularization_losses"]]
    assert losses == ["s/v/part_0", "s/v/part_1"]  # one for each part; w has none


@pytest.mark.parametrize("version", VERSIONS)
def test_a_regularizer_counts_once_however_often_a_variable_is_got(run_on: Run, version: str) -> None:
    once = "get:v:shape=2:initializer=2.0:regularizer=l2_loss"
    trace = run_on(version, "variable_scope", operations=f"scope:s:reuse=AUTO_REUSE,{once},{once}")
    (losses,) = [event["names"] for event in trace.of("collection") if event["collection"] == "regularization_losses"]
    assert len(losses) == 1
    assert losses[0].startswith("s/v/Regularizer/")


@pytest.mark.parametrize("version", VERSIONS)
def test_without_an_initializer_it_is_glorot_uniform_the_same_every_time(run_on: Run, version: str) -> None:
    """glorot_uniform lies within sqrt(6 / (fan_in + fan_out)): for the shape [1], within sqrt(3)."""
    traces = [
        run_on(version, "variable_scope", operations="get:v:shape=1", assign=assign) for assign in ("none", "first")
    ]
    (value,), (again,) = (trace.of("variable")[0]["value"] for trace in traces)
    assert value == again
    assert 0 < abs(value) <= 3**0.5


def test_tensorflow_2_by_itself_has_name_scopes_and_variables(run_on: Run) -> None:
    words = "name_scope:n,variable:v,op:v"
    eager = run_on("2.21", "variable_scope", operations=words, api="tf", mode="eager")
    assert [event["value"] for event in eager.of("variable")] == [[1], [10]]
    assert names(eager) == ["n/v:0", None]
    graph = run_on("2.21", "variable_scope", operations=words, api="tf")
    assert graph.error is not None
    assert "has no attribute 'Session'" in graph.error["message"]


# -------------------------------------------------------------------------------------------------- what is accepted


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "as word 1, in place of '': one of scope, name_scope, get, variable, op, close"),
        ("scope:s,make:v", "as word 2, in place of 'make:v': one of scope,"),
        (
            "scope:x",
            "as word 1, in place of 'scope:x': scope:NAME or scope:@NAME, the name one of my_variable_scope, s, t, n",
        ),
        ("get:s", "get:NAME, the name one of var1, var2, v, w"),
        ("get", "get:NAME"),
        ("get:v:shape=3", "after get:v, each once: shape=1|2|4x2, initializer="),
        ("get:v:shape=1:shape=2", "each once"),
        ("op:v:shape=1", "after op:v, each once: nothing"),
        ("close", "close only where a block is open"),
        ("scope:s,close,close", "as word 3"),
        ("close:s", "close, with nothing after it"),
        ("scope:@s", "scope:@s only after scope:s, whose object it is"),
        ("scope:s,scope:t,scope:s,name_scope:n", "at most 3 blocks in one another"),
        (",".join(["op:v"] * 9), "1 to 8 operations, close not counted (there are 9)"),
        ("scope:s');import os#", "the name one of"),
    ],
)
def test_what_is_not_accepted_is_told(words: str, said: str) -> None:
    with pytest.raises(SettingsError) as caught:
        VariableScopeSettings.parse({"operations": words})
    (problem,) = caught.value.problems
    assert problem.setting == "operations"
    assert problem.given == words[:80]
    assert said in problem.allowed


def test_every_word_has_one_form() -> None:
    """Options in any order, ends that need not be said: the same settings, and the same words in a URL."""
    one = VariableScopeSettings.parse({"operations": "scope:s, get:v:initializer=1.0:shape=1 ,close"})
    other = VariableScopeSettings.parse({"operations": ["scope:s", "get:v:shape=1:initializer=1.0"]})
    assert one == other
    assert one.to_words(changed_only=True) == {"operations": "scope:s,get:v:shape=1:initializer=1.0"}
    assert VariableScopeSettings.parse(one.to_words()) == one
    assert VariableScopeSettings().to_words(changed_only=True) == {}


def test_every_word_that_there_can_be_is_read_as_it_is_written() -> None:
    for kind, options in OPTIONS.items():
        for values in itertools.product(*([None, *choices] for choices in options.values())):
            chosen = {key: value for key, value in zip(options, values, strict=True) if value is not None}
            operation = Operation(kind, "" if kind == "close" else "s" if "scope" in kind else "v", False, chosen)
            assert Operation.parse(operation.word) == operation
