"""Traces as a run of the experiment `sync_replicas` prints them, made of what a test states: who did what, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from engine.experiments.sync_replicas import GROUPS, SYNC_REPLICAS
from engine.trace import Event, Trace

TICK = 0.01  # seconds from one event to the next
STARTED = 0.5  # when the first step may begin


class Script:
    """A run, told event by event. Workers and optimizers are numbers."""

    def __init__(self, **settings: Any) -> None:
        self.settings = SYNC_REPLICAS.settings.parse(settings)
        self.t = STARTED
        self.count: dict[int, int] = {}
        self.events: list[Event] = [
            {
                "event": "run",
                "t": 0.0,
                "experiment": "sync_replicas",
                "settings": self.settings.model_dump(mode="json"),
                "tensorflow": "2.21.0",
                "keras": "3.15.1",
                "python": "3.11.7",
                "devices": SYNC_REPLICAS.devices(self.settings),
            },
            {"event": "server", "t": 0.1, "task": "ps:0", "address": "localhost:1"},
        ]
        for worker in range(self.settings.workers):
            self.events.append({"event": "server", "t": 0.2, "task": f"worker:{worker}", "address": "localhost:1"})

    def tell(self, event: str, task: str, **fields: Any) -> Script:
        self.t = round(self.t + TICK, 4)
        said: Any = {"event": event, "t": self.t, "task": task, **fields}
        self.events.append(said)
        return self

    def state(self, *steps: int, tokens: int = 0, **held: int) -> Script:
        names = ["global_step", *(f"global_step_{place}" for place in range(1, len(steps)))]
        variables = list(GROUPS)[: self.settings.optimizers]
        return self.tell(
            "state",
            "ps:0",
            steps=dict(zip(names, steps, strict=True)),
            tokens=tokens,
            held={variable: held.get(variable, 0) for variable in variables},
            weights=dict.fromkeys(variables, 0.0),
            waiting=0,
            arrived=self.settings.workers,
            left=0,
        )

    def step(self, *workers: int) -> Script:
        for worker in workers:
            self.count[worker] = self.count.get(worker, 0) + 1
            self.tell("step", f"worker:{worker}", step=self.count[worker])
        return self

    def push(self, worker: int, local_step: int, variable: str = "conv") -> Script:
        assert self.settings.gradients is not None
        composite = self.settings.global_step == "composite"
        return self.tell(
            "push",
            f"worker:{worker}",
            step=self.count[worker],
            optimizer=0 if composite else list(GROUPS).index(variable),
            variable=variable,
            value=self.settings.gradients[worker],
            local_step=local_step,
            held=0,
            tokens=0,
        )

    def average(self, *pushes: tuple[int, int], variable: str = "conv", by: int = 0) -> Script:
        """One update, of the gradients that these (worker, step) pushed."""
        assert self.settings.gradients is not None
        value = sum(self.settings.gradients[worker] for worker, _ in pushes) / len(pushes)
        named = [[f"worker:{worker}", step] for worker, step in pushes]
        return self.tell("average", f"worker:{by}", variable=variable, value=value, pushes=named)

    def token(self, worker: int, value: int, optimizer: int = 0, tokens: int = 0) -> Script:
        return self.tell(
            "token", f"worker:{worker}", step=self.count[worker], optimizer=optimizer, value=value, waited=0.0,
            tokens=tokens,
        )  # fmt: skip

    def after(self, worker: int, step: int, **weights: float) -> Script:
        return self.tell(
            "after", f"worker:{worker}", step=self.count[worker], steps={"global_step": step}, weights=weights
        )

    def kill(self, worker: int) -> Script:
        self.tell("kill", f"worker:{worker}", step=self.count[worker])
        return self.tell("died", f"worker:{worker}", signal="SIGKILL")

    def deadlock(self, *stuck: tuple[int, int], step: int = 0, **held: int) -> Script:
        """Nothing moves for four seconds; then these (worker, optimizer) come out without a token."""
        self.state(step, **held)
        self.t += 4
        last = {key: value for key, value in self.events[-1].items() if key not in ("event", "t", "task")}
        self.tell("deadlock", "ps:0", waited=4.0, needed=self.settings.replicas_to_aggregate, **last)
        for worker, optimizer in stuck:
            self.tell("stuck", f"worker:{worker}", step=self.count[worker], optimizer=optimizer, waited=4.0)
        return self

    def error(self, message: str, kind: str = "ValueError", workers: Sequence[int] = (0, 1)) -> Script:
        for worker in workers:
            self.tell("error", f"worker:{worker}", type=kind, message=message, line=260, step=0)
        return self

    def end(self, status: Literal["ok", "error", "timeout", "killed", "cancelled"] = "ok") -> Trace:
        over: Event = {"event": "end", "t": self.t, "status": status, "seconds": self.t, "reason": "?"}
        return Trace((*self.events, over))


def in_step(rounds: int = 3) -> Script:
    """Two workers without first tokens: every round both push, the average takes both, both get a token."""
    script = Script(tokens="zero", steps=rounds).state(0)
    for done in range(rounds):
        script.step(0, 1).push(0, done).push(1, done).average((0, done + 1), (1, done + 1))
        script.state(done + 1, tokens=2).token(0, done + 1).token(1, done + 1)
        for worker in (0, 1):
            script.after(worker, done + 1, conv=round(0.15 * (done + 1), 6))
    return script


def wasted_round() -> Script:
    """Two workers whose first tokens carry step 0, so that the second round comes too late; then a good one."""
    script = Script(steps=2).state(0, tokens=2)
    script.step(0, 1).push(0, 0).push(1, 0).average((0, 1), (1, 1)).token(0, 0).token(1, 0).state(1, tokens=2)
    script.after(0, 1, conv=0.15).after(1, 1, conv=0.15)
    script.step(0, 1).push(0, 0).push(1, 0).token(0, 1).token(1, 1).after(0, 1, conv=0.15).after(1, 1, conv=0.15)
    script.step(0, 1).push(0, 1).push(1, 1).average((0, 3), (1, 3)).state(2, tokens=2).token(0, 2).token(1, 2)
    return script.after(0, 2, conv=0.3).after(1, 2, conv=0.3)


def crossed() -> Script:
    """Two optimizers with a step each: worker 0 has both tokens of optimizer 0's round, and so on; all wait."""
    script = Script(optimizers=2, global_step="own").state(0, 0, tokens=4)
    script.step(0, 1).push(0, 0).push(1, 0, "fc_w").token(0, 0, optimizer=0).token(1, 0, optimizer=1)
    return script.deadlock((0, 1), (1, 0), conv=1, fc_w=1)


def so_far(whole: Trace, length: int, status: str = "running") -> Trace:
    """The first events of it, as `Ticket.so_far` has them, without an end; or as they are when the run ends so then."""
    begun = whole.events[:length]
    if status == "running":
        return Trace(begun)
    return Trace((*begun, {"event": "end", "t": 99.0, "status": status, "seconds": 99.0, "reason": "?"}))


def killed(worker: int = 1) -> Script:
    """Two workers, no first tokens, an average takes two, and one of them dies before its first push."""
    script = Script(kill_worker=worker, kill_step=1, tokens="zero").state(0).step(0, 1).push(1 - worker, 0)
    return script.kill(worker).deadlock((1 - worker, 0), conv=1)


def miscounted() -> Script:
    """Two optimizers add to one step: one update of each variable, and it says 2."""
    script = Script(optimizers=2, steps=2).state(0, tokens=4).step(0, 1)
    for worker in (0, 1):
        script.push(worker, 0).push(worker, 0, "fc_w")
    script.average((0, 1), (1, 1)).average((0, 1), (1, 1), variable="fc_w").state(2, tokens=4)
    for worker in (0, 1):
        script.token(worker, 0).token(worker, 0, optimizer=1).after(worker, 2, conv=0.15, fc_w=1.5)
    return script


NO_GLOBAL_STEP = "Global step is required to check staleness"
TOO_FEW = "Too few tokens to finish the first step: 0 (given) vs 1 (needed)"
RUNS = {
    "in_step": in_step().end(),
    "wasted_round": wasted_round().end(),
    "crossed": crossed().end(),
    "killed": killed().end(),
    "chief_killed": killed(0).end(),
    "miscounted": miscounted().end(),
    "article": Script(optimizers=2, global_step="article").error(NO_GLOBAL_STEP).end("error"),
    "too_few": Script(replicas_to_aggregate=3, tokens="zero").error(TOO_FEW, workers=(0,)).end("error"),
    "other": Script().error("something `else`", "InternalError").end("error"),
    "nothing": Script().end("timeout"),
}
