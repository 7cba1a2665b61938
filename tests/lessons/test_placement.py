"""The lesson on placement: what it reads from a trace, draws and tells, in both languages."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.experiments.placement import PlacementSettings
from engine.trace import Trace
from lessons.language import LANGUAGES, Texts
from lessons.placement.figure import PHASES, alternative, figure
from lessons.placement.lesson import LESSON, suggested_fix
from lessons.placement.reading import Reading, process_of, read
from lessons.placement.story import size, what_happened

FOLDER = Path(__file__).parents[2] / "lessons" / "placement"
ENGLISH = Texts(FOLDER, "en")
TENSORFLOW = "2.21.0"


def trace(homes: dict[int, list[str]], sizes: list[int], read_value: float = 1.0, **given: Any) -> Trace:
    """A run as it would be printed: for each worker, the process of each variable."""
    settings = PlacementSettings.parse({"sizes": ",".join(map(str, sizes)), **given}).model_dump(mode="json")
    events: list[dict[str, Any]] = [
        {
            "event": "run",
            "t": 0,
            "experiment": "placement",
            "settings": settings,
            "tensorflow": TENSORFLOW,
            "keras": "3",
        }
    ]
    used = settings["device_setter"] == "used"
    for number, home in enumerate(homes[0]):
        device = home.replace("/replica:0", "").replace("/device:CPU:0", "") if used else ""
        fields = {"variable": f"w{number}", "home": home, "device": device, "bytes": sizes[number] * 4}
        events.append({"event": "placement", "task": "worker:0", **fields})
    events.append(
        {"event": "operation", "task": "worker:0", "operation": "loss", "device": "", "home": place("worker", 0)}
    )
    for number, home in enumerate(homes[0]):
        events.append({"event": "write", "task": "worker:0", "variable": f"w{number}", "value": 1.0, "home": home})
    for worker, places in homes.items():
        for number, home in enumerate(places if worker else []):
            fields = {"variable": f"w{number}", "value": read_value, "home": home}
            events.append({"event": "read", "task": f"worker:{worker}", **fields})
    events.append({"event": "end", "t": 1, "status": "ok", "seconds": 1})
    return Trace(tuple(events))


def place(job: str, index: int) -> str:
    return f"/job:{job}/replica:0/task:{index}/device:CPU:0"


def shared() -> Reading:
    """Three variables of 4, 40 and 400 bytes: the first and third on ps 0."""
    homes = [place("ps", 0), place("ps", 1), place("ps", 0)]
    return read(trace({0: homes, 1: homes}, [1, 10, 100]))


def own() -> Reading:
    homes = {worker: [place("worker", worker)] * 2 for worker in (0, 1)}
    return read(trace(homes, [10, 5], 0.0, device_setter="unused"))


def test_who_holds_what() -> None:
    reading = shared()
    assert reading.outcome == "shared"
    assert [(copy.process, copy.bytes) for copy in reading.copies] == [
        (("ps", 0), 4),
        (("ps", 1), 40),
        (("ps", 0), 400),
    ]
    assert [reading.bytes_on(("ps", index)) for index in (0, 1)] == [4 + 400, 40]
    reading = own()
    assert reading.outcome == "own"
    assert [reading.bytes_on(("worker", index)) for index in (0, 1)] == [60, 60]
    assert [reading.bytes_on(("ps", index)) for index in (0, 1)] == [0, 0]
    assert len(reading.copies) == 4  # two of each name


def test_a_device_names_a_process() -> None:
    assert process_of("/job:ps/task:3") == ("ps", 3)
    assert process_of(place("worker", 1)) == ("worker", 1)
    with pytest.raises(ValueError, match="names no task"):
        process_of("/device:CPU:0")


def test_a_bar_is_as_long_as_its_variable_has_bytes() -> None:
    """Of 4, 40 and 400 bytes: the longest fills its box, the next has a tenth, the least is just to be seen."""
    drawn = figure(shared(), ENGLISH)
    x = drawn.data[0].x
    widths = [x[start + 1] - x[start] for start in range(0, len(x), 6)]
    assert widths[1] == pytest.approx(widths[2] / 10)
    assert 0 < widths[0] < widths[1]


def test_the_figure_moves_from_names_to_places_to_values() -> None:
    drawn = figure(shared(), ENGLISH)
    assert [frame.name for frame in drawn.frames] == list(PHASES)
    last = json.dumps(drawn.to_plotly_json(), default=str, ensure_ascii=False)
    assert "reads 1" in last
    assert ENGLISH("figure.outcome.shared") in last
    words = {frame.name: json.dumps(frame.to_plotly_json(), default=str, ensure_ascii=False) for frame in drawn.frames}
    assert "reads 1" not in words["write"]
    assert "writes 1" in words["write"]
    assert "writes 1" not in words["placed"]


def test_the_story_of_a_write_that_arrives_and_of_one_that_does_not() -> None:
    said = " ".join(what_happened(shared(), ENGLISH))
    assert "ps 0 404 B, ps 1 40 B" in said
    assert "worker 1 read 1" in said
    said = " ".join(what_happened(own(), ENGLISH))
    assert "worker 0 60 B, worker 1 60 B" in said
    assert "read 0" in said
    assert "local to it" in said


@pytest.mark.parametrize(("count", "text"), [(4, "4 B"), (999, "999 B"), (40_400, "40.4 kB"), (4_000_000, "4 MB")])
def test_bytes_are_written_with_a_unit(count: int, text: str) -> None:
    assert size(count) == text


def test_every_run_is_drawn_and_told_in_both_languages(run_on: Callable[..., Trace]) -> None:
    """Each run of the guide, and each that a fix leads to, until none is left."""
    for link in LESSON.guide:
        settings = dict(link.settings)
        changes = 0
        while True:
            run = run_on(link.tensorflow, "placement", **settings)
            for language in LANGUAGES:
                texts = Texts(FOLDER, language)
                assert figure(read(run), texts).data
                assert what_happened(read(run), texts)
                assert alternative(read(run), texts)
            change = suggested_fix(read(run))
            if change is None:
                break
            settings |= change
            changes += 1
        assert read(run).outcome == "shared", link.name
        assert LESSON.prediction is not None
        assert LESSON.prediction.answers(run) == {"one"}
        assert read(run).placed
        assert changes == {"article": 2, "unused": 1, "none": 1, "old": 1}.get(link.name, 0)


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(PlacementSettings(inner_device="cpu")) == frozenset()
    assert LESSON.unused(PlacementSettings()) == {"merge_devices"}
    assert LESSON.unused(PlacementSettings(device_setter="none")) == {"strategy", "merge_devices"}
