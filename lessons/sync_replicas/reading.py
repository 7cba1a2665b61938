"""What the trace of a `sync_replicas` run says: what each worker did when, what lay on the parameter server, and what
the step counter counts.

Works on a trace that is still growing. Tasks race, and the order of lines is that of their arrival: what happened when
is taken from `t`, the clock that all tasks share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

from engine.experiments.sync_replicas import DECAY, GROUPS
from engine.trace import Event, Status, Trace
from lessons.failure import Failure, cause_of, failure_of
from lessons.sync_replicas.fates import Fate, fates

# "right": training ended, and global_step is the number of updates of each variable; of several step variables each is
# that of its own. "miscounted": it is another.
# "deadlock": nothing moved any more. "raised": TensorFlow's own error. "stopped": the run gave no answer.
Outcome = Literal["running", "right", "miscounted", "deadlock", "raised", "stopped"]
Cause = Literal["no_global_step", "too_few_tokens", "other"]
# Why nothing moved: nobody takes what is there (the chief is dead, or has no hook); not enough can come (there are no
# first tokens and too few workers, or a worker is dead); each worker waits for a token that another has; or another.
Lock = Literal["chief_dead", "no_hook", "first_hook_only", "no_first_tokens", "worker_dead", "crossed", "other"]

CAUSES: Final[tuple[tuple[str, Cause], ...]] = (
    ("Global step is required to check staleness", "no_global_step"),
    ("Too few tokens", "too_few_tokens"),
)
_STRAY: Final = 1e-4  # what float32 leaves, beside 1, and the trace's six decimals


@dataclass(frozen=True)
class Push:
    """One gradient that was handed to an accumulator, at second `t`; `settled` is when its fate was certain."""

    task: str
    step: int
    optimizer: int
    variable: str
    value: float
    local_step: int
    t: float
    fate: Fate | None
    settled: float | None


@dataclass(frozen=True)
class Step:
    """One step of one worker: it computes from `start` to `pushed`, and waits until `end`, when it has its tokens. Both
    are None where that did not come."""

    number: int
    start: float
    pushed: float | None
    end: float | None


@dataclass(frozen=True)
class Worker:
    """One worker. `ended` is when it was over with it: killed, failed, or done; None where it goes on."""

    name: str
    index: int
    gradient: float
    delay: float
    steps: tuple[Step, ...]
    pushes: tuple[Push, ...]
    killed: float | None
    failed: float | None
    ended: float | None

    @property
    def chief(self) -> bool:
        """True for worker 0, which takes the averages and gives out the tokens."""
        return self.index == 0


@dataclass(frozen=True)
class Average:
    """One update of one variable: the average of the gradients `pushes`, as (task, step)."""

    variable: str
    value: float
    pushes: tuple[tuple[str, int], ...]
    t: float


@dataclass(frozen=True)
class Look:
    """What one task saw on the parameter server at second `t`; None for what it did not look at."""

    t: float
    steps: dict[str, int] | None = None
    tokens: int | None = None
    weights: dict[str, float] | None = None


@dataclass(frozen=True)
class Deadlock:
    """Nothing changed from `since` to `t`. `held` are the gradients in each accumulator, `stuck` what each worker waits
    for: the optimizers whose token it has not; `has` those whose token it has got in the same step."""

    since: float
    t: float
    needed: int
    tokens: int
    held: dict[str, int]
    stuck: dict[str, tuple[int, ...]]
    has: dict[str, tuple[int, ...]]

    @property
    def waited(self) -> float:
        return self.t - self.since


@dataclass(frozen=True)
class CausedFailure(Failure):
    """Why TensorFlow raised it, and in which tasks."""

    cause: Cause
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """A whole run, or what there is of it so far."""

    settings: dict[str, Any]
    tensorflow: str
    workers: tuple[Worker, ...]
    averages: tuple[Average, ...]
    looks: tuple[Look, ...]
    weights: dict[str, float]
    moving_averages: dict[str, float]
    deadlock: Deadlock | None
    failure: CausedFailure | None
    status: Status | Literal["running"]
    began: float | None
    seconds: float
    up: int
    tokens_of_step_0: int

    # ---- what was chosen ----

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that are trained, the first optimizer's first."""
        return tuple(GROUPS)[: self.settings["optimizers"]]

    @property
    def sync(self) -> bool:
        """False where gradients are applied as they come."""
        return bool(self.settings["sync"] == "yes")

    @property
    def needed(self) -> int:
        """How many gradients an average takes, at least."""
        return int(self.settings["replicas_to_aggregate"])

    def rate(self, variable: str) -> float:
        """The learning rate of that variable's optimizer."""
        return float(self.settings["learning_rate"]) * GROUPS[variable]

    @property
    def optimizers(self) -> int:
        """How many SyncReplicasOptimizers there are."""
        return 1 if self.settings["global_step"] == "composite" else len(self.variables)

    # ---- what was counted ----

    @cached_property
    def pushes(self) -> tuple[Push, ...]:
        """All pushes, in time's order."""
        return tuple(sorted((push for worker in self.workers for push in worker.pushes), key=lambda push: push.t))

    @cached_property
    def fates(self) -> Counter[Fate | None]:
        """How many pushes were taken, dropped, held, or None."""
        return Counter(push.fate for push in self.pushes)

    def updates(self, t: float = float("inf")) -> dict[str, int]:
        """How many updates each variable has had by then."""
        count = Counter(average.variable for average in self.averages if average.t <= t)
        return {variable: count[variable] for variable in self.variables}

    def steps(self, t: float = float("inf")) -> dict[str, int]:
        """What each step variable has come to by then: global_step, and the others where each optimizer has its own."""
        found: dict[str, int] = {}
        for look in self.looks:
            if look.steps is not None and look.t <= t:
                found |= {name: max(found.get(name, 0), step) for name, step in look.steps.items()}
        return found or {"global_step": 0}

    def global_step(self, t: float = float("inf")) -> int:
        """What global_step has come to by then; of several step variables the smallest."""
        return min(self.steps(t).values())

    def tokens(self, t: float) -> int:
        """How many tokens lay in the queue when it was last looked at."""
        seen = [look.tokens for look in self.looks if look.tokens is not None and look.t <= t]
        return seen[-1] if seen else 0

    def weight(self, variable: str, t: float) -> float:
        """What that variable was when it was last looked at."""
        seen = [look.weights[variable] for look in self.looks if look.weights is not None and look.t <= t]
        return seen[-1] if seen else 0.0

    @cached_property
    def first_tokens(self) -> int:
        """How many tokens there were before the first update: they carry step 0, those of an update at least 1.

        What the watch saw before any worker began, or what was taken since, if that is more: it looks now and then."""
        until = self.began if self.began is not None else float("inf")
        seen = max((look.tokens for look in self.looks if look.tokens is not None and look.t <= until), default=0)
        return max(seen, self.tokens_of_step_0)

    def dropped(self, t: float) -> int:
        """How many pushes were certainly lost by then."""
        return sum(push.fate == "dropped" and (push.settled or push.t) <= t for push in self.pushes)

    def held(self, variable: str, t: float) -> tuple[Push, ...]:
        """The gradients that lie in this variable's accumulator, so far as it is certain."""
        return tuple(
            push
            for push in self.pushes
            if push.variable == variable
            and push.t <= t
            and (push.fate == "held" or (push.fate == "taken" and push.settled is not None and push.settled > t))
        )

    @cached_property
    def counted_right(self) -> bool:
        """True where global_step, or each variable's own step, is the number of its updates."""
        updates, steps = [*self.updates().values()], [*self.steps().values()]
        return updates == (steps if len(steps) == len(updates) else steps * len(updates))

    @property
    def outcome(self) -> Outcome:
        """What became of the run, in a word."""
        if self.status == "running":
            return "running"
        if self.failure:
            return "raised" if self.failure.raised else "stopped"
        if self.deadlock:
            return "deadlock"
        return "right" if self.counted_right else "miscounted"

    # ---- what it means ----

    @property
    def dead(self) -> tuple[Worker, ...]:
        """The workers that were killed."""
        return tuple(worker for worker in self.workers if worker.killed is not None)

    @property
    def lock(self) -> Lock:
        """Why nothing moves."""
        assert self.deadlock is not None
        if self.settings["tokens"] == "none":
            return "no_hook"
        if self.settings["tokens"] == "first_hook_only" and self.optimizers > 1:
            return "first_hook_only"
        if any(worker.chief for worker in self.dead):
            return "chief_dead"
        # Without first tokens each worker pushes once before the first average.
        if self.settings["tokens"] == "zero" and len(self.workers) < self.needed:
            return "no_first_tokens"
        if self.dead:
            return "worker_dead"
        return "crossed" if self.optimizers > 1 else "other"

    def moved(self, variable: str) -> float:
        """Where this variable should be by its own optimizer's arithmetic on its averages."""
        return self._trained(variable)[0]

    def averaged(self, variable: str) -> float:
        """Where its moving average should be, if it is moved once an update."""
        return self._trained(variable)[1]

    def _trained(self, variable: str) -> tuple[float, float]:
        weight = velocity = average = 0.0
        for update in (each for each in self.averages if each.variable == variable):
            velocity = self.settings["momentum"] * velocity + update.value
            weight -= self.rate(variable) * velocity
            average = DECAY * average + (1 - DECAY) * weight
        return weight, average

    @cached_property
    def own_averages(self) -> bool:
        """True where every moving average was moved once an update of its variable; also where there are none."""
        return all(close(value, self.averaged(variable)) for variable, value in self.moving_averages.items())

    @cached_property
    def own_rates(self) -> bool:
        """True where every variable is where its own learning rate takes it."""
        return all(close(self.weights.get(variable, 0.0), self.moved(variable)) for variable in self.variables)

    @cached_property
    def lost(self) -> dict[str, int]:
        """Of each worker, how many of its gradients were dropped; those with none are left out."""
        count = Counter(push.task for push in self.pushes if push.fate == "dropped")
        return {worker.name: count[worker.name] for worker in self.workers if count[worker.name]}


def in_short(counts: Mapping[str, int]) -> str:
    """What each variable has had, or each step variable is: "6", or "6/5" where they differ."""
    values = [str(count) for count in counts.values()]
    return values[0] if len(set(values)) == 1 else "/".join(values)


def close(one: float, other: float) -> bool:
    """True where the two differ by no more than float32 makes them."""
    return abs(one - other) <= _STRAY * max(1.0, abs(one), abs(other))


def read(trace: Trace) -> Reading:
    """Read a trace of the experiment `sync_replicas`, however early it ends."""
    events = sorted(trace.events, key=lambda event: float(event.get("t", 0.0)))
    settings: dict[str, Any] = trace.start["settings"]
    status: Any = trace.end.get("status", "running")
    steps = [event["t"] for event in events if event["event"] == "step"]
    last: dict[str, Any] = {
        name: values for event in events for name, values in event.items() if name in ("weights", "moving_averages")
    }
    averages = tuple(
        Average(
            event["variable"],
            float(event["value"]),
            tuple((task, step) for task, step in event["pushes"]),
            event["t"],
        )
        for event in events
        if event["event"] == "average"
    )
    pushes = _pushes(events, averages, settings)
    return Reading(
        settings=settings,
        tensorflow=str(trace.start.get("tensorflow", "")),
        workers=tuple(_worker(index, settings, events, pushes) for index in range(settings["workers"])),
        averages=averages,
        looks=tuple(_looks(events)),
        weights=last.get("weights", {}),
        moving_averages=last.get("moving_averages", {}),
        deadlock=_deadlock(events),
        failure=_failure(trace),
        status=status,
        began=min(steps, default=None),
        seconds=max((float(event["t"]) for event in events), default=0.0),
        up=sum(event["event"] == "server" for event in events),
        tokens_of_step_0=sum(event["event"] == "token" and event["value"] == 0 for event in events),
    )


def _pushes(events: Sequence[Event], averages: Sequence[Average], settings: dict[str, Any]) -> list[Push]:
    asynchronous, variables = settings["sync"] == "no", list(GROUPS)
    fate = fates(events)
    taken = {(*push, average.variable): average.t for average in averages for push in average.pushes}
    times: dict[str, list[float]] = {}
    for average in averages:
        times.setdefault(average.variable, []).append(average.t)
    # Asynchronously each gradient is applied at once, by its own worker: its update tells of it.
    found = [
        Push(event["task"], step, variables.index(event["variable"]), event["variable"], event["value"], 0, event["t"],
             "taken", event["t"])
        for event in events
        if asynchronous and event["event"] == "average"
        for _, step in event["pushes"]
    ]  # fmt: skip
    for event in events:
        if event["event"] != "push":
            continue
        key = (event["task"], event["step"], event["variable"])
        settled: float | None = None
        if fate.get(key) == "taken":
            settled = taken[key]
        elif fate.get(key) == "dropped":
            settled = max(event["t"], times[event["variable"]][event["local_step"]])
        found.append(
            Push(
                task=event["task"],
                step=event["step"],
                optimizer=event["optimizer"],
                variable=event["variable"],
                value=float(event["value"]),
                local_step=event["local_step"],
                t=event["t"],
                fate=fate.get(key),
                settled=settled,
            )
        )
    return found


def _worker(index: int, settings: dict[str, Any], events: Sequence[Event], pushes: Sequence[Push]) -> Worker:
    name = f"worker:{index}"
    mine = [event for event in events if event.get("task") == name]
    killed = next((event["t"] for event in mine if event["event"] == "kill"), None)
    failed = next((event["t"] for event in mine if event["event"] == "error"), None)
    left = next((event["t"] for event in mine if event["event"] == "left"), None)
    optimizers = 1 if settings["global_step"] == "composite" else settings["optimizers"]
    steps = []
    for begun in (event for event in mine if event["event"] == "step"):
        number = begun["step"]
        of = [event for event in mine if event.get("step") == number]
        pushed = [push.t for push in pushes if (push.task, push.step) == (name, number)]
        tokens = [event["t"] for event in of if event["event"] == "token"]
        ended = [event["t"] for event in of if event["event"] in ("after", "stuck")]
        if tokens and not any(event["event"] == "stuck" for event in of) and (ended or len(tokens) == optimizers):
            ended = [max(tokens)]
        steps.append(Step(number, begun["t"], min(pushed, default=None), min(ended, default=None)))
    return Worker(
        name=name,
        index=index,
        gradient=float(settings["gradients"][index]),
        delay=float(settings["delays"][index]),
        steps=tuple(steps),
        pushes=tuple(push for push in pushes if push.task == name),
        killed=killed,
        failed=failed,
        ended=next((t for t in (killed, failed, left) if t is not None), None),
    )


def _looks(events: Sequence[Event]) -> list[Look]:
    """Every sight of the step counter and of the token queue."""
    return [
        Look(
            event["t"],
            event.get("steps"),
            event.get("tokens"),
            event.get("weights"),
        )
        for event in events
        if "steps" in event or "tokens" in event
    ]


def _deadlock(events: Sequence[Event]) -> Deadlock | None:
    event = next((event for event in events if event["event"] == "deadlock"), None)
    if event is None:
        return None
    stuck: dict[str, list[int]] = {}
    at: dict[str, int] = {}
    for other in events:
        if other["event"] == "stuck":
            stuck.setdefault(other["task"], []).append(other["optimizer"])
            at[other["task"]] = other["step"]
    has = {
        task: tuple(
            sorted(
                other["optimizer"]
                for other in events
                if other["event"] == "token" and other["task"] == task and other["step"] == at[task]
            )
        )
        for task in stuck
    }
    # The watch tells a change a moment after it has come, and then waits.
    quiet = [other["t"] for other in events if other["t"] < event["t"] and other["event"] != "died"]
    return Deadlock(
        since=max([*quiet, event["t"] - event["waited"]]),
        t=event["t"],
        needed=event["needed"],
        tokens=event.get("tokens", 0),
        held=event.get("held", {}),
        stuck={task: tuple(sorted(optimizers)) for task, optimizers in sorted(stuck.items())},
        has=has,
    )


def _failure(trace: Trace) -> CausedFailure | None:
    found = failure_of(trace)
    if found is None:
        return None
    tasks = {str(error["task"]) for error in trace.of("error") if error["message"] == found.message}
    return CausedFailure(**vars(found), cause=cause_of(found, CAUSES, "other"), tasks=tuple(sorted(tasks)))
