"""Names, on random operations: TensorFlow refuses what its rule says, each fix fixes, and no sentence is said twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from engine.experiments.variable_scope import (
    BLOCKS,
    MAX_OPERATIONS,
    NAMES,
    OPTIONS,
    PRESETS,
    SCOPES,
    Operation,
    parse_operations,
)
from engine.job import Ticket
from engine.trace import Trace
from lessons.language import LANGUAGES, Texts
from lessons.variable_scope.figure import alternative
from lessons.variable_scope.fix import suggested_fix
from lessons.variable_scope.reading import Cause, read
from lessons.variable_scope.reuse import full_names, refusal, scopes
from lessons.variable_scope.story import what_happened

TEXTS = [Texts(Path(__file__).parents[2] / "lessons" / "variable_scope", language) for language in LANGUAGES]
SEEDS = {"2.21": 96, "1.15.5": 32}  # by version: its lists are those of this many seeds
AT_ONCE = 48
OFTEN = {"reuse": 0.5, "shape": 0.8, "initializer": 0.3, "initial_value": 0.2}  # how often an option is given


def random_operations(chance: random.Random) -> str:
    """Operations on few names, so that these meet: are found, refused, in parts, in scopes entered again."""
    while True:
        blocks = chance.sample(SCOPES, chance.choice((1, 1, 2, 4)))
        names = chance.sample(NAMES, chance.choice((1, 1, 2)))
        words = []
        for _ in range(chance.randint(2, MAX_OPERATIONS)):
            (kind,) = chance.choices(("scope", "name_scope", "get", "variable", "op"), (5, 1, 8, 1, 0.5))
            by_object = "@" if kind == "scope" and chance.random() < 0.2 else ""
            options = {
                option: values[0] if option == "shape" and chance.random() < 0.7 else chance.choice(values)
                for option, values in OPTIONS[kind].items()
                if chance.random() < OFTEN.get(option, 0.12)
            }
            name = chance.choice(blocks if kind in BLOCKS else names)
            words.append(":".join([kind, by_object + name, *(f"{key}={value}" for key, value in options.items())]))
            words += ["close"] * (kind == "get" and chance.random() < 0.4)
        try:
            return ",".join(operation.word for operation in parse_operations(words))
        except ValueError:  # too deep, by an object that is not there, or nothing to close
            continue


Runs = list[tuple[dict[str, Any], Trace]]
RunAll = Callable[[list[dict[str, Any]]], Runs]


@pytest.fixture(scope="module", params=SEEDS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run_all(version: str, submit_on: Callable[..., Ticket]) -> RunAll:
    """Runs many choices of settings on one version."""

    def run(choices: list[dict[str, Any]]) -> Runs:
        ran: Runs = []
        for start in range(0, len(choices), AT_ONCE):
            some = choices[start : start + AT_ONCE]
            tickets = [submit_on(version, "variable_scope", **choice) for choice in some]
            ran += [(choice, ticket.result(240)) for choice, ticket in zip(some, tickets, strict=True)]
        return ran

    return run


@pytest.fixture(scope="module")
def runs(version: str, run_all: RunAll) -> Runs:
    lists = [random_operations(random.Random(seed)) for seed in range(SEEDS[version])] + list(PRESETS.values())
    return run_all(
        [{"operations": words, "mode": "eager" if number % 5 == 4 else "graph"} for number, words in enumerate(lists)]
    )


def test_tensorflow_refuses_what_its_rule_says(runs: Runs, version: str) -> None:
    """The same call, for the same reason."""
    causes: Counter[str] = Counter()
    for choice, trace in runs:
        operations = parse_operations(choice["operations"].split(","))
        places = [place for place, operation in enumerate(operations) if operation.kind != "close"]
        failure = read(trace).failure
        expected = refusal(operations, choice["mode"] == "eager")
        happened = None if failure is None or failure.place is None else (places[failure.place], failure.cause)
        assert happened == (expected and (expected.place, expected.cause)), choice
        causes[failure.cause if failure else "answered"] += 1
    if version == "2.21":  # where the sample is large: each cause is in it, or the test would not see it
        assert set(causes) == {"answered", *get_args(Cause)} - {"no_attribute", "other"}
    assert causes["answered"] > 15


def test_scopes_have_the_prefix_and_the_reuse_that_tensorflow_reports(runs: Runs) -> None:
    for choice, trace in runs:
        if choice["mode"] == "eager":
            continue  # there TensorFlow reports AUTO_REUSE for every scope
        operations = parse_operations(choice["operations"].split(","))
        ours = [
            (scope.name, scope.reuse)
            for operation, scope in zip(operations, scopes(operations), strict=True)
            if operation.is_block
        ]
        theirs = [(event["variable_scope"], str(event["reuse"])) for event in trace.of("scope")]
        assert theirs == ours[: len(theirs)], choice


def test_every_fix_fixes(runs: Runs, run_all: RunAll) -> None:
    """Each refused run is offered a fix, each fix leads to a run that TensorFlow answers, and no other run has one."""
    offered = [(choice, suggested_fix(read(trace)), trace.status) for choice, trace in runs]
    assert all((fix is None) == (status == "ok") for _, fix, status in offered)
    fixed = run_all([choice | fix for choice, fix, _ in offered if fix])
    assert len(fixed) > 15
    for choice, trace in fixed:
        assert trace.status == "ok", (choice, trace.error)
        assert suggested_fix(read(trace)) is None


def test_no_sentence_is_said_twice_and_none_is_empty(runs: Runs) -> None:
    for choice, trace in runs:
        for texts in TEXTS:
            sentences = what_happened(read(trace), texts)
            assert len(sentences) == len(set(sentences)), choice
            assert all(sentence.strip() and "``" not in sentence for sentence in sentences), choice
            assert alternative(read(trace), texts)


# ------------------------------------------------------------------------------------------- the rule, written by hand


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("scope:s,scope:t,get:v", "s/t/v"),
        ("scope:s,scope:s,get:v", "s/s/v"),  # by name inside itself: another scope
        ("scope:s,scope:@s,get:v", "s/v"),  # by its object: the same
        ("scope:s,scope:t,scope:@s,get:v", "s/v"),
        ("scope:s,name_scope:n,get:v", "s/v"),
        ("name_scope:n,get:v", "v"),
    ],
)
def test_the_name_that_get_variable_looks_for(words: str, expected: str) -> None:
    operations = [Operation.parse(word) for word in words.split(",")]
    assert full_names(operations)[-1] == expected


def test_a_duplicate_outside_any_scope_is_put_into_one(run_all: RunAll) -> None:
    """Both calls, in one scope of a name that nobody has, and whole blocks only; without room the second call goes."""
    for words, expected in {
        "get:v:shape=1,get:v": "scope:my_variable_scope:reuse=AUTO_REUSE,get:v:shape=1,get:v",
        "scope:my_variable_scope,close,get:v:shape=1,name_scope:n,get:v,close,op:w": (
            "scope:my_variable_scope,close,scope:s:reuse=AUTO_REUSE,get:v:shape=1,name_scope:n,get:v,close,close,op:w"
        ),
        ",".join(["get:v:shape=1"] * 2 + ["op:w"] * (MAX_OPERATIONS - 2)): ",".join(
            ["get:v:shape=1"] + ["op:w"] * (MAX_OPERATIONS - 2)
        ),
    }.items():
        ((_, trace),) = run_all([{"operations": words}])
        assert suggested_fix(read(trace)) == {"operations": expected}
        ((_, fixed),) = run_all([{"operations": expected}])
        assert fixed.status == "ok"


def test_eagerly_a_graph_is_offered_only_where_it_would_find_the_variable(
    run_all: RunAll,
) -> None:
    lists = {
        "scope:s,get:v:shape=1,close,scope:s:reuse=True,get:v": {"mode": "graph"},
        "scope:s:reuse=True,get:v": {"operations": "scope:s:reuse=True,get:v:shape=1"},
        "get:v:shape=1,get:v": {"operations": "get:v:shape=1,get:v:shape=1"},
    }
    ran = run_all([{"operations": words, "mode": "eager"} for words in lists])
    for (_, trace), expected in zip(ran, lists.values(), strict=True):
        assert suggested_fix(read(trace)) == expected
