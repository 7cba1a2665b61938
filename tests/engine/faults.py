"""Programs that do not behave, and an experiment that is made of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from engine.experiments import Experiment
from engine.request import Request
from engine.settings import Settings
from engine.versions import Versions

PROGRAMS = {
    "sleeps": "import time\ntime.sleep(60)\n",
    "naps": """import time\ntime.sleep(0.5)\nprint('{"event": "nap"}')\n""",
    "waits": """
import os, time
while not os.path.exists("WORDS-1"):
    time.sleep(0.01)
print('{"event": "nap"}')
""",
    "counts": """
import os, time
for number in range(1, 6):
    while not os.path.exists("WORDS-%d" % number):
        time.sleep(0.01)
    print('{"event": "count", "t": 0.0, "value": %d}' % number, flush=True)
""",
    "loops": "while True:\n    pass\n",
    "rubbish": """print("no event")\nprint("[1]")\nprint('{"event": "end", "status": "ok"}')\nprint("x", end="")\n""",
    "floods": "while True:\n    print('x' * 1000)\n",
    "long line": "import sys\nwhile True:\n    sys.stdout.write('x' * 1000)\n",
    "complains": "import sys\nwhile True:\n    sys.stderr.write('x' * 1000)\n",
    "allocates": "kept = []\nwhile True:\n    kept.append(b'x' * (1 << 24))\n",
    "exits": "raise SystemExit(7)\n",
    "killed": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "aborts": "import os\nos.abort()\n",
    "leaves a child": """import os, time\nif os.fork() == 0:\n    time.sleep(600)\nprint('{"event": "left"}')\n""",
    "ignores signals": """
import signal, time
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
time.sleep(60)
""",
    "not utf-8": "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\n')\n",
    "syntax": "def\n",
    "raises": """print('{"event": "error", "type": "ValueError", "message": "no"}')\nraise SystemExit(1)\n""",
    "runs out": """print('{"event": "error", "type": "MemoryError", "message": ""}')\nraise SystemExit(1)\n""",
}


class FaultSettings(Settings):
    """Which of the programs, and a number that tells runs apart."""

    program: Literal[
        "sleeps", "naps", "waits", "counts", "loops", "rubbish", "floods", "long line", "complains", "allocates",
        "exits", "killed", "aborts", "leaves a child", "ignores signals", "not utf-8", "syntax", "raises",
        "runs out",
    ]  # fmt: skip
    number: int = 0


FAULTS = Experiment("faults", "faults", FaultSettings, lambda settings: [], deterministic=False, seconds=60.0)
# For the programs that end at their deadline and no sooner. The others have time, however slow the machine is.
HASTY = replace(FAULTS, seconds=2.0)
ENDLESS = {"sleeps", "loops", "ignores signals", "complains"}


def fault(program: str, number: int = 0, version: str | None = None) -> Request:
    """Asks for a run of one of the programs."""
    experiment = HASTY if program in ENDLESS else FAULTS
    return Request(experiment, FaultSettings.parse({"program": program, "number": number}), version)


def rendering_faults(real: Callable[..., str]) -> Callable[..., str]:
    """A `render` that gives the experiment `faults` its own programs, and all else what the real one does."""

    def render(experiment: Experiment[Any], settings: Any, versions: Versions) -> str:
        return text(settings) if experiment.name == "faults" else real(experiment, settings, versions)

    return render


def text(settings: FaultSettings) -> str:
    """The program that was asked for."""
    return PROGRAMS[settings.program].replace("WORDS", f"{_WORDS.name}/{settings.number}")


def say(number: int, word: int = 1) -> None:
    """Let the program with this number go on, which waits for a word, or for this one of several."""
    Path(_WORDS.name, f"{number}-{word}").touch()


_WORDS = tempfile.TemporaryDirectory(prefix="replica-lab-words-")
