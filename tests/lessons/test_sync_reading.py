"""What a trace of SyncReplicasOptimizer says: fates, counts, deadlocks, and whether variables moved as they should."""

from __future__ import annotations

import pytest

from engine.trace import Trace
from lessons.sync_replicas.fix import suggested_fix
from lessons.sync_replicas.reading import read
from tests.lessons.sync_traces import RUNS, Script, crossed, in_step, killed, miscounted, so_far, wasted_round


def test_a_run_in_step() -> None:
    reading = read(in_step(3).end())
    assert reading.outcome == "right"
    assert reading.updates() == {"conv": 3}
    assert reading.global_step() == 3
    assert dict(reading.fates) == {"taken": 6}
    assert reading.lost == {}
    assert reading.weights["conv"] == pytest.approx(3 * 0.1 * (1 + 2) / 2)  # three steps of rate times average
    assert reading.own_rates
    assert suggested_fix(reading) is None


def test_what_comes_too_late_is_dropped_and_when_that_was_certain() -> None:
    reading = read(wasted_round().end())
    assert dict(reading.fates) == {"taken": 4, "dropped": 2}
    assert reading.lost == {"worker:0": 1, "worker:1": 1}
    first = reading.averages[0]
    late = [push for push in reading.pushes if push.fate == "dropped"]
    assert [push.step for push in late] == [2, 2]
    assert all(push.settled == push.t > first.t for push in late)  # the average had gone by when they came
    assert reading.dropped(late[0].t) == 1
    assert reading.dropped(late[1].t) == 2
    assert reading.first_tokens == 2


def test_what_an_accumulator_holds_at_each_moment() -> None:
    reading = read(in_step(1).end())
    one, other = reading.pushes
    average = reading.averages[0]
    assert reading.held("conv", one.t - 0.001) == ()
    assert reading.held("conv", one.t) == (one,)
    assert reading.held("conv", other.t) == (one, other)
    assert reading.held("conv", average.t) == ()


def test_steps_compute_until_they_push_and_wait_until_they_have_a_token() -> None:
    reading = read(in_step(1).end())
    events = {(event["event"], event.get("task")): event["t"] for event in in_step(1).events}
    (step,) = reading.workers[0].steps
    assert (step.start, step.pushed, step.end) == (
        events["step", "worker:0"], events["push", "worker:0"], events["token", "worker:0"],
    )  # fmt: skip


def test_a_deadlock_says_who_holds_what_and_who_waits() -> None:
    reading = read(crossed().end())
    deadlock = reading.deadlock
    assert reading.outcome == "deadlock"
    assert deadlock is not None
    assert deadlock.held == {"conv": 1, "fc_w": 1}
    assert deadlock.stuck == {"worker:0": (1,), "worker:1": (0,)}
    assert deadlock.has == {"worker:0": (0,), "worker:1": (1,)}
    assert deadlock.needed == 2
    assert deadlock.waited == pytest.approx(4.0)
    assert reading.lock == "crossed"
    assert suggested_fix(reading) == {"global_step": "composite"}
    assert {push.task for push in reading.held("conv", deadlock.t)} == {"worker:0"}


def test_the_dead_are_known_and_what_mends_it() -> None:
    reading = read(killed(1).end())
    assert [worker.name for worker in reading.dead] == ["worker:1"]
    assert reading.workers[1].ended == reading.workers[1].killed
    assert reading.lock == "worker_dead"
    assert suggested_fix(reading) == {"replicas_to_aggregate": "1"}
    chief = read(killed(0).end())
    assert chief.lock == "chief_dead"
    assert suggested_fix(chief) is None


@pytest.mark.parametrize(
    ("tokens", "change"),
    [
        ("none", {"tokens": "hook", "global_step": "composite"}),  # with a hook alone, the shared step counts twice
        ("first_hook_only", {"global_step": "composite"}),
    ],
)
def test_without_a_hook_that_is_the_reason(tokens: str, change: dict[str, str]) -> None:
    script = Script(optimizers=2, tokens=tokens).state(0).step(0, 1).push(0, 0).push(1, 0)
    reading = read(script.deadlock((0, 0), (1, 0), conv=2).end())
    assert reading.lock == {"none": "no_hook"}.get(tokens, tokens)
    assert suggested_fix(reading) == change


def test_without_first_tokens_one_worker_brings_one_gradient() -> None:
    script = Script(workers=1, replicas_to_aggregate=2, total_num_replicas=2, tokens="zero").state(0).step(0).push(0, 0)
    reading = read(script.deadlock((0, 0), conv=1).end())
    assert reading.lock == "no_first_tokens"
    assert suggested_fix(reading) == {"tokens": "hook"}


def test_first_tokens_are_counted_also_where_nobody_saw_them_lie() -> None:
    """The watch looks now and then: both may be taken before it does."""
    script = Script(steps=1).step(0, 1).push(0, 0).push(1, 0).token(0, 0).token(1, 0).average((0, 1), (1, 1))
    assert read(script.state(1, tokens=2).end()).first_tokens == 2


def test_steps_of_their_own_count_right_also_where_they_differ() -> None:
    script = Script(workers=1, optimizers=2, global_step="own", steps=1).state(0, 0).step(0)
    script.push(0, 0).push(0, 0, "fc_w").average((0, 1)).average((0, 1), variable="fc_w")
    script.step(0).push(0, 1).average((0, 2))
    reading = read(script.state(2, 1).end())
    assert reading.updates() == {"conv": 2, "fc_w": 1}
    assert reading.steps() == {"global_step": 2, "global_step_1": 1}
    assert reading.global_step() == 1
    assert reading.outcome == "right"
    assert read(script.state(2, 2).end()).outcome == "miscounted"


def test_moving_averages_that_every_optimizer_moves_are_fixed_by_one_optimizer() -> None:
    script = Script(workers=1, optimizers=2, global_step="own", steps=1, moving_average="all").state(0, 0).step(0)
    script.push(0, 0).push(0, 0, "fc_w").average((0, 1)).average((0, 1), variable="fc_w").state(1, 1)
    # The weights are 0.1 and 1, the averages by halves 0.05 and 0.5 once, 0.075 and 0.75 twice.
    for moved, change in ((0.05, None), (0.075, {"global_step": "composite"})):
        script.events[-1] |= {"moving_averages": {"conv": moved, "fc_w": 10 * moved}}
        reading = read(script.end())
        assert reading.own_averages == (change is None)
        assert suggested_fix(reading) == change


def test_who_raised_is_known() -> None:
    for name, tasks in (("article", ("worker:0", "worker:1")), ("too_few", ("worker:0",))):
        failure = read(RUNS[name]).failure
        assert failure is not None
        assert failure.tasks == tasks


def test_a_counter_that_counts_twice() -> None:
    reading = read(miscounted().end())
    assert reading.outcome == "miscounted"
    assert reading.global_step() == 2
    assert reading.updates() == {"conv": 1, "fc_w": 1}
    assert reading.own_rates  # 0.1 and 10 times 0.1, times 1.5
    assert suggested_fix(reading) == {"global_step": "composite"}


def test_momentum_and_moving_averages_by_hand() -> None:
    script = Script(workers=1, momentum=0.5, moving_average="own").state(0).step(0).push(0, 0).average((0, 1))
    script.step(0).push(0, 1).average((0, 2))
    reading = read(script.after(0, 2, conv=0.25).end())
    # The gradient is -1: the velocity is -1, then -0.5 - 1; the weight 0.1, then 0.1 + 0.15.
    assert reading.moved("conv") == pytest.approx(0.1 + 0.15)
    # By halves from 0: 0.05, then 0.025 + 0.125.
    assert reading.averaged("conv") == pytest.approx(0.15)


def test_asynchronously_every_update_is_one_push() -> None:
    script = Script(sync="no", steps=2).state(0).step(0, 1).average((0, 1)).average((1, 1), by=1).after(0, 2, conv=0.3)
    reading = read(script.after(1, 2, conv=0.3).end())
    assert [(push.task, push.fate) for push in reading.pushes] == [("worker:0", "taken"), ("worker:1", "taken")]
    assert reading.outcome == "right"
    assert all(step.pushed is not None for worker in reading.workers for step in worker.steps)


@pytest.mark.parametrize(
    ("name", "outcome", "change"),
    [
        ("article", "raised", {"global_step": "composite"}),
        ("too_few", "raised", {"tokens": "hook"}),
        ("other", "raised", None),
        ("nothing", "stopped", None),
    ],
)
def test_runs_that_did_not_train(name: str, outcome: str, change: dict[str, str] | None) -> None:
    reading = read(RUNS[name])
    assert reading.outcome == outcome
    assert suggested_fix(reading) == change


@pytest.mark.parametrize("whole", RUNS.values(), ids=list(RUNS))
def test_a_trace_that_still_grows_can_be_read(whole: Trace) -> None:
    """What is certain stays so: counts never go down, and a fate that is not `held` does not change."""
    before: dict[tuple[str, int, str], object] = {}
    updates = 0
    for length in range(1, len(whole.events)):
        reading = read(so_far(whole, length))
        assert reading.outcome == "running"
        assert sum(reading.updates().values()) >= updates
        updates = sum(reading.updates().values())
        now = {(push.task, push.step, push.variable): push.fate for push in reading.pushes}
        assert all(now[push] == fate for push, fate in before.items() if fate in ("taken", "dropped"))
        before = dict(now)
