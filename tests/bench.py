"""`make bench`: how fast it is, measured in one run, as a table and as JSON (bench.json).

Ratios and medians, because the machine is noisy; nothing here is a test.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

from engine import engine as engine_module
from engine.engine import Engine
from engine.experiments.scaling import SCALING, ScalingSettings
from engine.program import render
from engine.request import Request
from lessons.scaling.sweep import settings_of

ROOT = Path(__file__).parents[1]


def aggregation(**settings: Any) -> Request:
    return Request.of("aggregation", settings)


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def memory(pid: int) -> dict[str, float]:
    """MiB of a process: all that is resident, and what is its alone (the rest is shared with its parent)."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in rollup.splitlines()[1:]}
    return {"resident": sizes["Rss"], "own": sizes["Private_Clean"] + sizes["Private_Dirty"]}


def warm_and_cold(engine: Engine, times: int) -> dict[str, float]:
    """The default run, whole, in the warm runtime, against `python script.py` started cold; one after the other."""
    request = aggregation()
    program = render(request.experiment, request.settings, engine.runtime().versions)
    warm, cold = [], []
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.py"
        script.write_text(program)
        for number in range(times):
            # Another number each time, so that none is answered from the runs that are kept.
            fresh = aggregation(gradients=f"0.1,{0.2 + number / 1000:.3f}")
            warm.append(timed(partial(engine.run, fresh)))
            cold.append(timed(partial(run_cold, script)))
    return {
        "warm run, median s": statistics.median(warm),
        "warm run, worst s": max(warm),
        "cold run, median s": statistics.median(cold),
        "cold / warm": statistics.median(cold) / statistics.median(warm),
    }


# A program that says when it came to which point. All processes of a machine share this clock.
STAGES = """
import json, time
times = [time.monotonic()]
import tensorflow as tf
times.append(time.monotonic())
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
times.append(time.monotonic())
with strategy.scope():
    weight = tf.Variable(1.0, aggregation=tf.VariableAggregation.SUM)
times.append(time.monotonic())
strategy.run(lambda: weight.assign_add(tf.constant(1.0)))
times.append(time.monotonic())
print(json.dumps({"event": "times", "t": 0.0, "times": times}), flush=True)
"""
# What lies between two of these points; the first counts from when it was asked for, the last to when it was over.
STAGE_NAMES = (
    "to its first line",
    "import",
    "strategy",
    "first variable",
    "first step",
    "from its last line to the end",
)


def stages(engine: Engine, times: int) -> dict[str, float]:
    """Where the time of a run goes, warm and cold, in ms."""

    def warm(number: int) -> list[float]:
        with mock.patch.object(engine_module, "render", return_value=STAGES):
            began = time.monotonic()
            trace = engine.run(aggregation(gradients=f"0.3,{0.2 + number / 1000:.3f}"))
        ended = time.monotonic()
        event: Any = trace.of("times")[0]
        return [began, *event["times"], ended]

    def cold() -> list[float]:
        began = time.monotonic()
        done = subprocess.run([sys.executable, "-c", STAGES], check=True, capture_output=True, text=True)
        return [began, *json.loads(done.stdout)["times"], time.monotonic()]

    found = {}
    for kind, runs in {"warm": [warm(n) for n in range(times)], "cold": [cold() for _ in range(3)]}.items():
        spans = [[later - earlier for earlier, later in pairwise(run)] for run in runs]
        for name, seconds in zip(STAGE_NAMES, zip(*spans, strict=True), strict=True):
            found[f"{kind}: {name}, median ms"] = 1000 * statistics.median(seconds)
    return found


def run_cold(script: Path) -> None:
    subprocess.run([sys.executable, script], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def routes(engine: Engine, times: int) -> dict[str, float]:
    """The warm run on the routes that do more."""
    heavier: dict[str, dict[str, Any]] = {
        "optimizer, function": {"route": "optimizer", "mode": "function"},
        "8 replicas, 20 steps": {"replicas": 8, "steps": 20},
    }
    found = {}
    for name, settings in heavier.items():
        requests = [aggregation(**settings, learning_rate=number / 100) for number in range(1, times + 1)]
        runs = [timed(partial(engine.run, request)) for request in requests]
        found[f"warm run, {name}, median s"] = statistics.median(runs)
    return found


def toggle_back(engine: Engine) -> dict[str, float]:
    """A finished run asked for again."""
    request = aggregation(aggregation="MEAN")
    engine.run(request)
    return {
        "back to a finished run, ms": 1000 * statistics.median(timed(lambda: engine.run(request)) for _ in range(9))
    }


def thirty(engine: Engine) -> dict[str, float]:
    """A class of thirty: each with settings of its own, then all with the same."""

    def together(requests: list[Request]) -> float:
        def work() -> None:
            tickets = [engine.submit(request, session=str(number)) for number, request in enumerate(requests)]
            for ticket in tickets:
                if not ticket.result(120).answered:
                    raise RuntimeError(ticket.result().end)

        return timed(work)

    return {
        "30 different runs at once, s to the last": together(
            [aggregation(gradients=f"0.3,{number / 100}") for number in range(30)]
        ),
        "30 equal runs at once, s to the last": together([aggregation(gradients="0.7,0.7")] * 30),
    }


def training(engine: Engine, times: int) -> dict[str, float]:
    """200 steps of training on 4 replicas, and the reference beside them; and the sweep of the scaling page."""
    runs = [timed(partial(engine.run, Request.of("scaling", {"seed": number}))) for number in range(times)]

    def sweep() -> None:
        cells = [Request(SCALING, settings) for settings in settings_of(ScalingSettings())]
        for ticket in [engine.submit(cell) for cell in cells]:
            ticket.result(300)

    return {"training, 200 steps, 4 replicas, median s": statistics.median(runs), "sweep of 20 runs, s": timed(sweep)}


def memories(engine: Engine) -> dict[str, float]:
    """What the parent holds, and what one run holds for itself (the most seen in a run of 8 replicas, 20 steps)."""
    (parent,) = engine.pids()
    ticket = engine.submit(aggregation(replicas=8, steps=20, aggregation="SUM", gradients="1,2,3,4,5,6,7,8"))
    most = {"resident": 0.0, "own": 0.0}
    while not ticket.wait(0.005):
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, KeyError):  # it ended between two looks
                most = {name: max(most[name], size) for name, size in memory(int(child)).items()}
    held = memory(parent)
    return {
        "parent, resident MiB": held["resident"],
        "run, resident MiB": most["resident"],
        "run, its own MiB": most["own"],
    }


def start() -> dict[str, float]:
    """From the start of the server, in a browser: to the first page shown, and to the first live result."""
    from tests.pages.browser import browser, serving  # noqa: PLC0415  needs Chromium, the rest does not

    began = time.perf_counter()
    with serving() as server, browser() as chromium:
        page = chromium.new_page()
        page.goto(f"{server.address}/aggregation?aggregation=MEAN")
        page.get_by_role("heading", level=1).first.wait_for(timeout=60_000)
        shown = time.perf_counter() - began
        page.locator("[data-testid=stPlotlyChart]").first.wait_for(timeout=120_000)
        live = time.perf_counter() - began
    return {"server start to first page, s": shown, "server start to first live result, s": live}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--times", type=int, default=9, help="how often each is measured (at least 7; default 9)")
    parser.add_argument("--no-browser", action="store_true", help="leave out what needs Chromium")
    parser.add_argument("--json", type=Path, default=ROOT / "bench.json", help="where the figures go")
    options = parser.parse_args()
    times = max(7, options.times)
    figures: dict[str, float] = {}
    with Engine() as engine:
        figures["import of TensorFlow, s"] = timed(lambda: engine.run(aggregation(replicas=1)))
        figures |= warm_and_cold(engine, times) | stages(engine, times) | routes(engine, times) | toggle_back(engine)
        figures |= training(engine, times) | thirty(engine) | memories(engine)
        versions = engine.runtime().versions
    if not options.no_browser:
        figures |= start()
    width = max(len(name) for name in figures)
    for name, value in figures.items():
        print(f"{name:{width}}  {value:9.3f}")
    about = {"tensorflow": versions.tensorflow, "keras": versions.keras, "cores": os.cpu_count(), "times": times}
    options.json.write_text(json.dumps({**about, **figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
