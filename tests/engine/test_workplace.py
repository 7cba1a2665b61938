"""The engine's folder: its own as long as it lives, made anew where something removes it, removed in the end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import engine as engine_module
from engine.engine import Engine
from engine.limits import Limits
from engine.runtimes import Runtime
from engine.versions import Versions
from engine.workplace import LOCK, PREFIX, YOUNG, Workplace, remove_leftovers
from tests.engine import stand_in
from tests.engine.faults import fault, rendering_faults
from tests.engine.processes import until

ROOT = Path(__file__).parents[2]
HOLDS = """
import time
from engine.workplace import Workplace
print(Workplace().path, flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A temporary directory of this test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield
    monkeypatch.undo()
    tempfile.tempdir = None


def test_an_engines_folder_stays_as_long_as_it_lives(tmp_path: Path) -> None:
    """Whatever number its process has here: in another container it may be any, or nobody's."""
    other = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert other.stdout is not None
    folder = Path(other.stdout.readline().strip())
    assert folder.parent == tmp_path
    mine = Workplace()
    assert folder.exists()
    assert mine.path != folder
    other.send_signal(signal.SIGKILL)
    other.wait()
    other.stdout.close()
    remove_leftovers()
    assert not folder.exists()
    assert mine.path.exists()
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_just_being_made_is_left_alone(tmp_path: Path) -> None:
    young, old, strange = tmp_path / f"{PREFIX}young", tmp_path / f"{PREFIX}old", tmp_path / "replica-lab-other"
    for folder in (young, old, strange):
        folder.mkdir()
    before = old.stat().st_mtime - YOUNG - 1
    os.utime(old, (before, before))
    os.utime(strange, (before, before))
    remove_leftovers()
    assert [folder.exists() for folder in (young, old, strange)] == [True, False, True]


def test_it_is_made_anew_with_its_lock() -> None:
    workplace = Workplace()
    shutil.rmtree(workplace.path)
    workplace.ensure()
    workplace.ensure()
    remove_leftovers()
    assert (workplace.path / LOCK).exists()
    workplace.remove()


def test_an_engine_whose_folder_was_removed_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As something that tidies up /tmp would: runs of a parent that is there, and the start of another one."""
    monkeypatch.setattr(engine_module, "render", rendering_faults(vars(engine_module)["render"]))
    runtimes = {
        version: Runtime(stand_in.environment(tmp_path / version, version), Versions(version, "0.0"))
        for version in ("2.2.0", "2.3.0")
    }
    with Engine(runtimes, Limits(slots=1)) as engine:
        assert engine.run(fault("naps", 1, "2.2.0")).status == "ok"
        pids = engine.pids()
        for version in ("2.2.0", "2.3.0"):
            shutil.rmtree(engine._workplace.path)
            assert engine.run(fault("naps", 2, version)).status == "ok"
        assert engine.pids()[:1] == pids
        assert until(lambda: not list(engine._workplace.path.glob("run-*")))


def test_where_there_is_no_room_for_the_folder_one_run_is_lost(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The disk is full at that moment, and it is told; later runs find room again."""
    monkeypatch.setattr(engine_module, "render", rendering_faults(vars(engine_module)["render"]))
    runtime = Runtime(stand_in.environment(tmp_path / "tf", "2.2.0"), Versions("2.2.0", "0.0"))
    with Engine({"2.2.0": runtime}, Limits(slots=1)) as engine:
        assert engine.run(fault("naps", 1, "2.2.0")).status == "ok"
        full = pytest.MonkeyPatch()
        full.setattr(engine._workplace, "ensure", lambda: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        trace = engine.run(fault("naps", 2, "2.2.0"))
        assert (trace.status, trace.end["why"]) == ("killed", "no_room")
        assert "No space left on device" in trace.end["reason"]
        full.undo()
        assert engine.run(fault("naps", 3, "2.2.0")).status == "ok"
