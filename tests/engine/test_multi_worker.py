"""The experiment `multi_worker`: what replaced SyncReplicasOptimizer, against arithmetic and against itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from engine.request import Request
from engine.trace import Trace

RATES = {"conv": 0.1, "fc_w": 1.0, "fc_b": 2.0}
STEPS = 4
Run = Callable[..., Trace]


def weights_after(mean: float, momentum: float, optimizers: int, steps: int = STEPS) -> list[dict[str, float]]:
    """The weights after each step, 0 at first, each moving against the same mean by its own rate."""
    weights, velocity, after = dict.fromkeys(list(RATES)[:optimizers], 0.0), 0.0, []
    for _ in range(steps):
        velocity = momentum * velocity + mean
        weights = {name: value - RATES[name] * velocity for name, value in weights.items()}
        after.append(weights)
    return after


@pytest.mark.parametrize(
    ("version", "settings"),
    [
        ("2.21", {"optimizers": 3}),
        ("2.21", {"workers": 4, "gradients": "1,-2,4,8", "momentum": 0.5}),
        ("2.21", {"workers": 1}),
        ("2.15.1", {"workers": 3, "optimizers": 2, "momentum": 0.5}),
        ("2.4.1", {"optimizers": 2}),
    ],
    ids=str,
)
def test_all_workers_hold_the_same_mean(run_on: Run, version: str, settings: dict[str, Any]) -> None:
    trace = run_on(version, "multi_worker", steps=STEPS, **settings)
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
    used = trace.start["settings"]
    workers = used["workers"]
    expected = weights_after(sum(used["gradients"]) / workers, used["momentum"], used["optimizers"])
    assert {(event["task"], event["replicas"]) for event in trace.of("ready")} == {
        (f"worker:{index}", workers) for index in range(workers)
    }
    for index in range(workers):
        mine = [event for event in trace.events if event.get("task") == f"worker:{index}"]
        for step in range(1, STEPS + 1):
            now = [event for event in mine if event.get("step") == step]
            held = {event["variable"]: event["value"] for event in now if event["event"] == "variable"}
            assert held == pytest.approx(expected[step - 1], abs=1e-5)
            assert [event["value"] for event in now if event["event"] == "counter"] == [step]
            gradients = {event["variable"]: event["value"] for event in now if event["event"] == "gradient"}
            assert set(gradients) == set(held)
            # Each worker's loss is divided by the number of workers, and so is its gradient.
            assert gradients == pytest.approx(dict.fromkeys(gradients, used["gradients"][index] / workers), abs=1e-5)


@pytest.mark.parametrize("strategy", ["multi_worker", "parameter_server"])
def test_what_is_reported_is_what_was_applied(run_on: Run, strategy: str) -> None:
    """The reported gradients alone, by the rates, lead from 0 to the reported weights."""
    trace = run_on("2.21", "multi_worker", strategy=strategy, workers=2, optimizers=3, steps=STEPS, gradients="3,-7")
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
    for name, rate in RATES.items():
        applied = sum(event["value"] for event in trace.of("gradient") if event["variable"] == name)
        ends = {event["value"] for event in trace.of("variable") if (event["variable"], event["step"]) == (name, STEPS)}
        assert [*ends] == [pytest.approx(-rate * applied, abs=1e-4)]
        reports = sum(event["variable"] == name for event in trace.of("gradient"))
        assert reports == (2 * STEPS if strategy == "multi_worker" else STEPS)


def test_it_computes_what_sync_replicas_computes(run_on: Run) -> None:
    """With every replica in every average."""
    settings: dict[str, Any] = {"workers": 3, "optimizers": 3, "steps": 5, "momentum": 0.5, "gradients": "1,-4,6"}
    new = run_on("2.21", "multi_worker", **settings)
    old = run_on("2.21", "sync_replicas", tokens="zero", global_step="composite", delays="0.2,0.2,0.2", **settings)
    assert all(len(average["pushes"]) == 3 for average in old.of("average"))
    held = {event["variable"]: event["value"] for event in new.of("variable") if event["step"] == 5}
    assert held == pytest.approx(old.of("state")[-1]["weights"], abs=1e-5)


@pytest.mark.parametrize("version", ["2.21", "2.15.1"])
def test_a_parameter_server_waits_for_nobody(run_on: Run, version: str) -> None:
    """Each step is one worker's, and is applied by itself: the weight has moved by all of them one by one."""
    trace = run_on(version, "multi_worker", strategy="parameter_server", workers=2, steps=8, optimizers=2)
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
    assert {event["task"] for event in trace.events if "task" in event} == {"chief:0"}
    gradients = trace.start["settings"]["gradients"]
    for name in ("conv", "fc_w"):
        steps = [event for event in trace.of("gradient") if event["variable"] == name]
        assert [event["step"] for event in steps] == list(range(1, 9))
        assert all(event["value"] == gradients[event["worker"]] for event in steps)
        by = Counter(event["worker"] for event in steps)
        expected = -RATES[name] * sum(gradients[worker] * count for worker, count in by.items())
        (held,) = (event["value"] for event in trace.of("variable") if event["variable"] == name)
        assert held == pytest.approx(expected, abs=1e-5)


def test_refused_settings(run_on: Run) -> None:
    with pytest.raises(ValueError, match="gradients"):
        Request.of("multi_worker", {"workers": 3, "gradients": "1"})
    with pytest.raises(ValueError, match=r"strategy.*multi_worker"):
        run_on("2.4.1", "multi_worker", strategy="parameter_server")
