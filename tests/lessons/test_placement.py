"""The lesson on placement: what it reads from a trace, draws and tells, in both languages."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.experiments.placement import SETTERS, PlacementSettings
from engine.job import Ticket
from engine.trace import Event, Trace
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
    events: list[Event] = [
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
        events.append({
            "event": "placement", "t": 0.5, "task": "worker:0", "variable": f"w{number}", "home": home,
            "device": device, "bytes": sizes[number] * 4,
        })  # fmt: skip
    events.append(
        {
            "event": "operation",
            "t": 0.5,
            "task": "worker:0",
            "operation": "loss",
            "device": "",
            "home": place("worker", 0),
        }
    )
    for number, home in enumerate(homes[0]):
        events.append(
            {"event": "write", "t": 0.5, "task": "worker:0", "variable": f"w{number}", "value": 1.0, "home": home}
        )
    for worker, places in homes.items():
        for number, home in enumerate(places if worker else []):
            events.append({
                "event": "read", "t": 0.5, "task": f"worker:{worker}", "variable": f"w{number}", "value": read_value,
                "home": home,
            })  # fmt: skip
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
    assert "ps 0: 404 B, ps 1: 40 B." in said
    assert "each variable on ps 0 and ps 1, and worker 1 read 1 there" in said
    said = " ".join(what_happened(own(), ENGLISH))
    assert "worker 0: 60 B, worker 1: 60 B." in said
    assert "read 0" in said
    assert "local to it" in said


@pytest.mark.parametrize(("count", "text"), [(4, "4 B"), (999, "999 B"), (40_400, "40.4 kB"), (4_000_000, "4 MB")])
def test_bytes_are_written_with_a_unit(count: int, text: str) -> None:
    assert size(count) == text


Runs = list[tuple[PlacementSettings, Trace]]


@pytest.fixture(scope="module", params=["2.21", "1.15.5"])
def combinations(request: pytest.FixtureRequest, submit_on: Callable[..., Ticket]) -> Runs:
    """Each way of saying where variables go, on two versions that choose differently where nobody says it."""
    choices = [
        {"device_setter": setter, "inner_device": inner, "merge_devices": merge, "sizes": "3,2"}
        for setter, inner, merge in product(SETTERS, ("none", "cpu"), ("yes", "no"))
    ]
    tickets = [submit_on(request.param, "placement", **choice) for choice in choices]
    return [
        (PlacementSettings.parse(choice), ticket.result(240)) for choice, ticket in zip(choices, tickets, strict=True)
    ]


def device_by_the_rule(settings: PlacementSettings) -> str:
    """The device of the first variable in the graph. By the docstring of tf.train.replica_device_setter, constraints
    are added from the innermost context outwards, each to the fields that are unset; without merge_devices, to an
    operation that has no device."""
    inner = "/device:CPU:0" if settings.inner_device == "cpu" else ""
    if settings.device_setter != "used" or (inner and settings.merge_devices == "no"):
        return inner
    return f"/job:ps/task:0{inner}"


def test_what_is_told_of_devices_follows_the_rule(combinations: Runs) -> None:
    """And an inner device is not told as if there were none."""
    stories: dict[tuple[str, str], dict[str, list[str]]] = {}
    for settings, run in combinations:
        if settings.device_setter == "article":
            assert run.error is not None
            assert run.error["type"] == "TypeError"
            continue
        reading, device = read(run), device_by_the_rule(settings)
        assert reading.devices["w0"] == device
        for language in LANGUAGES:
            sentences = what_happened(reading, Texts(FOLDER, language))
            assert len(sentences) == len(set(sentences))
            story = " ".join(sentences)
            assert {"": "`''`", "/job:ps/task:0": "`ps`"}.get(device, f"`{device}`") in story, (settings, story)
            assert ("`''`" in story) == (device == "")
            stories.setdefault((language, settings.device_setter), {})[settings.inner_device] = sentences
    for (language, setter), by_inner in stories.items():
        assert by_inner["none"][0] != by_inner["cpu"][0], (language, setter)


def test_each_fix_leads_to_a_variable_that_is_shared_on_purpose(
    combinations: Runs, submit_on: Callable[..., Ticket]
) -> None:
    """Each run in which no job is said for the variables has a fix; one that says it has none."""
    offered = []
    for settings, run in combinations:
        change = suggested_fix(read(run))
        assert (change is None) == ("/job:ps" in device_by_the_rule(settings)), settings
        if change is not None:
            wanted = {**settings.model_dump(mode="json"), **change}
            wanted["sizes"] = "3,2"
            offered.append(submit_on(run.start["tensorflow"], "placement", **wanted))
    assert len(offered) == 13  # of 16: used, with merge_devices or without an inner device, is as it should be
    for ticket in offered:
        fixed = read(ticket.result(240))
        assert (fixed.outcome, fixed.placed) == ("shared", True)
        assert suggested_fix(fixed) is None


def test_with_one_worker_there_is_nothing_to_fix(run_on: Callable[..., Trace]) -> None:
    assert suggested_fix(read(run_on("2.21", "placement", workers=1, ps=1, sizes="2", device_setter="none"))) is None
    article = run_on("2.21", "placement", workers=1, ps=1, sizes="2", device_setter="article")
    assert suggested_fix(read(article)) == {"device_setter": "used"}
    (sentence,) = what_happened(read(article), ENGLISH)
    assert "in the worker: `replica_device_setter` has no parameter `task_index`" in sentence


# What is said, besides, of settings; and what would be false.
SAID: list[tuple[dict[str, Any], dict[str, str], str]] = [
    (
        {"partitioner": "fixed_size", "sizes": "5,1"},  # 2 servers: 3 + 2 numbers, and 1
        {
            "en": "cuts a variable into 2 parts, and each part is a variable by itself, with its own name and place: "
            "`w0` is `w0/part_0` and `w0/part_1`. `w1` has fewer numbers than there are servers",
            "zh": "把变量切成 2 个分片，每个分片自成一个变量，有自己的名称和位置："
            "`w0` 就是 `w0/part_0` 和 `w0/part_1`。`w1` 里的数比服务器还少",
        },
        "cuts nothing",
    ),
    (
        {"partitioner": "fixed_size", "sizes": "5,1", "ps": 1},
        {"en": "each variable is one part, such as `w0/part_0`", "zh": "每个变量就是一个分片，如 `w0/part_0`"},
        "fewer numbers",
    ),
    (
        {"ps": 1, "sizes": "1", "workers": 1},
        {"en": "There is one parameter server, so the variable is on it.", "zh": "只有一个参数服务器"},
        "took turns",
    ),
    (
        {"ps": 3, "sizes": "1000,100", "workers": 3},  # 4 bytes a number
        {
            "en": "So the processes hold: ps 0: 4 kB, ps 1: 400 B, ps 2: 0 B. Worker 0 wrote 1 into each variable on "
            "ps 0 and ps 1, and worker 1 and worker 2 read 1 there: each is one variable for all",
            "zh": "ps 0 有 4 kB、ps 1 有 400 B、ps 2 有 0 B。worker 0 向 ps 0 和 ps 1 上的每个变量写入 1，"
            "worker 1 和 worker 2 在那里读到 1",
        },
        "worker 1, worker 2",
    ),
    (
        {"sizes": "1", "device_setter": "unused"},
        {"en": "found the variable of this name uninitialized, initialized it, and read 0", "zh": "自己初始化，读到 0"},
        "variables of these names",
    ),
    (
        {"sizes": "1", "strategy": "greedy"},
        {"en": "the first of them, as none had any", "zh": "并列时取第一个"},
        "where some have as few",
    ),
]


def test_what_is_said_goes_by_count_and_by_list(submit_on: Callable[..., Ticket]) -> None:
    tickets = [submit_on("2.21", "placement", **settings) for settings, _, _ in SAID]
    for (settings, parts, false), ticket in zip(SAID, tickets, strict=True):
        reading = read(ticket.result(240))
        for language, part in parts.items():
            texts = Texts(FOLDER, language)
            story = texts.sentences(what_happened(reading, texts))
            assert part in story, (settings, story)
            assert false not in story, settings


def test_a_stopped_run_says_no_more_than_was_seen() -> None:
    start = trace({0: []}, [1]).start
    stopped = Trace((start, {"event": "end", "t": 1, "status": "timeout", "seconds": 1, "reason": "time"}))
    assert what_happened(read(stopped), ENGLISH) == [ENGLISH("story.stopped")]


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
        assert changes == {"article": 1, "unused": 1, "none": 1, "old": 1}.get(link.name, 0)


def test_what_changes_nothing_is_named() -> None:
    assert LESSON.unused(PlacementSettings(inner_device="cpu")) == frozenset()
    assert LESSON.unused(PlacementSettings()) == {"merge_devices"}
    assert LESSON.unused(PlacementSettings(device_setter="none")) == {"strategy", "merge_devices"}
    assert LESSON.unused(PlacementSettings(ps=1, inner_device="cpu")) == {"strategy"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ps": 1},
        {"device_setter": "none"},
        {"device_setter": "article"},
        {"inner_device": "cpu", "merge_devices": "no"},
    ],
    ids=str,
)
def test_what_is_said_to_change_nothing_changes_nothing(
    settings: dict[str, Any], submit_on: Callable[..., Ticket]
) -> None:
    """Each such setting, given another value, leaves all that is read as it is."""
    other = {
        "strategy": "greedy",
        "sizes": "5",
        "partitioner": "fixed_size",
        "inner_device": "cpu",
        "merge_devices": "no",
    }
    first = {"sizes": "3,2,2", **settings}
    unused = LESSON.unused(PlacementSettings.parse(first))
    tickets = {name: submit_on("2.21", "placement", **{**first, name: other[name]}) for name in sorted(unused)}
    before = read(submit_on("2.21", "placement", **first).result(240))
    for name, ticket in tickets.items():
        after = read(ticket.result(240))
        kept = ("copies", "uses", "devices", "operation", "written", "read", "outcome")
        assert all(getattr(after, field) == getattr(before, field) for field in kept), name
