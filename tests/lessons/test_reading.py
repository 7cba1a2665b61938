"""What a trace says. Every expected number is arithmetic on the gradients, written here."""

from __future__ import annotations

from typing import Any

import pytest

from engine.trace import Event, Trace
from lessons.aggregation.reading import Step, differ, read
from tests.lessons.traces import cut, trace


def only_step(run: Trace) -> Step:
    (step,) = read(run).steps
    return step


def near(*values: float) -> object:
    return pytest.approx(values, abs=1e-6)


# What each rule makes of 0.1, 0.2, 0.4 and of a weight of 1.
RULES = {
    "sum": ([0.7, 0.7, 0.7], (True, True, True)),
    "mean": ([0.7 / 3] * 3, (True, True, True)),
    "first": ([0.1, 0.1, 0.1], (True, False, False)),
    "own": ([0.1, 0.2, 0.4], (True, True, True)),
}
METHODS = {
    "assign_add": lambda took: 1 + took,
    "assign_sub": lambda took: 1 - took,
    "assign": lambda took: took,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rule", RULES)
def test_the_merge_is_found_by_arithmetic(rule: str, method: str) -> None:
    took, used = RULES[rule]
    # The settings say NONE all the time: they must not matter.
    step = only_step(trace([METHODS[method](each) for each in took], gradients=[0.1, 0.2, 0.4], route=method))
    assert step.merge == rule
    assert step.fits == (rule,)
    assert step.reached == near(*took)
    assert step.applied == near(*([-each for each in took] if method == "assign_sub" else took))
    assert step.used == used
    assert step.merged == (None if rule == "own" else pytest.approx(took[0]))
    assert step.equal is (rule != "own")
    assert step.gap is None
    assert step.why is None


@pytest.mark.parametrize(("rate", "after"), [(1.0, 0.7), (0.1, 0.97), (0.001, 0.9997), (100.0, -29.0)])
def test_an_optimizers_rate_is_taken_out_again(rate: float, after: float) -> None:
    step = only_step(trace([after, after], route="optimizer", learning_rate=rate, aggregation="MEAN"))
    assert step.merge == "sum"
    assert step.merged == pytest.approx(0.1 + 0.2)
    assert step.applied == near(-rate * 0.3, -rate * 0.3)


def test_float32_is_no_merge_of_its_own() -> None:
    # 0.7 and 1.1 as float32 has them, and 20 steps of what they leave behind
    copies = [[1.100000023841858, 1.2000000476837158], [1.2000000476837158, 1.4000000953674316]]
    assert [step.merge for step in read(trace(*copies)).steps] == ["own", "own"]
    step = only_step(trace([0.699999988079071] * 2, route="optimizer"))
    assert step.merge == "sum"


@pytest.mark.parametrize(
    ("gradients", "copies", "fits"),
    [
        ([0.2, 0.2], [1.2, 1.2], ("mean", "first", "own")),
        ([0.2, 0.2], [1.4, 1.4], ("sum",)),
        ([0.0, 0.0], [1.0, 1.0], ("sum", "mean", "first", "own")),
        ([-0.3, 0.3], [1.0, 1.0], ("sum", "mean")),
        ([0.1, 0.0], [1.1, 1.1], ("sum", "first")),
        ([0.1, 0.0], [1.1, 1.0], ("own",)),
    ],
)
def test_what_cannot_be_told_apart_is_said_to_be_the_same(
    gradients: list[float], copies: list[float], fits: tuple[str, ...]
) -> None:
    step = only_step(trace(copies, gradients=gradients))
    assert step.fits == fits
    assert step.merge == (fits[0] if len(fits) == 1 else "same")


def test_a_contribution_is_used_or_not_only_where_all_that_fits_agrees() -> None:
    assert only_step(trace([1.2, 1.2], gradients=[0.2, 0.2])).used == (True, None)
    assert only_step(trace([1.0, 1.0], gradients=[-0.3, 0.3])).used == (True, True)


def test_one_replica_has_nothing_to_merge() -> None:
    step = only_step(trace([1.5], gradients=[0.5]))
    assert step.merge == "one"
    assert step.merged == 0.5
    assert step.equal is True


@pytest.mark.parametrize(
    ("gradients", "after", "why", "merged", "contributions", "gap"),
    [
        # clipped to 1 each, then summed: 1 + 0.5; without clipping 3.5
        ([3.0, 0.5], 1 - 1.5, "clipped", 1.5, (1.0, 0.5), -2.0),
        ([3.0, 3.0], 1 - 2.0, "clipped", 2.0, (1.0, 1.0), -4.0),
        # summed to 6, then clipped to 1
        ([3.0, 3.0], 1 - 1.0, "clipped_after", 1.0, (3.0, 3.0), -5.0),
        ([-3.0], 1 + 1.0, "clipped_either", -1.0, (-1.0,), 2.0),
        # nothing known gives 5
        ([3.0, 3.0], 1 - 5.0, None, 5.0, (3.0, 3.0), -1.0),
    ],
)
def test_clipping_is_no_rule_but_accounts_for_the_number(
    gradients: list[float],
    after: float,
    why: str | None,
    merged: float,
    contributions: tuple[float, ...],
    gap: float,
) -> None:
    step = only_step(trace([after] * len(gradients), route="optimizer", clipnorm=1.0, gradients=gradients))
    assert step.merge == "other"
    assert step.why == why
    assert step.merged == pytest.approx(merged)
    assert step.contributions == contributions
    assert step.gap == pytest.approx(gap)


def test_clipping_that_cuts_nothing_is_a_plain_sum() -> None:
    step = only_step(trace([0.7, 0.7], route="optimizer", clipnorm=1.0))
    assert (step.merge, step.why) == ("sum", None)


def test_the_last_of_an_odd_number_is_lost_by_hierarchical_copy() -> None:
    settings: dict[str, Any] = {"route": "optimizer", "cross_device": "hierarchical_copy"}
    step = only_step(trace([0.7] * 3, gradients=[0.1, 0.2, 0.3], **settings))  # 1 - (0.1 + 0.2)
    assert (step.merge, step.why) == ("other", "lost")
    assert step.merged == pytest.approx(0.3)
    assert step.gap == pytest.approx(-0.3)
    assert step.used == (True, True, False)
    assert only_step(trace([0.4] * 3, gradients=[0.1, 0.2, 0.3], **settings)).merge == "sum"


def test_an_int32_weight_cuts_the_learning_rate() -> None:
    whole: dict[str, Any] = {"dtype": "int32", "route": "optimizer", "gradients": [1, 2]}
    reading = read(trace([-5, -5], learning_rate=2.5, start=[1, 1], **whole))  # 1 - 2 * 3
    assert reading.rate == 2
    assert (reading.steps[0].merge, reading.steps[0].why) == ("sum", "whole_rate")
    step = only_step(trace([1, 1], learning_rate=0.1, start=[1, 1], **whole))  # 1 - 0 * 3
    assert (step.merge, step.why, step.merged) == ("other", "whole_rate", 0.0)
    assert only_step(trace([-2, -2], start=[1, 1], **whole)).why is None


def test_copies_that_took_what_no_merge_gives() -> None:
    step = only_step(trace([1.5, 1.7]))
    assert step.merge == "other"
    assert step.reached == near(0.5, 0.7)
    assert step.merged is None


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ((1.1, 1.1), False),
        ((1.1, 1.2), True),
        ((1.1, 1.1, 1.3), True),
        ((0.0, 0.0), False),
        ((1.15, 1.1500001), False),
        ((None, None), False),
        ((1.0, None, 2.0), True),
        ((1.0, None, 1.0), False),
        ((), False),
    ],
)
def test_copies_differ_by_more_than_rounding(copies: tuple[float | None, ...], expected: bool) -> None:
    assert differ(copies) is expected


@pytest.mark.parametrize(
    ("value", "merge"), [(1.1 + 1.2, "sum"), ((1.1 + 1.2) / 2, "mean"), (1.1, "first"), (9.0, "other")]
)
def test_a_read_on_read_is_merged_by_arithmetic_too(value: float, merge: str) -> None:
    step = only_step(trace([1.1, 1.2], reads=[value], synchronization="ON_READ"))
    assert step.merge == "own"
    assert step.read_merge == merge


def test_a_read_of_equal_copies_cannot_tell_mean_from_first() -> None:
    step = only_step(trace([0.7, 0.7], reads=[0.7], synchronization="ON_READ", route="optimizer"))
    assert (step.read_merge, step.read_fits) == ("same", ("mean", "first"))
    step = only_step(trace([0.7, 0.7], reads=[1.4], synchronization="ON_READ", route="optimizer"))
    assert step.read_merge == "sum"


@pytest.mark.parametrize(
    ("value", "copies", "read_value"),
    # 3 / 2 = 1.5 and -3 / 2 = -1.5 are cut toward 0; 2 / 3 = 0.67 to nothing
    [(3.0, [1, 1], 2.0), (-3.0, [-1, -1], -2.0), (2.0, [0, 0, 0], 0.0)],
)
def test_a_sum_that_is_set_outside_the_replicas_is_cut_where_it_must_be_whole(
    value: float, copies: list[float], read_value: float
) -> None:
    settings: dict[str, Any] = {"route": "cross_replica", "update": "assign", "synchronization": "ON_READ"}
    whole: dict[str, Any] = {"dtype": "int32", "value": "python", "gradients": [value] * len(copies)}
    reading = read(trace(copies, reads=[read_value], aggregation="SUM", **settings, **whole))
    (step,) = reading.steps
    assert (step.why, step.read) == ("split_cut", read_value)
    assert reading.wrong


def test_a_sum_that_is_set_outside_the_replicas_is_split() -> None:
    step = only_step(
        trace(
            [2.5, 2.5],
            reads=[5.0],
            gradients=[5.0, 5.0],
            value="python",
            route="cross_replica",
            update="assign",
            synchronization="ON_READ",
            aggregation="SUM",
        )
    )
    assert (step.merge, step.why, step.merged) == ("other", "split", 2.5)


@pytest.mark.parametrize(("route", "sum_of_2_steps"), [("assign_add", 2 * 3), ("cross_replica", 2)])
def test_counters_know_what_they_should_say(route: str, sum_of_2_steps: int) -> None:
    reading = read(trace([1.1, 1.2, 1.3], [1.2, 1.4, 1.6], gradients=[0.1, 0.2, 0.3], route=route))
    step = reading.steps[1]
    assert {count.name: count.value for count in step.counts} == {
        "SUM": sum_of_2_steps,
        "MEAN": 2,
        "ONLY_FIRST_REPLICA": 2,
    }
    assert all(count.as_expected and count.agree for count in step.counts)


def test_a_counter_that_says_something_else_is_not_as_expected() -> None:
    run = trace([1.1, 1.2])
    events: list[Event] = [
        {**event, "value": 7.0} if event.get("counter") == "MEAN" and event["replica"] == 1 else event
        for event in run.events
    ]
    count = only_step(Trace(tuple(events))).count("MEAN")
    assert count is not None
    assert not count.agree
    assert not count.as_expected


@pytest.mark.parametrize(
    ("settings", "asked"),
    [
        ({}, "write"),
        ({"route": "assign"}, "write"),
        ({"route": "assign_sub", "synchronization": "ON_WRITE"}, "write"),
        ({"route": "cross_replica"}, "never"),
        ({"route": "optimizer"}, "never"),
        ({"synchronization": "ON_READ"}, "read"),
        ({"synchronization": "ON_READ", "route": "optimizer"}, "read"),
    ],
)
def test_where_the_aggregation_is_asked(settings: dict[str, Any], asked: str) -> None:
    assert read(trace([1.1, 1.2], **settings)).asked == asked


def test_steps_follow_each_other() -> None:
    reading = read(trace([1.1, 1.2], [1.2, 1.4], [1.3, 1.6], steps=3))
    assert reading.start == (1.0, 1.0)
    assert [step.number for step in reading.steps] == [1, 2, 3]
    assert reading.steps[2].before == (1.2, 1.4)
    assert reading.steps[2].moved == near(0.1, 0.2)
    assert reading.devices == ("CPU:0", "CPU:1")
    assert reading.kind == "MirroredVariable"
    assert reading.failure is None


def test_an_error_in_a_step_leaves_the_steps_before_it() -> None:
    reading = read(trace([1.1, 1.2], error=("ValueError", "no"), steps=3))
    assert reading.last is not None
    assert reading.last.number == 1
    assert [step.merge for step in reading.steps] == ["own", None]
    assert reading.steps[1].gradients == (0.1, 0.2)
    failure = reading.failure
    assert failure is not None
    assert (failure.kind, failure.step, failure.line, failure.place) == ("ValueError", 2, 41, "update")


def test_an_error_at_the_read_comes_after_the_copies() -> None:
    reading = read(trace([1.1, 1.2], reads=[], error=("ValueError", "no"), synchronization="ON_READ"))
    assert reading.failure is not None
    assert (reading.failure.step, reading.failure.place) == (1, "read")
    assert reading.steps[0].merge == "own"
    assert reading.steps[0].read is None


def test_an_error_before_the_first_step() -> None:
    reading = read(trace(error=("ValueError", "no"), start=[]))
    assert reading.steps == ()
    assert reading.start == (None, None)
    assert reading.devices == ("CPU:0", "CPU:1")
    assert reading.failure is not None
    assert (reading.failure.step, reading.failure.place) == (0, "creation")


def test_a_run_can_be_cut_off_anywhere() -> None:
    whole = trace([1.1, 1.2], [1.2, 1.4], steps=2)
    for length in range(1, len(whole.events)):
        reading = read(cut(whole, length))
        failure = reading.failure
        assert failure is not None
        assert not failure.raised
        assert failure.step <= 2
        assert all(step.merge in ("own", None) for step in reading.steps)
        assert all(step.finished is (step.merge is not None) for step in reading.steps)


@pytest.mark.parametrize(
    ("length", "step", "place"),
    # run, 2 placements, 2 first values; in a step 2 gradients, 2 values, 6 counters, 1 read
    [
        (1, 0, "creation"),
        (4, 0, "creation"),
        (5, 1, "update"),
        (8, 1, "update"),
        (9, 2, "update"),
        (16, 2, "update"),
        (27, 2, "read"),
    ],
)
def test_a_stopped_run_was_in_the_step_after_its_last_complete_one(length: int, step: int, place: str) -> None:
    failure = read(cut(trace([1.1, 1.2], [1.2, 1.4], steps=2), length, "timeout")).failure
    assert failure is not None
    assert (failure.kind, failure.step, failure.place, failure.line) == ("timeout", step, place, None)
