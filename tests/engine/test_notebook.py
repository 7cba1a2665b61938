"""The notebook of a cluster runs in the kernel that opened it, whatever `python` is on PATH, and fails aloud."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from engine.program import notebook, render
from engine.request import Request
from engine.versions import Versions

# What IPython makes of a cell: `%%writefile NAME` writes the rest of it; `!COMMAND` has each {expression} replaced by
# its value, is given to a shell, and leaves `_exit_code` (IPython.core.interactiveshell, system_piped). An exception
# ends the notebook.
KERNEL = r"""
import json, re, subprocess

def system(command):
    global _exit_code
    expanded = re.sub(r"\{(.+?)\}", lambda found: str(eval(found[1], globals())), command)
    _exit_code = subprocess.call(expanded, shell=True)

for cell in json.load(open("program.ipynb"))["cells"]:
    source = "".join(cell["source"])
    first, _, rest = source.partition("\n")
    if first.startswith("%%writefile "):
        open(first.split()[1], "w").write(rest)
    else:
        exec(re.sub(r"^!(.+)$", lambda line: f"system({line[1]!r})", source, flags=re.MULTILINE), globals())
"""
# Python runs this in every process that it starts.
WITNESS = "import os, sys\nopen(os.environ['STARTED'], 'a').write(sys.executable + '\\n')\n"


def environment_of(folder: Path, tensorflow: bool) -> Path:
    """A new virtual environment's Python, with all that this one has, or with nothing."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.check_output([python, "-c", ask], text=True).strip())
    (packages / "sitecustomize.py").write_text(WITNESS)
    if tensorflow:
        (packages / "all.pth").write_text(sysconfig.get_path("purelib"))
    return python


def execute(tmp_path: Path, tensorflow: bool, settings: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Run a notebook in one environment while another is first on PATH, of which only one has TensorFlow."""
    kernel = environment_of(tmp_path / "kernel", tensorflow)
    other = environment_of(tmp_path / "other", not tensorflow)
    request = Request.of("placement", settings)
    program = render(request.experiment, request.settings, Versions("2.21.0", "3.15.1", "2.21.0"))
    (tmp_path / "program.ipynb").write_text(notebook(program))
    started = tmp_path / "started"
    path = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [kernel, "-c", KERNEL],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "STARTED": str(started)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return kernel, {"done": done, "events": events, "started": started.read_text().split()}


@pytest.mark.usefixtures("tensorflow")
def test_a_cluster_runs_by_the_kernels_own_python(tmp_path: Path) -> None:
    kernel, ran = execute(tmp_path, True, {"ps": 1, "workers": 1, "sizes": "3"})
    assert ran["done"].returncode == 0, ran["done"].stderr
    (write,) = [event for event in ran["events"] if event["event"] == "write"]
    assert write["value"] == 1
    # The kernel, the script, and the tasks that it starts: a parameter server and a worker.
    assert ran["started"] == [str(kernel)] * 4


def test_without_tensorflow_the_notebook_fails_aloud(tmp_path: Path) -> None:
    kernel, ran = execute(tmp_path, False, {"ps": 1, "workers": 1})
    assert ran["done"].returncode != 0
    assert "No module named 'tensorflow'" in ran["done"].stderr
    assert "RuntimeError: script.py ended with exit status 1" in ran["done"].stderr
    assert ran["events"] == []
    assert ran["started"] == [str(kernel)] * 2


@pytest.mark.usefixtures("tensorflow")
def test_what_tensorflow_raises_stops_the_notebook_after_it_was_reported(tmp_path: Path) -> None:
    """As an exception does in a notebook whose cells are the program itself."""
    _, ran = execute(tmp_path, True, {"ps": 1, "workers": 1, "device_setter": "article"})
    (error,) = ran["events"]
    assert (error["event"], error["type"]) == ("error", "TypeError")
    assert "task_index" in error["message"]
    assert ran["done"].returncode != 0
    assert "RuntimeError: script.py ended with exit status 1" in ran["done"].stderr


@pytest.mark.parametrize(("experiment", "cluster"), [("placement", True), ("sync_replicas", True), ("fit", False)])
def test_only_a_cluster_is_started_from_a_file(experiment: str, cluster: bool) -> None:
    request = Request.of(experiment, {})
    cells = json.loads(notebook(render(request.experiment, request.settings, Versions("2.21.0", "3.15.1", "2.21.0"))))
    sources = ["".join(cell["source"]) for cell in cells["cells"]]
    assert (len(sources) == 2 and sources[0].startswith("%%writefile script.py\n")) == cluster
    assert any(line.startswith("!") for source in sources for line in source.splitlines()) == cluster
