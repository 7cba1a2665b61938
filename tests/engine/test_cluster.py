"""Clusters: a program that is started once a task, all of it one run; and what becomes of it when one goes wrong."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import engine as engine_module
from engine.engine import Engine
from engine.job import Ticket
from engine.limits import Limits
from engine.parent import SPARE
from engine.request import Request
from engine.runtimes import Runtime
from engine.trace import Trace
from tests.conftest import Sample
from tests.engine.faults import FAULTS, FaultSettings
from tests.engine.processes import (
    alive,
    all_children_of,
    children_of,
    errors_of_connecting,
    has_own_network,
    name_of,
    start_inside,
    until,
)

ROOT = Path(__file__).parents[2]

BEGINNING = """
import json, os, signal, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
JOB, INDEX = config["task"]["type"], config["task"]["index"]
def report(event, **fields):
    t = time.monotonic() - float(os.environ["BEGAN"])
    print(json.dumps({"event": event, "t": t, "task": f"{JOB}:{INDEX}", **fields}), flush=True)
"""
# A task that can be reached, and does nothing else.
WAITS = """
def open_door():
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("localhost", int(config["cluster"][JOB][INDEX].split(":")[1])))
    door.listen()
    return door
if JOB == "ps":
    door = open_door()
    time.sleep(600)
"""
SERVER = """
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
server = tf1.train.Server(config["cluster"], job_name=JOB, task_index=INDEX)
if JOB == "ps":
    server.join()
"""
# Every worker adds its own power of ten to a variable on ps 0, and waits until all have.
ADDS = (
    BEGINNING
    + SERVER
    + """
with tf.device("/job:ps/task:0"):
    total = tf1.get_variable("total", [], initializer=tf1.zeros_initializer())
    ready = tf1.report_uninitialized_variables()
filters = tf1.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{INDEX}"])
with tf1.Session(server.target, config=filters) as session:
    if INDEX == 0:
        session.run(total.initializer)
    while session.run(ready).size:
        time.sleep(0.01)
    begun = time.monotonic() - float(os.environ["BEGAN"])
    value = float(session.run(total.assign_add(10.0 ** INDEX)))
    report("value", value=value, begun=begun, cluster=config["cluster"])
    while session.run(total) < 10 ** len(config["cluster"]["worker"]) // 9:
        time.sleep(0.01)
    report("all", value=float(session.run(total)))
"""
)
PROGRAMS = {
    "config": BEGINNING + """report("config", cluster=config["cluster"], job=JOB, index=INDEX)""",
    "endless": BEGINNING + """report("there", pid=os.getpid())""" + WAITS + """time.sleep(600)""",
    "rubbish": """print("no event")""",
    "floods": """print("x" * 150_000)""",
    "allocates": BEGINNING + WAITS + """\nkept = b"x" * (700 << 20)\ntime.sleep(600)""",
    # Worker 1 ends in the middle, which is nothing that the others can see.
    "killed": BEGINNING
    + WAITS
    + """
report("begun")
if INDEX == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
""",
    # Worker 0 sees that the other one is gone, and goes on.
    "may be killed": BEGINNING
    + WAITS
    + """
if INDEX == 1:
    visitor, _ = open_door().accept()
    os.kill(os.getpid(), signal.SIGKILL)
address = ("localhost", int(config["cluster"]["worker"][1].split(":")[1]))
while True:
    visitor = socket.socket()
    if visitor.connect_ex(address) == 0:
        break
    time.sleep(0.01)
try:
    visitor.recv(1)
except ConnectionResetError:
    pass
report("alone")
""",
    "exits": BEGINNING + """if JOB == "ps":\n    sys.exit(3)\ntime.sleep(600)""",
    "raises": BEGINNING
    + WAITS
    + """
report("error", type="ValueError", message="no", line=1, step=0)
sys.exit(1)
""",
    "adds": ADDS,
    # Parameter server 0 is there but never begins to serve.
    "no server": ADDS.replace(SERVER, """report("begun")\nif JOB == "ps":\n    time.sleep(600)\n""" + SERVER),
}


class Cluster:
    """An engine with programs of this file's own."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.program = ""
        self.number = 0

    def request(self, program: str, *, worker: int = 2, ps: int = 1, **fields: Any) -> Request:
        self.program = program
        self.number += 1
        experiment = replace(FAULTS, tasks=lambda _: {"ps": ps, "worker": worker}, **fields)
        return Request(experiment, FaultSettings.parse({"program": "sleeps", "number": self.number}))

    def submit(self, program: str, **fields: Any) -> Ticket:
        """Start one of the programs, or one that is given as text."""
        return self.engine.submit(self.request(PROGRAMS.get(program, program), **fields))

    def run(self, program: str, **fields: Any) -> Trace:
        return self.submit(program, **fields).result(240)


@pytest.fixture(scope="module")
def cluster(tensorflow: Runtime) -> Iterator[Cluster]:  # noqa: ARG001  it starts TensorFlow
    with Engine(limits=Limits(slots=2, run_memory=2 << 30, run_output=400_000)) as engine:
        found = Cluster(engine)
        patch = pytest.MonkeyPatch()
        patch.setattr(engine_module, "render", lambda *_: found.program)
        yield found
        patch.undo()


def listening(pid: int) -> set[int]:
    """Every port at which somebody listens in the network that a process has."""
    files = [Path(f"/proc/{pid}/net/{name}") for name in ("tcp", "tcp6")]
    lines = [line.split() for file in files for line in file.read_text().splitlines()]
    return {int(words[1].rpartition(":")[2], 16) for words in lines if words[3] == "0A"}


def ports(spec: dict[str, list[str]]) -> list[int]:
    """The ports of a cluster, in order."""
    return [int(address.rpartition(":")[2]) for addresses in spec.values() for address in addresses]


def open_files(parent: int) -> int:
    """How many files a parent has open when it has nothing to do: when the next run's process is forked."""
    assert until(lambda: SPARE in map(name_of, all_children_of(parent)))
    return len(list(Path(f"/proc/{parent}/fd").iterdir()))


def is_clean(engine: Engine) -> bool:
    """True where no run has left a process or a file."""
    return not any(children_of(pid) for pid in engine.pids()) and not list(engine._workplace.path.glob("run-*"))


# ---------------------------------------------------------------------------------------------------------- good runs


def test_each_task_has_its_place_in_one_cluster(cluster: Cluster) -> None:
    trace = cluster.run("config", ps=2, worker=3)
    assert trace.status == "ok"
    events = trace.of("config")
    assert sorted(event["task"] for event in events) == ["ps:0", "ps:1", "worker:0", "worker:1", "worker:2"]
    assert all(event["task"] == f"{event['job']}:{event['index']}" for event in events)
    spec = events[0]["cluster"]
    assert all(event["cluster"] == spec for event in events)
    assert {job: len(addresses) for job, addresses in spec.items()} == {"ps": 2, "worker": 3}
    assert len(set(ports(spec))) == 5


def test_tasks_share_a_parameter_server(cluster: Cluster) -> None:
    """Worker i adds 10 ** i; when each has done so, the variable that they share holds 111."""
    trace = cluster.run("adds", worker=3)
    assert trace.status == "ok", trace.stderr
    assert {event["task"] for event in trace.of("value")} == {f"worker:{index}" for index in range(3)}
    assert [event["value"] for event in trace.of("all")] == [111.0] * 3
    # All have one clock, which is the run's: nobody has seen what all added before each had started to.
    assert max(event["begun"] for event in trace.of("value")) <= min(event["t"] for event in trace.of("all"))
    assert all(0 < event["t"] <= trace.end["t"] for event in trace.events[1:])
    assert until(lambda: is_clean(cluster.engine))  # of the parameter server too, which would serve for ever


def test_workers_and_no_server(cluster: Cluster) -> None:
    """As under MultiWorkerMirroredStrategy: all start at once, and all are waited for."""
    trace = cluster.run("config", serving=lambda _: ())
    assert trace.status == "ok"
    assert len(trace.of("config")) == 3


def test_what_is_no_event_names_its_task(cluster: Cluster) -> None:
    outputs = cluster.run("rubbish").of("output")
    assert sorted((event["task"], event["text"]) for event in outputs) == [
        ("ps:0", "no event"), ("worker:0", "no event"), ("worker:1", "no event"),
    ]  # fmt: skip


def test_fifty_runs_leave_nothing(cluster: Cluster, sample: Sample) -> None:
    """No process, no file, no port that is listened on; and the parent holds no more open files than before."""
    cluster.run("adds")
    (parent,) = cluster.engine.pids()
    held = open_files(parent)
    tickets = [cluster.submit("adds") for _ in sample(range(50))]
    traces = [ticket.result(240) for ticket in tickets]
    assert {(trace.status, trace.of("all")[-1]["value"]) for trace in traces} == {("ok", 11.0)}
    assert cluster.engine.pids() == [parent]
    assert until(lambda: is_clean(cluster.engine))
    assert open_files(parent) == held
    used = {port for trace in traces for port in ports(trace.of("value")[0]["cluster"])}
    assert not used & listening(parent)


def test_its_servers_can_be_reached_by_its_own_tasks_only(cluster: Cluster) -> None:
    """TensorFlow's servers listen on all interfaces. Nobody outside the parent's network namespace gets to them; where
    there may be no such namespace (see test_parent.py), the engine says so, and anybody on this machine does."""
    ticket = cluster.submit(BEGINNING + SERVER + """report("serves", cluster=config["cluster"])\ntime.sleep(600)""")
    assert until(lambda: len(ticket.so_far().of("serves")) == 2, 120)  # the workers; a ps says nothing
    (parent,) = cluster.engine.pids()
    tasks = ports(ticket.so_far().of("serves")[0]["cluster"])
    assert until(lambda: set(tasks) <= listening(parent), 60)
    assert errors_of_connecting(parent, tasks) == dict.fromkeys(tasks, 0)
    refused = errno.ECONNREFUSED if has_own_network(parent) else 0
    assert errors_of_connecting(os.getpid(), tasks) == dict.fromkeys(tasks, refused)
    (state,) = cluster.engine.parents()
    assert state.info is not None
    assert state.info.network == ("loopback" if has_own_network(parent) else "host")
    ticket.cancel()
    assert until(lambda: is_clean(cluster.engine), 10)


# -------------------------------------------------------------------------------------------------------------- faults


def test_a_task_that_is_killed_ends_the_run_and_is_named(cluster: Cluster) -> None:
    trace = cluster.run("killed")
    assert {event["task"] for event in trace.of("begun")} == {"worker:0", "worker:1"}
    (died,) = trace.of("died")
    assert (died["task"], died["signal"]) == ("worker:1", "SIGKILL")
    end = trace.end
    assert (end["status"], end["why"], end["task"], end["detail"]) == ("killed", "task_signal", "worker:1", "SIGKILL")
    assert end["reason"] == "its task worker:1 was ended by SIGKILL"
    assert end["seconds"] < FAULTS.seconds
    assert until(lambda: is_clean(cluster.engine))


def test_a_task_whose_death_is_part_of_the_program_is_told_and_no_more(cluster: Cluster) -> None:
    trace = cluster.run("may be killed", may_be_killed=lambda _: ("worker:1",))
    assert trace.status == "ok"
    assert [(event["event"], event["task"]) for event in trace.events[1:-1] if event["event"] == "alone"] == [
        ("alone", "worker:0")
    ]
    assert [(event["task"], event["signal"]) for event in trace.of("died")] == [("worker:1", "SIGKILL")]


def test_a_server_that_ends_with_a_status(cluster: Cluster) -> None:
    trace = cluster.run("exits")
    assert [(event["task"], event["status"]) for event in trace.of("died")] == [("ps:0", 3)]
    assert trace.end["reason"] == "its task ps:0 ended with exit status 3 and reported no error"


def test_an_error_in_every_worker_is_an_answer(cluster: Cluster) -> None:
    trace = cluster.run("raises")
    assert trace.status == "error"
    assert {event["task"] for event in trace.of("error")} == {"worker:0", "worker:1"}
    assert not trace.of("died")  # each has said itself why it ended


def test_a_port_that_somebody_takes_costs_another_try(cluster: Cluster, tmp_path: Path) -> None:
    """Between the choice of a port and its use, once: the run is done again, on other ports, and nobody sees it."""
    trace, thefts = robbed(cluster, tmp_path, times=1)
    assert trace.status == "ok", trace.stderr
    assert trace.of("all")[-1]["value"] == 11
    assert len(trace.of("value")) == 2  # nothing is left of the first try
    assert not set(thefts) & set(ports(trace.of("value")[0]["cluster"]))


def test_a_port_that_is_taken_again_is_named(cluster: Cluster, tmp_path: Path) -> None:
    trace, thefts = robbed(cluster, tmp_path, times=2)
    assert (trace.status, trace.end["why"]) == ("killed", "port_conflict")
    assert trace.end["detail"] == f"localhost:{thefts[1]}"


THIEF = """
import socket
with socket.socket() as thief:
    thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    thief.bind(("localhost", {port}))
    thief.listen()
    print("listening", flush=True)
    sys.stdin.read()
"""


def robbed(cluster: Cluster, folder: Path, times: int) -> tuple[Trace, list[int]]:
    """A run of which worker 0's port is taken by another process, before it gets to use it. The ports that were."""
    asks = f"""
path = {str(folder)!r} + f"/{{INDEX}}-{{os.getppid()}}-" + config["cluster"]["worker"][0].split(":")[1]
if JOB == "worker":
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.01)
"""
    ticket = cluster.submit(ADDS.replace(SERVER, asks + SERVER))
    thieves: list[subprocess.Popen[str]] = []
    taken: list[int] = []
    while not ticket.wait(0.01):
        waiting = [file for file in folder.glob("*-*-*") if file.name.startswith("0-")]
        for file in waiting:
            if len(thieves) < times:
                taken.append(int(file.name.rpartition("-")[2]))
                thieves.append(start_inside(cluster.engine.pids()[0], THIEF.format(port=taken[-1])))
                stdout = thieves[-1].stdout
                assert stdout is not None
                assert stdout.readline() == "listening\n"
        for file in folder.glob("*-*-*"):
            file.unlink()
    for thief in thieves:
        thief.communicate()
    return ticket.result(), taken


def test_a_server_that_never_comes(cluster: Cluster) -> None:
    """The workers wait for it until the run's deadline; what they said by then is kept."""
    trace = cluster.run("no server", seconds=5)
    assert (trace.status, trace.end["why"]) == ("timeout", "timeout")
    assert {event["task"] for event in trace.of("begun")} == {"ps:0", "worker:0", "worker:1"}
    assert not trace.of("value")
    assert until(lambda: is_clean(cluster.engine))


@pytest.mark.parametrize(("program", "why"), [("floods", "output"), ("allocates", "memory")])
def test_limits_are_those_of_all_tasks_together(cluster: Cluster, program: str, why: str) -> None:
    """Four tasks of 150 kB are more than 400 kB, and three of 700 MiB more than 2 GiB. Two are not."""
    assert cluster.run(program, worker=3).end["why"] == why
    assert until(lambda: is_clean(cluster.engine))


def test_a_run_that_nobody_wants_goes_with_all_its_tasks(cluster: Cluster) -> None:
    ticket = cluster.submit("endless")
    (parent,) = cluster.engine.pids()
    assert until(lambda: len(children_of(parent)) == 3, 60)
    ticket.cancel()
    assert until(lambda: is_clean(cluster.engine), 10)
    assert ticket.result().status == "cancelled"


def test_a_cluster_whose_parent_dies_is_run_again(cluster: Cluster, tmp_path: Path) -> None:
    first = f"""
if not os.path.exists({str(tmp_path / "seen")!r}):
    time.sleep(600)
"""
    ticket = cluster.submit(ADDS.replace(SERVER, first + SERVER))
    (parent,) = cluster.engine.pids()
    assert until(lambda: len(children_of(parent)) == 3, 60)
    tasks = children_of(parent)
    (tmp_path / "seen").touch()
    os.kill(parent, signal.SIGKILL)
    assert until(lambda: not any(alive(pid) for pid in tasks), 10)
    assert ticket.result(240).of("all")[-1]["value"] == 11


APP = """
import sys, time
import engine.engine as module
from tests.engine.test_cluster import PROGRAMS, Cluster
from tests.engine.processes import children_of
with module.Engine() as engine:
    module.render = lambda *_: PROGRAMS["endless"]
    Cluster(engine).submit("endless")
    while not any(len(children_of(pid)) == 3 for pid in engine.pids()):
        time.sleep(0.05)
    print(*engine.pids(), *children_of(engine.pids()[0]), flush=True)
    time.sleep(600)
"""


@pytest.mark.usefixtures("tensorflow")
def test_no_task_outlives_the_engine() -> None:
    """Not even where it is killed: parent and tasks are gone soon after."""
    app = subprocess.Popen([sys.executable, "-c", APP], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert app.stdout is not None
    pids = [int(pid) for pid in app.stdout.readline().split()]
    assert len(pids) == 4
    assert all(alive(pid) for pid in pids)
    app.kill()
    app.wait(10)
    app.stdout.close()
    assert until(lambda: not any(alive(pid) for pid in pids), 10)
