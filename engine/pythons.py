"""Pythons: the interpreters on this machine, of which old TensorFlow needs old ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

# Runs on any Python: what it is, and whether TensorFlow can have wheels for it.
PROBE = """
import json, platform, sys, sysconfig
fits = (platform.python_implementation() == "CPython" and sys.maxsize > 2 ** 32
        and not sysconfig.get_config_var("Py_GIL_DISABLED"))
print(json.dumps([platform.python_version(), sys.executable, bool(fits)]))
"""


@dataclass(frozen=True)
class Python:
    """One interpreter that was run and answered."""

    path: Path
    version: str


def find_python(minors: Sequence[str]) -> Python | None:
    """The first fitting interpreter, of the first of these minor versions ("3.8") that there is one of.

    A name on PATH proves nothing: pyenv puts a `python3.8` there for every version it has, which fails when run unless
    that version is selected. So each candidate is run, and answers for itself.
    """
    for minor in minors:
        for path in _candidates(minor):
            python = _probe(path) if path.exists() else None
            if python is not None and python.version.startswith(f"{minor}."):
                return python
    return None


def _candidates(minor: str) -> Iterator[Path]:
    """Where interpreters are: on PATH, this one, and where pyenv, uv and installers put them without telling PATH."""
    name = f"python{minor}"
    for folder in os.get_exec_path():
        yield Path(folder) / name
    yield Path(sys.executable)
    for folder in os.get_exec_path():
        yield Path(folder) / "python3"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python")
    yield from _newest_first(pyenv.glob(f"versions/{minor}.*/bin/{name}"))
    yield from _newest_first(uv.glob(f"cpython-{minor}*/bin/{name}"))
    yield Path.home() / ".local/bin" / name
    yield Path("/opt/homebrew/bin") / name
    yield Path("/usr/local/bin") / name
    yield Path(f"/Library/Frameworks/Python.framework/Versions/{minor}/bin") / name


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    """3.8.18 before 3.8.9."""
    return sorted(paths, key=lambda path: [len(path.parts[-3]), path.parts[-3]], reverse=True)


@lru_cache(maxsize=256)
def _probe(path: Path) -> Python | None:
    """Run it. None where it does not run, or is of a kind that TensorFlow has no wheels for."""
    try:
        done = subprocess.run([path, "-I", "-c", PROBE], capture_output=True, text=True, timeout=20, check=False)
        version, executable, fits = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return Python(Path(executable), version) if fits else None
