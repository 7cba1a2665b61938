"""What is said of a `fit` on one version: beside what one device has, and why it differs. Numbers are computed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from engine.experiments.fit import FIT, FitSettings
from engine.recordings import Recordings
from engine.request import Request
from engine.trace import Event, Trace
from lessons import outcome_of
from lessons.language import LANGUAGES
from lessons.versions.fit import batches, read

Run = Callable[..., Trace]
RECORDINGS = Recordings()
KERAS_2: tuple[tuple[str | None, dict[str, str]], ...] = ("2.4.1", {}), ("2.15.1", {}), (None, {"keras": "tf_keras"})
X2 = {count: sum(x * x for x in range(1, count + 1)) for count in range(1, 10)}  # of the first so many examples


Reported = tuple[Sequence[float | str], float | str]  # copies of the weight, and the loss


def recorded(version: str | None, keras_version: str | None = None, **settings: Any) -> Trace:
    recording = RECORDINGS.find(Request.of("fit", settings, version, keras_version))
    assert recording is not None, (version, settings)
    return recording.trace


def fit_trace(*epochs: Reported, **settings: Any) -> Trace:
    """A run that reported these copies of the weight and this loss after each epoch."""
    chosen = FIT.settings.parse({"epochs": len(epochs), **settings}).model_dump(mode="json")
    events: list[Event] = [{"event": "run", "t": 0.0, "experiment": "fit", "settings": chosen}]
    for step, (copies, loss) in enumerate(epochs, 1):
        events += [
            {"event": "variable", "t": 0.0, "step": step, "replica": r, "value": w} for r, w in enumerate(copies)
        ]
        events += [
            {"event": "metric", "t": 0.0, "step": step, "replica": r, "variable": name, "value": 1.0}
            for name in ("total", "count")
            for r in range(len(copies))
        ]
        events.append({"event": "loss", "t": 0.0, "step": step, "value": loss})
    events.append({"event": "end", "t": 0.0, "status": "ok", "seconds": 0.1})
    return Trace(tuple({**event, "t": 0.0} for event in events))


# ------------------------------------------------------------------------------------------------- shares


@pytest.mark.parametrize(
    ("examples", "batch_size", "replicas", "shares"),
    [
        (4, 4, 2, [(2, 2)]),
        (5, 4, 2, [(2, 2), (1, 0)]),
        (6, 4, 2, [(2, 2), (1, 1)]),
        (3, 4, 2, [(2, 1)]),
        (4, 4, 3, [(2, 2, 0)]),
        (10, 6, 4, [(2, 2, 2, 0), (1, 1, 1, 1)]),
        (5, 8, 4, [(2, 2, 1, 0)]),
    ],
)
def test_how_a_batch_is_shared(
    run_on: Run, examples: int, batch_size: int, replicas: int, shares: list[tuple[int, ...]]
) -> None:
    """The metric of Keras 2 counts on each replica the examples that it got."""
    settings = {"examples": examples, "batch_size": batch_size, "replicas": replicas, "epochs": 1}
    assert [tuple(map(len, batch)) for batch in batches(FitSettings.parse(settings).model_dump())] == shares
    trace = run_on(None, "fit", keras="tf_keras", **settings)
    counted = [event["value"] for event in trace.of("metric") if event["variable"] == "count"]
    assert counted == [sum(column) for column in zip(*shares, strict=True)]


# ------------------------------------------------------------------------------------------------- weights


def test_a_last_batch_that_is_shared_unevenly() -> None:
    """4 examples evenly, the fifth alone: its mean counts half, where one device takes it whole."""
    after_four = 1 - 0.01 * 2 * X2[4] / 4
    here, one_device = after_four * (1 - 0.01 * 2 * 25 / 2), after_four * (1 - 0.01 * 2 * 25)
    assert (round(here, 4), round(one_device, 4)) == (0.6375, 0.425)
    for version, settings in (*KERAS_2, ("2.21", {})):
        trace = recorded(version, examples=5, epochs=1, **settings)
        english, chinese = (outcome_of(trace, language) for language in ("en", "zh"))
        assert (english.kind, english.head) == ("odd", "weight 0.6375 after epoch 1, not 0.425")
        assert "share a batch of 1 as 1 and 0." in english.why
        assert "averages these 2 means, that of an empty share being 0" in english.why
        assert "0.6375，应为 0.425" in chinese.head
        assert "1 和 0 个" in chinese.why


def test_a_first_batch_that_is_shared_unevenly() -> None:
    """Keras 2 averages the means, 2.5 and 9, where one device has 14 / 3; Keras 3 does not get that far."""
    one_device = 1 - 0.01 * 2 * 14 / 3
    for version, settings in KERAS_2:
        found = outcome_of(recorded(version, examples=3, epochs=1, **settings), "en")
        assert found.head == f"weight {1 - 0.01 * 2 * (2.5 + 9) / 2:.3f} after epoch 1, not {one_device:.4f}"
        assert "share a batch of 3 as 2 and 1." in found.why
        assert "as if all shares were of one size" in found.why
    found = outcome_of(recorded("2.21", examples=3, epochs=1), "en")
    assert (found.kind, found.head) == ("raised", "InvalidArgumentError")
    assert "only shares of one size can be added; here they are 2 and 1." in found.why
    assert f"weight {one_device:.4f}" in found.why


def test_a_whole_batch_is_no_reason_to_refuse() -> None:
    """Another error of the same name is not explained by shares that are even."""
    error: Event = {
        "event": "error",
        "t": 0.0,
        "type": "InvalidArgumentError",
        "message": "AddN ...",
        "line": 1,
        "step": 1,
    }
    start, *_, end = fit_trace(([1.0, 1.0], 1.0)).events
    trace = Trace((start, error, {**end, "status": "error"}))
    assert outcome_of(trace, "en").why == ""


RULES = {
    # Keras: the factor of one step of x = 1 ... 4 over two replicas on each copy, and words of the reason.
    "3.4.1": ([1 - 0.01 * 2 * 2.5, 1 - 0.01 * 2 * 12.5], "never brought together"),
    "3.5.0": ([1 - 0.01 * 2 * (2.5 + 12.5)] * 2, "each step is 2 times what it should be"),
    "3.7.0": ([1 - 0.01 * 2 * (2.5 + 12.5)] * 2, "each step is 2 times what it should be"),
}


@pytest.mark.parametrize("keras", RULES)
def test_a_keras_that_steps_wrongly(keras: str) -> None:
    factors, reason = RULES[keras]
    found = outcome_of(recorded("2.21", keras), "en")
    copies = ", ".join(f"{factor**3:.4f}".rstrip("0") for factor in dict.fromkeys(factors))
    assert found.head == f"weight {copies} after epoch 3, not {0.85**3:.4f}"
    assert reason in found.why


def test_a_difference_that_is_said_is_seen() -> None:
    """By the end all are 0 but for the trace's six decimals; the epoch in which they differ is the one that is told."""
    right = [0.85 ** (20 * epoch) for epoch in (1, 2, 3, 4, 5)]
    wrong = [0.7 ** (20 * epoch) for epoch in (1, 2, 3, 4, 5)]
    epochs: list[Reported] = [([round(weight, 6)] * 2, 0.0) for weight in wrong]
    found = outcome_of(fit_trace(*epochs, repeats=20), "en")
    assert [round(weight, 6) for weight in right] == [0.03876, 0.001502, 0.000058, 0.000002, 0]
    assert found.head == "weight 0 after epoch 4, not 2.2569e-06"


def test_a_fit_that_leaves_float32_as_one_device_does() -> None:
    """A step multiplies the weight by 1 - 2 * 7.5 = -14: 40 of them are 7e45."""
    trace = fit_trace((["nan"] * 2, "inf"), (["nan"] * 2, "nan"), learning_rate=1, repeats=40)
    found = outcome_of(trace, "en")
    assert (found.kind, found.head) == ("right", "weight NaN, NaN")
    assert "one device too" in found.why


# ------------------------------------------------------------------------------------------------- losses


def test_the_loss_of_replica_0_alone() -> None:
    found = outcome_of(recorded("2.21", "3.5.0", epochs=1), "en")
    assert found.detail == f"loss {(1 + 4) / 2} in epoch 1, not {X2[4] / 4}"
    assert "replica 0’s share alone; that of all examples is 7.5." in found.why


@pytest.mark.parametrize("keras", ["3.7.0", "3.8.0"])
def test_a_metric_that_each_batch_multiplies(run_on: Run, keras: str) -> None:
    """x = 1 ... 4, then 5 ... 8, with learning rate 0: total is 2 * 30 + 174, count 2 * 4 + 4."""
    trace = run_on(f"2.21.0+keras-{keras}", "fit", examples=8, learning_rate=0, epochs=1)
    first, second = X2[4], X2[8] - X2[4]
    found = outcome_of(trace, "en")
    assert found.head == "weight 1, 1"
    assert found.detail == f"loss {(2 * first + second) / (2 * 4 + 4)} in epoch 1, not {(first + second) / 8}"
    assert "each batch multiplies what was there by 2 (`count` is 12 after 8 examples)" in found.why
    assert f"The loss of all examples is {(first + second) / 8}." in found.why


@pytest.mark.parametrize("language", LANGUAGES)
def test_why_a_metric_overflows(language: str) -> None:
    """4 examples a batch; after n batches the count is 4 * (2**n - 1), beyond float32 before the 200 of this run."""
    assert 4 * (2**127 - 1) > 3.4e38
    found = outcome_of(recorded("2.21", "3.8.0", repeats=200), language)
    assert "NaN" in found.detail
    assert "800" in found.why
    assert "`count`" in found.why
    assert "∞" in found.why


# ------------------------------------------------------------------------------------------------- every recording


@pytest.mark.parametrize("name", list(RECORDINGS.made_with(FIT)))
def test_what_is_wrong_has_its_expected_value_and_its_reason(name: str) -> None:
    for recording in RECORDINGS.all(FIT, name):
        found, reading = outcome_of(recording.trace, "en"), read(recording.trace)
        assert (found.kind == "right") == (not found.why), reading.settings
        assert "known here" not in found.why
        for part, right in ((found.head, reading.weight_right), (found.detail, reading.loss_right)):
            if not right:
                seen, _, expected = part.partition(", not ")
                assert expected
                numbers = re.findall(r"[\d.]+|NaN|∞", re.sub(r"(after|in) epoch \d+", "", seen))
                assert numbers != [expected], part
