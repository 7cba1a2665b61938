"""The warm parent of one runtime: imports TensorFlow once, then forks a fresh process for every run.

It is started as `python -I parent.py WORKPLACE` by that runtime's own interpreter, so it is standard library only and
keeps to Python 3.7. Nothing of TensorFlow but its import happens here: no device, no eager op, no session. What a run
does with TensorFlow, it does in its own process, which is killed when its time, its memory or its output is spent.

Without WORKPLACE it says why its runs would have the network of the machine, nothing where they would have their own.

It speaks JSON, one object a line. On standard input:
    {"run": ID, "program": TEXT, "seconds": N, "bytes": N, "output": N}     start a run, with its limits
    {..., "tasks": {"ps": 1, "worker": 2}, "serving": ["ps"], "may_be_killed": []}  that is a cluster, see Run
    {"cancel": ID}                                                          kill it
    {"ping": N}                                                             say that this loop still goes round
End of input means that the engine is gone: every run is killed and the parent ends. On standard output:
    {"importing": N}                                  modules found so far, while TensorFlow is imported
    {"ready": {"tensorflow": ..., "keras": ..., "tf_keras": ..., "python": ..., "modules": N, "seconds": N,
        "network": "loopback" or "host", "network_reason": TEXT}}
    {"run": ID, "pid": N}                             the run has the process (and process group) N
    {"pong": N}                                       to a ping
    {"run": ID, "task": NAME, "lines": [TEXT, ...], "seconds": N}      what it printed, and when, from its beginning;
        NAME is "worker:1", or "" where it is no cluster
    {"run": ID, "task": NAME, "died": CODE, "seconds": N}    a task of a cluster has ended by itself, and not well
    {"run": ID, "task": NAME, "exit": CODE, "stopped": WHY, "port_conflict": [ADDRESS, ...], "seconds": N,
        "stderr": TEXT}
CODE is the exit status, or minus the signal; of a cluster that of NAME, the first task to fail, or 0. WHY is null,
"timeout", "memory", "output", "cancelled", or "no_room" where the system gave it no process or no file: the last line
of its standard error then has the system's words. `port_conflict` are a failed cluster's addresses where a process of
somebody else answered. `network` is what a run can reach: "loopback" where this parent has a network namespace of its
own, "host" (whatever the machine reaches) where it may not have one, and why.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import errno
import fcntl
import gc
import importlib
import importlib.util
import json
import os
import platform
import select
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import types
from typing import Any, NoReturn

STDERR_KEPT = 64 * 1024  # bytes of a run's standard error that are kept: its last
ENGINE_POLL_SECONDS = 0.5  # between two checks of whether the engine is still there, while TensorFlow is imported
MEMORY_POLL_SECONDS = 0.05  # between two checks of the runs' memory
SPARE_POLL_SECONDS = 5.0  # between two checks of the machine's memory while nothing runs
SERVER_START_TIMEOUT = 2.0  # seconds after which a cluster's clients start, even if its servers do not listen yet
SERVER_POLL_SECONDS = 0.005  # between two checks of whether they do
GRACE = 5.0  # seconds in which the other tasks of a cluster may tell what they see of one that has failed
PIPE_GRACE = 1.0  # seconds for which the pipes of a task that has ended are read on, where another process holds them
SPARE_DELAY = 0.2  # seconds that a run has to itself before the next one's process is forked
SPARE_MEMORY = 1 << 30  # bytes: while less is free, no process is forked ahead of its run
PARENT, SPARE = "tf-parent", "tf-spare"  # names of processes: this one, and one that waits to be told what to run
PIPE_SIZE = 1 << 16  # bytes that a pipe holds, on Linux

# linux/prctl.h, linux/sched.h, linux/sockios.h, linux/if.h, asm-generic/mman-common.h
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
MADV_COLLAPSE, HUGE_PAGE = 25, 1 << 21

# What TensorFlow and Keras import no sooner than a program uses it, on one version or another.
LATE_MODULES = ("tensorflow.compat.v1", "tensorflow.python.data.ops.rebatch_op", "multiprocessing.queues")
SLOW_COORDINATOR_JOIN = ("1.", "2.4.", "2.5.")  # TensorFlow versions, see join_threads_promptly

# What isinstance is asked of values by tf.nest, tf.convert_to_tensor, tf.distribute and tf.function.
ABSTRACT = {
    "collections.abc": "Mapping MutableMapping MappingView Sequence",
    "tensorflow.python.distribute.values": "DistributedVariable",
    "tensorflow.python.framework.composite_tensor": "CompositeTensor",
    "tensorflow.python.framework.dtypes": "DType",
    "tensorflow.python.framework.type_spec": "TypeSpec",
    "tensorflow.python.framework.weak_tensor": "WeakTensor",
    "tensorflow.python.ops.resource_variable_ops": "BaseResourceVariable",
    "tensorflow.python.ops.variables": "Variable",
    "tensorflow.python.types.core": "TensorProtocol",
}
BUILT_IN: tuple[type, ...] = (bool, int, float, str, bytes, type(None), list, tuple, dict)
CONCRETE = {
    "numpy": "ndarray float32 int32 int64",
    "tensorflow.python.distribute.values": "MirroredVariable SyncOnReadVariable Mirrored PerReplica PerReplicaSpec",
    "tensorflow.python.framework.ops": "EagerTensor SymbolicTensor Tensor",
    "tensorflow.python.framework.tensor": "Tensor",
    "tensorflow.python.ops.resource_variable_ops": "ResourceVariable _UnreadVariable",
    "tensorflow.python.types.core": "Tensor",
}


class Task:
    """A forked process, and this side's ends of its pipes. It waits until `begin` says what it is to run.

    `name` is then "worker:1", or "" in no cluster. `report` is where its exit status comes, some 15 ms before the
    kernel has taken the process apart, when its script has ended and left no child behind.
    """

    def __init__(self, pid: int, order: int, report: int, stdout: int, stderr: int) -> None:
        self.name = self.job = ""
        self.pid = pid
        self.order, self.report, self.stdout, self.stderr = order, report, stdout, stderr
        self.open = {report, stdout, stderr}  # still to be read
        self.line = b""
        self.errors = b""
        self.exit: int | None = None
        self.ended: float | None = None  # when that was noticed
        self.reaped = False
        self.died = False  # True from when it has exited with an error until that is sent

    def begin(self, name: str, folder: str, environment: dict[str, str]) -> None:
        """Let it run the script in that folder. Raises BrokenPipeError where the process is gone."""
        self.name = name
        self.job = name.partition(":")[0]
        data = json.dumps({"name": name, "folder": folder, "environment": environment}).encode() + b"\n"
        order, self.order = self.order, -1
        try:
            os.write(order, data)  # whole: it is less than the pipe holds, which is empty
        finally:
            os.close(order)

    @property
    def held(self) -> set[int]:
        """All that the parent has open for this process."""
        return self.open | ({self.order} - {-1})

    def kill(self) -> None:
        """End its whole process group."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself

    def reap(self) -> bool:
        """Whether the process is gone. Takes its exit status, unless it has reported one."""
        if not self.reaped:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.reaped = pid != 0
            if self.reaped and self.exit is None:
                self.exit = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self.reaped

    def has_ended(self) -> bool:
        """Whether its exit status is known."""
        return self.exit is not None or self.reap()


class Run:
    """One execution of a program, and what it may use: one process, or a cluster of them.

    Of a cluster, the tasks whose job is among `serving` start first, the others when these can be reached: gRPC tries
    an address at which it found nobody again only a second later. The run is over when these others have ended; those
    that serve go on for ever if they are let. A task that ends any other way than with status 0 takes the others with
    it, GRACE seconds later, except those named in `may_be_killed`: a program may kill them as part of what it shows.
    """

    def __init__(self, command: dict[str, Any]) -> None:
        self.name: int = command["run"]
        self.folder: str | None = None
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
        self.error = ""  # why the system had no room for it
        self.failed: Task | None = None  # the first task to fail
        self.over = False
        self.seconds = 0.0

    @property
    def open(self) -> set[int]:
        """The pipes that are still to be read."""
        return {fd for task in self.tasks for fd in task.open}

    @property
    def held(self) -> set[int]:
        """All that the parent has open for this run."""
        pipes = {fd for task in self.tasks for fd in task.held}
        return pipes | {port.fileno() for port in self.ports if port.fileno() != -1}

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
        """End all its processes; the first reason given is the one that is sent."""
        if self.stopped is None and not self.over:
            self.stopped = why
        self.later = []
        for task in self.tasks:
            if task.exit is None:
                task.kill()

    def refuse(self, error: OSError) -> None:
        """The system has no process, no file or no port for it: it ends here, and no other run does."""
        self.error = str(error)
        self.kill("no_room")

    def poll(self) -> None:
        """See which tasks have ended, and whether that ends the run."""
        now = time.monotonic()
        for task in self.tasks:
            if task.ended is not None:
                task.reap()  # one that has reported its end may only now be gone
                continue
            if not task.has_ended():
                continue
            task.ended = now
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

    def is_done(self) -> bool:
        """Whether all it had to say was read. Of a failed cluster, also whether its own servers let go of its ports."""
        return (
            self.over
            and not self.open
            and all(task.reaped if self.failed and self.ports else task.ended is not None for task in self.tasks)
        )

    def end(self) -> None:
        """Nothing is left to wait for but the end of what its tasks wrote."""
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
        self.spare: Task | None = None  # forked ahead of the next run
        self.memory_checked = 0.0  # when it was last seen whether there is room for it
        self.leaving: list[Task] = []  # tasks of runs whose result was sent, which the kernel has not yet taken apart
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
        self.discard_spare()
        os._exit(0)

    def import_tensorflow(self) -> dict[str, Any]:
        """Import TensorFlow and Keras, telling the engine how far it has come. Returns the versions."""
        began = time.monotonic()
        watch = ImportWatch(self)
        sys.meta_path.insert(0, watch)
        # Commands that come early wait in the pipe; only its end matters now. An import may also hang.
        signal.signal(signal.SIGALRM, lambda *_: self.end() if ended(self.commands) else None)
        signal.siginterrupt(signal.SIGALRM, False)
        signal.setitimer(signal.ITIMER_REAL, ENGINE_POLL_SECONDS, ENGINE_POLL_SECONDS)
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
            for module in LATE_MODULES:
                with contextlib.suppress(ImportError):
                    importlib.import_module(module)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            sys.meta_path.remove(watch)
        if tensorflow.__version__.startswith(SLOW_COORDINATOR_JOIN):
            join_threads_promptly()
        fill_registries()
        fill_type_caches()
        # What is frozen is never looked at by a child's garbage collector, so its pages stay shared.
        gc.collect()
        gc.freeze()
        if sys.platform == "linux":
            compact_memory()
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
        if isinstance(self.selector, selectors.EpollSelector):
            self.private.append(self.selector.fileno())
        self.selector.register(self.commands, selectors.EVENT_READ, None)
        self.selector.register(woken, selectors.EVENT_READ, None)
        while True:
            self.keep_spare()
            for key, _ in self.selector.select(self.patience()):
                if key.fd == self.commands:
                    self.read_commands()
                elif key.fd == woken:
                    os.read(woken, 4096)
                else:
                    run, task = key.data
                    self.read_pipe(run, task, key.fd)
            self.reap()
            self.start_waiting_tasks()
            self.enforce()

    def patience(self) -> float | None:
        """Seconds that the loop may sleep: until the next deadline, or the next check of memory or servers."""
        if not self.runs:
            return SPARE_POLL_SECONDS if self.spare else None
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
        """Begin a run, with the tasks that others wait for."""
        run = self.runs[command["run"]] = Run(command)
        try:
            os.makedirs(self.workplace, mode=0o700, exist_ok=True)  # something may have tidied it away
            run.folder = tempfile.mkdtemp(prefix="run-", dir=self.workplace)
            with open(os.path.join(run.folder, "script.py"), "w", encoding="utf-8") as file:
                file.write(command["program"])
            cluster = run.cluster(command.get("tasks", {}))
        except OSError as error:
            run.refuse(error)
            return
        for job, addresses in cluster.items():
            for index in range(len(addresses)):
                config = {"cluster": cluster, "task": {"type": job, "index": index}}
                # BEGAN: what the tasks count their seconds from. This clock is the same in all processes.
                environment = {"TF_CONFIG": json.dumps(config), "BEGAN": repr(run.began)}
                run.later.append((f"{job}:{index}", environment))
        first = [task for task in run.later if task[0].partition(":")[0] in run.serving] or run.later or [("", {})]
        run.later = [task for task in run.later if task not in first]
        self.start_tasks(run, first)

    def start_waiting_tasks(self) -> None:
        """Start the tasks for which others had to be there first."""
        for run in self.runs.values():
            if run.later and run.may_start_waiting():
                later, run.later = run.later, []
                self.start_tasks(run, later)

    def start_tasks(self, run: Run, tasks: list[tuple[str, dict[str, str]]]) -> None:
        """Start processes of a run: name, environment."""
        assert run.folder is not None
        for name, environment in tasks:
            try:
                task = self.take_task(name, run.folder, environment)
            except OSError as error:
                run.refuse(error)
                return
            run.tasks.append(task)
            for fd in task.open:
                self.selector.register(fd, selectors.EVENT_READ, (run, task))
            self.send(run=run.name, pid=task.pid)

    def take_task(self, name: str, folder: str, environment: dict[str, str]) -> Task:
        """Let the process that was forked ahead do it, or a new one. Raises OSError where the system has no room."""
        if self.spare is not None:
            spare, self.spare = self.spare, None
            try:
                spare.begin(name, folder, environment)
                return spare
            except BrokenPipeError:  # somebody has killed it
                self.discard(spare)
        task = self.fork()
        task.begin(name, folder, environment)
        return task

    def keep_spare(self) -> None:
        """Fork the next run's process while there is nothing else to do; have none while memory is short."""
        if self.spare is not None and self.spare.reap():  # somebody has killed it
            self.discard_spare()
        now = time.monotonic()
        # A fork beside a run makes this slower; a short one is sooner over.
        busy = any(now < run.began + SPARE_DELAY for run in self.runs.values()) or self.selector.select(0)
        if now < self.memory_checked + MEMORY_POLL_SECONDS if self.spare else busy:
            return
        self.memory_checked = now
        if memory_left() < SPARE_MEMORY:
            self.discard_spare()
        elif self.spare is None:
            with contextlib.suppress(OSError):  # the next run tries again, and tells what happened
                self.spare = self.fork()

    def discard_spare(self) -> None:
        spare, self.spare = self.spare, None
        if spare is not None:
            self.discard(spare)

    def discard(self, task: Task) -> None:
        """Do without a process that runs nothing."""
        task.kill()
        for fd in task.held:
            os.close(fd)
        task.order, task.open = -1, set()
        self.leaving.append(task)

    def fork(self) -> Task:
        """A process that waits to be told what to run. Raises OSError where the system has no room for one."""
        pipes: list[tuple[int, int]] = []
        parent = os.getpid()
        try:
            for _ in range(4):
                pipes += [os.pipe()]  # one by one, so that those are closed that there are
            name_process(SPARE)  # its name is there from the beginning
            pid = os.fork()
        except OSError:
            name_process(PARENT)
            for fd in (fd for pipe in pipes for fd in pipe):
                os.close(fd)
            raise
        order, report, stdout, stderr = pipes
        if pid == 0:
            status = 1
            try:
                held = [fd for run in self.runs.values() for fd in run.held]
                isolate_child(parent, [*self.private, *held, order[1], report[0], stdout[0], stderr[0]])
                status = run_when_told(order[0], report[1], stdout[1], stderr[1])
            finally:
                os._exit(status)
        name_process(PARENT)
        for fd in (order[0], report[1], stdout[1], stderr[1]):
            os.close(fd)
        for fd in (report[0], stdout[0], stderr[0]):
            os.set_blocking(fd, False)
        try:
            os.setpgid(pid, pid)  # the child does it too: whoever is first, the group is there before it is needed
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ESRCH, errno.EPERM):
                raise
        return Task(pid, order[1], report[0], stdout[0], stderr[0])

    def read_pipe(self, run: Run, task: Task, fd: int) -> None:
        """Take what a task has written: whole lines of standard output are sent on, the last of standard error kept."""
        try:
            data = os.read(fd, PIPE_SIZE)
        except BlockingIOError:
            return
        if not data:
            self.close_pipe(task, fd)
            return
        if fd == task.report:
            task.exit = int(data)
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

    def close_pipe(self, task: Task, fd: int) -> None:
        self.selector.unregister(fd)
        os.close(fd)
        task.open.discard(fd)

    def drain(self, run: Run, task: Task) -> None:
        """Read what is in the pipes of a task that has ended, and close them, whoever else may hold them."""
        for fd in sorted(task.open):
            self.read_pipe(run, task, fd)  # all of it: a pipe holds no more
            if fd in task.open:
                self.close_pipe(task, fd)

    def reap(self) -> None:
        """Tell of the tasks and runs that have ended and were read to the end."""
        self.leaving = [task for task in self.leaving if not task.reap()]
        for run in list(self.runs.values()):
            run.poll()
            for task in run.tasks:
                if task.ended is None:
                    continue
                # What it reported itself, it did with nothing left to write. Else a process that it left may write on.
                if task.open and (not task.reaped or time.monotonic() > task.ended + PIPE_GRACE):
                    self.drain(run, task)
                if task.open:
                    continue
                if task.line:
                    self.send_lines(run, task, [task.line])
                    task.line = b""
                if task.died:
                    task.died = False
                    seconds = round(time.monotonic() - run.began, 4)
                    self.send(run=run.name, task=task.name, died=task.exit, seconds=seconds)
            if run.is_done():
                self.finish(run)

    def finish(self, run: Run) -> None:
        """Send a run's result, and forget it."""
        errors = [(task.name, task.errors.decode("utf-8", "replace")) for task in run.tasks if task.errors]
        reached = run.reached() if run.failed else []  # by others: all its tasks are gone
        for port in run.ports:
            port.close()
        self.send(
            run=run.name,
            task=run.failed.name if run.failed and not run.stopped else "",
            exit=run.failed.exit if run.failed else 0,
            stopped=run.stopped,
            port_conflict=[f"localhost:{port}" for port in reached],
            seconds=round(run.seconds, 4),
            stderr="".join(f"{name}:\n{text}" if name else text for name, text in errors) + run.error,
        )
        del self.runs[run.name]
        self.leaving += [task for task in run.tasks if not task.reaped]
        if run.folder is not None:
            shutil.rmtree(run.folder, ignore_errors=True)

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
    """A finder that finds nothing: it counts the modules that are looked for."""

    def __init__(self, parent: Parent) -> None:
        self.parent = parent
        self.found = 0

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        self.found += 1
        if self.found % 50 == 0:
            self.parent.send(importing=self.found)


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


def fill_registries() -> None:
    """Fill the tables that TensorFlow fills in the first op of each process. Nothing but time differs.

    They list what ops and kernels were linked in, and depend on no device: all ops, at the first look-up of one that
    is not registered (OpRegistry::LookUpSlow in framework/op.cc), and all kernels (GlobalKernelRegistry in
    framework/op_kernel.cc). Those of XLA (XlaOpRegistry::RegisterCompilationKernels) are not for here: error messages
    name the kernels that there are so far.
    """
    with contextlib.suppress(ImportError, AttributeError):  # op_def_registry.get: from 2.1 on
        from tensorflow.python.framework import kernels, op_def_registry

        kernels.get_registered_kernels_for_op("NoOp")
        op_def_registry.get("NotRegistered")


def fill_type_caches() -> None:
    """Let the abstract classes know what they are asked in each step: 10 ms of every run. Nothing but time differs.

    issubclass remembers its answers (ABCMeta in _abc.c), but to find one it asks all the subclasses there are.
    """
    for concrete in (*BUILT_IN, *classes(CONCRETE)):
        for abstract in classes(ABSTRACT):
            with contextlib.suppress(TypeError):  # a Protocol of older versions, which can't be asked
                issubclass(concrete, abstract)


def classes(names: dict[str, str]) -> list[type]:
    """The classes with these names, by module, as far as this TensorFlow has them."""
    modules = {sys.modules.get(module): words.split() for module, words in names.items()}
    found = [getattr(module, word, None) for module, words in modules.items() for word in words]
    return [each for each in found if isinstance(each, type)]


def compact_memory() -> None:
    """Make a fork cheaper, and the end of what was forked: give free memory back, and put the rest into huge pages.

    A fork copies one entry of the page tables for each, instead of 512. What a child writes is still copied in small
    pages. Kernels before 6.1 refuse.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):  # glibc
        libc.malloc_trim(0)
    with open("/proc/self/maps") as file:
        maps = [line.split() for line in file]
    for addresses, access, _, _, inode, *name in maps:
        if access == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            first, last = (int(address, 16) for address in addresses.split("-"))
            first, last = -(-first // HUGE_PAGE) * HUGE_PAGE, last // HUGE_PAGE * HUGE_PAGE
            if first < last:
                libc.madvise(ctypes.c_void_p(first), ctypes.c_size_t(last - first), MADV_COLLAPSE)


def network_refusal() -> str:
    """Why this process may not have a network namespace of its own, "" where it may. Tried in a forked one."""
    if sys.platform != "linux":
        return f"{platform.system()} has no network namespaces"
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        reason = "it failed"
        try:
            enter_loopback_network()
            reason = ""
        except OSError as error:
            reason = str(error)
        finally:
            os.write(writing, reason.encode())
            os._exit(0)
    os.close(writing)
    reason = os.read(reading, PIPE_SIZE).decode()
    os.close(reading)
    os.waitpid(pid, 0)
    return reason


def enter_loopback_network() -> None:
    """Put this process, which has one thread, into a network namespace that has loopback and nothing else.

    That takes a user namespace, which needs no privilege (user_namespaces(7)). In it, ids are what they are outside:
    root's child maps all of them, anyone else his own. Raises OSError where the kernel, a container or a policy
    forbids any of it; the process is then of no further use.
    """
    uid, gid = os.geteuid(), os.getegid()
    mapped = {"uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
    mapper, go_ahead = 0, -1
    if uid == 0:
        # Root may do what it does with the files of others only where their ids are mapped, too; and only a process
        # that is still outside may map more than one.
        for name in mapped:
            with open(f"/proc/self/{name}") as file:
                ranges = [line.split() for line in file]
            mapped[name] = "\n".join(f"{first} {first} {count}" for first, _, count in ranges)
        reading, go_ahead = os.pipe()
        parent = os.getpid()
        mapper = os.fork()
        if mapper == 0:
            status = 1
            try:
                os.close(go_ahead)
                if os.read(reading, 1):
                    write_id_maps(parent, mapped)
                status = 0
            finally:
                os._exit(status)
        os.close(reading)
    refused = ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0
    number = ctypes.get_errno()
    if mapper:
        if not refused:
            os.write(go_ahead, b"1")
        os.close(go_ahead)
        failed = os.waitpid(mapper, 0)[1] != 0
        if failed and not refused:
            raise PermissionError(errno.EPERM, "user namespace: its ids could not be mapped")
    if refused:
        raise OSError(number, f"unshare: {os.strerror(number)}")
    if not mapper:
        with open("/proc/self/setgroups", "w") as file:
            file.write("deny")  # or one's own group may not be mapped
        write_id_maps(os.getpid(), mapped)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        request = struct.pack("16sh22x", b"lo", 0)
        (flags,) = struct.unpack_from("h", fcntl.ioctl(control, SIOCGIFFLAGS, request), 16)
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | IFF_UP))


def write_id_maps(pid: int, mapped: dict[str, str]) -> None:
    """Say what the ids in a process's new user namespace are outside of it."""
    for name, text in mapped.items():
        with open(f"/proc/{pid}/{name}", "w") as file:
            file.write(text)


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


def name_process(name: str) -> None:
    """What `ps` and /proc/PID/comm call it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode())


def run_when_told(order: int, report: int, stdout: int, stderr: int) -> int:
    """The life of a forked process: wait for an order, run that script, report its exit status. Returns it."""
    pid = os.getpid()
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    data = b""
    while not data.endswith(b"\n"):
        more = os.read(order, PIPE_SIZE)
        if not more:
            return 0  # nobody needs it any more
        data += more
    os.close(order)
    command = json.loads(data)
    name_process(command["name"] or "tf-run")
    os.chdir(command["folder"])
    os.environ.update(command["environment"])
    status = run_script(os.path.join(command["folder"], "script.py"))
    if os.getpid() == pid and not has_children():  # it may be one that the script has forked
        with contextlib.suppress(OSError):  # a script may have closed all files that it knew nothing of
            os.write(report, b"%d" % status)
    return status


def has_children() -> bool:
    """Whether a process that this one has started still runs."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def run_script(path: str) -> int:
    """Do what `python script.py` does: the file as `__main__`, then the end of Python as far as a program sees it.

    Returns the exit status. Python would go on to destroy every object there is, of which nothing can be seen.
    """
    main = types.ModuleType("__main__")
    main.__file__ = path
    sys.modules["__main__"] = main
    sys.argv = [path]
    sys.path.insert(0, os.path.dirname(path))
    # Python opened these before the fork, on other files.
    sys.stdin = open(os.devnull)
    stdout = sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    stderr = sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    status = 0
    try:
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec")
        exec(code, main.__dict__)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if leaving.code is not None and not isinstance(leaving.code, int):
            sys.stderr.write(f"{leaving.code}\n")
    except BaseException as error:  # noqa: BLE001  whatever the script raises is its own to report
        status = 1
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != path:
            trace = trace.tb_next  # what is told begins with the script's own line
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    # Py_FinalizeEx: threads that are no daemons are waited for, then come the atexit functions, then the streams.
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        with contextlib.suppress(BaseException):  # was printed where it was raised
            step()
    streams: tuple[Any, ...] = (sys.stdout, sys.stderr, stdout, stderr)
    for stream in streams:
        if stream is not None and not stream.closed:
            stream.flush()
    return status & 0xFF


def memory_left() -> int:
    """Bytes that this machine, or the container that this is, can still give. Where the system doesn't tell: enough."""
    left = sys.maxsize
    with contextlib.suppress(OSError, ValueError), open("/proc/meminfo") as file:
        kibibytes = {line.partition(":")[0]: int(line.split()[1]) for line in file}
        left = kibibytes.get("MemAvailable", left) << 10
    with contextlib.suppress(OSError, ValueError):
        limit, used = (read_number(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
        left = min(left, limit - used)
    return left


def read_number(path: str) -> int:
    """The number that a file of the system's holds. Raises OSError, or ValueError where it says "max"."""
    with open(path) as file:
        return int(file.read())


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
    if len(sys.argv) == 1:
        sys.stdout.write(network_refusal())
        sys.exit()
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
    reason = network_refusal()
    if not reason:
        enter_loopback_network()  # before TensorFlow starts any thread
    versions = parent.import_tensorflow()
    name_process(PARENT)
    parent.send(ready={**versions, "network": "host" if reason else "loopback", "network_reason": reason})
    parent.serve()


if __name__ == "__main__":
    main()
