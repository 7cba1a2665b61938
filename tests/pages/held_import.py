"""An interpreter like the app's own whose `import tensorflow` waits for a word: the moment before TensorFlow is there,
for as long as a test wants to look at it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

# Takes its own place in `sys.modules`, as if it had never been there.
WAITS = """
import pathlib, sys, time
while not pathlib.Path({word!r}).exists():
    time.sleep(0.01)
here = sys.modules.pop("tensorflow").__spec__.origin
sys.path.remove(str(pathlib.Path(here).parent))
import tensorflow
"""


@dataclass(frozen=True)
class HeldImport:
    """`python` is the interpreter to start the app with."""

    python: Path
    word: Path

    def let_go(self) -> None:
        """Let TensorFlow be imported, from now on."""
        self.word.touch()


def held_import(place: Path) -> HeldImport:
    """A virtual environment in that folder, which has all that the app's own has."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place / "env"], check=True)
    (packages,) = place.glob("env/lib/python3*/site-packages")
    (packages / "app.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (packages / "tensorflow.py").write_text(WAITS.format(word=str(place / "word")))
    return HeldImport(place / "env" / "bin" / "python", place / "word")
