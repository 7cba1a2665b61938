"""Placement: on which process a variable is, by own arithmetic, and who sees what was written there."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from engine.request import Request
from engine.settings import SettingsError
from engine.trace import Trace

Run = Callable[..., Trace]
OLD, NEW = "1.15.5", None
VERSIONS = (OLD, "2.4.1", NEW)
SIZES = (100_000, 10_000, 1_000, 100, 10)
FLOAT32 = 4  # bytes
TYPE_ERROR = "replica_device_setter() got an unexpected keyword argument 'task_index'"


def round_robin(sizes: list[int], ps: int) -> list[int]:
    """Each to the next."""
    return [number % ps for number in range(len(sizes))]


def greedy(sizes: list[int], ps: int) -> list[int]:
    """Each to the first of those that have least."""
    loads, tasks = [0] * ps, []
    for size in sizes:
        task = min(range(ps), key=lambda task: (loads[task], task))
        loads[task] += size * FLOAT32
        tasks.append(task)
    return tasks


STRATEGIES = {"round_robin": round_robin, "greedy": greedy}


def parts(size: int, shards: int) -> list[int]:
    """What fixed_size_partitioner makes of that many rows: as equal as can be, the longer ones first."""
    shards = min(size, shards)
    return [size // shards + (shard < size % shards) for shard in range(shards)]


def task_of(device: str) -> tuple[str, int]:
    """("ps", 0) of "/job:ps/replica:0/task:0/device:CPU:0"."""
    found = re.match(r"/job:(\w+)(?:/replica:0)?/task:(\d+)", device)
    assert found is not None, device
    return found[1], int(found[2])


def loads(trace: Trace) -> dict[tuple[str, int], int]:
    """Bytes of each process, as the trace has them."""
    found: dict[tuple[str, int], int] = {}
    for event in trace.of("placement"):
        found[task_of(event["home"])] = found.get(task_of(event["home"]), 0) + event["bytes"]
    return found


def test_the_figures_of_facts() -> None:
    """Five variables over two parameter servers go 0, 1, 0, 1, 0; by bytes, largest first, 0, 1, 1, 1, 1."""
    assert round_robin(list(SIZES), 2) == [0, 1, 0, 1, 0]
    assert greedy(list(SIZES), 2) == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    ("ps", "sizes"), [(2, SIZES), (1, (5, 7)), (3, (10, 20, 30, 40, 50, 60, 70, 80)), (4, (4, 4, 4, 4, 1, 9))]
)
def test_a_setter_that_is_used_places_variables(
    run_on: Run, version: str | None, strategy: str, ps: int, sizes: tuple[int, ...]
) -> None:
    trace = run_on(version, "placement", ps=ps, strategy=strategy, sizes=",".join(map(str, sizes)))
    assert trace.status == "ok", trace.stderr
    tasks = STRATEGIES[strategy](list(sizes), ps)
    placed = trace.of("placement")
    assert [event["variable"] for event in placed] == [f"w{number}" for number in range(len(sizes))]
    assert [event["device"] for event in placed] == [f"/job:ps/task:{task}" for task in tasks]
    assert [task_of(event["home"]) for event in placed] == [("ps", task) for task in tasks]
    assert [event["bytes"] for event in placed] == [size * FLOAT32 for size in sizes]
    (operation,) = trace.of("operation")
    assert operation["device"] == "/job:worker/task:0"
    assert task_of(operation["home"]) == ("worker", 0)
    expected: dict[tuple[str, int], int] = {}
    for task, size in zip(tasks, sizes, strict=True):
        expected["ps", task] = expected.get(("ps", task), 0) + size * FLOAT32
    assert loads(trace) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_on_a_parameter_server_is_shared(run_on: Run, version: str | None) -> None:
    """Every other worker reads the 1 that worker 0 wrote, where it wrote it."""
    trace = run_on(version, "placement", workers=3)
    written = {event["variable"]: event["home"] for event in trace.of("write")}
    assert {event["value"] for event in trace.of("write")} == {1.0}
    reads = trace.of("read")
    assert {event["task"] for event in reads} == {"worker:1", "worker:2"}
    assert len(reads) == 2 * len(SIZES)
    assert all(event["value"] == 1.0 and event["home"] == written[event["variable"]] for event in reads)
    assert not trace.of("uninitialized")
    assert max(event["t"] for event in trace.of("write")) <= min(event["t"] for event in reads)  # on one clock


@pytest.mark.parametrize("version", ["2.5.0", "2.15.1", NEW])
@pytest.mark.parametrize("setter", ["none", "unused"])
def test_without_a_place_each_worker_has_its_own(run_on: Run, version: str | None, setter: str) -> None:
    """The device is '', and a worker's variables are then its own: what worker 0 wrote doesn't come."""
    trace = run_on(version, "placement", device_setter=setter)
    assert trace.status == "ok", trace.stderr
    assert {event["device"] for event in trace.of("placement")} == {""}
    assert {task_of(event["home"]) for event in trace.of("write")} == {("worker", 0)}
    assert {(task_of(event["home"]), event["value"]) for event in trace.of("read")} == {(("worker", 1), 0.0)}
    assert trace.of("uninitialized")[0]["variables"] == [f"w{number}" for number in range(len(SIZES))]


@pytest.mark.parametrize("setter", ["none", "unused"])
def test_without_a_place_the_first_name_wins_on_tensorflow_1(run_on: Run, setter: str) -> None:
    """Its placer takes the first device by name, and "/job:ps" comes before "/job:worker": shared, by accident."""
    trace = run_on(OLD, "placement", device_setter=setter)
    assert {event["device"] for event in trace.of("placement")} == {""}
    assert {task_of(event["home"]) for event in trace.of("placement")} == {("ps", 0)}
    assert {event["value"] for event in trace.of("read")} == {1.0}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_call_of_the_article_is_a_type_error(run_on: Run, version: str | None) -> None:
    trace = run_on(version, "placement", device_setter="article")
    assert trace.status == "error"
    errors = trace.of("error")
    assert {event["task"] for event in errors} == {"worker:0", "worker:1"}
    assert {(event["type"], event["message"]) for event in errors} == {("TypeError", TYPE_ERROR)}


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_shards_are_placed_one_by_one(run_on: Run, version: str | None, strategy: str) -> None:
    sizes = (7, 2, 1)
    trace = run_on(version, "placement", ps=3, partitioner="fixed_size", sizes="7,2,1", strategy=strategy)
    shards = [part for size in sizes for part in parts(size, 3)]
    placed = trace.of("placement")
    assert [event["bytes"] for event in placed] == [shard * FLOAT32 for shard in shards] == [12, 8, 8, 4, 4, 4]
    assert [task_of(event["home"])[1] for event in placed] == STRATEGIES[strategy](shards, 3)


@pytest.mark.parametrize(("merge", "device"), [("yes", "/job:ps/task:0/device:CPU:0"), ("no", "/device:CPU:0")])
def test_merge_devices(run_on: Run, merge: str, device: str) -> None:
    """Inside tf.device("/cpu:0"): merged, the job is added to it; not merged, the setter adds nothing."""
    trace = run_on(NEW, "placement", inner_device="cpu", merge_devices=merge, sizes="8")
    assert [event["device"] for event in trace.of("placement")] == [device]
    assert [event["value"] for event in trace.of("read")] == [1.0 if merge == "yes" else 0.0]


def test_one_worker_has_nobody_to_share_with(run_on: Run) -> None:
    trace = run_on(NEW, "placement", workers=1)
    assert trace.status == "ok"
    assert not trace.of("read")


@pytest.mark.parametrize("version", [OLD, NEW])
def test_the_first_value_comes_soon(run_on: Run, version: str | None) -> None:
    """No worker finds its parameter server missing, which would cost a second, nor waits 30 s for an initialised
    model: 20 s are a loaded machine's."""
    assert run_on(version, "placement", ps=1, sizes="3").seconds < 20


@pytest.mark.parametrize(
    "given", [{"ps": 5}, {"workers": 0}, {"sizes": "0"}, {"sizes": "1.5"}, {"sizes": "1," * 8 + "1"}, {"sizes": "x"}]
)
def test_settings_that_are_not_accepted(given: dict[str, Any]) -> None:
    with pytest.raises(SettingsError) as error:
        Request.of("placement", given)
    assert "replica" not in str(error.value)
    assert next(iter(given)) in str(error.value)
