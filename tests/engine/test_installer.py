"""The installer: whole or not at all, whatever interrupts it. A stand-in does uv's work; the real one is tested by
`make runtimes`, whose runtimes test_versions.py then runs on."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import __main__ as command_line
from engine import installer
from engine.installer import InstallError, install
from engine.runtimes import CATALOGUE, MARKER, Release, Wanted, find_runtimes, wanted
from tests.engine import stand_in

ROOT = Path(__file__).parents[2]
UV = [sys.executable, str(Path(stand_in.__file__))]
MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
WANT = Wanted("9.1.2", None, Release("9.1", "9.1.2", (MINOR,), cpu_package=False))

DRIVER = """
import signal, sys
from pathlib import Path
from engine.installer import install
from tests.engine.test_installer import UV, WANT
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
signal.signal(signal.SIGINT, signal.default_int_handler)  # also where these tests run in the background
install(WANT, lambda line: print(line, flush=True), folder=Path(sys.argv[1]), uv=UV)
"""


def driver(folder: Path, mode: str = "") -> subprocess.Popen[str]:
    """An installation in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "FAKE_UV": mode},
    )


def half_way(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    while "half way" not in process.stderr.readline():
        assert process.poll() is None


def whole(folder: Path) -> list[str]:
    return [name for name, runtime in find_runtimes(folder).items() if runtime.python.is_relative_to(folder)]


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".lock")


def test_an_installation_and_its_repetition(tmp_path: Path) -> None:
    said: list[str] = []
    runtime = install(WANT, said.append, folder=tmp_path, uv=UV)
    assert (runtime.name, runtime.python) == ("9.1.2", tmp_path / "tf-9.1.2" / "bin" / "python")
    assert whole(tmp_path) == ["9.1.2"]
    assert left(tmp_path) == ["tf-9.1.2"]
    marker = json.loads((tmp_path / "tf-9.1.2" / MARKER).read_text())
    assert (marker["tensorflow"], marker["keras"], marker["python"][: len(MINOR)]) == ("9.1.2", "0.0", MINOR)
    assert (marker["asked"], marker["installed"]) == (["tensorflow==9.1.2"], ["tensorflow==9.1.2"])
    assert marker["date"].startswith("20")
    assert [line.partition(": ")[2].split()[0] for line in said] == ["with", "getting", "starting", "installed"]
    # What was moved to its place runs there.
    done = subprocess.run(
        [runtime.python, "-I", "-c", "import tensorflow as tf; print(tf.__file__)"], capture_output=True
    )
    assert done.stdout.decode().startswith(str(tmp_path / "tf-9.1.2"))
    said.clear()
    assert install(WANT, said.append, folder=tmp_path, uv=["/nowhere/uv"]) == runtime
    assert said == [f"9.1.2: is there already, in {tmp_path / 'tf-9.1.2'}"]


def test_another_keras(tmp_path: Path) -> None:
    want = Wanted("9.1.2", "3.4.1", WANT.release)
    runtime = install(want, lambda line: None, folder=tmp_path, uv=UV)
    assert (runtime.name, runtime.versions.keras, runtime.other_keras) == ("9.1.2+keras-3.4.1", "3.4.1", True)
    assert left(tmp_path) == ["tf-9.1.2-keras-3.4.1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interruption_leaves_nothing_that_looks_whole(tmp_path: Path, number: signal.Signals) -> None:
    process = driver(tmp_path, "hang")
    half_way(process)
    assert whole(tmp_path) == []
    process.send_signal(number)
    process.communicate(timeout=20)
    assert process.returncode in (-number, 143, 1)
    assert whole(tmp_path) == []
    if number != signal.SIGKILL:
        assert left(tmp_path) == []
    again = driver(tmp_path)
    output, errors = again.communicate(timeout=60)
    assert again.returncode == 0, output + errors
    assert whole(tmp_path) == ["9.1.2"]
    assert left(tmp_path) == ["tf-9.1.2"]


def test_the_next_installation_removes_what_another_has_left(tmp_path: Path) -> None:
    """But not what another process is at."""
    (tmp_path / ".tf-8.0.0.unfinished" / "bin").mkdir(parents=True)
    (tmp_path / ".tf-8.1.0.unfinished").mkdir()
    with (tmp_path / ".tf-8.1.0.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        install(WANT, lambda line: None, folder=tmp_path, uv=UV)
    assert left(tmp_path) == [".tf-8.1.0.unfinished", "tf-9.1.2"]


def test_a_folder_without_its_marker_or_its_python_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "tf-9.1.2" / "bin").mkdir(parents=True)
    (tmp_path / "tf-9.1.2" / "bin" / "python").write_text("")
    assert whole(tmp_path) == []
    runtime = install(WANT, lambda line: None, folder=tmp_path, uv=UV)
    assert whole(tmp_path) == ["9.1.2"]
    runtime.python.unlink()
    runtime.python.symlink_to("/nowhere/python")  # as when its pyenv version was removed
    assert whole(tmp_path) == []
    install(WANT, lambda line: None, folder=tmp_path, uv=UV)
    assert whole(tmp_path) == ["9.1.2"]


def test_two_at_once_are_one_after_the_other(tmp_path: Path) -> None:
    """The second waits, and finds it there."""
    processes = [driver(tmp_path) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert sum("9.1.2: installed in" in output for output in outputs) == 1
    assert sum("9.1.2: is there already" in output for output in outputs) == 2
    assert left(tmp_path) == ["tf-9.1.2"]


def test_one_that_waits_says_for_whom(tmp_path: Path) -> None:
    first = driver(tmp_path, "hang")
    half_way(first)
    second = driver(tmp_path)
    assert second.stdout is not None
    assert second.stdout.readline().strip() == f"9.1.2: waiting for the installation that process {first.pid} is at"
    first.kill()
    first.communicate(timeout=20)
    assert "9.1.2: installed in" in second.communicate(timeout=60)[0]


@pytest.mark.parametrize(
    ("mode", "message"),
    [("fail", "9.1.2: uv could not install tensorflow==9.1.2"), ("another", "what was installed is TensorFlow 0.1")],
)
def test_what_does_not_come_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, message: str
) -> None:
    monkeypatch.setenv("FAKE_UV", mode)
    with pytest.raises(InstallError, match=message):
        install(WANT, lambda line: None, folder=tmp_path, uv=UV)
    assert left(tmp_path) == []


def test_what_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "tool").mkdir()
    tool = tmp_path / "tool" / "stand_in.py"
    text = Path(stand_in.__file__).read_text()
    tool.write_text(text.replace('__version__ = "{tensorflow}"', "raise RuntimeError('no AVX')"))
    with pytest.raises(InstallError, match="does not start: RuntimeError: no AVX"):
        install(WANT, lambda line: None, folder=tmp_path / "runtimes", uv=[sys.executable, str(tool)])
    assert left(tmp_path / "runtimes") == []


def test_where_no_python_fits(tmp_path: Path) -> None:
    said: list[str] = []
    want = Wanted("9.1.2", None, Release("9.1", "9.1.2", ("3.2", "3.1"), cpu_package=False))
    with pytest.raises(InstallError) as caught:
        install(want, said.append, folder=tmp_path, uv=UV)
    assert said == ["9.1.2: no Python 3.2 or 3.1 on PATH or among pyenv's and uv's; asking uv to fetch one"]
    assert "needs Python 3.2 or 3.1, which is not on this machine, and uv could not fetch it" in str(caught.value)
    assert "`pyenv install 3.2`" in str(caught.value)


def test_where_there_is_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    with pytest.raises(InstallError, match=r"2\.4\.1 was not released for this machine, arm64"):
        install(wanted("2.4.1"), lambda line: None, folder=tmp_path, uv=UV)
    assert wanted("2.15").packages == ("tensorflow==2.15.1",)


def test_uv_asks_the_index_that_pip_was_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    printed = "global.index-url='https://global.example/simple'\nglobal.timeout='60'\n"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], 0, stdout=printed))
    assert installer._index() == {"UV_DEFAULT_INDEX": "https://global.example/simple"}
    printed = ":env:.index-url='https://env.example/simple'\n" + printed
    assert installer._index() == {"UV_DEFAULT_INDEX": "https://env.example/simple"}
    printed = ""
    assert installer._index() == {}
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv.example/simple")
    assert installer._index() == {}


def test_the_command_goes_on_after_one_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def pretend(want: Wanted, _: object) -> None:
        asked.append(want.name)
        if want.name == "2.4.1":
            raise InstallError("2.4.1: it rains")

    monkeypatch.setattr(command_line, "install", pretend)
    monkeypatch.setattr(command_line, "find_runtimes", dict)
    handler = signal.getsignal(signal.SIGTERM)
    assert command_line.main(["runtimes", "install"]) == 3
    signal.signal(signal.SIGTERM, handler)
    assert asked == [release.version for release in CATALOGUE if release.standard]
    assert capsys.readouterr().err == "2.4.1: it rains\nnot installed: 2.4.1\n"


def test_nothing_of_an_interrupted_installation_goes_on(tmp_path: Path) -> None:
    process = driver(tmp_path, "hang")
    half_way(process)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert children
    process.kill()
    process.communicate(timeout=20)
    end = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children):
        assert time.monotonic() < end
        time.sleep(0.05)
