"""Faults of parents at random, many times: after each round every request has ended and every slot is free.

    python -m tests.fuzz_parent --times 1000 [--seed TEXT] [--threads 8]

A round is an engine with its own stand-in parents (tests/engine/broken_parent.py): some of their first starts have a
fault at some moment, requests come from several sessions, some are cancelled. It is stuck where a request does not end
within PATIENCE_SECONDS, where a slot stays taken or a request waits when all have ended, where the engine then can't do
a run, where it does not close, or where a process is left.
"""

from __future__ import annotations

import argparse
import itertools
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from engine.engine import Engine
from engine.job import Ticket
from engine.limits import Limits
from engine.request import Request
from engine.runtimes import Runtime
from engine.versions import Versions
from engine.watch import Patience
from tests.engine import broken_parent
from tests.engine.broken_parent import FAULTS, MOMENTS
from tests.engine.processes import alive, until

VERSIONS = (Versions("2.4.1", "2.4.0"), Versions("2.5.0", "2.5.0"))  # as which the stand-ins go
PATIENCE_SECONDS = 120.0  # for what must come; a busy machine is no fault
HASTY = Patience(look=0.02, ping=0.1, silence=1.5, import_silence=1.5, importing=4.0, overtime=0.3)


@dataclass
class Figures:
    """What came of the rounds."""

    seed: str
    rounds: int = 0
    stuck: int = 0
    requests: int = 0
    starts: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    longest: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.rounds} rounds, {self.stuck} stuck; {self.requests} requests, {self.starts} "
            f"starts of parents; the longest round took {self.longest:.1f} s",
            "faults: " + ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())),
            "ends: " + ", ".join(f"{name} {count}" for name, count in sorted(self.ends.items())),
        ]
        return "\n".join([*lines, *self.problems])


def run(times: int, seed: str | None, threads: int = 8) -> Figures:
    """That many rounds, some at once. The same seed makes the same choices."""
    figures = Figures(seed or secrets.token_hex(4))
    print(f"tests.fuzz_parent --times {times} --seed {figures.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-parent-") as folder, ThreadPoolExecutor(threads) as pool:
        for number, problem in enumerate(pool.map(lambda n: _round(Path(folder) / str(n), n, figures), range(times))):
            figures.rounds += 1
            if problem:
                figures.stuck += 1
                figures.problems.append(f"round {number}: {problem}")
    return figures


def _round(folder: Path, number: int, figures: Figures) -> str:
    """One round. Returns what was wrong, or nothing."""
    folder.mkdir()
    chance = random.Random(f"{figures.seed}-{number}")
    plans = {versions.tensorflow: _plan(chance) for versions in VERSIONS[: chance.randint(1, 2)]}
    runtimes = {
        versions.tensorflow: Runtime(
            broken_parent.environment(folder / versions.tensorflow, plans[versions.tensorflow]), versions
        )
        for versions in VERSIONS[: len(plans)]
    }
    figures.faults.update(step[1] for plan in plans.values() for step in plan if step)
    limits = Limits(slots=chance.randint(1, 3), parents=chance.randint(1, 2), run_output=20_000, idle=600)
    began = time.monotonic()
    engine = Engine(runtimes, limits, seconds=0.3, patience=HASTY)
    problem = ""
    try:
        problem = _use(engine, chance, figures)
    finally:
        engine.close()
    figures.longest = max(figures.longest, time.monotonic() - began)
    figures.starts += sum(broken_parent.starts(folder / name) for name in runtimes)
    pids = [pid for name in runtimes for pid in broken_parent.pids(folder / name)]
    if not problem and not until(lambda: not any(map(alive, pids)), PATIENCE_SECONDS):
        problem = "a process is left"
    return problem


def _plan(chance: random.Random) -> list[tuple[str, str] | None]:
    """What the first starts of a parent do."""
    return [
        (chance.choice(MOMENTS), chance.choice(list(FAULTS))) if chance.random() < 0.8 else None
        for _ in range(chance.randint(1, 4))
    ]


def _use(engine: Engine, chance: random.Random, figures: Figures) -> str:
    """Ask for runs, give some up, and see all to their end. Returns what was wrong, or nothing."""
    names = itertools.count()

    def ask(tensorflow: str, session: str) -> Ticket:
        figures.requests += 1
        settings = {"gradients": f"0.1,{next(names) / 100}"}  # no two are equal
        return engine.submit(Request.of("aggregation", settings, tensorflow), session)

    tickets = []
    for _ in range(chance.randint(1, 6)):
        tickets.append(ask(chance.choice(list(engine.runtimes)), chance.choice("abc")))
        time.sleep(chance.choice([0.0, 0.0, 0.05, 0.3]))
        if chance.random() < 0.2:
            chance.choice(tickets).cancel()
    for ticket in tickets:
        if not ticket.wait(PATIENCE_SECONDS):
            return "a request did not end"
        end = ticket.result().end
        figures.ends[end.get("why") or end["status"]] += 1
    if not until(lambda: engine.load() == (0, 0), PATIENCE_SECONDS):
        return f"when all had ended, {engine.load()} ran and waited"
    for tensorflow in engine.runtimes:
        # Faults that are still to come take two tries each; a busy machine may take some more from those that behave.
        ends = (ask(tensorflow, "last").result(PATIENCE_SECONDS).end for _ in range(20))
        if not any(end["status"] == "ok" or end.get("why") == "signal" for end in ends):  # one of the faults ends so
            return f"no run of {tensorflow} any more"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz_parent", description=__doc__)
    parser.add_argument("--times", type=int, default=1000, help="rounds (default 1000)")
    parser.add_argument("--seed", help="choices as in an earlier run (default: new ones)")
    parser.add_argument("--threads", type=int, default=8, help="rounds at once (default 8)")
    options = parser.parse_args()
    began = time.monotonic()
    figures = run(options.times, options.seed, options.threads)
    print(figures)
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if figures.stuck else 0


if __name__ == "__main__":
    sys.exit(main())
