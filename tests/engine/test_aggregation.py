"""The experiment `aggregation` against arithmetic: what TensorFlow did must be what these few lines compute."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.program import render
from engine.request import Request
from engine.trace import Trace
from tests.conftest import Sample

AGGREGATIONS = ("NONE", "SUM", "MEAN", "ONLY_FIRST_REPLICA")
ROUTES = ("assign_add", "assign", "assign_sub", "cross_replica", "optimizer")
STEPS = 2
RATE = 0.5

# What each aggregation makes of one number a replica: a number for each copy.
MERGES: dict[str, Callable[[list[float]], list[float]]] = {
    "NONE": lambda gradients: gradients,
    "SUM": lambda gradients: [sum(gradients)] * len(gradients),
    "MEAN": lambda gradients: [sum(gradients) / len(gradients)] * len(gradients),
    "ONLY_FIRST_REPLICA": lambda gradients: [gradients[0]] * len(gradients),
}
METHODS: dict[str, Callable[[float, float], float]] = {
    "assign_add": lambda value, merged: value + merged,
    "assign_sub": lambda value, merged: value - merged,
    "assign": lambda value, merged: merged,
}


def summed_by_optimizer(gradients: list[float], cross_device: str) -> float:
    """What an optimizer's all-reduce makes of the gradients: their sum, whatever the aggregation.

    HierarchicalCopyAllReduce adds up two groups of N // 2 replicas (aggregate_gradients_using_hierarchical_copy in
    tensorflow/python/distribute/cross_device_utils.py), so an odd last one is in neither and is lost.
    """
    if cross_device == "hierarchical_copy" and len(gradients) > 1:
        return sum(gradients[: len(gradients) // 2 * 2])
    return sum(gradients)


def copies_after(
    aggregation: str, route: str, gradients: list[float], steps: int, cross_device: str = "default"
) -> list[list[float]]:
    """The copies after each step, by arithmetic: a list a step, a number a replica."""
    copies, after = [1.0] * len(gradients), []
    for _ in range(steps):
        if route == "optimizer":
            copies = [value - RATE * summed_by_optimizer(gradients, cross_device) for value in copies]
        elif route == "cross_replica":  # each copy gets its own replica's number, whatever the aggregation
            copies = [METHODS["assign_add"](*pair) for pair in zip(copies, gradients, strict=True)]
        else:
            merged = MERGES[aggregation](gradients)
            copies = [METHODS[route](*pair) for pair in zip(copies, merged, strict=True)]
        after.append(copies)
    return after


def counter_after(aggregation: str, route: str, replicas: int, step: int) -> int:
    """A counter to which every replica adds 1, `step` times."""
    if route == "cross_replica":  # one call for all of them
        return step
    return step * replicas if aggregation == "SUM" else step


def copies_in(trace: Trace, step: int) -> list[float]:
    return [event["value"] for event in trace.of("variable") if event["step"] == step]


def run(engine: Engine, **settings: Any) -> Trace:
    return engine.run(Request.of("aggregation", settings))


@pytest.mark.parametrize("cross_device", ["default", "reduction_to_one", "hierarchical_copy"])
@pytest.mark.parametrize("mode", ["eager", "function"])
def test_grid(engine: Engine, sample: Sample, mode: str, cross_device: str) -> None:
    """Every aggregation x route x number of replicas gives what arithmetic gives, in copies, counters and reads."""
    grid = sample(itertools.product(AGGREGATIONS, ROUTES, (1, 2, 3, 4, 8)), by=lambda case: case[1])
    tickets = [
        engine.submit(
            Request.of(
                "aggregation",
                {
                    "aggregation": aggregation,
                    "route": route,
                    "replicas": replicas,
                    "steps": STEPS,
                    "learning_rate": RATE,
                    "mode": mode,
                    "cross_device": cross_device,
                },
            )
        )
        for aggregation, route, replicas in grid
    ]
    for (aggregation, route, replicas), ticket in zip(grid, tickets, strict=True):
        trace = ticket.result(120)
        at = f"{aggregation} {route} {replicas} {mode} {cross_device}"
        assert trace.status == "ok", f"{at}: {trace.error or trace.end}"
        gradients = [0.1 * (replica + 1) for replica in range(replicas)]
        assert [event["value"] for event in trace.of("gradient")] == pytest.approx(gradients * STEPS), at
        expected = copies_after(aggregation, route, gradients, STEPS, cross_device)
        for step in range(1, STEPS + 1):
            np.testing.assert_allclose(copies_in(trace, step), expected[step - 1], rtol=1e-6, atol=1e-6, err_msg=at)
        # A mirrored variable read outside replicas is its first copy.
        reads = [event["value"] for event in trace.of("read")]
        np.testing.assert_allclose(reads, [copies[0] for copies in expected], rtol=1e-6, atol=1e-6, err_msg=at)
        for event in trace.of("counter"):
            # Keras adds 1 to iterations in cross-replica context, as if it were ONLY_FIRST_REPLICA.
            expected_count = counter_after(event["counter"], route, replicas, event["step"])
            assert event["value"] == expected_count, f"{at}: {event}"
        counters = {event["counter"] for event in trace.of("counter")}
        assert counters == {"SUM", "MEAN", "ONLY_FIRST_REPLICA"} | ({"iterations"} if route == "optimizer" else set())
        assert [event["device"][-5:] for event in trace.of("placement")] == [f"CPU:{i}" for i in range(replicas)]


def test_default_gradients_follow_replicas_and_dtype(engine: Engine) -> None:
    assert [event["value"] for event in run(engine, replicas=3).of("gradient")] == [0.1, 0.2, 0.3]
    assert [event["value"] for event in run(engine, replicas=3, dtype="int32").of("gradient")] == [1, 2, 3]


@pytest.mark.parametrize(
    ("aggregation", "replicas", "copies"),
    [("MEAN", 2, [1.15, 1.15]), ("NONE", 2, [1.1, 1.2]), ("SUM", 4, [2.0] * 4), ("ONLY_FIRST_REPLICA", 4, [1.1] * 4)],
)
def test_the_numbers_of_the_lesson(engine: Engine, aggregation: str, replicas: int, copies: list[float]) -> None:
    """The numbers a learner sees have no float32 noise in them: 1.15 is 1.15."""
    assert copies_in(run(engine, aggregation=aggregation, replicas=replicas), 1) == copies


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_whole_numbers(engine: Engine, aggregation: str) -> None:
    """int32: 1, and 1 + 2 come in. MEAN of whole numbers is refused when the variable is made."""
    trace = run(engine, aggregation=aggregation, dtype="int32")
    if aggregation == "MEAN":
        assert trace.error is not None
        assert (trace.error["type"], trace.error["step"]) == ("ValueError", 0)
        assert "aggregation=MEAN and a non-floating dtype is not supported" in trace.error["message"]
    else:
        assert copies_in(trace, 1) == [1 + merged for merged in MERGES[aggregation]([1, 2])]


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("route", ["assign_add", "assign", "assign_sub"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_a_python_number(engine: Engine, aggregation: str, route: str, mode: str) -> None:
    """The same plain number from every replica: SUM can't reduce it, the others take it once."""
    trace = run(engine, aggregation=aggregation, route=route, mode=mode, value="python", gradients="5,7")
    if aggregation == "SUM":
        assert trace.error is not None
        assert (trace.status, trace.error["type"], trace.error["step"]) == ("error", "ValueError", 1)
        assert "A non-DistributedValues value 5.0 cannot be reduced" in trace.error["message"]
        assert line_of(trace, engine) == "strategy.run(contribute, args=(gradients,))"
    else:
        assert copies_in(trace, 1) == [METHODS[route](1, 5)] * 2


@pytest.mark.parametrize("route", ["assign_add", "optimizer"])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_on_read(engine: Engine, aggregation: str, route: str) -> None:
    """ON_READ: nothing is merged when a replica assigns; a cross-replica read merges the copies, and NONE can't."""
    trace = run(engine, aggregation=aggregation, route=route, synchronization="ON_READ", gradients="3,4")
    copies = [1 - 7.0] * 2 if route == "optimizer" else [1 + 3.0, 1 + 4.0]
    assert copies_in(trace, 1) == copies
    assert {event["kind"] for event in trace.of("placement")} == {"SyncOnReadVariable"}
    if aggregation == "NONE":
        assert trace.error is not None
        assert trace.error["type"] == "ValueError"
        assert trace.error["message"].startswith("Could not convert from `tf.VariableAggregation`")
    else:
        assert [event["value"] for event in trace.of("read")] == [MERGES[aggregation](copies)[0]]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_on_read_refuses_a_different_number_for_each_copy(engine: Engine, aggregation: str) -> None:
    """In cross-replica context an ON_READ variable has nowhere to put a value for each replica."""
    trace = run(engine, aggregation=aggregation, route="cross_replica", synchronization="ON_READ")
    assert trace.error is not None
    if aggregation == "SUM":
        assert trace.error["type"] == "ValueError"
        assert "does not support `assign_add` in cross-replica context" in trace.error["message"]
    else:
        assert (trace.error["type"], trace.error["message"]) == (
            "AttributeError",
            "'PerReplica' object has no attribute 'dtype'",
        )


def test_on_read_sum_shares_out_what_is_assigned(engine: Engine) -> None:
    """Assigned in cross-replica context, 6 becomes 3 on each of two copies, so that their sum reads 6."""
    trace = run(
        engine,
        aggregation="SUM",
        route="cross_replica",
        update="assign",
        synchronization="ON_READ",
        value="python",
        gradients="6,6",
    )
    assert copies_in(trace, 1) == [3, 3]
    assert trace.of("read")[0]["value"] == 6


@pytest.mark.parametrize("update", METHODS)
def test_cross_replica_methods(engine: Engine, update: str) -> None:
    trace = run(engine, aggregation="MEAN", route="cross_replica", update=update)
    np.testing.assert_allclose(copies_in(trace, 1), [METHODS[update](1, g) for g in (0.1, 0.2)], rtol=1e-6)


@pytest.mark.parametrize("mode", ["eager", "function"])
def test_clipnorm_clips_before_the_sum(engine: Engine, mode: str) -> None:
    """Keras 3: 3 on each replica is clipped to 1 on each, then summed: the weight moves by 2, not by 1."""
    trace = run(engine, route="optimizer", clipnorm=1, gradients="3,3", mode=mode)
    assert copies_in(trace, 1) == pytest.approx([1 - (1 + 1)] * 2, abs=1e-6)


def test_keras_3_can_not_be_told_that_gradients_are_summed(engine: Engine) -> None:
    trace = run(engine, route="optimizer_unsummed")
    assert trace.error is not None
    assert trace.error["type"] == "TypeError"
    assert "unexpected keyword argument 'skip_gradients_aggregation'" in trace.error["message"]
    assert "skip_gradients_aggregation=True" in line_of(trace, engine)


def test_an_error_keeps_the_steps_before_it(engine: Engine) -> None:
    trace = run(engine, synchronization="ON_READ", steps=3)
    assert trace.error is not None
    assert (trace.status, trace.error["step"], len(copies_in(trace, 1))) == ("error", 1, 2)
    assert line_of(trace, engine) == "value = float(str(weight.numpy()))"


def line_of(trace: Trace, engine: Engine) -> str:
    """The line of the program at which TensorFlow raised."""
    assert trace.error is not None
    request = Request.of("aggregation", trace.start["settings"])
    program = render(request.experiment, request.settings, engine.runtime().versions)
    line: int = trace.error["line"]
    return program.splitlines()[line - 1].strip()
