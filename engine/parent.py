"""The warm parent of one runtime: imports TensorFlow once, then forks a fresh process for every run.

It is started as `python -I parent.py WORKPLACE` by that runtime's own interpreter, so it is standard library only and
keeps to Python 3.7. Nothing of TensorFlow but its import happens here: no device, no eager op, no session. What a run
does with TensorFlow, it does in its own process, which is killed when its time, its memory or its output is spent.

It speaks JSON, one object a line. On standard input:
    {"run": ID, "program": TEXT, "seconds": N, "bytes": N, "output": N}     start a run, with its limits
    {"cancel": ID}                                                          kill it
End of input means that the engine is gone: every run is killed and the parent ends. On standard output:
    {"importing": N}                                  modules found so far, while TensorFlow is imported
    {"ready": {"tensorflow": ..., "keras": ..., "tf_keras": ..., "python": ..., "modules": N, "seconds": N}}
    {"run": ID, "pid": N}                             the run has its process (and process group) N
    {"run": ID, "lines": [TEXT, ...]}                 what it printed
    {"run": ID, "exit": CODE, "stopped": WHY, "seconds": N, "stderr": TEXT}
CODE is the exit status, or minus the signal. WHY is null, "timeout", "memory", "output" or "cancelled".
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
import sys
import tempfile
import time
import types
from typing import Any, NoReturn

STDERR_KEPT = 64 * 1024  # bytes of a run's standard error that are kept: its last
MEMORY_LOOKED_AT = 0.05  # seconds between two looks at what the runs hold
PR_SET_PDEATHSIG = 1  # linux/prctl.h
OVERSLEEPING = ("1.", "2.4.", "2.5.")  # versions of TensorFlow, see do_not_oversleep


class Run:
    """One forked process, the read ends of its two pipes, and what it may use."""

    def __init__(self, name: int, pid: int, folder: str, pipes: tuple[int, int], limits: dict[str, Any]) -> None:
        self.name = name
        self.pid = pid
        self.folder = folder
        self.stdout, self.stderr = pipes
        self.open = set(pipes)
        self.began = time.monotonic()
        self.deadline: float = self.began + limits["seconds"]
        self.bytes = limits["bytes"]
        self.output_left = limits["output"]
        self.line = b""
        self.errors = b""
        self.stopped: str | None = None
        self.exit: int | None = None
        self.seconds = 0.0

    def kill(self, why: str | None) -> None:
        """End the whole process group, once; the reason first given is the one that is told."""
        if self.stopped is None and self.exit is None:
            self.stopped = why
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has just ended by itself


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
        if tensorflow.__version__.startswith(OVERSLEEPING):
            do_not_oversleep()
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
                    self.obey()
                elif key.fd == woken:
                    os.read(woken, 4096)
                else:
                    self.hear(key.data, key.fd)
            self.reap()
            self.enforce()

    def patience(self) -> float | None:
        """Seconds that the loop may sleep: until the next deadline, or the next look at memory."""
        if not self.runs:
            return None
        soonest: float = min(run.deadline for run in self.runs.values()) - time.monotonic()
        return max(0.0, min(soonest, MEMORY_LOOKED_AT))

    def obey(self) -> None:
        data = os.read(self.commands, 1 << 20)
        if not data:
            self.end()
        lines = (self.pending + data).split(b"\n")
        self.pending = lines.pop()
        for line in lines:
            command = json.loads(line)
            if "run" in command:
                self.start(command)
            elif command["cancel"] in self.runs:
                self.runs[command["cancel"]].kill("cancelled")

    def start(self, command: dict[str, Any]) -> None:
        folder = tempfile.mkdtemp(prefix="run-", dir=self.workplace)
        script = os.path.join(folder, "script.py")
        with open(script, "w", encoding="utf-8") as file:
            file.write(command["program"])
        out_read, out_write = os.pipe()
        err_read, err_write = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                be_alone(parent, self.private + [fd for run in self.runs.values() for fd in run.open])
                os.close(out_read)
                os.close(err_read)
                os.dup2(out_write, 1)
                os.dup2(err_write, 2)
                os.close(out_write)
                os.close(err_write)
                os.chdir(folder)
                status = run_script(script)
            finally:
                os._exit(status)
        os.close(out_write)
        os.close(err_write)
        try:
            os.setpgid(pid, pid)  # the child does it too: whoever is first, the group is there before it is needed
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.ESRCH, errno.EPERM):
                raise
        run = Run(command["run"], pid, folder, (out_read, err_read), command)
        self.runs[run.name] = run
        for fd in run.open:
            self.selector.register(fd, selectors.EVENT_READ, run)
        self.send(run=run.name, pid=pid)

    def hear(self, run: Run, fd: int) -> None:
        """Take what a run has written: whole lines of standard output go on, of standard error the last are kept."""
        data = os.read(fd, 1 << 16)
        if not data:
            self.selector.unregister(fd)
            os.close(fd)
            run.open.discard(fd)
            return
        if fd == run.stderr:
            run.errors = (run.errors + data)[-STDERR_KEPT:]
            return
        if run.stopped == "output":
            return
        run.output_left -= len(data)
        if run.output_left < 0:
            run.kill("output")
            return
        lines = (run.line + data).split(b"\n")
        run.line = lines.pop()
        if lines:
            self.send(run=run.name, lines=[line.decode("utf-8", "replace") for line in lines])

    def reap(self) -> None:
        """Tell of the runs that have ended and have been heard to the end."""
        for run in list(self.runs.values()):
            if run.exit is None:
                pid, status = os.waitpid(run.pid, os.WNOHANG)
                if pid == 0:
                    continue
                run.seconds = time.monotonic() - run.began
                run.exit = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
                # Whatever it has started and left goes with it, and so lets go of its pipes.
                run.kill(None)
            if run.open:
                continue
            if run.line:
                self.send(run=run.name, lines=[run.line.decode("utf-8", "replace")])
            self.send(
                run=run.name,
                exit=run.exit,
                stopped=run.stopped,
                seconds=round(run.seconds, 4),
                stderr=run.errors.decode("utf-8", "replace"),
            )
            shutil.rmtree(run.folder, ignore_errors=True)
            del self.runs[run.name]

    def enforce(self) -> None:
        now = time.monotonic()
        for run in self.runs.values():
            if run.exit is not None:
                continue
            if now >= run.deadline:
                run.kill("timeout")
            elif memory_of(run.pid) > run.bytes:
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


def do_not_oversleep() -> None:
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


def be_alone(parent: int, private: list[int]) -> None:
    """Make this forked process a run: its own group, dying with its parent, holding none of its parent's pipes."""
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


def memory_of(pid: int) -> int:
    """Resident bytes of a process and its children, where the system tells (Linux); 0 elsewhere."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            total = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            children = file.read().split()
    except OSError:
        return 0  # it has just ended, or there is no /proc
    return total + sum(memory_of(int(child)) for child in children)


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
