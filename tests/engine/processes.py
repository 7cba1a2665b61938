"""Looking at processes, and waiting for what is to become of them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from engine.parent import SPARE


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for a condition. False where it did not come true in time: long, as a busy machine is no fault."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def alive(pid: int) -> bool:
    """True for a process that still runs (a zombie does not)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def children_of(pid: int) -> list[int]:
    """A parent's runs: its children, but the one that was forked ahead of the next run."""
    return [child for child in all_children_of(pid) if name_of(child) not in (SPARE, "")]


def all_children_of(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in children]


def name_of(pid: int) -> str:
    """What `ps` calls a process; nothing where it has gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


# Joins the user and network namespace of a process, which a process of one thread may do.
JOIN = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
for name in ("user", "net"):
    if os.readlink(f"/proc/self/ns/{name}") != os.readlink(f"/proc/{sys.argv[1]}/ns/{name}"):
        namespace = os.open(f"/proc/{sys.argv[1]}/ns/{name}", os.O_RDONLY)
        if libc.setns(namespace, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
"""


def start_inside(pid: int, program: str) -> subprocess.Popen[str]:
    """Start a Python program in the network that a process has. It is to end when its standard input does."""
    command = [sys.executable, "-I", "-c", JOIN + program, str(pid)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run_inside(pid: int, program: str) -> str:
    """Run a Python program in the network that a process has. Returns what it prints."""
    with start_inside(pid, program) as process:
        output, _ = process.communicate()
    assert process.returncode == 0
    return output


def has_own_network(pid: int) -> bool:
    """Whether a process is in another network namespace than this one."""
    return Path(f"/proc/{pid}/ns/net").readlink() != Path("/proc/self/ns/net").readlink()


# Prints "PORT NUMBER" for each: the number of the error that a connection to it gives, 0 for none.
CONNECT = """
import socket
for port in {ports}:
    with socket.socket() as visitor:
        print(port, visitor.connect_ex(("127.0.0.1", port)))
"""


def errors_of_connecting(pid: int, ports: list[int]) -> dict[int, int]:
    """What a connection to these ports of 127.0.0.1 gives in the network that a process has: 0, or an errno."""
    lines = run_inside(pid, CONNECT.format(ports=ports)).splitlines()
    return {int(port): int(number) for port, number in (line.split() for line in lines)}
