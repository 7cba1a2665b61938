"""A program saved to a file and run by `python script.py` prints the same events as the engine shows."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.program import notebook, render
from engine.request import Request
from engine.versions import Versions
from tests.conftest import Sample

# Every option of every setting is in one of these at least, and each way in which a run can end.
CHOICES: dict[str, list[dict[str, Any]]] = {}
CHOICES["aggregation"] = [
    {},
    {"aggregation": "MEAN", "steps": 3, "mode": "function", "replicas": 4},
    {"aggregation": "SUM", "route": "assign", "cross_device": "reduction_to_one", "synchronization": "ON_WRITE"},
    {"aggregation": "ONLY_FIRST_REPLICA", "route": "assign_sub", "dtype": "int32", "cross_device": "hierarchical_copy"},
    {"aggregation": "SUM", "value": "python", "mode": "function"},
    {"aggregation": "SUM", "value": "python", "route": "assign_sub", "dtype": "int32"},
    {"aggregation": "MEAN", "dtype": "int32"},
    {"route": "cross_replica", "mode": "function", "gradients": "0.5,-0.25"},
    {"route": "cross_replica", "update": "assign", "synchronization": "ON_READ", "value": "python"},
    {"route": "cross_replica", "update": "assign_sub", "aggregation": "MEAN"},
    {"route": "optimizer", "learning_rate": 0.1, "clipnorm": 0.05, "steps": 2},
    {"route": "optimizer", "mode": "function", "replicas": 8, "synchronization": "ON_READ", "aggregation": "SUM"},
    {"route": "optimizer_unsummed"},
    {"devices": "gpu"},
]
CHOICES["scope_placement"] = [
    {},
    {"model": "sequential_built", "mode": "function", "optimizer": "sgd", "cross_device": "reduction_to_one"},
    {"model": "sequential_deferred", "dummy_call": "in_scope", "apply_scope": "out", "optimizer": "adam"},
    {"model": "subclassed", "model_scope": "out", "dummy_call": "in_replica", "optimizer": "adagrad"},
    {"optimizer_scope": "out", "optimizer_build": "yes", "optimizer": "rmsprop", "mode": "function"},
    {"step": "direct", "apply_scope": "out", "mode": "function"},
    {"model_scope": "out", "dummy_call": "out_of_scope", "step": "direct"},
    {"loop": "fit", "model": "sequential_deferred", "cross_device": "hierarchical_copy"},
    {"loop": "fit", "loss": "mean_absolute_error", "mode": "function", "keras": "tf_keras"},
    {"loss": "mean_absolute_error", "replicas": 8, "keras": "tf_keras", "steps": 3, "learning_rate": 0.25},
]
CHOICES["fit"] = [
    {"cross_device": "reduction_to_one"},
    {"mode": "eager", "cross_device": "hierarchical_copy", "examples": 16, "repeats": 3},
    {"keras": "tf_keras", "examples": 7, "replicas": 4},
]
CHOICES["placement"] = [
    {"strategy": "greedy", "partitioner": "fixed_size", "sizes": "8,4"},
    {"device_setter": "none", "workers": 3},
    {"device_setter": "unused", "strategy": "greedy", "inner_device": "cpu", "merge_devices": "no"},
    {"device_setter": "article"},
    {"ps": 1, "workers": 1, "inner_device": "cpu"},
]
CHOICES["scaling"] = [
    {"steps": 3},
    {"steps": 3, "loss": "per_replica_mean", "gradient": "all_reduce_mean", "rule": "square_root", "optimizer": "adam"},
    {"loss": "sum", "gradient": "mean", "rule": "linear", "last_batch": "keep", "normalization": "per_replica"},
    {"rule": "linear_warmup", "reference": "small_batches", "optimizer": "momentum", "last_batch": "keep_counted"},
    {"normalization": "synchronized", "last_batch": "keep_counted", "loss": "sum"},
]
CHOICES["variable_scope"] = [
    {},
    {"api": "tf", "assign": "none"},
    {"mode": "eager", "assign": "last", "operations": "op:v,variable:v:initial_value=2.0,name_scope:n,op:v"},
    {
        "operations": "scope:my_variable_scope,close,scope:t,scope:@my_variable_scope:reuse=AUTO_REUSE:"
        "auxiliary_name_scope=False,get:v:shape=4x2:initializer=zeros:partitioner=fixed_size_2:regularizer=l2_loss,"
        "scope:s,op:v,close,close,scope:@my_variable_scope:reuse=True:auxiliary_name_scope=False,get:w"
    },
    {"mode": "eager", "operations": "scope:s:reuse=True,get:v:shape=4x2:partitioner=fixed_size_2,op:w,variable:w"},
    {"mode": "eager", "api": "tf", "operations": "name_scope:n,get:v:shape=2"},
    {"operations": "name_scope:n,name_scope:t,op:w"},
    {"operations": "op:w"},
    {"operations": f"get:var1:shape=2,{','.join(['get:var1'] * 2)}"},
]
CHOICES["sync_replicas"] = [
    {"delays": "0,0"},
    {"optimizers": 3, "global_step": "composite", "tokens": "zero", "moving_average": "all"},
    {"optimizers": 2, "global_step": "own", "tokens": "twice", "moving_average": "own", "barrier": "no"},
    {"optimizers": 2, "tokens": "first_hook_only", "workers": 3, "kill_worker": 2},
    {"optimizers": 2, "global_step": "article", "sync": "no", "momentum": 0.5},
    {"optimizers": 2, "global_step": "composite", "sync": "no", "kill_worker": 1},
    {"tokens": "none", "workers": 1},
    {"tokens": "hook", "global_step": "composite", "moving_average": "own"},
    {"optimizers": 2, "global_step": "article"},
]
CHOICES["multi_worker"] = [{"optimizers": 3, "momentum": 0.5}, {"strategy": "parameter_server", "workers": 3}]
# The experiments whose programs are alike in how they run get fewer cold starts, of some seconds each.
ALONE = [
    *(("aggregation", choice) for choice in CHOICES["aggregation"]),
    *(("scope_placement", choice) for choice in CHOICES["scope_placement"][2::2]),
    ("fit", CHOICES["fit"][2]),
    ("placement", CHOICES["placement"][0]),
    ("scaling", CHOICES["scaling"][1]),
    ("variable_scope", CHOICES["variable_scope"][3]),
]


def alone(program: str, folder: Path) -> tuple[list[dict[str, Any]], subprocess.CompletedProcess[str]]:
    """The events of `python script.py`, less their times."""
    folder.mkdir()
    (folder / "script.py").write_text(program, encoding="utf-8")
    done = subprocess.run([sys.executable, "script.py"], cwd=folder, capture_output=True, text=True, timeout=120)
    # Python and TensorFlow name the script by its whole path; the engine by its name alone.
    lines = done.stdout.replace(f"{folder}/", "").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "t"} for line in lines], done


def without_addresses(event: Mapping[str, Any]) -> dict[str, Any]:
    """An event less the addresses that objects have in messages."""
    message = {"message": re.sub("0x[0-9a-f]+", "0x", event["message"])} if "message" in event else {}
    return {**event, **message}


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_every_option_is_covered(experiment: str) -> None:
    for setting in EXPERIMENTS[experiment].settings.declared():
        chosen = {choice.get(setting.name, setting.default) for choice in CHOICES[experiment]}
        assert set(setting.choices) <= chosen, setting.name


def test_the_script_alone_prints_the_same_events(engine: Engine, sample: Sample, tmp_path: Path) -> None:
    cases = sample(ALONE, 1 / 20, by=lambda case: case[0])
    requests = [Request.of(*case) for case in cases]
    programs = [render(request.experiment, request.settings, engine.runtime().versions) for request in requests]
    with ThreadPoolExecutor(2) as pool:
        results = pool.map(alone, programs, [tmp_path / str(number) for number in range(len(programs))])
        traces = [engine.submit(request).result(120) for request in requests]
    for choice, trace, (events, done) in zip(cases, traces, results, strict=True):
        shown = [without_addresses(event) for event in trace.without_times()[1:-1]]
        assert [without_addresses(event) for event in events] == shown, f"{choice}\n{done.stderr}"
        assert (done.returncode == 0) == (trace.status == "ok"), choice
        if trace.error is not None:  # and Python's own traceback is there for those who know to read it
            assert trace.error["type"] in done.stderr
            assert trace.error["type"] in trace.stderr


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every program of CHOICES, as it is for each Keras; equal ones are there once."""
    folder = tmp_path_factory.mktemp("programs")
    there = set()
    for experiment, choices in CHOICES.items():
        for (number, choice), keras in itertools.product(enumerate(choices), ("2.4.0", "2.15.0", "3.15.1")):
            request = Request.of(experiment, choice)
            program = render(request.experiment, request.settings, Versions("2.21.0", keras, "2.21.0"))
            if program not in there:
                there.add(program)
                (folder / f"{experiment}_{number}_keras_{keras}.py").write_text(program, encoding="utf-8")
    assert len(there) >= sum(map(len, CHOICES.values()))
    return folder


@pytest.mark.parametrize(
    "command",
    [["check", "--select=E,F,W,B,C4", "--target-version=py38"], ["format", "--diff"]],
    ids=["check", "format"],
)
def test_programs_are_tidy(programs: Path, command: list[str]) -> None:
    """Each is what ruff would make of it, with nothing unused in it, for the oldest Python it runs on."""
    ruff = [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache", str(programs)]
    done = subprocess.run(ruff, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_notebook_has_the_whole_program(engine: Engine) -> None:
    request = Request.of("aggregation", {"aggregation": "MEAN", "mode": "function"})
    program = render(request.experiment, request.settings, engine.runtime().versions)
    cells = json.loads(notebook(program))["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert len(sources) > 5
    for source in sources:
        compile(source, "cell", "exec")
    assert "".join("\n".join(sources).split()) == "".join(program.split())
    assert notebook(program) == notebook(program)


def test_the_notebook_runs_cell_by_cell(engine: Engine, tmp_path: Path) -> None:
    """As a kernel runs it: each cell compiled by itself, no `__file__`."""
    request = Request.of("aggregation", {"aggregation": "MEAN", "mode": "function"})
    program = render(request.experiment, request.settings, engine.runtime().versions)
    (tmp_path / "program.ipynb").write_text(notebook(program))
    runner = (
        "import json, linecache\n"
        "space = {'__name__': '__main__'}\n"
        "for number, cell in enumerate(json.load(open('program.ipynb'))['cells']):\n"
        "    source, name = ''.join(cell['source']), f'<cell {number}>'\n"
        "    linecache.cache[name] = (len(source), None, source.splitlines(True), name)\n"
        "    exec(compile(source, name, 'exec'), space)\n"
    )
    done = subprocess.run([sys.executable, "-c", runner], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    values = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["value"] for event in values if event["event"] == "variable"] == [1, 1, 1.15, 1.15], done.stderr
