"""The warm parent of one runtime: imports TensorFlow once, then forks a fresh process for every run.

It is started as `python -I parent.py WORKPLACE` by that runtime's own interpreter, so it is standard library only and
keeps to Python 3.7. Nothing of TensorFlow but its import happens here: no device, no eager op, no session. What a run
does with TensorFlow, it does in its own process, which is killed when its time, its memory or its output is spent.

It speaks JSON, one object a line. On standard input:
    {"run": ID, "program": TEXT, "seconds": N, "bytes": N, "output": N}     start a run, with its limits
    {..., "tasks": {"ps": 1, "worker": 2}, "serving": ["ps"], "may_be_killed": []}  that is a cluster, see Run
    {"cancel": ID}                                                          kill it
    {"ping": N}                                                             say that this loop still goes round
End of input means that the engine is gone: every run is killed and the parent ends. On standard output:
    {"importing": N}                                  modules found so far, while TensorFlow is imported
    {"ready": {"tensorflow": ..., "keras": ..., "tf_keras": ..., "python": ..., "modules": N, "seconds": N}}
    {"run": ID, "pid": N}                             the run has the process (and process group) N
    {"pong": N}                                       to a ping
    {"run": ID, "task": NAME, "lines": [TEXT, ...], "seconds": N}      what it printed, and when, from its beginning;
        NAME is "worker:1", or "" where it is no cluster
    {"run": ID, "task": NAME, "died": CODE, "seconds": N}    a task of a cluster has ended by itself, and not well
    {"run": ID, "task": NAME, "exit": CODE, "stopped": WHY, "port_conflict": [ADDRESS, ...], "seconds": N,
        "stderr": TEXT}
CODE is the exit status, or minus the signal; of a cluster that of NAME, the first task to fail, or 0. WHY is null,
"timeout", "memory", "output", "cancelled", or "no_room" where the system gave it no process or no file: the last line
of its standard error then has the system's words. `port_conflict` are a failed cluster's addresses at which a stranger
was found.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib.util
import json
import os
import platform
import select
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
import types
from typing import Any, NoReturn

STDERR_KEPT = 64 * 1024  # bytes of a run's standard error that are kept: its last
MEMORY_POLL_SECONDS = 0.05  # between two checks of the runs' memory
SERVER_START_TIMEOUT = 2.0  # seconds after which a cluster's clients start, even if its servers do not listen yet
SERVER_POLL_SECONDS = 0.005  # between two checks of whether they do
GRACE = 5.0  # seconds in which the other tasks of a cluster may tell what they see of one that has failed
PR_SET_PDEATHSIG = 1  # linux/prctl.h
SLOW_COORDINATOR_JOIN = ("1.", "2.4.", "2.5.")  # TensorFlow versions, see join_threads_promptly


class Task:
    """One forked process of a run, and the read ends of its two pipes. `name` is "worker:1", or "" in no cluster."""

    def __init__(self, name: str, pid: int, pipes: tuple[int, int]) -> None:
        self.name = name
        self.job = name.partition(":")[0]
        self.pid = pid
        self.stdout, self.stderr = pipes
        self.open = set(pipes)
        self.line = b""
        self.errors = b""
        self.exit: int | None = None
        self.died = False  # True from when it has ended by itself, and not well, until that is told

    def kill(self) -> None:
        """End its whole process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself


class Run:
    """One execution of a program, and what it may use: one process, or a cluster of them.

    Of a cluster, the tasks whose job is among `serving` start first, the others when these can be reached: gRPC tries
    an address at which it found nobody again only a second later. The run is over when these others have ended; those
    that serve go on for ever if they are let. A task that ends any other way than with status 0 takes the others with
    it, GRACE seconds later, except those named in `may_be_killed`: a program may kill them as part of what it shows.
    """

    def __init__(self, command: dict[str, Any], folder: str) -> None:
        self.name: int = command["run"]
        self.folder = folder
        self.tasks: list[Task] = []
        self.later: list[tuple[str, dict[str, str]]] = []  # the tasks to come: name, environment
        self.serving = command.get("serving", ())
        self.may_be_killed = command.get("may_be_killed", ())
        self.ports: list[socket.socket] = []
        self.began = time.monotonic()
        self.deadline: float = self.began + command["seconds"]
        self.bytes = command["bytes"]
        self.output_left = command["output"]
        self.stopped: str | None = None
        self.failed: Task | None = None  # the first task to fail
        self.over = False
        self.seconds = 0.0

    @property
    def open(self) -> set[int]:
        """The pipes that are still to be heard."""
        return {fd for task in self.tasks for fd in task.open}

    @property
    def held(self) -> set[int]:
        """All that the parent has open for this run."""
        return self.open | {port.fileno() for port in self.ports if port.fileno() != -1}

    def cluster(self, counts: dict[str, int]) -> dict[str, list[str]]:
        """Choose an address for every task, by job, and hold its port until the run's result was sent.

        Linux never hands out a bound port as an ephemeral one, and yet lets a server listen on it that binds it with
        SO_REUSEADDR, as gRPC's do. Elsewhere another process may get it first.
        """
        addresses: dict[str, list[str]] = {job: [] for job in counts}
        for job, count in counts.items():
            for _ in range(count):
                port = socket.socket()
                port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                port.bind(("127.0.0.1", 0))
                self.ports.append(port)
                addresses[job].append(f"localhost:{port.getsockname()[1]}")
        if sys.platform != "linux":
            for port in self.ports:
                port.close()
        return addresses

    def reached(self) -> list[int]:
        """The ports of this run at which somebody answers."""
        found = []
        for address in (port.getsockname() for port in self.ports if port.fileno() != -1):
            with socket.socket() as visitor:
                if visitor.connect_ex(address) == 0:
                    found.append(address[1])
        return found

    def may_start_waiting(self) -> bool:
        """True when there is no reason left to keep the tasks to come waiting."""
        serving = [task for task in self.tasks if task.exit is None]
        late = time.monotonic() - self.began > SERVER_START_TIMEOUT
        return late or sys.platform != "linux" or len(self.reached()) >= len(serving)

    def memory(self, inherited: int) -> int:
        """Bytes that its tasks hold together. Files, and what each has `inherited` from the parent, they have once."""
        tasks = [task.pid for task in self.tasks if task.exit is None]
        files = [pages_of(pid)[1] for pid in tasks] or [0]
        return sum(memory_of(pid) for pid in tasks) - inherited * (len(files) - 1) - (sum(files) - max(files))

    def kill(self, why: str | None) -> None:
        """End all its processes, once; the reason first given is the one that is told."""
        if self.stopped is None and not self.over:
            self.stopped = why
        self.later = []
        for task in self.tasks:
            if task.exit is None:
                task.kill()

    def poll(self) -> None:
        """See which tasks have ended, and whether that ends the run."""
        now = time.monotonic()
        for task in self.tasks:
            if task.exit is None:
                pid, status = os.waitpid(task.pid, os.WNOHANG)
                if pid == 0:
                    continue
                task.exit = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                # Whatever it has started and left goes with it, and so lets go of its pipes.
                task.kill()
                if task.exit == 0 or self.over:
                    continue
                task.died = bool(task.name) and self.stopped is None
                was_to_die = task.exit == -signal.SIGKILL and task.name in self.may_be_killed
                if self.failed is None and not was_to_die:
                    self.failed = task
                    self.deadline = min(self.deadline, now + GRACE)
        if (
            not self.later
            and not self.over
            and all(task.exit is not None or task.job in self.serving for task in self.tasks)
        ):
            self.end()

    def end(self) -> None:
        """There is nothing more to wait for but the last words of its tasks."""
        self.over = True
        self.seconds = time.monotonic() - self.began
        self.kill(None)


class Parent:
    """The loop between the engine on one side and the runs on the other. One thread, so that a fork is safe."""

    def __init__(self, commands: int, replies: int, workplace: str) -> None:
        self.commands = commands
        self.replies = replies
        self.workplace = workplace
        self.runs: dict[int, Run] = {}
        self.private: list[int] = []  # descriptors that no run may hold
        self.pending = b""
        self.selector = selectors.DefaultSelector()

    def send(self, **message: Any) -> None:
        data = (json.dumps(message) + "\n").encode()
        try:
            while data:
                data = data[os.write(self.replies, data) :]
        except BrokenPipeError:
            self.end()

    def end(self) -> NoReturn:
        """Leave nothing behind: the engine is gone, or wants this parent to go."""
        for run in self.runs.values():
            run.kill("cancelled")
        os._exit(0)

    def import_tensorflow(self) -> dict[str, Any]:
        """Import TensorFlow and Keras, telling the engine how far it has come. Returns the versions."""
        began = time.monotonic()
        watch = ImportWatch(self)
        sys.meta_path.insert(0, watch)
        try:
            import tensorflow

            # tf.keras is imported when it is first asked for; so ask before any run is forked.
            tensorflow.keras.optimizers.SGD  # noqa: B018
            # So is tf.contrib, which TensorFlow 1 has: some seconds.
            getattr(getattr(tensorflow, "contrib", None), "training", None)
            # From 2.6 to 2.15 it is a package of its own, which alone knows its version.
            keras = getattr(tensorflow.keras, "__version__", "") or sys.modules["keras"].__version__
            # Keras 2 beside Keras 3, for the programs that say so: half a second and 7 MiB.
            tf_keras = None
            if importlib.util.find_spec("tf_keras") is not None:
                import tf_keras as installed

                installed.optimizers.SGD  # noqa: B018
                tf_keras = installed.__version__
        finally:
            sys.meta_path.remove(watch)
        if tensorflow.__version__.startswith(SLOW_COORDINATOR_JOIN):
            join_threads_promptly()
        # What is frozen is never looked at by a child's garbage collector, so its pages stay shared.
        gc.collect()
        gc.freeze()
        return {
            "tensorflow": tensorflow.__version__,
            "keras": keras,
            "tf_keras": tf_keras,
            "python": platform.python_version(),
            "modules": watch.found,
            "seconds": round(time.monotonic() - began, 3),
        }

    def serve(self) -> NoReturn:
        """Answer until standard input ends."""
        # A child that ends wakes the loop: its signal writes a byte into this pipe.
        woken, wakes = os.pipe()
        os.set_blocking(woken, False)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.private = [self.commands, self.replies, woken, wakes]
        self.selector.register(self.commands, selectors.EVENT_READ, None)
        self.selector.register(woken, selectors.EVENT_READ, None)
        while True:
            for key, _ in self.selector.select(self.patience()):
                if key.fd == self.commands:
                    self.read_commands()
                elif key.fd == woken:
                    os.read(woken, 4096)
                else:
                    run, task = key.data
                    self.read_output(run, task, key.fd)
            self.reap()
            self.start_waiting_tasks()
            self.enforce()

    def patience(self) -> float | None:
        """Seconds that the loop may sleep: until the next deadline, or the next look at memory or servers."""
        if not self.runs:
            return None
        soonest: float = min(run.deadline for run in self.runs.values()) - time.monotonic()
        often = SERVER_POLL_SECONDS if any(run.later for run in self.runs.values()) else MEMORY_POLL_SECONDS
        return max(0.0, min(soonest, often))

    def read_commands(self) -> None:
        data = os.read(self.commands, 1 << 20)
        if not data:
            self.end()
        lines = (self.pending + data).split(b"\n")
        self.pending = lines.pop()
        for line in lines:
            command = json.loads(line)
            if "run" in command:
                self.start(command)
            elif "ping" in command:
                self.send(pong=command["ping"])
            elif command["cancel"] in self.runs:
                self.runs[command["cancel"]].kill("cancelled")

    def start(self, command: dict[str, Any]) -> None:
        folder = tempfile.mkdtemp(prefix="run-", dir=self.workplace)
        with open(os.path.join(folder, "script.py"), "w", encoding="utf-8") as file:
            file.write(command["program"])
        run = self.runs[command["run"]] = Run(command, folder)
        cluster = run.cluster(command.get("tasks", {}))
        for job, addresses in cluster.items():
            for index in range(len(addresses)):
                config = {"cluster": cluster, "task": {"type": job, "index": index}}
                # BEGAN: what the tasks count their seconds from. This clock is the same in all processes.
                environment = {"TF_CONFIG": json.dumps(config), "BEGAN": repr(run.began)}
                run.later.append((f"{job}:{index}", environment))
        first = [task for task in run.later if task[0].partition(":")[0] in run.serving] or run.later or [("", {})]
        run.later = [task for task in run.later if task not in first]
        for name, environment in first:
            self.fork(run, name, environment)

    def start_waiting_tasks(self) -> None:
        """Start the tasks for which others had to be there first."""
        for run in self.runs.values():
            if run.later and run.may_start_waiting():
                for name, environment in run.later:
                    self.fork(run, name, environment)
                run.later = []

    def fork(self, run: Run, name: str, environment: dict[str, str]) -> None:
        """Start one process of a run."""
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                isolate_child(parent, self.private + [fd for other in self.runs.values() for fd in other.held])
                os.close(out_read)
                os.close(err_read)
                os.dup2(out_write, 1)
                os.dup2(err_write, 2)
                os.close(out_write)
                os.close(err_write)
                os.chdir(run.folder)
                os.environ.update(environment)
                status = run_script(os.path.join(run.folder, "script.py"))
            finally:
                os._exit(status)
        os.close(out_write)
        os.close(err_write)
        try:
            os.setpgid(pid, pid)  # the child does it too: whoever is first, the group is there before it is needed
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ESRCH, errno.EPERM):
                raise
        task = Task(name, pid, (out_read, err_read))
        run.tasks.append(task)
        for fd in task.open:
            self.selector.register(fd, selectors.EVENT_READ, (run, task))
        self.send(run=run.name, pid=pid)

    def read_output(self, run: Run, task: Task, fd: int) -> None:
        """Take what a task has written: whole lines of standard output go on, of standard error the last are kept."""
        data = os.read(fd, 1 << 16)
        if not data:
            self.selector.unregister(fd)
            os.close(fd)
            task.open.discard(fd)
            return
        if fd == task.stderr:
            task.errors = (task.errors + data)[-STDERR_KEPT // len(run.tasks) :]
            return
        if run.stopped == "output":
            return
        run.output_left -= len(data)
        if run.output_left < 0:
            run.kill("output")
            return
        lines = (task.line + data).split(b"\n")
        task.line = lines.pop()
        self.send_lines(run, task, lines)

    def send_lines(self, run: Run, task: Task, lines: list[bytes]) -> None:
        if lines:
            seconds = round(run.seconds if run.over else time.monotonic() - run.began, 4)
            texts = [line.decode("utf-8", "replace") for line in lines]
            self.send(run=run.name, task=task.name, lines=texts, seconds=seconds)

    def reap(self) -> None:
        """Tell of the tasks and runs that have ended and have been heard to the end."""
        for run in list(self.runs.values()):
            run.poll()
            for task in run.tasks:
                if task.exit is None or task.open:
                    continue
                if task.line:
                    self.send_lines(run, task, [task.line])
                    task.line = b""
                if task.died:
                    task.died = False
                    seconds = round(time.monotonic() - run.began, 4)
                    self.send(run=run.name, task=task.name, died=task.exit, seconds=seconds)
            if not run.over or run.open or not all(task.exit is not None for task in run.tasks):
                continue
            errors = [(task.name, task.errors.decode("utf-8", "replace")) for task in run.tasks if task.errors]
            reached = run.reached() if run.failed else []  # by others: all its tasks are gone
            for port in run.ports:
                port.close()
            shutil.rmtree(run.folder, ignore_errors=True)
            self.send(
                run=run.name,
                task=run.failed.name if run.failed and not run.stopped else "",
                exit=run.failed.exit if run.failed else 0,
                stopped=run.stopped,
                port_conflict=[f"localhost:{port}" for port in reached],
                seconds=round(run.seconds, 4),
                stderr="".join(f"{name}:\n{text}" if name else text for name, text in errors),
            )
            del self.runs[run.name]

    def enforce(self) -> None:
        now = time.monotonic()
        inherited = pages_of(os.getpid())[0]
        for run in self.runs.values():
            if run.over:
                continue
            if now >= run.deadline:
                # After a failure the deadline is that of the others' last words.
                if run.failed is None:
                    run.kill("timeout")
                else:
                    run.end()
                continue
            if run.memory(inherited) > run.bytes:
                run.kill("memory")


class ImportWatch:
    """A finder that finds nothing: it counts the modules that are looked for, and notices when the engine goes away."""

    def __init__(self, parent: Parent) -> None:
        self.parent = parent
        self.found = 0
        self.control = selectors.DefaultSelector()
        self.control.register(parent.commands, selectors.EVENT_READ)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.found += 1
        if self.found % 50 == 0:
            self.parent.send(importing=self.found)
        # Commands that come early wait in the pipe; only its end matters now, and that reads as an empty peek.
        if self.control.select(0) and ended(self.parent.commands):
            self.parent.end()


def join_threads_promptly() -> None:
    """Let strategy.run end when its replicas' threads have ended. Nothing but time differs.

    It waits for them by Coordinator.join (tensorflow/python/training/coordinator.py), which looks whether they are
    alive, and if so again a second later. The first look comes too early as often as not: a thread's last act is to
    delete the default graph that was its own (_DefaultGraphStack in framework/ops.py is a threading.local), by
    TF_DeleteGraph, which lets go of the interpreter; by then the thread that waits has been told that it is done.
    A tf.function is traced twice, or more, and each time may cost that second. Newer ones keep hold of the
    interpreter there, for another reason (tensorflow/tensorflow#50853).
    """
    from tensorflow.python.training.coordinator import Coordinator

    join = Coordinator.join

    def join_threads_first(self: Any, threads: Any = None, *args: Any, **kwargs: Any) -> Any:
        until = time.monotonic() + 0.05  # for those that are ending; those that go on working are waited for as ever
        for thread in threads or ():
            thread.join(max(0.0, until - time.monotonic()))
        return join(self, threads, *args, **kwargs)

    Coordinator.join = join_threads_first


def ended(fd: int) -> bool:
    """True where nobody can write into this pipe any more and nothing is left in it."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0))


def isolate_child(parent: int, private: list[int]) -> None:
    """Make this forked process a run's: its own group, dying with its parent, holding none of its pipes and ports."""
    os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # the parent died before the line above
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    for fd in private:
        os.close(fd)


def run_script(path: str) -> int:
    """Do what `python script.py` does: the file as `__main__`. Returns the exit status."""
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    # Python opened these before the fork, on other files.
    sys.stdin = open(os.devnull)
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    status = 0
    try:
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        exec(code, main.__dict__)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException as error:  # noqa: BLE001  whatever the script raises is its own to report
        status = 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next  # what is told begins with the script's own line
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return status


def pages_of(pid: int) -> tuple[int, int]:
    """Resident bytes of a process: its own, and those of files. Where the system doesn't tell (Linux does): 0."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            _, resident, shared, *_ = [int(word) * os.sysconf("SC_PAGE_SIZE") for word in file.read().split()]
    except (OSError, ValueError):
        return 0, 0  # it has just ended, or there is no /proc
    return resident - shared, shared


def memory_of(pid: int) -> int:
    """Resident bytes of a process and its children."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = file.read().split()
    except OSError:
        children = []
    return sum(pages_of(pid)) + sum(memory_of(int(child)) for child in children)


def main() -> NoReturn:
    workplace = sys.argv[1]
    # The pipes of the conversation go where nothing that TensorFlow prints or reads can disturb them.
    commands, replies = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    for fd in (commands, replies):
        os.set_inheritable(fd, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the engine, whose end this parent notices
    parent = Parent(commands, replies, workplace)
    signal.signal(signal.SIGTERM, lambda *_: parent.end())
    versions = parent.import_tensorflow()
    parent.send(ready=versions)
    parent.serve()


if __name__ == "__main__":
    main()
