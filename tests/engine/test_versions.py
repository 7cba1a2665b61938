"""The experiment `aggregation` on every TensorFlow version of the standard set, live, against arithmetic."""

from __future__ import annotations

import itertools
import os
import time
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.request import Request
from engine.runtimes import Runtime, choose, find_runtimes, standard_set, wanted
from engine.trace import Trace
from tests.conftest import Sample
from tests.engine.test_aggregation import (
    AGGREGATIONS,
    MERGES,
    METHODS,
    RATE,
    ROUTES,
    STEPS,
    copies_after,
    copies_in,
    counter_after,
)

VERSIONS = ("2.4.1", "2.5.0", "2.15.1")
BEFORE_KERAS_3 = VERSIONS


def needs(engine: Engine, version: str) -> Runtime:
    """The runtime of that version. Skips the test where it isn't installed, but fails where it must be."""
    if version not in engine.runtimes:
        message = f"TensorFlow {version} is not installed; get it with: {wanted(version).command}"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    return engine.runtimes[version]


def run(engine: Engine, version: str, **settings: Any) -> Trace:
    needs(engine, version)
    return engine.run(Request.of("aggregation", settings, version))


@pytest.mark.parametrize("version", [want.name for want in standard_set()])
def test_the_parent_knows_its_versions(engine: Engine, version: str) -> None:
    """What TensorFlow says of itself when it is imported is what was found without importing it."""
    runtime = needs(engine, version)
    assert runtime.name == runtime.versions.tensorflow == version
    if version.startswith("2."):
        start = engine.run(Request.of("aggregation", {}, version)).start
        assert (start["tensorflow"], start["keras"]) == (version, runtime.versions.keras)
        assert start["keras"] == {"2.4.1": "2.4.0", "2.5.0": "2.5.0", "2.15.1": "2.15.0"}[version]
        assert start["python"].startswith("3.")
    else:
        assert runtime.versions.keras == "2.2.4-tf"
        engine.warm_up(version)
        while engine.state(version).name == "starting":
            time.sleep(0.05)
        assert engine.state(version).name == "ready", engine.state(version).reason


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("version", VERSIONS)
def test_grid(engine: Engine, sample: Sample, version: str, mode: str) -> None:
    """Every aggregation x route x number of replicas gives what arithmetic gives, as on the app's own version."""
    needs(engine, version)
    grid = sample(itertools.product(AGGREGATIONS, ROUTES, (1, 2, 3, 4)), by=lambda case: case[1])
    settings = {"steps": STEPS, "learning_rate": RATE, "mode": mode}
    tickets = [
        engine.submit(
            Request.of(
                "aggregation", {**settings, "aggregation": aggregation, "route": route, "replicas": replicas}, version
            )
        )
        for aggregation, route, replicas in grid
    ]
    for (aggregation, route, replicas), ticket in zip(grid, tickets, strict=True):
        trace = ticket.result(240)
        at = f"{version} {aggregation} {route} {replicas} {mode}"
        if version == "2.4.1" and route == "cross_replica":
            assert_refused_by_2_4(trace, at)
            continue
        assert trace.status == "ok", f"{at}: {trace.error or trace.end}"
        gradients = [0.1 * (replica + 1) for replica in range(replicas)]
        expected = copies_after(aggregation, route, gradients, STEPS)
        for step in range(1, STEPS + 1):
            np.testing.assert_allclose(copies_in(trace, step), expected[step - 1], rtol=1e-6, atol=1e-6, err_msg=at)
        reads = [event["value"] for event in trace.of("read")]
        np.testing.assert_allclose(reads, [copies[0] for copies in expected], rtol=1e-6, atol=1e-6, err_msg=at)
        for event in trace.of("counter"):
            assert event["value"] == counter_after(event["counter"], route, replicas, event["step"]), f"{at}: {event}"


def assert_refused_by_2_4(trace: Trace, at: str) -> None:
    """2.4 hands a value to each copy only where it is the same for all (select_replica_mirrored in MirroredExtended's
    _update, tensorflow/python/distribute/mirrored_strategy.py); 2.5 hands to each what is its own (select_replica)."""
    assert trace.error is not None, at
    assert (trace.error["type"], trace.error["step"]) == ("TypeError", 1), at
    assert "Expected value to be mirrored across replicas" in trace.error["message"], at


@pytest.mark.parametrize("version", VERSIONS)
def test_the_numbers_of_the_lesson(engine: Engine, version: str) -> None:
    for aggregation, replicas, copies in [
        ("NONE", 2, [1.1, 1.2]),
        ("SUM", 2, [1.3, 1.3]),
        ("MEAN", 2, [1.15, 1.15]),
        ("ONLY_FIRST_REPLICA", 2, [1.1, 1.1]),
        ("NONE", 4, [1.1, 1.2, 1.3, 1.4]),
        ("SUM", 4, [2.0] * 4),
        ("MEAN", 4, [1.25] * 4),
        ("ONLY_FIRST_REPLICA", 4, [1.1] * 4),
    ]:
        assert copies_in(run(engine, version, aggregation=aggregation, replicas=replicas), 1) == copies
        summed = copies_in(run(engine, version, aggregation=aggregation, replicas=replicas, route="optimizer"), 1)
        assert summed == pytest.approx([0.7 if replicas == 2 else 0.0] * replicas, abs=1e-6)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_python_number(engine: Engine, version: str, aggregation: str) -> None:
    trace = run(engine, version, aggregation=aggregation, route="assign", value="python", gradients="5,5")
    if aggregation == "SUM":
        assert trace.error is not None
        assert trace.error["type"] == "ValueError"
        assert "A non-DistributedValues value 5.0 cannot be reduced" in trace.error["message"]
    else:
        assert copies_in(trace, 1) == [5, 5]


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_on_read(engine: Engine, version: str, aggregation: str) -> None:
    trace = run(engine, version, aggregation=aggregation, synchronization="ON_READ", gradients="2,3")
    assert copies_in(trace, 1) == [3, 4]
    if aggregation == "NONE":
        assert trace.error is not None
        assert trace.error["message"].startswith("Could not convert from `tf.VariableAggregation`")
    else:
        assert [event["value"] for event in trace.of("read")] == [MERGES[aggregation]([3, 4])[0]]


@pytest.mark.parametrize("mode", ["eager", "function"])
@pytest.mark.parametrize("version", BEFORE_KERAS_3)
def test_before_keras_3_clipnorm_clips_the_sum_and_can_be_left_unsummed(
    engine: Engine, version: str, mode: str
) -> None:
    """3 on each replica is summed to 6, then clipped to 1: the weight moves by 1. (Keras 3 clips first: 2.)"""
    trace = run(engine, version, route="optimizer", clipnorm=1, gradients="3,3", mode=mode)
    assert copies_in(trace, 1) == pytest.approx([0, 0], abs=1e-6)
    trace = run(engine, version, route="optimizer_unsummed", mode=mode)
    assert copies_in(trace, 1) == pytest.approx([1 - 0.1, 1 - 0.2], abs=1e-6)


@pytest.mark.parametrize("version", BEFORE_KERAS_3)
def test_before_keras_3_hierarchical_copy_loses_no_replica(engine: Engine, version: str) -> None:
    """Keras 2 reduces the gradients towards the variable's devices; the gradients of this program all lie on one, so
    HierarchicalCopyAllReduce leaves it to ReductionToOneDevice (_all_devices_match in cross_device_ops.py)."""
    trace = run(engine, version, route="optimizer", replicas=3, cross_device="hierarchical_copy")
    assert copies_in(trace, 1) == pytest.approx([1 - 0.6] * 3, abs=1e-6)


@pytest.mark.parametrize("update", METHODS)
def test_2_4_takes_one_number_for_all_copies_and_no_more(engine: Engine, update: str) -> None:
    given = {"route": "cross_replica", "update": update}
    assert_refused_by_2_4(run(engine, "2.4.1", **given), update)
    same = run(engine, "2.4.1", **given, value="python", gradients="5,7")
    assert copies_in(same, 1) == [METHODS[update](1, 5)] * 2


def test_a_trace_names_no_folder_of_this_machine(engine: Engine) -> None:
    runtime = needs(engine, "2.4.1")
    trace = run(engine, "2.4.1", route="cross_replica", mode="function")
    assert trace.error is not None
    assert "tensorflow/python/" in trace.error["message"]
    for text in (trace.to_jsonl(), trace.stderr):
        assert str(runtime.python.parent.parent) not in text


@pytest.mark.parametrize("keras", ["3.4.1", "3.5.0", "3.8.0"])
def test_another_keras_beside_the_same_tensorflow(engine: Engine, keras: str) -> None:
    own = choose(find_runtimes(), None)
    name = f"{own.versions.tensorflow}+keras-{keras}"
    if name not in engine.runtimes:
        # Only the standard set must be there for CI.
        pytest.skip(f"{name} is not installed; get it with: {wanted('2.21', keras).command}")
    trace = engine.run(Request.of("aggregation", {"aggregation": "MEAN"}, "2.21", keras))
    assert (trace.start["tensorflow"], trace.start["keras"]) == (own.versions.tensorflow, keras)
    assert copies_in(trace, 1) == [1.15, 1.15]
