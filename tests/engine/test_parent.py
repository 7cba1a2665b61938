"""The parent by itself, with a stand-in for TensorFlow: what a program sees of it, its network, what may go wrong.

It is standard library only and runs on Python 3.7 and newer, as old TensorFlow needs it.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from engine.parent import SPARE
from engine.warm import PARENT
from tests.engine.processes import (
    alive,
    all_children_of,
    children_of,
    errors_of_connecting,
    has_own_network,
    name_of,
    until,
)

# In place of TensorFlow: what the parent asks of it, no more.
STAND_IN = """
__version__ = "0.0"
class keras:
    __version__ = "0.0"
    class optimizers:
        SGD = None
"""
LIMITS = {"seconds": 60, "bytes": 1 << 30, "output": 1 << 20}


class Conversation:
    """A parent, and what it has said. Use it as a context manager: at its end no process of its own may be left."""

    def __init__(self, python: Path, workplace: Path, *command: str | Path, user: str | None = None) -> None:
        self.workplace = workplace
        self.process = subprocess.Popen(
            [*command, python, "-I", PARENT, workplace],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"HOME": str(workplace), "PYTHONDONTWRITEBYTECODE": "1"},
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )
        self.messages: list[dict[str, Any]] = []
        self.read_until("ready")
        self.ready: dict[str, Any] = self.messages[-1]["ready"]
        self.runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        children = all_children_of(self.pid) if self.process.poll() is None else []
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(30)
        self.process.stdout.close()
        assert until(lambda: not any(map(alive, children)))

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()

    def start(self, program: str, **fields: Any) -> int:
        """Ask for a run. Returns its number."""
        self.runs += 1
        self.send(run=self.runs, program=program, **{**LIMITS, **fields})
        return self.runs

    def read_until(self, word: str, run: int | None = None) -> dict[str, Any]:
        """Read on, to the first message that has this field, about that run."""
        assert self.process.stdout is not None
        while True:
            message: dict[str, Any] = json.loads(self.process.stdout.readline())
            self.messages.append(message)
            if word in message and (run is None or message["run"] == run):
                return message

    def run(self, program: str, **fields: Any) -> tuple[str, dict[str, Any]]:
        """Run a program to its end: what it printed, and the message of its end."""
        run = self.start(program, **fields)
        end = self.read_until("exit", run)
        return "\n".join(self.lines(run)), end

    def lines(self, run: int) -> list[str]:
        """What a run has printed so far."""
        return [line for message in self.messages if message.get("run") == run for line in message.get("lines", ())]

    def spare(self) -> int:
        """The process that is forked ahead of the next run."""
        taken = {message.get("pid") for message in self.messages}  # the latest may not have its own name yet
        found: list[int] = []

        def look() -> bool:
            found[:] = [child for child in set(all_children_of(self.pid)) - taken if name_of(child) == SPARE]
            return bool(found)

        assert until(look)
        (spare,) = found
        return spare


def environment(python: Path | str, folder: Path) -> Path:
    """A virtual environment with the stand-in. Returns its interpreter."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "tensorflow.py").write_text(STAND_IN)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(sys.executable, tmp_path_factory.mktemp("stand-in") / "environment")


@pytest.fixture
def parent(python: Path, tmp_path: Path) -> Iterator[Conversation]:
    with Conversation(python, tmp_path / "workplace") as parent:
        yield parent


# ---------------------------------------------------------------------------------------------- Pythons and programs


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


def missing(what: str) -> None:
    """This machine lacks what a test needs: in CI that is a failure."""
    pytest.fail(what) if os.environ.get("CI") else pytest.skip(what)


def test_the_parent_on_older_pythons(tmp_path: Path) -> None:
    pythons = other_pythons()
    if not pythons:
        missing("no Python 3.7 to 3.10 on PATH or among pyenv's versions")
    for python in pythons:
        converse(python, tmp_path / python.name)


def converse(python: Path, folder: Path) -> None:
    """A whole conversation: versions, runs that answer, one that raises, one that must be cancelled, the end."""
    inner = environment(python, folder)
    with Conversation(inner, folder / "workplace") as parent:
        assert parent.ready["python"].startswith(python.name.removeprefix("python"))
        assert parent.run("print('hello')")[0] == "hello"
        _, end = parent.run("1 / 0")
        assert (end["exit"], end["stopped"]) == (1, None)
        assert end["stderr"].endswith("ZeroDivisionError: division by zero\n")
        for name in ENDINGS:
            check_ending(parent, inner, name, folder)
        run = parent.start("import time; time.sleep(60)")
        parent.send(cancel=run)
        end = parent.read_until("exit", run)
        assert (end["exit"], end["stopped"]) == (-9, "cancelled")
        parent.send(ping=7)
        assert parent.read_until("pong") == {"pong": 7}


# Ways in which a program comes to its end. What it prints and its exit status are those of `python script.py`.
ENDINGS = {
    "nothing more": "print('a')",
    "no newline": "import sys; sys.stdout.write('a')",
    "a status": "raise SystemExit(3)",
    "a negative status": "raise SystemExit(-1)",
    "a status of 256": "raise SystemExit(256)",
    "a message": "import sys; print('a'); sys.exit('why')",
    "an error": "print('a'); {}['b']",
    "atexit": "import atexit; atexit.register(print, 'at exit'); print('a')",
    "atexit after an error": "import atexit; atexit.register(print, 'at exit'); 1 / 0",
    "atexit in order": "import atexit; atexit.register(print, 1); atexit.register(print, 2)",
    "atexit that raises": "import atexit; atexit.register(print, 'b'); atexit.register(lambda: 1 / 0); print('a')",
    "a thread": """
import threading, time
def late():
    time.sleep(0.3)
    print("late")
threading.Thread(target=late).start()
print("early")
""",
    "a daemon": """
import threading, time
def late():
    time.sleep(60)
    print("never")
threading.Thread(target=late, daemon=True).start()
print("early")
""",
    "a thread and atexit": """
import atexit, threading, time
atexit.register(print, "at exit")
def late():
    time.sleep(0.3)
    print("late")
threading.Thread(target=late).start()
""",
    "a pool": """
from concurrent.futures import ThreadPoolExecutor
import time
pool = ThreadPoolExecutor(2)
for number in (1, 2):
    pool.submit(lambda number: (time.sleep(number / 5), print(number)), number)
""",
    "another standard output": """
import io, sys
kept = sys.stdout
kept.write("a")
sys.stdout = io.StringIO()
print("nobody sees this")
""",
    "a closed standard output": "import sys; print('a'); sys.stdout.close()",
    "closed files": "import os; print('a', flush=True); os.closerange(3, 1000)",
    "a fork of its own": """
import os
if os.fork() == 0:
    print("child")
else:
    os.wait()
    print("parent")
""",
    "a process of its own": """
import multiprocessing, time
def late():
    time.sleep(0.3)
    print("late")
multiprocessing.get_context("fork").Process(target=late).start()
print("early", flush=True)
""",
}


def check_ending(parent: Conversation, python: Path, name: str, folder: Path) -> None:
    script = folder / "script.py"
    script.write_text(ENDINGS[name])
    cold = subprocess.run([python, script], capture_output=True, text=True)
    printed, end = parent.run(ENDINGS[name])
    assert (printed, end["exit"]) == (cold.stdout.removesuffix("\n"), cold.returncode), name
    assert end["stderr"].splitlines()[-1:] == cold.stderr.splitlines()[-1:], name


@pytest.mark.parametrize("name", ENDINGS)
def test_a_program_ends_as_a_script_does(parent: Conversation, python: Path, name: str, tmp_path: Path) -> None:
    check_ending(parent, python, name, tmp_path)


def test_the_result_does_not_wait_for_the_kernel(parent: Conversation) -> None:
    """It comes with the exit status that the process reports; this one then stops on its way to the end."""
    run = parent.start("import os, signal\nos._exit = lambda _: os.kill(os.getpid(), signal.SIGSTOP)")
    pid = parent.read_until("pid", run)["pid"]
    end = parent.read_until("exit", run)
    assert (end["exit"], end["stopped"]) == (0, None)
    assert until(lambda: not alive(pid))  # the parent has ended it


# ----------------------------------------------------------------------------------- the process that is forked ahead


def test_the_next_runs_process_is_there_already(parent: Conversation) -> None:
    spare = parent.spare()
    run = parent.start("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    assert parent.read_until("lines", run)["lines"] == [str(spare)]
    assert name_of(spare) == "tf-run"
    assert parent.spare() != spare  # the one after the next
    parent.send(cancel=run)
    parent.read_until("exit", run)
    assert until(lambda: len(all_children_of(parent.pid)) == 1)


def test_it_knows_the_task_that_it_becomes(parent: Conversation) -> None:
    run = parent.start("import time; time.sleep(60)", tasks={"ps": 1, "worker": 2}, serving=[])
    assert until(lambda: sorted(map(name_of, children_of(parent.pid))) == ["ps:0", "worker:0", "worker:1"])
    parent.send(cancel=run)
    parent.read_until("exit", run)


@pytest.mark.parametrize("seen", [False, True])
def test_a_run_does_without_one_that_was_killed(parent: Conversation, seen: bool) -> None:
    """Whether the parent has seen that it is gone before the next run comes, or not."""
    spare = parent.spare()
    if not seen:
        os.kill(parent.pid, signal.SIGSTOP)
    os.kill(spare, signal.SIGKILL)
    assert until(lambda: not alive(spare))
    if seen:
        assert parent.spare() != spare
    run = parent.start("print('there')")
    os.kill(parent.pid, signal.SIGCONT)
    parent.read_until("exit", run)
    assert parent.lines(run) == ["there"]


def test_it_dies_with_the_parent(parent: Conversation) -> None:
    spare = parent.spare()
    os.kill(parent.pid, signal.SIGKILL)
    parent.process.wait(30)
    assert until(lambda: not alive(spare))


def test_there_is_none_while_memory_is_short(python: Path, tmp_path: Path) -> None:
    """The parent is told by the stand-in, not by the machine, how much memory is left."""
    left = tmp_path / "left"
    left.write_text("0")
    patched = environment_with(python, tmp_path, f"main.memory_left = lambda: int(open({str(left)!r}).read())")
    with Conversation(patched, tmp_path / "workplace") as parent:
        assert parent.run("print('there')")[0] == "there"
        assert until(lambda: not all_children_of(parent.pid))
        left.write_text(str(1 << 40))
        assert parent.run("print('there')")[0] == "there"
        spare = parent.spare()
        left.write_text("0")
        parent.start("import time; time.sleep(60)")
        assert until(lambda: SPARE not in map(name_of, all_children_of(parent.pid)))
        assert name_of(spare) == "tf-run"


def environment_with(python: Path, folder: Path, code: str) -> Path:
    """An interpreter whose stand-in also does something to the parent, which it sees as `main`."""
    place = folder / "patched"
    shutil.copytree(python.parent.parent, place, symlinks=True)
    (packages,) = place.glob("lib/python3*/site-packages")
    (packages / "tensorflow.py").write_text(f"import os, sys\nmain = sys.modules['__main__']\n{code}\n{STAND_IN}")
    return place / "bin" / "python"


# -------------------------------------------------------------------------------------------------- what may go wrong


def refused(end: dict[str, Any]) -> str:
    """Why the system had no room for a run."""
    assert end["stopped"] == "no_room"
    words: str = end["stderr"]
    return words


def test_a_workplace_that_was_removed_is_made_again(parent: Conversation) -> None:
    shutil.rmtree(parent.workplace, ignore_errors=True)
    assert parent.run("print('there')")[0] == "there"
    assert stat.S_IMODE(parent.workplace.stat().st_mode) == 0o700
    assert until(lambda: not list(parent.workplace.iterdir()))


def test_a_run_without_a_folder_is_the_only_one_lost(parent: Conversation) -> None:
    shutil.rmtree(parent.workplace, ignore_errors=True)
    parent.workplace.write_text("in its place")
    assert "File exists" in refused(parent.run("print('there')")[1])
    parent.workplace.unlink()
    assert parent.run("print('there')")[0] == "there"


def test_a_script_that_the_disk_has_no_room_for(parent: Conversation) -> None:
    """The limit on the size of a file stands for a full disk: the same call fails."""
    before = resource.prlimit(parent.pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    assert "File too large" in refused(parent.run("#" * 1000)[1])
    resource.prlimit(parent.pid, resource.RLIMIT_FSIZE, before)
    assert parent.run("print('there')")[0] == "there"
    assert until(lambda: not list(parent.workplace.iterdir()))


def test_no_more_open_files(parent: Conversation, tmp_path: Path) -> None:
    """A run whose pipes can't be made is told so; one that is under way goes on."""
    door = tmp_path / "door"
    going = parent.start(
        f"import os, time\nwhile not os.path.exists({str(door)!r}): time.sleep(0.01)\nprint('still here')"
    )
    parent.read_until("pid", going)
    parent.spare()
    used = {int(file.name) for file in Path(f"/proc/{parent.pid}/fd").iterdir()}
    before = resource.prlimit(parent.pid, resource.RLIMIT_NOFILE)
    limit = [number for number in range(before[0]) if number not in used][3]  # three are left, pipes take eight
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, (limit, before[1]))
    held = parent.start("import time; time.sleep(60)")  # has the process that was forked ahead
    parent.read_until("pid", held)
    assert "Too many open files" in refused(parent.run("print('there')")[1])
    resource.prlimit(parent.pid, resource.RLIMIT_NOFILE, before)
    assert parent.run("print('there')")[0] == "there"
    door.touch()
    parent.read_until("exit", going)
    assert parent.lines(going) == ["still here"]


def test_no_more_processes(python: Path, tmp_path: Path) -> None:
    """Here the stand-in lets the parent's fork fail, as the kernel does at its limit; root has none."""
    full = tmp_path / "full"
    patched = environment_with(
        python,
        tmp_path,
        f"""
import errno
fork = os.fork
def refuse():
    if os.path.exists({str(full)!r}):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()
os.fork = refuse
""",
    )
    with Conversation(patched, tmp_path / "workplace") as parent:
        parent.spare()
        full.touch()
        assert parent.run("print('there')")[0] == "there"  # in the process that was forked ahead
        assert "Resource temporarily unavailable" in refused(parent.run("print('there')")[1])
        # The first task of this cluster has a process, the second has none: it goes, too.
        full.unlink()
        parent.spare()
        full.touch()
        _, end = parent.run("import time; time.sleep(60)", tasks={"worker": 2}, serving=[])
        assert "Resource temporarily unavailable" in refused(end)
        assert until(lambda: not all_children_of(parent.pid))
        full.unlink()
        assert parent.run("print('there')")[0] == "there"


@pytest.mark.parametrize("writes", ["", "while True:\n        print('x', flush=True)\n        time.sleep(0.05)"])
def test_a_process_that_left_the_run_does_not_hold_its_slot(parent: Conversation, writes: str) -> None:
    """One in a session of its own has the run's pipes, and lives on when the run is over."""
    leaves = f"""
import os, time
pid = os.fork()
if pid == 0:
    os.setsid()
    {writes}
    time.sleep(600)
print(pid, flush=True)
time.sleep(0.2)
"""
    run = parent.start(leaves)
    assert parent.read_until("exit", run)["exit"] == 0
    stray = next(int(line) for line in parent.lines(run) if line.isdigit())
    if not writes:
        assert alive(stray)  # one that writes has found that nobody reads
        os.kill(stray, signal.SIGKILL)
    assert until(lambda: not alive(stray))
    assert parent.run("print('there')")[0] == "there"


def test_what_such_a_process_writes_at_once_is_read(parent: Conversation) -> None:
    leaves = """
import os
reading, writing = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(writing, b"1")
    print("last words")
else:
    os.read(reading, 1)
    os._exit(0)
"""
    assert parent.run(leaves)[0] == "last words"


# ------------------------------------------------------------------------------------------------------------ network

# Connects to a port of this machine's loopback, and to an address beyond it: the errors' numbers, 0 for none.
VISITS = """
import socket, time
server = socket.socket()
server.bind(("0.0.0.0", 0))
server.listen()
for address in (("127.0.0.1", {port}), ("192.0.2.1", 80), server.getsockname()):
    with socket.socket() as visitor:
        visitor.settimeout(0.5)
        try:
            print(visitor.connect_ex(address))
        except OSError as error:
            print(error.errno)
print(server.getsockname()[1], flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def listener() -> Iterator[int]:
    """A port of 127.0.0.1 at which this process listens."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        yield door.getsockname()[1]


def visit(parent: Conversation) -> tuple[list[int], dict[int, int], dict[int, int]]:
    """What a program gets that connects to this process, to an address beyond this machine, and to itself; and who
    gets through to it: from outside, and from its own network."""
    with listener() as port:
        run = parent.start(VISITS.format(port=port))
        while len(parent.lines(run)) < 4:
            parent.read_until("lines", run)
        *errors, own = map(int, parent.lines(run))
        return errors, errors_of_connecting(os.getpid(), [own]), errors_of_connecting(parent.pid, [own])


def check_loopback(parent: Conversation) -> None:
    """Where the kernel allows it. Skips where it doesn't; what then happens is tested below."""
    if parent.ready["network"] == "host":
        pytest.skip(f"this machine allows no network namespace: {parent.ready['network_reason']}")
    assert (parent.ready["network"], parent.ready["network_reason"]) == ("loopback", "")
    assert has_own_network(parent.pid)
    errors, outside, inside = visit(parent)
    assert errors == [errno.ECONNREFUSED, errno.ENETUNREACH, 0]
    assert list(outside.values()) == [errno.ECONNREFUSED]
    assert list(inside.values()) == [0]


def test_a_run_has_no_network_but_its_own(parent: Conversation) -> None:
    check_loopback(parent)


def test_where_it_is_not_allowed_a_run_has_the_machines(python: Path, tmp_path: Path) -> None:
    """In a user namespace that may have none below it. There the parent works as it does without any."""
    forbids = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    command = ("unshare", "--user", "--map-root-user", "sh", "-c", forbids, "sh")
    if subprocess.run([*command, "true"], capture_output=True).returncode != 0:
        missing("this machine allows no user namespace, in which none could be allowed")
    with Conversation(python, tmp_path / "workplace", *command) as parent:
        assert parent.ready["network"] == "host"
        assert parent.ready["network_reason"] == "[Errno 28] unshare: No space left on device"  # as unshare(2) says it
        assert not has_own_network(parent.pid)
        errors, outside, inside = visit(parent)
        assert (errors[0], errors[2]) == (0, 0)
        assert list(outside.values()) == list(inside.values()) == [0]


def usable_by_nobody() -> str | None:
    """An interpreter that the user nobody may run."""
    for python in (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin")):
        if python is not None:
            with contextlib.suppress(PermissionError):
                subprocess.run([python, "-c", ""], check=True, user="nobody", extra_groups=[])
                return python
    return None


NOBODY = pwd.getpwnam("nobody").pw_uid


@pytest.fixture
def place_for_nobody() -> Iterator[Path]:
    """A folder that nobody may reach and write: pytest's own are for the user who tests."""
    place = Path(tempfile.mkdtemp())
    os.chown(place, NOBODY, -1)
    yield place
    shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; these tests run as another already")
def test_as_nobody(place_for_nobody: Path) -> None:
    """No privilege is needed for any of it: the network, ending runs from outside, and files that stay one's own."""
    interpreter = usable_by_nobody()
    if interpreter is None:
        missing("no Python that the user nobody may run")
    assert interpreter is not None
    python = environment(interpreter, place_for_nobody / "environment")
    with Conversation(python, place_for_nobody / "workplace", user="nobody") as parent:
        check_ids(parent, NOBODY)
        ends_from_outside(parent)
        check_loopback(parent)


def test_ids_are_those_of_outside(parent: Conversation) -> None:
    check_ids(parent, os.geteuid())


def test_runs_are_ended_from_outside(parent: Conversation) -> None:
    ends_from_outside(parent)


def check_ids(parent: Conversation, uid: int) -> None:
    file = parent.workplace / "written"
    printed, end = parent.run(f"import os\nopen({str(file)!r}, 'w').close()\nprint(os.getuid(), os.geteuid())")
    assert printed == f"{uid} {uid}", end
    assert file.stat().st_uid == uid


def ends_from_outside(parent: Conversation) -> None:
    """As the engine does: by its process group."""
    run = parent.start("import time; time.sleep(60)")
    pid = parent.read_until("pid", run)["pid"]
    os.killpg(pid, signal.SIGKILL)
    assert parent.read_until("exit", run)["exit"] == -signal.SIGKILL
