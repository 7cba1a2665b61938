"""The experiment `fit` against arithmetic, and what Keras 3 made of it from one version to the next.

The sources named here are those of the keras packages themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from engine.job import Ticket
from engine.trace import Trace

Submit = Callable[..., Ticket]
Run = Callable[..., Trace]

RATE = 0.01
# The Keras 3 releases between which what fit computes has changed, and the app's own.
KERAS_3 = {keras: f"2.21.0+keras-{keras}" for keras in ("3.4.1", "3.5.0", "3.7.0", "3.8.0", "3.10.0")}
KERAS_3["bundled"] = "2.21"
KERAS_2: dict[str, tuple[str, dict[str, str]]] = {
    "2.4.1": ("2.4.1", {}),
    "2.5.0": ("2.5.0", {}),
    "2.15.1": ("2.15.1", {}),
    "tf_keras": ("2.21", {"keras": "tf_keras"}),
}


def shares(examples: int, batch_size: int = 4, replicas: int = 2) -> list[list[list[float]]]:
    """Which examples each replica gets of each batch: as even shares of a whole batch as there can be, in order."""
    xs = [float(x + 1) for x in range(examples)]
    share = -(-batch_size // replicas)
    batches = [xs[start : start + batch_size] for start in range(0, examples, batch_size)]
    return [[batch[share * r : share * (r + 1)] for r in range(replicas)] for batch in batches]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def trained(
    batches: list[list[list[float]]], epochs: int, *, scale: float, summed: bool
) -> tuple[list[float], list[list[float]]]:
    """Each copy of the weight at the end, and the sum of each replica's losses in each epoch.

    A replica's gradient is that of the mean of (weight * x)**2 over its own share, times `scale`; each copy is moved
    by the sum of them, or, where they are not `summed`, by its own replica's.
    """
    copies, totals = [1.0] * len(batches[0]), []
    for _ in range(epochs):
        total = [0.0] * len(copies)
        for batch in batches:
            for r, xs in enumerate(batch):
                total[r] += sum((copies[r] * x) ** 2 for x in xs)
            own = [scale * 2 * weight * mean([x * x for x in xs]) for weight, xs in zip(copies, batch, strict=True)]
            copies = [weight - RATE * (sum(own) if summed else own[r]) for r, weight in enumerate(copies)]
        totals.append(total)
    return copies, totals


def last_weights(trace: Trace) -> list[float]:
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr[-2000:])
    last = trace.start["settings"]["epochs"]
    return [event["value"] for event in trace.of("variable") if event["step"] == last]


def losses(trace: Trace) -> list[Any]:
    return [event["value"] for event in trace.of("loss")]


def metric(trace: Trace, variable: str, step: int = 1) -> list[Any]:
    return [event["value"] for event in trace.of("metric") if (event["variable"], event["step"]) == (variable, step)]


# What each Keras 3 does: the scale of a replica's loss, whether gradients are summed, whose losses are told.
TIME_LINE: dict[str, tuple[float, bool, str]] = {
    # _all_reduce_sum_gradients is called in the merge_call, in cross-replica context, where it gives back what it
    # was given (backend/tensorflow/optimizer.py): each copy goes its own way.
    "3.4.1": (1, False, "first"),
    # Called before the merge_call, it sums; but a replica's loss is the mean over its own share only.
    "3.5.0": (1, True, "first"),
    "3.7.0": (1, True, "all"),
    # scale_loss_for_distribution divides that by the number of replicas (losses/loss.py).
    "3.8.0": (1 / 2, True, "all"),
    "3.10.0": (1 / 2, True, "all"),
    "bundled": (1 / 2, True, "all"),
}


@pytest.mark.parametrize("keras", KERAS_3)
def test_keras_3_time_line(run_on: Run, keras: str) -> None:
    """x = 1 ... 4 in one batch over two replicas, three epochs."""
    trace = run_on(KERAS_3[keras], "fit")
    scale, summed, told = TIME_LINE[keras]
    copies, totals = trained(shares(4), 3, scale=scale, summed=summed)
    assert last_weights(trace) == pytest.approx(copies, abs=1e-5)
    expected = [mean([total[0] / 2, total[1] / 2]) if told == "all" else total[0] / 2 for total in totals]
    assert losses(trace) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("flavour", KERAS_2)
def test_keras_2(submit_on: Submit, flavour: str) -> None:
    """Right on every version: a step multiplies the weight by 1 - 0.01 * 2 * 7.5."""
    version, settings = KERAS_2[flavour]
    tickets = [submit_on(version, "fit", mode=mode, **settings) for mode in ("function", "eager")]
    for ticket in tickets:
        trace = ticket.result(240)
        assert last_weights(trace) == pytest.approx([0.85**3] * 2, abs=1e-5)
        assert losses(trace) == pytest.approx([7.5 * 0.85 ** (2 * epoch) for epoch in range(3)], abs=1e-4)
        assert [event["value"] for event in trace.of("counter")] == [1, 1, 2, 2, 3, 3]


def test_a_metric_that_sums_its_own_past(run_on: Run) -> None:
    """Keras 3.8: a metric adds to its total by assign(total + value), and assign with SUM aggregation adds up what
    the replicas assign: each update doubles all that was there. total / count hides it until both are infinite."""
    ask = {"learning_rate": 0, "epochs": 1}
    counts = []
    count = 0.0
    for _ in range(4):
        count = 2 * (count + 2)  # both replicas assign what was there, and the 2 examples of their own
        counts.append(count)
    assert counts == [4, 12, 28, 60]
    for repeats in (1, 2, 3, 4):
        trace = run_on(KERAS_3["3.8.0"], "fit", repeats=repeats, **ask)
        assert metric(trace, "count") == [counts[repeats - 1]] * 2
        assert losses(trace) == [7.5]
    long = run_on(KERAS_3["3.8.0"], "fit", repeats=150, **ask)
    assert (metric(long, "total"), metric(long, "count")) == (["inf"] * 2, ["inf"] * 2)
    assert losses(long) == ["nan"]
    right = run_on("2.21", "fit", repeats=150, **ask)
    assert metric(right, "count") == [2 * 150] * 2
    assert losses(right) == [7.5]


@pytest.mark.parametrize("flavour", [*KERAS_2, "bundled"])
@pytest.mark.parametrize("examples", [7, 5])
def test_a_last_batch_that_can_not_be_shared_evenly(run_on: Run, examples: int, flavour: str) -> None:
    """A step takes the mean of the replicas' means, each over its own share, not the mean over the batch: the one
    example of a last batch of 5 counts half, as the other replica has nothing to say."""
    version, settings = KERAS_2.get(flavour, ("2.21", {}))
    trace = run_on(version, "fit", examples=examples, epochs=1, **settings)
    copies, totals = trained(shares(examples), 1, scale=1 / 2, summed=True)
    assert last_weights(trace) == pytest.approx(copies, abs=1e-5)
    assert losses(trace) == pytest.approx([sum(totals[0]) / examples], abs=1e-5)


@pytest.mark.parametrize("keras", ["3.4.1", "3.5.0", "3.8.0", "3.10.0", "bundled"])
def test_a_first_batch_that_can_not_be_shared_evenly(run_on: Run, keras: str) -> None:
    """Three examples over two replicas. From 3.5 on, Keras 3 looks at the first batch before it trains, and to do so
    averages the replicas' shares, which must then be alike (backend/tensorflow/trainer.py, _maybe_symbolic_build)."""
    trace = run_on(KERAS_3[keras], "fit", examples=3, epochs=1)
    if keras == "3.4.1":
        copies, _ = trained(shares(3), 1, scale=1, summed=False)
        assert last_weights(trace) == pytest.approx(copies, abs=1e-5)
    else:
        assert trace.error is not None
        assert (trace.error["type"], trace.error["step"]) == ("InvalidArgumentError", 1)
        assert "must have the same size and shape.  Input 0: [2,1] != input 1: [1,1]" in trace.error["message"]


@pytest.mark.parametrize("flavour", KERAS_2)
def test_keras_2_takes_any_first_batch(run_on: Run, flavour: str) -> None:
    version, settings = KERAS_2[flavour]
    trace = run_on(version, "fit", examples=3, epochs=1, **settings)
    copies, totals = trained(shares(3), 1, scale=1 / 2, summed=True)
    assert last_weights(trace) == pytest.approx(copies, abs=1e-5)
    assert losses(trace) == pytest.approx([sum(totals[0]) / 3], abs=1e-5)


def test_any_number_of_replicas(submit_on: Submit) -> None:
    """The same batch shared by 1, 2 or 4 trains the same weight."""
    tickets = [
        submit_on(None, "fit", replicas=replicas, examples=8, batch_size=8, mode=mode, repeats=2)
        for replicas in (1, 2, 4)
        for mode in ("function", "eager")
    ]
    factor = 1 - RATE * 2 * mean([float(x * x) for x in range(1, 9)])
    for ticket in tickets:
        trace = ticket.result(240)
        replicas = trace.start["settings"]["replicas"]
        assert last_weights(trace) == pytest.approx([factor**6] * replicas, abs=1e-5)
