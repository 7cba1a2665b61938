"""The warm parents together: started when wanted, never more than may be, stopped when idle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import engine as engine_module
from engine.engine import Engine
from engine.limits import Limits
from engine.request import Request
from engine.runtimes import Runtime
from engine.versions import Versions
from tests.engine import stand_in
from tests.engine.faults import fault, say, text
from tests.engine.processes import alive, until

VERSIONS = ("2.1.0", "2.2.0", "2.3.0", "2.6.0", "2.7.0")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Runtime]:
    """Five runtimes of the stand-in, each a third of a second to import."""
    folder = tmp_path_factory.mktemp("runtimes")
    return {
        version: Runtime(
            stand_in.environment(folder / version, version, version, seconds=0.3), Versions(version, version)
        )
        for version in VERSIONS
    }


@pytest.fixture(autouse=True)
def _programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "render", lambda experiment, settings, versions: text(settings))


@pytest.fixture
def start(many: dict[str, Runtime]) -> Iterator[Callable[..., Engine]]:
    """Makes engines on those runtimes."""
    engines: list[Engine] = []

    def make(**limits: Any) -> Engine:
        engines.append(Engine(many, Limits(**limits)))
        return engines[-1]

    yield make
    for engine in engines:
        engine.close()


def nap(version: str, number: int = 0, program: str = "naps") -> Request:
    return fault(program, number, version)


def warm(engine: Engine) -> list[str]:
    return [parent.runtime.name for parent in engine.parents()]


def test_parents_start_on_first_use_and_say_what_they_are(start: Callable[..., Engine]) -> None:
    engine = start(slots=2)
    assert engine.parents() == []
    ticket = engine.submit(nap("2.3.0", 1000, "waits"))
    (parent,) = engine.parents()
    assert (parent.runtime.name, parent.state.name, parent.runs, parent.running) == ("2.3.0", "starting", 0, 0)
    assert until(lambda: engine.parents()[0].running == 1)
    say(1000)
    assert ticket.result(240).status == "ok"
    (parent,) = engine.parents()
    assert (parent.state.name, parent.runs, parent.running) == ("ready", 1, 0)
    assert parent.seconds > 0.3
    if Path("/proc/self/statm").exists():
        assert parent.memory is not None
        assert 3 < parent.memory < 200
    else:
        assert parent.memory is None


@pytest.mark.parametrize(("program", "cached"), [("raises", True), ("runs out", False)])
def test_an_error_of_a_busy_moment_is_no_answer_to_the_next(
    start: Callable[..., Engine], program: str, cached: bool
) -> None:
    """Another try may have room; an error of TensorFlow's own comes again."""
    engine = start(slots=1)
    asked = fault(program, 0, "2.1.0")
    request = replace(asked, experiment=replace(asked.experiment, deterministic=True))
    assert engine.run(request).status == "error"
    assert (engine.cached(request) is not None) == cached
    assert engine.submit(request).cached == cached


def test_idle_parents_are_stopped(start: Callable[..., Engine]) -> None:
    engine = start(slots=2, idle=0.6)
    tickets = [engine.submit(nap(version, number, "waits")) for version, number in (("2.1.0", 1001), ("2.2.0", 1002))]
    assert until(lambda: [parent.running for parent in engine.parents()] == [1, 1])
    pids = dict(zip(warm(engine), engine.pids(), strict=True))
    say(1002)
    assert tickets[1].result(240).status == "ok"
    assert until(lambda: warm(engine) == ["2.1.0"]), "the one that has nothing to do"
    assert until(lambda: not alive(pids["2.2.0"]))
    assert alive(pids["2.1.0"])
    assert engine.state("2.2.0").name == "stopped"
    say(1001)
    assert tickets[0].result(240).status == "ok"  # however long it took
    assert until(lambda: not engine.pids())
    assert engine.run(nap("2.2.0")).status == "ok"  # and starts again


def test_a_parent_that_is_used_is_not_idle(start: Callable[..., Engine]) -> None:
    """One run follows on the other for twice the time after which it would be stopped."""
    engine = start(slots=1, idle=2.0)
    tickets = [engine.submit(nap("2.1.0", number)) for number in range(8)]
    assert tickets[0].result(240).status == "ok"
    pids = engine.pids()
    assert [ticket.result(240).status for ticket in tickets[1:]] == ["ok"] * 7
    assert engine.pids() == pids


def test_the_one_used_least_recently_makes_room(start: Callable[..., Engine]) -> None:
    engine = start(slots=2, parents=2)
    for version in ("2.1.0", "2.2.0", "2.1.0", "2.3.0"):
        assert engine.run(nap(version)).status == "ok"
    assert warm(engine) == ["2.1.0", "2.3.0"]
    engine.warm_up("2.1.0")
    assert engine.run(nap("2.6.0")).status == "ok"
    assert warm(engine) == ["2.1.0", "2.6.0"]


def test_warming_up_takes_no_room_from_what_is_wanted(start: Callable[..., Engine]) -> None:
    engine = start(slots=2, parents=2)
    tickets = [engine.submit(nap(version, number, "waits")) for version, number in (("2.1.0", 1003), ("2.2.0", 1004))]
    engine.warm_up("2.3.0")
    assert warm(engine) == ["2.1.0", "2.2.0"]
    assert engine.state("2.3.0").name == "stopped"
    say(1003)
    say(1004)
    assert [ticket.result(240).status for ticket in tickets] == ["ok", "ok"]
    engine.warm_up("2.3.0")
    assert "2.3.0" in warm(engine)


def test_all_versions_at_once_go_through_few_parents(start: Callable[..., Engine]) -> None:
    """As the versions page asks for them."""
    engine = start(slots=2, parents=2)
    tickets = [engine.submit(nap(version), "page") for version in VERSIONS]
    most = 0
    while not all(ticket.wait(0.02) for ticket in tickets):
        most = max(most, len(engine.pids()))
    assert [ticket.result().status for ticket in tickets] == ["ok"] * 5
    assert most == 2


def test_a_version_that_waits_for_room_gets_it_though_others_go_on_asking(start: Callable[..., Engine]) -> None:
    engine = start(slots=2, parents=2)
    busy = {version: [engine.submit(nap(version, number), version) for number in range(8)] for version in VERSIONS[:2]}
    assert until(lambda: all(any(ticket.done for ticket in tickets) for tickets in busy.values()))
    late = engine.submit(nap("2.7.0"), "late")
    assert late.result(240).status == "ok"
    assert not all(ticket.done for tickets in busy.values() for ticket in tickets)
    for tickets in busy.values():
        assert {ticket.result(240).status for ticket in tickets} == {"ok"}


def test_a_parent_that_is_stopped_leaves_no_process_and_closing_waits_for_it(start: Callable[..., Engine]) -> None:
    engine = start(slots=1, parents=1)
    pids = []
    for version in VERSIONS[:3]:
        engine.run(nap(version))
        pids += engine.pids()
    engine.warm_up("2.6.0")
    pids += engine.pids()
    engine.close()
    assert len(set(pids)) == 4
    assert not any(alive(pid) for pid in pids)
