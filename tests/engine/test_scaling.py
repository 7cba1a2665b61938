"""Learning rate and replicas on real TensorFlow: factors from arithmetic, and one device with the whole batch."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.engine import Engine
from engine.experiments import CannotRunError
from engine.experiments.scaling import has_the_data
from engine.request import Request
from engine.trace import Event, Trace
from engine.versions import Versions

ROUNDING = 1e-5
DIGITS = 2e-5  # relative: six digits are reported, of values in float32


@pytest.fixture(scope="module")
def train(engine: Engine) -> Callable[..., list[Event]]:
    """The steps of a run that went to its end."""

    def run(**settings: Any) -> list[Event]:
        trace: Trace = engine.run(Request.of("scaling", settings))
        assert trace.status == "ok", trace.stderr[-2000:]
        steps = trace.of("step")
        assert [step["step"] for step in steps] == list(range(1, settings["steps"] + 1))
        return steps

    return run


def factor(step: Event) -> float:
    """How many times as long as the reference's this step was."""
    return float(step["update"] / step["reference_update"])


# ------------------------------------------------------------------------------------------------- what is equal


@pytest.mark.parametrize("replicas", [1, 2, 4, 8])
def test_the_global_mean_is_one_device_with_the_whole_batch(train: Callable[..., list[Event]], replicas: int) -> None:
    steps = train(replicas=replicas, steps=50)
    assert max(step["distance"] for step in steps) < ROUNDING
    assert all(step["loss"] == pytest.approx(step["reference_loss"], rel=DIGITS) for step in steps)
    assert steps[-1]["loss"] < steps[0]["loss"] / 2  # it does train
    assert all(step["examples"] == [8] * replicas for step in steps)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "momentum"},
        {"optimizer": "adam", "learning_rate": 0.01},
        {"normalization": "synchronized"},
        {"last_batch": "keep_counted"},
        # A mean of means of equal shares is the mean.
        {"loss": "per_replica_mean", "gradient": "mean", "replicas": 2},
        {"loss": "per_replica_mean", "gradient": "mean", "replicas": 8},
        # Keras 3 sums N equal means.
        {"gradient": "all_reduce_mean"},
    ],
    ids=str,
)
def test_what_else_is_equal(train: Callable[..., list[Event]], settings: dict[str, Any]) -> None:
    steps = train(steps=50, **settings)
    assert max(step["distance"] for step in steps) < ROUNDING


# ------------------------------------------------------------------------------------------------- by which factor


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"loss": "per_replica_mean", "replicas": 2}, 2),
        ({"loss": "per_replica_mean", "replicas": 4}, 4),
        ({"loss": "per_replica_mean", "replicas": 8}, 8),
        ({"loss": "sum"}, 4 * 8),
        ({"gradient": "mean"}, 1 / 4),
        ({"loss": "sum", "gradient": "mean", "per_replica_batch": 5}, 4 * 5 / 4),
        ({"rule": "linear"}, 4),
        ({"rule": "square_root"}, 2),
        ({"rule": "linear", "loss": "per_replica_mean"}, 4 * 4),
        ({"optimizer": "momentum", "loss": "per_replica_mean"}, 4),
    ],
    ids=str,
)
def test_the_first_step_departs_by_a_factor(
    train: Callable[..., list[Event]], settings: dict[str, Any], expected: float
) -> None:
    first, second = train(steps=2, **settings)
    assert factor(first) == pytest.approx(expected, rel=DIGITS)
    # Step 1 goes the same way, only farther: the distance is what is too much of it, |factor - 1| of the reference's.
    assert first["distance"] == pytest.approx(abs(expected - 1) * first["reference_update"], rel=1e-4)
    assert second["distance"] > ROUNDING


def test_n_means_added_are_the_linear_rule(train: Callable[..., list[Event]]) -> None:
    """Four times the loss at rate 0.1, or the mean at rate 4 * 0.1: the same training."""
    mistake, rule = train(steps=30, loss="per_replica_mean"), train(steps=30, rule="linear")
    for one, other in zip(mistake, rule, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-3)
    assert (mistake[0]["rate"], rule[0]["rate"]) == (pytest.approx(0.1), pytest.approx(4 * 0.1))


def test_sgd_moves_by_rate_times_the_merged_gradient(train: Callable[..., list[Event]]) -> None:
    for step in train(steps=5, replicas=3, loss="per_replica_mean", learning_rate=0.05):
        assert step["update"] == pytest.approx(0.05 * step["merged"], rel=1e-4)
        assert step["merged"] <= sum(step["gradients"])  # a sum of vectors is no longer than their lengths together


def test_a_warm_up_rises_in_a_line(train: Callable[..., list[Event]]) -> None:
    steps = train(steps=12, rule="linear_warmup", warmup=10)
    expected = [0.1 * (1 + 3 * min(done, 10) / 10) for done in range(12)]  # from 1 to 4 times
    assert [step["rate"] for step in steps] == pytest.approx(expected, rel=1e-5)
    assert factor(steps[0]) == pytest.approx(1, rel=DIGITS)


def test_adam_takes_the_size_of_a_gradient_away(train: Callable[..., list[Event]]) -> None:
    """Its first step is the rate times g / (|g| + epsilon) for each weight, whatever multiplies g."""
    (step,) = train(steps=1, optimizer="adam", learning_rate=0.01, loss="per_replica_mean")
    assert step["merged"] > 1
    assert factor(step) == pytest.approx(1, rel=1e-3)
    assert step["update"] == pytest.approx(
        0.01 * math.sqrt(4 * 8 + 8 + 8 * 3 + 3), rel=0.02
    )  # 67 weights, each by 0.01


# ------------------------------------------------------------------------------------------------- what no factor says


def test_batch_normalization_of_a_share_is_another_function(train: Callable[..., list[Event]]) -> None:
    steps = train(steps=20, normalization="per_replica")
    assert steps[0]["loss"] != pytest.approx(steps[0]["reference_loss"], rel=1e-3)  # before anything was changed
    assert steps[-1]["distance"] > 1e-2
    assert train(steps=20, normalization="per_replica", replicas=1)[-1]["distance"] < ROUNDING


def test_a_last_batch_that_is_not_full(train: Callable[..., list[Event]]) -> None:
    """150 = 4 * 32 + 22: the fifth step has 22 flowers, and divides by 32."""
    steps = train(steps=5, last_batch="keep")
    assert [sum(step["examples"]) for step in steps] == [32, 32, 32, 32, 150 - 4 * 32]
    assert [factor(step) for step in steps] == pytest.approx([1, 1, 1, 1, 22 / 32], rel=1e-4)
    assert max(step["distance"] for step in steps[:4]) < ROUNDING < steps[4]["distance"]


def test_dropped_flowers_are_not_seen(train: Callable[..., list[Event]]) -> None:
    assert {sum(step["examples"]) for step in train(steps=6, last_batch="drop")} == {32}


def test_a_replica_may_get_nothing(train: Callable[..., list[Event]]) -> None:
    """150 = 3 * 49 + 3: in the fourth step three of seven replicas have a flower each."""
    steps = train(steps=4, replicas=7, per_replica_batch=7, last_batch="keep_counted")
    assert sorted(steps[3]["examples"]) == [0, 0, 0, 0, 1, 1, 1]
    assert steps[3]["distance"] < ROUNDING


# ------------------------------------------------------------------------------------------------- small steps


def test_the_linear_rule_comes_nearest_to_small_steps(engine: Engine) -> None:
    """A8: N times the rate, on the global mean, does what N small steps do. Without the rule it lags behind; with the
    rule on top of a mean per replica it is N times too far."""

    def at_the_end(**settings: Any) -> float:
        trace = engine.run(Request.of("scaling", {"reference": "small_batches", "learning_rate": 0.01, **settings}))
        counts = {event["counter"]: event["value"] for event in trace.of("counter")}
        assert counts == {"iterations": 200, "reference": 200 * 4}
        return float(trace.of("step")[-1]["distance"])

    linear = at_the_end(rule="linear")
    assert at_the_end(rule="none") > 10 * linear
    assert at_the_end(rule="linear", loss="per_replica_mean") > 10 * linear


# ------------------------------------------------------------------------------------------------- the program


def test_a_seed_decides_the_run(engine: Engine) -> None:
    """In two engines, as one would keep the first run."""
    request = Request.of("scaling", {"steps": 20, "replicas": 4})
    first = engine.run(request)
    with Engine() as other:
        again = other.run(request)
    assert again.without_times() == first.without_times()
    assert engine.run(Request.of("scaling", {"steps": 20, "replicas": 4, "seed": 2})).of("step") != first.of("step")


def test_the_first_loss_is_that_of_an_untrained_model(train: Callable[..., list[Event]]) -> None:
    """About ln 3 for three species that it can't tell apart."""
    (step,) = train(steps=1)
    assert step["loss"] == pytest.approx(math.log(3), abs=0.5)


def test_the_flowers_are_plotlys() -> None:
    """What the program reads without importing Plotly is what `plotly.data.iris` gives: 150 flowers, 50 a species."""
    spec = importlib.util.find_spec("plotly")
    assert spec is not None
    assert spec.origin is not None
    file = Path(spec.origin).parent / "package_data" / "datasets" / "iris.csv.gz"
    with gzip.open(file, "rt") as text:
        rows = list(csv.DictReader(text))
    names = ["sepal_length", "sepal_width", "petal_length", "petal_width", "species", "species_id"]
    assert list(rows[0]) == names
    assert np.bincount([int(row["species_id"]) for row in rows]).tolist() == [0, 50, 50, 50]


def test_it_runs_where_plotly_and_keras_3_are(engine: Engine) -> None:
    assert has_the_data(engine.runtime().versions)
    assert not has_the_data(Versions("2.21.0", "3.15.1"))
    assert not has_the_data(Versions("2.15.1", "2.15.0", plotly="7.1.0"))
    others = [name for name in engine.runtimes if name != engine.runtime().name]
    for name in others:
        with pytest.raises(CannotRunError):
            engine.submit(Request.of("scaling", {}, name))
