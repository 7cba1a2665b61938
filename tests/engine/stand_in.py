"""A stand-in for TensorFlow: what the parent and the installer ask of it, no more, so that a test needs no minutes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

MODULE = """
import contextlib, time
time.sleep({seconds})
__version__ = "{tensorflow}"
class keras:
    __version__ = "{keras}"
    class optimizers:
        SGD = None
class Graph:
    def as_default(self):
        return contextlib.nullcontext()
class compat:
    class v1:
        class Session:
            def __enter__(self):
                return self
            def __exit__(self, *_):
                pass
            def run(self, value):
                return value
def constant(value):
    return value
"""


def environment(
    place: Path, tensorflow: str, keras: str = "0.0", *, seconds: float = 0.0, python: Path | None = None
) -> Path:
    """A virtual environment with the stand-in, which takes so many seconds to import. Returns its interpreter."""
    command = [python or sys.executable, "-m", "venv", "--without-pip", place]
    subprocess.run(command, check=True)
    packages(place, tensorflow, keras, seconds)
    return place / "bin" / "python"


def packages(place: Path, tensorflow: str, keras: str, seconds: float) -> None:
    (folder,) = place.glob("lib/python3*/site-packages")
    text = MODULE.format(tensorflow=tensorflow, keras=keras, seconds=seconds)
    (folder / "tensorflow.py").write_text(text)
    (folder / f"tensorflow-{tensorflow}.dist-info").mkdir(exist_ok=True)


def uv(words: list[str]) -> int:
    """A stand-in for uv, too: `uv venv ... PLACE`, `uv pip install ... PACKAGE==VERSION ...`.

    The environment variable FAKE_UV makes it "hang" in the middle, "fail", or install "another" version.
    """
    import os  # noqa: PLC0415
    import time  # noqa: PLC0415

    mode = os.environ.get("FAKE_UV", "")
    if words[0] == "venv":
        if words[words.index("--python") + 1] == "3.2":
            print("error: no such Python", file=sys.stderr)
            return 2
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", words[-1]], check=True)
        return 0
    place = Path(words[words.index("--python") + 1]).parent.parent
    asked = dict(word.split("==") for word in words if "==" in word)
    packages(place, "0.1" if mode == "another" else asked["tensorflow"], asked.get("keras", "0.0"), 0.0)
    print("half way", file=sys.stderr, flush=True)
    if mode == "hang":
        time.sleep(120)
    if mode == "fail":
        print("error: no network", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(uv(sys.argv[1:]))
