"""The experiment `sync_replicas`: what SyncReplicasOptimizer did on a live cluster, against own arithmetic.

Workers race, so most of what is asserted must hold in whatever order they came; what depends on the order is run many
times. Each push carries a mark, so that an average names the pushes in it, and everything can be counted up.
"""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from engine.job import Ticket
from engine.request import Request
from engine.trace import Event, Trace
from lessons.sync_replicas.fates import fates
from tests.conftest import Sample
from tests.engine.processes import children_of, until

VERSIONS = ("2.21", "1.15.5")
TIMES = {"conv": 1, "fc_w": 10, "fc_b": 20}
RATE = 0.1
turns = itertools.count()
Submit = Callable[..., Ticket]
Run = Callable[..., Trace]


# What nobody moves on from, each at its deadline. They are submitted together, as they mostly wait.
STUCK: dict[str, dict[str, Any]] = {
    "none": {"tokens": "none"},
    "first": {"tokens": "first_hook_only", "optimizers": 2},
    "needed": {"workers": 3, "kill_worker": 2},
    "chief": {"kill_worker": 0},
}


@pytest.fixture(params=VERSIONS)
def run(request: pytest.FixtureRequest, run_on: Run) -> Run:
    """Runs the experiment with these settings, on each version."""
    return lambda **settings: run_on(request.param, "sync_replicas", **settings)


@pytest.fixture
def run_on_one(engine: Engine, run_on: Run) -> Run:
    """Runs the experiment on one version or the other, in turn, of those that are here; CI must have both."""
    here = [version for version in VERSIONS if os.environ.get("CI") or any(map(version_of(version), engine.runtimes))]
    version = here[next(turns) % len(here)]
    return lambda **settings: run_on(version, "sync_replicas", **settings)


def version_of(line: str) -> Callable[[str], bool]:
    """Whether a runtime is of that line, and with the Keras that it comes with."""
    return lambda name: f"{name}.".startswith(f"{line}.") and "+" not in name


@pytest.fixture(scope="module", params=VERSIONS)
def stuck_runs(request: pytest.FixtureRequest, submit_on: Submit) -> dict[str, Ticket]:
    return {name: submit_on(request.param, "sync_replicas", **settings) for name, settings in STUCK.items()}


@pytest.fixture
def stuck(stuck_runs: dict[str, Ticket]) -> Callable[[str], Trace]:
    """The trace of one of STUCK, on each version: it ended by itself, in time, and with one picture of it."""

    def trace_of(name: str) -> Trace:
        trace = stuck_runs[name].result(240)
        assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
        assert len(trace.of("deadlock")) == 1
        assert trace.of("deadlock")[0]["tokens"] == 0
        return trace

    return trace_of


def final(trace: Trace) -> Event:
    """What lay on the parameter server at the end."""
    state: Event = trace.of("state")[-1]
    return state


def counts(trace: Trace) -> Counter[str | None]:
    """How many pushes were taken, dropped and held."""
    return Counter(fates(trace.events).values())


def check(trace: Trace, momentum: float = 0.0) -> None:
    """What must hold in every run, whoever came first."""
    settings = trace.start["settings"]
    gradients, step = settings["gradients"], settings["global_step"]
    variables = list(TIMES)[: settings["optimizers"]]
    pushes = {(push["task"], push["step"], push["variable"]): push for push in trace.of("push")}
    assert len(pushes) == len(trace.of("push"))

    # Each average is the mean of the gradients in it, which are at least as many as are to be aggregated; each variable
    # moves by its own rate; and no gradient is used twice.
    used: Counter[tuple[str, int, str]] = Counter()
    weights, velocities = dict.fromkeys(variables, 0.0), dict.fromkeys(variables, 0.0)
    for average in trace.of("average"):
        name, members = average["variable"], average["pushes"]
        mean = sum(gradients[int(task.partition(":")[2])] for task, _ in members) / len(members)
        assert average["value"] == pytest.approx(mean, abs=1e-5)
        assert len(members) >= (settings["replicas_to_aggregate"] if settings["sync"] == "yes" else 1)
        used.update((task, number, name) for task, number in members)
        velocities[name] = momentum * velocities[name] + mean
        weights[name] -= RATE * TIMES[name] * velocities[name]
    assert not used or max(used.values()) == 1
    assert final(trace)["weights"] == pytest.approx(weights, abs=1e-4)

    # The step counters, by their policy.
    updates = Counter(average["variable"] for average in trace.of("average"))
    if step == "own":
        expected = {f"global_step_{i}" if i else "global_step": updates[name] for i, name in enumerate(variables)}
    elif step == "composite":
        expected = {"global_step": updates["conv"]}
        assert len(set(updates.values())) <= 1
    elif step == "article":
        expected = {"global_step": updates["conv"]}
    else:
        expected = {"global_step": sum(updates.values())}
    assert final(trace)["steps"] == expected

    if settings["sync"] == "yes":
        # What was pushed was taken, was dropped, or lies in the accumulator: the counts add up, with TensorFlow's own.
        found = fates(trace.events)
        assert set(used) <= set(pushes)
        assert all(found[push] == "taken" for push in used)
        held = {name: sum(fate == "held" for push, fate in found.items() if push[2] == name) for name in variables}
        assert held == final(trace)["held"]
        # Tokens: those that were put in are those that were taken and those that are left.
        if settings["kill_worker"] is None:
            assert tokens_put_in(trace) == len(trace.of("token")) + final(trace)["tokens"]


def trained(run: Run, **settings: Any) -> Trace:
    """A run that came to its end. Where several optimizers share the one queue it may come to a deadlock instead, now
    and then: left-over tokens may go to the first optimizer of one worker and to the other's second one. Everything
    can be counted up then, too, and it is run again; with one optimizer it never is."""
    for _ in range(5):
        trace = run(**settings)
        assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
        used = trace.start["settings"]
        if not trace.of("deadlock"):
            assert min(final(trace)["steps"].values()) >= used["steps"]
            return trace
        (deadlock,) = trace.of("deadlock")
        assert used["optimizers"] > 1, deadlock
        assert used["global_step"] != "composite", deadlock
        assert used["sync"] == "yes", deadlock
        assert deadlock["tokens"] == 0
        assert min(deadlock["held"].values()) < deadlock["needed"]
        assert {event["task"] for event in trace.of("stuck")} == {f"worker:{i}" for i in range(used["workers"])}
        check(trace, momentum=used["momentum"])
    raise AssertionError(f"5 deadlocks of 5 runs: {settings}")


def tokens_put_in(trace: Trace) -> int:
    """At the start by the hook, and after each update, by arithmetic."""
    settings = trace.start["settings"]
    several = settings["global_step"] != "composite"
    optimizers = settings["optimizers"] if several else 1
    aggregate = settings["replicas_to_aggregate"]
    updates = len(trace.of("average")) // (1 if several else settings["optimizers"])
    at_first = {"hook": optimizers, "zero": 0, "twice": 2 * optimizers, "none": 0, "first_hook_only": 1}
    each = max(aggregate, settings["total_num_replicas"])
    return int(at_first[settings["tokens"]] * aggregate + updates * each)


# ----------------------------------------------------------------------------------------------------- what must hold


CASES: list[dict[str, Any]] = [
    {},
    {},
    {"delays": "0,0", "barrier": "no"},
    {"workers": 1},
    {"workers": 4, "replicas_to_aggregate": 3, "gradients": "1,-2,4,8", "delays": "0,0.01,0.02,0.03"},
    {"replicas_to_aggregate": 3},
    {"optimizers": 3, "global_step": "composite"},
    {"optimizers": 3, "steps": 9, "delays": "0.02,0.03"},
    {"sync": "no", "optimizers": 2, "global_step": "article"},
    {"sync": "no", "optimizers": 2, "global_step": "own"},
    {"sync": "no", "optimizers": 2, "global_step": "composite"},
    {"sync": "no", "optimizers": 2, "workers": 3},
]


@pytest.mark.parametrize("settings", CASES, ids=str)
def test_averages_steps_and_counts(run_on_one: Run, settings: dict[str, Any]) -> None:
    check(trained(run_on_one, **settings))


@pytest.mark.parametrize("version", VERSIONS)
def test_ten_runs_hold_what_one_holds(submit_on: Submit, sample: Sample, version: str) -> None:
    """No delay, no barrier: whoever comes first takes the tokens."""
    tickets = [
        submit_on(version, "sync_replicas", workers=2 + number % 2, delays=(0.0,) * (2 + number % 2), steps=3,
                  barrier="no", tokens=tokens, gradients=tuple(float(i + number) for i in range(2 + number % 2)))
        for number, tokens in sample(enumerate(("hook", "zero", "twice", "hook", "zero") * 2), 1 / 3)
    ]  # fmt: skip
    for ticket in tickets:
        trace = ticket.result(240)
        assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
        assert not trace.of("deadlock")
        check(trace)


def test_momentum_by_group(run_on_one: Run) -> None:
    trace = run_on_one(optimizers=3, global_step="composite", momentum=0.5)
    check(trace, momentum=0.5)
    weights = final(trace)["weights"]
    assert weights["fc_w"] == pytest.approx(10 * weights["conv"], rel=1e-5)
    assert weights["fc_b"] == pytest.approx(20 * weights["conv"], rel=1e-5)


# ----------------------------------------------------------------------------------------------- the step's policies


def test_the_article_s_recipe_does_not_run(run: Run) -> None:
    """Every worker builds the same graph, and is refused the second optimizer."""
    trace = run(optimizers=2, global_step="article")
    assert trace.status == "error"
    errors = trace.of("error")
    assert {event["task"] for event in errors} <= {"worker:0", "worker:1"}
    assert {(event["type"], event["message"]) for event in errors} == {
        ("ValueError", "Global step is required to check staleness")
    }


@pytest.mark.parametrize("optimizers", [2, 3])
def test_a_shared_step_counts_each_optimizer(run_on_one: Run, optimizers: int) -> None:
    """A round counts once for each: 6 steps are there after 6 / optimizers rounds."""
    trace = trained(run_on_one, optimizers=optimizers)
    updates = Counter(average["variable"] for average in trace.of("average"))
    assert updates == dict.fromkeys(list(TIMES)[:optimizers], 6 // optimizers)
    assert final(trace)["steps"] == {"global_step": 6}


@pytest.mark.parametrize("delays", ["0.02,0.02", "0.1,0.155"])
def test_a_step_for_each_optimizer(run_on_one: Run, delays: str) -> None:
    trace = trained(run_on_one, optimizers=2, global_step="own", delays=delays)
    assert set(final(trace)["steps"]) == {"global_step", "global_step_1"}
    check(trace)


def test_a_composite_counts_once(run_on_one: Run) -> None:
    trace = run_on_one(optimizers=3, global_step="composite", tokens="zero", delays="0.1,0.1")
    assert final(trace)["steps"] == {"global_step": 6}
    assert Counter(average["variable"] for average in trace.of("average")) == dict.fromkeys(TIMES, 6)


def late(trace: Trace, optimizers: int) -> int:
    """How many gradients were taken into an average though they were computed on weights of an earlier round.

    A local step is `optimizers` a round; before the first average no round is over, before the second one is."""
    local_steps = {(push["task"], push["step"], push["variable"]): push["local_step"] for push in trace.of("push")}
    rounds: Counter[str] = Counter()
    found = 0
    for average in trace.of("average"):
        name = average["variable"]
        found += sum(local_steps[task, step, name] // optimizers < rounds[name] for task, step in average["pushes"])
        rounds[name] += 1
    return found


def test_a_shared_step_lets_stale_gradients_pass(run: Run) -> None:
    """Two optimizers add 2 a round to the step, and the accumulators, which it is compared with, count 1."""
    settings = {"workers": 3, "replicas_to_aggregate": 2, "optimizers": 2, "delays": "0.02,0.02,0.1"}
    shared = trained(run, **settings, steps=20)
    assert late(shared, 2) > 0
    check(shared)
    composite = trained(run, **settings, steps=10, global_step="composite")
    assert late(composite, 1) == 0
    check(composite)


# ------------------------------------------------------------------------------------------------------------- tokens


@pytest.mark.parametrize(("tokens", "rounds"), [("zero", 0), ("hook", 1), ("twice", 2)])
def test_initial_tokens_are_rounds_that_are_dropped(run_on_one: Run, tokens: str, rounds: int) -> None:
    """Each worker makes a step for each update, and one more for each initial token, with a step that has passed.

    With as many replicas as workers, and time for both to push, nothing is left over."""
    trace = run_on_one(tokens=tokens, delays="0.1,0.1")
    check(trace)
    pushes = len(trace.of("push"))
    assert pushes == len(trace.of("token"))
    # What the hook put in is what the workers ran ahead by.
    assert pushes == 2 * (6 + rounds)
    assert counts(trace) == Counter({"taken": 2 * 6} | ({"dropped": 2 * rounds} if rounds else {}))


def test_without_a_hook_nobody_moves(stuck: Callable[[str], Trace]) -> None:
    """No thread takes the gradients: all that are needed lie there, and nobody gets a token."""
    trace = stuck("none")
    (deadlock,) = trace.of("deadlock")
    assert deadlock["held"] == {"conv": 2}
    assert deadlock["needed"] == 2
    assert not trace.of("average")
    assert not trace.of("token")
    assert {event["task"] for event in trace.of("stuck")} == {"worker:0", "worker:1"}
    check(trace)


def test_with_the_first_hook_only_the_second_optimizer_does_not_move(stuck: Callable[[str], Trace]) -> None:
    """The second one's gradients lie there. The workers have used the first one's tokens for both, as all optimizers
    share one queue."""
    trace = stuck("first")
    (deadlock,) = trace.of("deadlock")
    assert deadlock["held"]["fc_w"] >= deadlock["needed"]
    assert {average["variable"] for average in trace.of("average")} <= {"conv"}
    assert trace.of("stuck")
    assert len(trace.of("token")) == tokens_put_in(trace)
    check(trace)


def test_too_few_tokens_are_refused(run_on_one: Run) -> None:
    trace = run_on_one(tokens="zero", replicas_to_aggregate=3, total_num_replicas=2)
    (error,) = trace.of("error")
    assert error["task"] == "worker:0"  # only the chief puts in tokens
    assert error["message"] == "Too few tokens to finish the first step: 0 (given) vs 1 (needed)"


def test_a_chief_that_is_to_be_killed_and_fails_before_ends_the_run(run_on_one: Run) -> None:
    """Nobody waits for its time to be over."""
    trace = run_on_one(tokens="zero", replicas_to_aggregate=3, total_num_replicas=2, kill_worker=0)
    assert trace.status == "error"
    assert [event["task"] for event in trace.of("error")] == ["worker:0"]


def test_more_replicas_than_workers(run_on_one: Run) -> None:
    """They take turns: each update has three gradients of two workers. Where even the tokens can't make up for the
    workers that aren't there, it stops."""
    trace = run_on_one(replicas_to_aggregate=3, total_num_replicas=2)
    check(trace)
    assert final(trace)["steps"] == {"global_step": 6}
    assert all(len(average["pushes"]) >= 3 for average in trace.of("average"))


# -------------------------------------------------------------------------------------------- the slow and the killed


def test_a_backup_worker(run: Run) -> None:
    """3 workers, 2 to aggregate: the fast ones go on, and what the slow one pushes is dropped."""
    trace = run(workers=3, replicas_to_aggregate=2, delays="0.05,0.05,0.4", steps=8)
    check(trace)
    assert final(trace)["steps"] == {"global_step": 8}
    found = fates(trace.events)
    assert "dropped" in {fate for (task, _, _), fate in found.items() if task == "worker:2"}
    assert sum(counts(trace).values()) == len(trace.of("push"))
    fast = [event for event in trace.of("average") for task, _ in event["pushes"] if task != "worker:2"]
    assert len(fast) > len(
        [event for event in trace.of("average") for task, _ in event["pushes"] if task == "worker:2"]
    )


@pytest.mark.parametrize("step", range(1, 6))
def test_a_backup_worker_killed_at_each_step(run_on_one: Run, step: int) -> None:
    """It dies in that step: it is much quicker than the others, who have far to go, so it does come there."""
    trace = run_on_one(workers=3, replicas_to_aggregate=2, kill_worker=2, kill_step=step, steps=20, delays="0.1,0.1,0")
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
    check(trace)
    assert final(trace)["steps"] == {"global_step": 20}
    assert [(died["task"], died["signal"]) for died in trace.of("died")] == [("worker:2", "SIGKILL")]
    assert [kill["step"] for kill in trace.of("kill")] == [step]
    steps = [event["step"] for event in trace.of("step") if event["task"] == "worker:2"]
    assert steps == list(range(1, step + 1))
    pushed = {push["step"] for push in trace.of("push") if push["task"] == "worker:2"}
    assert pushed == set(range(1, step))  # all but that of the step in which it died
    assert any(average["t"] > trace.of("kill")[0]["t"] for average in trace.of("average"))


def test_a_worker_that_was_needed_is_killed(stuck: Callable[[str], Trace]) -> None:
    """3 workers, 3 to aggregate: the others push once more, and wait for the third's gradient."""
    trace = stuck("needed")
    (deadlock,) = trace.of("deadlock")
    assert 0 < deadlock["held"]["conv"] < deadlock["needed"]
    assert {event["task"] for event in trace.of("stuck")} == {"worker:0", "worker:1"}
    assert [(died["task"], died["signal"]) for died in trace.of("died")] == [("worker:2", "SIGKILL")]
    check(trace)


def test_the_chief_is_killed(stuck: Callable[[str], Trace]) -> None:
    """Nobody takes the gradients any more."""
    trace = stuck("chief")
    assert [(died["task"], died["signal"]) for died in trace.of("died")] == [("worker:0", "SIGKILL")]
    assert {event["task"] for event in trace.of("stuck")} == {"worker:1"}
    assert not [event for event in trace.of("average") if event["t"] > trace.of("died")[0]["t"]]


@pytest.mark.parametrize("name", STUCK)
def test_a_deadlock_is_where_all_wait_and_nothing_moves(stuck: Callable[[str], Trace], name: str) -> None:
    """From the moment at which nothing moved any more it takes the patience, which is 3 seconds, and all wait then."""
    trace = stuck(name)
    (deadlock,) = trace.of("deadlock")
    assert deadlock["waited"] >= 3
    assert deadlock["waiting"] == len({event["task"] for event in trace.of("stuck")})
    before = [event["t"] for event in trace.of("state") if event["t"] < deadlock["t"]]
    # What was seen last is reported first, and then waited on; the rest is the time of a look or a print.
    assert deadlock["t"] - max(before) >= 3


def test_the_parameter_server_is_killed(engine: Engine, submit_on: Submit) -> None:
    """The run ends, says so, and leaves nothing."""
    before = {child for pid in engine.pids() for child in children_of(pid)}
    ticket = submit_on(None, "sync_replicas", delays="1,1", steps=20)

    def server() -> int | None:
        for pid in engine.pids():
            for child in set(children_of(pid)) - before:
                return min(set(children_of(pid)) - before) if child else None
        return None

    assert until(lambda: server() is not None, 60)
    assert until(lambda: len({c for p in engine.pids() for c in children_of(p)} - before) == 3, 60)
    pid = server()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    trace = ticket.result(120)
    assert trace.status == "killed"
    first = trace.of("died")[0]
    assert (first["task"], first["signal"]) == ("ps:0", "SIGKILL")
    assert until(lambda: not {c for p in engine.pids() for c in children_of(p)} - before, 10)
    assert not Path(f"/proc/{pid}").exists()


# --------------------------------------------------------------------------------------------------- moving averages


@pytest.mark.parametrize("moving_average", ["own", "all"])
def test_moving_averages(run_on_one: Run, moving_average: str) -> None:
    """Told its own variable, each wrapper moves the average of that once an update. Told nothing, each moves all: twice
    a round with two wrappers, which is further from the start."""
    trace = trained(
        run_on_one,
        optimizers=2,
        steps=8,
        tokens="zero",
        gradients="-1,-1",
        moving_average=moving_average,
        delays="0.1,0.1",
    )
    check(trace)
    own, weight = 0.0, 0.0
    for _ in range(4):
        weight += RATE
        own = own * 0.5 + weight * 0.5
    average = final(trace)["moving_averages"]["conv"]
    if moving_average == "own":
        assert average == pytest.approx(own, abs=1e-5)
    else:
        assert average > own + 1e-3


def test_without_sync_there_are_no_moving_averages_to_wait_for(run_on_one: Run) -> None:
    trace = run_on_one(sync="no", moving_average="all", steps=2)
    check(trace)
    assert trace.status == "ok"
    assert final(trace)["steps"]["global_step"] >= 2
    assert "moving_averages" not in final(trace)


# -------------------------------------------------------------------------------------------------------------- speed


def test_the_first_event_comes_at_once_and_every_task_tells(run_on_one: Run) -> None:
    trace = run_on_one(delays="0,0")
    assert {event["task"] for event in trace.of("server")} == {"ps:0", "worker:0", "worker:1"}
    assert {event["task"] for event in trace.of("left")} == {"worker:0", "worker:1"}
    assert trace.events[1]["event"] == "server"


def test_a_worker_that_takes_its_time_is_no_deadlock(run_on_one: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing moves for longer than the patience, again and again, as one computes; the others are not stuck."""
    monkeypatch.setattr("engine.experiments.sync_replicas.PATIENCE", 0.1)
    trace = run_on_one(workers=3, steps=3, delays="1,0,0", tokens="zero")
    assert trace.status == "ok", trace.error or (trace.end, trace.stderr)
    assert not trace.of("deadlock")
    assert not trace.of("stuck")
    check(trace)


def test_refused_settings() -> None:
    for given in ({"kill_worker": 2}, {"workers": 3, "delays": "0,0"}, {"gradients": "1"}, {"delays": "0,2"}):
        with pytest.raises(ValueError, match=next(reversed(given))):
            Request.of("sync_replicas", given)
