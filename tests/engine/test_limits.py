"""How much of the machine the engine uses: read off the machine and the environment, and kept to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import engine as engine_module
from engine import job as job_module
from engine.__main__ import main
from engine.engine import Engine
from engine.limits import MIB, Limits, within_cpu_quota, within_memory_limit
from engine.memory import held_by_run, resident
from engine.request import EngineBusyError, Request
from engine.runtimes import Runtime
from engine.settings import SettingsError
from engine.versions import Versions
from tests.engine import stand_in
from tests.engine.faults import FAULTS, FaultSettings, fault, rendering_faults
from tests.engine.processes import until

VERSION = "2.2.0"


def machine(root: Path, files: Mapping[str, str]) -> Path:
    """A folder that looks like / to those who ask what there is."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


# ------------------------------------------------------------------------------------------------ what the machine has


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        pytest.param({}, 8, id="no cgroup"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8, id="version 2, no quota"
        ),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4, id="--cpus=4"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2, id="--cpus=1.5"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "10000 100000\n"}, 1, id="--cpus=0.1"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "3200000 100000\n"}, 8, id="more than all"
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
            },
            3,
            id="a cgroup around it",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n3:memory:/docker/x\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
                "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
            },
            2,
            id="version 1, in a container that does not see its cgroup's name",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/x\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
            },
            8,
            id="version 1, no quota",
        ),
    ],
)
def test_cores_within_the_quota(tmp_path: Path, files: dict[str, str], cores: int) -> None:
    assert within_cpu_quota(8, machine(tmp_path, files)) == cores


@pytest.mark.parametrize(
    ("files", "memory"),
    [
        pytest.param({}, 8000, id="no cgroup"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 8000, id="no limit"),
        pytest.param({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "3000\n"}, 3000, id="version 2"),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": "2000\n",
                "sys/fs/cgroup/a/b/memory.max": "3000\n",
            },
            2000,
            id="the least of those around it",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "9:memory:/x\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4000\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            4000,
            id="version 1",
        ),
    ],
)
def test_memory_within_the_limit(tmp_path: Path, files: dict[str, str], memory: int) -> None:
    assert within_memory_limit(8000, machine(tmp_path, files)) == memory


def test_what_processes_hold(tmp_path: Path) -> None:
    """Pages of 4 KiB or what this system has: all, of these resident, of these those of files."""
    statm = {1: "900 100 40 0 0 0 0", 2: "900 180 50 0 0 0 0", 3: "900 90 45 0 0 0 0"}
    root = machine(tmp_path, {f"proc/{pid}/statm": text for pid, text in statm.items()})
    page = (resident(1, root) or 0) / 100
    assert page in (4096, 16384, 65536)
    # The parent has 60 of its own, run 2 130, run 3 fewer than the parent; process 4 has ended.
    assert held_by_run([2, 3, 4], 1, root) == 70 * page
    assert held_by_run([2], 4, root) == 0
    assert resident(4, root) is None


# ---------------------------------------------------------------------------------------------------------- environment


def test_limits_from_the_environment() -> None:
    environment = {
        "REPLICA_LAB_SLOTS": "3", "REPLICA_LAB_MEMORY": "12GiB", "REPLICA_LAB_RUN_MEMORY": "512MiB",
        "REPLICA_LAB_IDLE": "60", "REPLICA_LAB_SESSION_WAITING": "7",
        "REPLICA_LAB_PORT_8501_TCP": "tcp://10.0.0.1:8501",  # as Docker and Kubernetes tell of services
    }  # fmt: skip
    limits = Limits.from_environment(environment)
    assert (limits.slots, limits.memory, limits.run_memory) == (3, 12 << 30, 512 * MIB)
    assert (limits.idle, limits.session_waiting, limits.waiting) == (60.0, 7, 512)


@pytest.mark.parametrize(
    ("name", "given", "allowed"),
    [
        ("REPLICA_LAB_SLOTS", "many", "a whole number from 1 to 1024"),
        ("REPLICA_LAB_SLOTS", "0", "a whole number from 1 to 1024"),
        ("REPLICA_LAB_SLOTS", "", "a whole number from 1 to 1024"),
        ("REPLICA_LAB_MEMORY", "8", "a size of at least 1GiB, such as 12GiB"),
        ("REPLICA_LAB_MEMORY", "8 elephants", "a size of at least 1GiB, such as 12GiB"),
        ("REPLICA_LAB_IDLE", "inf", "seconds, at least 0.1"),
        ("REPLICA_LAB_WAITING", "-1", "a whole number of at least 1"),
    ],
)
def test_a_limit_that_is_not_accepted_says_what_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, given: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        Limits.from_environment({name: given})
    assert str(caught.value) == f"{name}: {given!r} was given; allowed: {allowed}"
    monkeypatch.setenv(name, given)
    assert main(["run", "aggregation"]) == 2
    assert capsys.readouterr().err == f"{caught.value}\n"


def test_readme_lists_every_limit() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert [f"| `REPLICA_LAB_{name.upper()}` |" in text for name in Limits.model_fields] == [True] * 8


# ------------------------------------------------------------------------------------------------------- and kept to


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """The real parent.py, with a stand-in for TensorFlow."""
    return Runtime(stand_in.environment(tmp_path_factory.mktemp("tf") / "env", VERSION), Versions(VERSION, "0.0"))


@pytest.fixture
def start(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Engine]]:
    """Makes an engine with these limits whose parent is ready."""
    monkeypatch.setattr(engine_module, "render", rendering_faults(vars(engine_module)["render"]))
    engines: list[Engine] = []

    def make(**limits: Any) -> Engine:
        engines.append(Engine({VERSION: runtime}, Limits(**limits)))
        engines[-1].warm_up(VERSION)
        assert until(lambda: engines[-1].state(VERSION).name == "ready", 60)
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def sleeping(number: int, **tasks: int) -> Request:
    """A run, or with `tasks` a cluster, that goes on until it is cancelled."""
    experiment = replace(FAULTS, tasks=lambda _: tasks)
    return Request(experiment, FaultSettings.parse({"program": "sleeps", "number": number}), VERSION)


def test_a_cluster_takes_a_slot_for_each_task_that_works(start: Callable[..., Engine]) -> None:
    engine = start(slots=4)
    cluster = engine.submit(sleeping(1, ps=2, worker=3))
    one, other = engine.submit(sleeping(2)), engine.submit(sleeping(3))
    assert [ticket.place for ticket in (cluster, one, other)] == [0, 0, 1]
    assert [ticket.waits_for for ticket in (cluster, one, other)] == ["", "", "slots"]
    cluster.cancel()
    assert until(lambda: other.place == 0)


def test_a_cluster_bigger_than_the_engine_runs_alone_and_is_not_overtaken(start: Callable[..., Engine]) -> None:
    engine = start(slots=2)
    first, cluster, last = (engine.submit(each) for each in (sleeping(1), sleeping(2, worker=5), sleeping(3)))
    assert [ticket.place for ticket in (first, cluster, last)] == [0, 1, 2]  # though there is a slot for the last one
    assert engine.load() == (1, 2)
    first.cancel()
    assert until(lambda: cluster.place == 0)
    assert engine.load() == (1, 1)
    assert last.waits_for == "slots"
    cluster.cancel()
    assert until(lambda: last.place == 0)


def test_a_run_waits_for_memory_and_says_so(start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent, a stand-in, holds some 20 MiB; so of runs that are to hold 300 each, 1 GiB has room for 3."""
    monkeypatch.setattr(job_module, "PROCESS_MEMORY", 300 * MIB)
    engine = start(slots=8, memory=1 << 30)
    tickets = [engine.submit(sleeping(number)) for number in range(5)]
    assert [ticket.waits_for for ticket in tickets] == ["", "", "", "memory", "memory"]
    assert [ticket.place for ticket in tickets] == [0, 0, 0, 1, 2]
    tickets[0].cancel()
    assert until(lambda: tickets[3].place == 0)
    assert tickets[4].waits_for == "memory"


def test_a_run_that_needs_more_than_there_is_runs_alone(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_module, "PROCESS_MEMORY", 5 << 30)
    engine = start(slots=8, memory=1 << 30)
    tickets = [engine.submit(fault("naps", number, VERSION)) for number in range(3)]
    assert [ticket.place for ticket in tickets] == [0, 1, 2]
    assert [ticket.result(60).status for ticket in tickets] == ["ok"] * 3


def test_what_a_run_really_holds_counts(start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """One that holds 900 MiB, as the system would tell, leaves no room in 1 GiB for a second one."""
    monkeypatch.setattr(engine_module, "held_by_run", lambda pids, parent: 900 * MIB)
    engine = start(slots=8, memory=1 << 30)
    big = engine.submit(sleeping(1))
    assert until(lambda: any(job.held for job in engine._running.values()))
    assert engine.submit(sleeping(2)).waits_for == "memory"
    big.cancel()


def test_when_all_hold_too_much_the_biggest_is_ended(
    start: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = start(slots=2, memory=1 << 30)
    small, big = engine.submit(sleeping(1)), engine.submit(sleeping(2))
    assert until(lambda: len([pid for job in engine._running.values() for pid in job.pids]) == 2)
    pids = [job.pids[0] for job in sorted(engine._running.values(), key=lambda job: job.run_id)]
    monkeypatch.setattr(
        engine_module, "held_by_run", lambda those, parent: {pids[0]: 300, pids[1]: 800}[those[0]] * MIB
    )
    trace = big.result(60)
    assert (trace.status, trace.end["why"]) == ("killed", "memory_together")
    assert trace.end["reason"] == "all runs together held more memory than they may, and it held most"
    assert not small.done
    assert engine.load() == (1, 0)


def test_a_session_may_have_only_so_many_runs_waiting(start: Callable[..., Engine]) -> None:
    engine = start(slots=1, session_waiting=2, waiting=4)
    running = engine.submit(sleeping(0), "one")
    for number in (1, 2):
        engine.submit(sleeping(number), "one")
    with pytest.raises(EngineBusyError, match=r"^2 runs of this session are waiting already, as many as may; "):
        engine.submit(sleeping(3), "one")
    assert engine.submit(sleeping(0), "one").place == 0  # it is under way, and waits for nothing
    for number in (4, 5):
        engine.submit(sleeping(number), "two")
    with pytest.raises(EngineBusyError, match=r"^4 runs are waiting already, as many as may; "):
        engine.submit(sleeping(6), "three")
    running.cancel()


def test_parents_keep_to_the_memory_too(runtime: Runtime) -> None:
    """3 parents of 640 MiB and a run of 128 are 2 GiB."""
    with Engine({VERSION: runtime}, Limits(memory=2 << 30, parents=5)) as engine:
        assert engine._max_parents == 3
    with Engine({VERSION: runtime}, Limits(memory=1 << 30, parents=5)) as engine:
        assert engine._max_parents == 1
