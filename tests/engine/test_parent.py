"""The parent under another Python: standard library only, 3.7 and newer, as old TensorFlow needs it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from engine.warm import PARENT

# In place of TensorFlow, which those Pythons don't have here: what the parent asks of it, no more.
STAND_IN = """
__version__ = "0.0"
class keras:
    __version__ = "0.0"
    class optimizers:
        SGD = None
"""


def other_pythons() -> list[Path]:
    """Interpreters of 3.7 to 3.10 on this machine: on PATH, or among pyenv's versions."""
    names = [f"python3.{minor}" for minor in (7, 8, 9, 10)]
    folders = [Path(folder) for folder in os.get_exec_path()]
    folders += sorted(Path("~/.pyenv/versions").expanduser().glob("*/bin"))
    found: dict[str, Path] = {}
    for name in names:
        for folder in folders:
            python = folder / name
            # pyenv puts a stand-in on PATH for every version; it fails for those that are not chosen.
            if python.exists() and subprocess.run([python, "-c", ""], capture_output=True).returncode == 0:
                found.setdefault(name, python)
    return list(found.values())


def test_the_parent_on_older_pythons(tmp_path: Path) -> None:
    pythons = other_pythons()
    if not pythons:
        message = "no Python 3.7 to 3.10 on PATH or among pyenv's versions"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    for python in pythons:
        converse(python, tmp_path / python.name)


def converse(python: Path, folder: Path) -> None:
    """A whole conversation: versions, a run that answers, one that raises, one that must be cancelled, the end."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "tensorflow.py").write_text(STAND_IN)
    parent = subprocess.Popen(
        [folder / "bin" / "python", "-I", PARENT, folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    limits = {"seconds": 20, "bytes": 1 << 30, "output": 1 << 20}
    for number, program in enumerate(["print('hello')", "1 / 0", "import time; time.sleep(60)"]):
        parent.stdin.write(json.dumps({"run": number, "program": program, **limits}) + "\n")
    parent.stdin.write(json.dumps({"cancel": 2}) + "\n")
    parent.stdin.write(json.dumps({"ping": 7}) + "\n")
    parent.stdin.flush()
    messages: list[dict[str, Any]] = []
    while sum("exit" in message for message in messages) < 3:
        messages.append(json.loads(parent.stdout.readline()))
    parent.stdin.close()
    assert parent.wait(5) == 0
    parent.stdout.close()
    assert messages[0]["ready"]["python"].startswith(python.name.removeprefix("python"))
    assert {"pong": 7} in messages
    (said,) = (message for message in messages if message.get("run") == 0 and "lines" in message)
    assert (said["task"], said["lines"]) == ("", ["hello"])
    assert 0 < said["seconds"] < 20
    ends = {message["run"]: message for message in messages if "exit" in message}
    assert (ends[0]["exit"], ends[0]["stopped"]) == (0, None)
    assert ends[1]["exit"] == 1
    assert ends[1]["stderr"].endswith("ZeroDivisionError: division by zero\n")
    assert (ends[2]["exit"], ends[2]["stopped"]) == (-9, "cancelled")
