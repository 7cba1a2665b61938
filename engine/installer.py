"""The installer: makes the virtual environment of one runtime, whole or not at all.

It is made in a folder beside its place, tried as the engine will use it, given its marker, and only then moved to its
place in one step. Whatever interrupts that leaves a hidden folder that no one takes for a runtime, and that the next
call removes. uv does the work; it, and what it starts, hold the lock for as long as they write.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime
import fcntl
import importlib.util
import json
import os
import platform
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from engine import messages
from engine.pythons import find_python
from engine.runtimes import INSTALLED, MARKER, Runtime, Wanted, read_marker
from engine.versions import Versions
from engine.warm import WarmRuntime

IMPORT_SECONDS = 300  # that a first import may take: its files are read and compiled
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# TensorFlow without the names that differ from 1.x to 2.x: does it compute, in a process that was forked?
CHECK = """
import tensorflow as tf

with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    print(session.run(tf.constant(1.0) + 1))
"""


class InstallError(RuntimeError):
    """It could not be installed; the message says why and what to do."""


def install(
    want: Wanted,
    say: Callable[[str], None],
    *,
    folder: Path = INSTALLED,
    uv: Sequence[str] | None = None,
) -> Runtime:
    """Make that runtime, or find that it is there. `say` is told of each step; uv writes to standard error itself.

    Raises InstallError. May be interrupted, by whatever means, and called again.
    """
    if not want.released:
        machine = platform.machine()
        raise InstallError(f"{want.name}: TensorFlow {want.tensorflow} was not released for this machine, {machine}")
    folder.mkdir(exist_ok=True)
    place = folder / want.folder
    with _lock(folder, want, say):
        there = read_marker(place)
        if there is not None:
            say(f"{want.name}: is there already, in {place}")
            return there
        unfinished = folder / f".{want.folder}.unfinished"
        _remove(unfinished)
        _remove_leftovers(folder)
        began = time.monotonic()
        try:
            _make(unfinished, want, say, uv or _uv())
            say(f"{want.name}: starting TensorFlow in it")
            versions = _try(unfinished, want)
            _mark(unfinished, want, versions)
            size = sum(path.lstat().st_blocks for path in unfinished.rglob("*")) * 512 / 1e6
            # Whatever is there is no runtime: it has no marker, or the Python below it has gone.
            _remove(place)
            unfinished.rename(place)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)  # what stays of it, the next call removes
        say(f"{want.name}: installed in {place}, {size:.0f} MB, in {time.monotonic() - began:.0f} s")
    runtime = read_marker(place)
    assert runtime is not None  # it was written a moment ago
    return runtime


# ------------------------------------------------------------------------------------------------------------ steps


def _make(place: Path, want: Wanted, say: Callable[[str], None], uv: Sequence[str]) -> None:
    """The virtual environment with its packages."""
    python = find_python(want.release.pythons)
    named = " or ".join(want.release.pythons)
    if python is None:
        say(f"{want.name}: no Python {named} on PATH or among pyenv's and uv's; asking uv to fetch one")
    else:
        say(f"{want.name}: with Python {python.version}, {python.path}")
    version = want.release.pythons[0]
    # Relocatable, because it is moved to its place when it is whole.
    which = ["--quiet", "--python", str(python.path)] if python else ["--python", version]
    if _run([*uv, "venv", "--no-project", "--relocatable", *which, str(place)], place.parent) != 0:
        if python is None:
            raise InstallError(
                f"{want.name}: needs Python {named}, which is not on this machine, and uv could not fetch it (its own "
                f"message is above). Get one with `uv python install {version}` or `pyenv install {version}`, or put a "
                f"python{version} on PATH; then give the same command again."
            )
        raise InstallError(f"{want.name}: uv could not make a virtual environment (its own message is above)")
    say(f"{want.name}: getting {', '.join(want.packages)}")
    install = [*uv, "pip", "install", "--python", str(place / "bin" / "python"), *want.packages]
    with tempfile.NamedTemporaryFile("w", prefix="replica-lab-", suffix=".txt") as overrides:
        if want.keras:
            # It takes the place of what TensorFlow asks for, and would refuse to stand beside.
            overrides.write(f"keras=={want.keras}\n")
            overrides.flush()
            install += ["--override", overrides.name]
        status = _run(install, place.parent, _index())
    if status != 0:
        raise InstallError(
            f"{want.name}: uv could not install {', '.join(want.packages)} for {sys.platform} {platform.machine()} "
            "(its own message is above). Where it is the network: uv can be told of a mirror by UV_DEFAULT_INDEX, "
            "and of a proxy by HTTPS_PROXY."
        )


def _try(place: Path, want: Wanted) -> messages.Versions:
    """Start it as the engine does, and run a program in it. Returns what the parent says of its versions."""
    heard: queue.SimpleQueue[messages.Message | None] = queue.SimpleQueue()
    check: messages.RunCommand = {
        "run": 1,
        "program": CHECK,
        "seconds": IMPORT_SECONDS,
        "bytes": 1 << 33,
        "output": 1 << 20,
        "tasks": {},
        "serving": [],
        "may_be_killed": [],
    }
    with tempfile.TemporaryDirectory(prefix="replica-lab-install-") as workplace:
        runtime = Runtime(place / "bin" / "python", Versions(want.tensorflow, want.keras or ""))
        warm = WarmRuntime(
            runtime, Path(workplace), lambda _, message: heard.put(message), on_exit=lambda _: heard.put(None)
        )
        output: list[str] = []
        try:
            end: messages.Ended | None = None
            while end is None:
                message = heard.get(timeout=IMPORT_SECONDS)
                if message is None:
                    raise InstallError(f"{want.name}: was installed, but does not start: {warm.state.reason}")
                if isinstance(message, messages.Ready):
                    warm.send(check)
                elif isinstance(message, messages.Printed):
                    output += message.lines
                elif isinstance(message, messages.Ended):
                    end = message
        except queue.Empty:
            raise InstallError(f"{want.name}: was installed, but did not start within {IMPORT_SECONDS} s") from None
        finally:
            warm.close()
    if output != ["2.0"]:
        raise InstallError(f"{want.name}: was installed, but does not compute 1 + 1: {output} {end.stderr}")
    info = warm.info
    assert info is not None  # it has run a program
    if info.tensorflow != want.tensorflow or (want.keras and info.keras != want.keras):
        raise InstallError(f"{want.name}: what was installed is TensorFlow {info.tensorflow} with Keras {info.keras}")
    return info


def _mark(place: Path, want: Wanted, info: messages.Versions) -> None:
    """Say that it is whole, and what it is."""
    packages = [info.name.removesuffix(".dist-info") for info in place.glob("lib/python*/site-packages/*.dist-info")]
    marker = {
        "tensorflow": info.tensorflow,
        "keras": info.keras,
        "tf_keras": info.tf_keras,
        "other_keras": want.keras is not None,
        "python": info.python,
        "modules": info.modules,
        "platform": f"{sys.platform} {platform.machine()}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "asked": want.packages,
        "installed": sorted("==".join(package.rsplit("-", 1)) for package in packages),
    }
    (place / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")


# --------------------------------------------------------------------------------------------------------------- uv


def _uv() -> list[str]:
    """How uv is called: the one of requirements.txt, else the one on PATH."""
    if importlib.util.find_spec("uv") is not None:
        return [sys.executable, "-m", "uv"]
    found = shutil.which("uv")
    if found is None:
        raise InstallError("uv is missing, which makes the virtual environments; get it with: pip install uv")
    return [found]


def _index() -> dict[str, str]:
    """Where packages come from: what people have set for pip, which uv doesn't ask, unless uv was told something."""
    if any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE")):
        return {}
    command = [sys.executable, "-m", "pip", "config", "list"]  # which answers nothing where there is no pip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    settings = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    for name in (":env:.index-url", "install.index-url", "global.index-url"):
        if name in settings:
            return {"UV_DEFAULT_INDEX": settings[name].strip("'")}
    return {}


def _run(command: Sequence[str], folder: Path, environment: dict[str, str] | None = None) -> int:
    """Run uv to its end, and not beyond this process's own. Returns its exit status."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=2,
        env={"UV_HTTP_TIMEOUT": "120", **os.environ, **(environment or {})},
        close_fds=False,  # it holds the lock too
        preexec_fn=_die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509  no threads here
    )
    try:
        return process.wait()
    except BaseException:  # an interruption: nothing may go on writing
        process.terminate()
        process.wait()
        raise


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# ------------------------------------------------------------------------------------------------ one at a time, whole


@contextlib.contextmanager
def _lock(folder: Path, want: Wanted, say: Callable[[str], None]) -> Iterator[None]:
    """One process at a time makes this runtime; another waits. The lock goes with its holders, however they end."""
    with (folder / f".{want.folder}.lock").open("a+") as file:
        os.set_inheritable(file.fileno(), True)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            say(f"{want.name}: waiting for the installation that process {file.read().strip()} is at")
            fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _remove_leftovers(folder: Path) -> None:
    """What interrupted installations have left, of any version; not what another process is at."""
    for unfinished in folder.glob(".*.unfinished"):
        with unfinished.with_suffix(".lock").open("a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            _remove(unfinished)


def _remove(place: Path) -> None:
    if place.exists():
        shutil.rmtree(place)
