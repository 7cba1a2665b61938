"""Recordings are the golden transcripts of the product: each is run again wherever its version is installed."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from engine.engine import Engine
from engine.experiments import EXPERIMENTS
from engine.job import Ticket
from engine.offers import offers
from engine.program import render
from engine.recordings import (
    FOLDER,
    RecordingError,
    Recordings,
    record,
    recorded_settings,
    without_noise,
)
from engine.request import Request
from engine.runtimes import KERAS_LINE, KERAS_VERSIONS, Runtime, choose, standard_set
from engine.settings import SettingsError
from engine.trace import Event, Trace
from engine.versions import Versions
from tests.conftest import Sample

RECORDINGS = Recordings()
# By runtime, so that each has to be started once only.
EVERY = sorted(
    ((name, runtime) for name, experiment in EXPERIMENTS.items() for runtime in RECORDINGS.made_with(experiment)),
    key=lambda case: case[1],
)


@pytest.fixture
def sample(request: pytest.FixtureRequest) -> Sample:
    """CI replays every recording, though it takes samples of other grids: a template or the parent may have changed."""
    options = request.config.option
    return Sample(request, everything=options.all or options.all_replays)


@pytest.mark.timeout(1800)  # hundreds of runs; a busy machine takes its time
@pytest.mark.parametrize(("name", "runtime"), EVERY)
def test_a_run_is_what_its_recording_says(
    engine: Engine, submit_on: Callable[..., Ticket], sample: Sample, name: str, runtime: str
) -> None:
    """The same program gives the same events: times, addresses and stack frames aside."""
    submit_on(runtime, name)  # skips where the version isn't installed; in CI that is a failure
    experiment = EXPERIMENTS[name]
    assert engine.runtime(runtime).versions == RECORDINGS.made_with(experiment)[runtime].versions, "make recordings"
    recordings = sample(RECORDINGS.all(experiment, runtime), by=lambda each: each.trace.status)
    requests = [Request.of(name, recording.trace.start["settings"], runtime) for recording in recordings]
    different = []
    tickets: deque[Ticket] = deque()
    for place, (request, recording) in enumerate(zip(requests, recordings, strict=True)):
        tickets.extend(engine.submit(each, "recordings") for each in requests[place + len(tickets) : place + 100])
        now, then = without_noise(tickets.popleft().result(600)), without_noise(recording.trace)
        if now != then:
            at = next(pair for pair in itertools.zip_longest(now, then) if pair[0] != pair[1])
            different.append(f"{request.settings.to_words(changed_only=True)}: {at[0]}, recorded {at[1]}")
    assert not different, f"{name} on {runtime}: {len(different)} of {len(recordings)} differ\n" + "\n".join(different)


def test_every_version_is_recorded() -> None:
    """Of the standard set, of the app's own line, and, where it matters, each Keras that the catalogue names."""
    # No two runs of a race are the same, and the flowers of `scaling` are only where the app itself is.
    assert {name for name, each in EXPERIMENTS.items() if not each.recorded} == {
        "scaling",
        "sync_replicas",
        "multi_worker",
    }
    for experiment in (each for each in EXPERIMENTS.values() if each.recorded):
        made = RECORDINGS.made_with(experiment)
        for line in [want.release.line for want in standard_set()] + [KERAS_LINE]:
            if experiment.runs_on(Versions(f"{line}.0", "3.0.0")):
                assert any(name.startswith(f"{line}.") and "+" not in name for name in made), (experiment.name, line)
        if experiment.on_each_keras:
            keras = {provenance.keras for provenance in made.values() if provenance.other_keras}
            assert keras >= set(KERAS_VERSIONS)


@pytest.mark.parametrize(("name", "runtime"), EVERY)
def test_every_declared_choice_is_recorded_with_the_program_of_now(name: str, runtime: str) -> None:
    """Also where that version is not installed: what a program is written for is known from the recording."""
    experiment = EXPERIMENTS[name]
    versions = RECORDINGS.made_with(experiment)[runtime].versions
    programs = {}
    for settings in recorded_settings(experiment):
        with contextlib.suppress(SettingsError):  # keras=tf_keras, where there is none
            programs[settings.model_dump_json()] = render(experiment, settings, versions)
    recorded = {
        experiment.settings.parse(recording.trace.start["settings"]).model_dump_json(): recording.program
        for recording in RECORDINGS.all(experiment, runtime)
    }
    assert recorded.keys() == programs.keys(), "make recordings"
    assert recorded == programs, "make recordings"


def test_a_recording_says_where_it_came_from_and_nothing_of_a_machine() -> None:
    for name, runtime in EVERY:
        provenance = RECORDINGS.made_with(EXPERIMENTS[name])[runtime]
        assert provenance.name == runtime
        assert provenance.platform
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", provenance.date)
        for recording in RECORDINGS.all(EXPERIMENTS[name], runtime):
            assert recording.trace.answered
            text = recording.trace.to_jsonl() + recording.trace.stderr
            assert not re.search(r"/(home|root|tmp|work|Users)/", text)


def test_nothing_takes_the_place_of_what_was_not_recorded() -> None:
    assert RECORDINGS.find(Request.of("aggregation", {"gradients": "0.123,0.456"}, "2.4.1")) is None
    assert RECORDINGS.find(Request.of("aggregation", {}, "9.9.9")) is None
    found = RECORDINGS.find(Request.of("aggregation", {}, "2.4.1"))
    assert found is not None
    assert [event["value"] for event in found.trace.of("variable")] == [1, 1, 1.1, 1.2]
    assert found.trace.start["tensorflow"] == "2.4.1"


def test_a_recording_is_found_as_a_runtime_is() -> None:
    """By the beginning of a version, by its Keras; the newest where nothing is named."""
    whole = RECORDINGS.find(Request.of("aggregation", {}, "2.4.1"))
    assert RECORDINGS.find(Request.of("aggregation", {}, "2.4")) == whole
    assert RECORDINGS.find(Request.of("aggregation", {}, "2.4.1", "3.4.1")) is None
    assert RECORDINGS.find(Request.of("aggregation", {}, "2.21", "3.4.1")) is None  # it is not about Keras
    keras = RECORDINGS.find(Request.of("fit", {}, "2.21", "3.4.1"))
    assert keras is not None
    assert keras.provenance.keras == "3.4.1"
    newest = RECORDINGS.find(Request.of("fit", {}))
    assert newest is not None
    assert newest.provenance.tensorflow.startswith(KERAS_LINE)
    assert not newest.provenance.other_keras


def test_offers() -> None:
    """What is installed comes first and live, what is recorded after it; each says how it is got."""
    own = Runtime(Path("python"), Versions("2.21.0", "3.15.1", "2.21.0"))
    found = offers(EXPERIMENTS["scope_placement"], {own.name: own}, RECORDINGS)
    assert next(iter(found)) == "2.21.0"
    assert (found["2.21.0"].live, found["2.21.0"].command) == (True, "")
    assert (found["2.4.1"].live, found["2.4.1"].command) == (False, "python -m engine runtimes install 2.4.1")
    assert choose(found, "2.4") is found["2.4.1"]
    assert choose(found, None) is found["2.21.0"]
    without = offers(EXPERIMENTS["fit"], {}, RECORDINGS)
    assert next(iter(without)).startswith(KERAS_LINE)
    other = next(offer for offer in without.values() if offer.versions.keras == "3.4.1")
    assert other.command == f"python -m engine runtimes install {other.versions.tensorflow} --keras 3.4.1"
    old = Runtime(Path("python"), Versions("1.15.5", "2.2.4-tf"))
    assert "1.15.5" not in offers(EXPERIMENTS["fit"], {old.name: old}, RECORDINGS)


def trace_with(message: str, python: str = "3.8.18") -> Trace:
    run: Event = {"event": "run", "t": 0.0, "tensorflow": "2.4.1", "keras": "2.4.0", "python": python, "devices": []}
    error: Event = {"event": "error", "t": 0.1, "type": "ValueError", "message": message, "line": 9, "step": 1}
    return Trace((run, error, {"event": "end", "t": 1.0, "status": "error", "seconds": 1.0}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<MirroredStrategy object at 0x7fc8795d7280>", "<MirroredStrategy object at 0x7fc2>"),
        ("(id=140223) refused", "(id=7) refused"),
        ("[Op:__inference_train_step_311]", "[Op:__inference_train_step_42]"),
        ('x\n  File "engine/parent.py", line 391, in <module>\n\ny', 'x\n  File "engine/parent.py", line 3, in f\n\ny'),
        ("x\n    engine/parent.py:306 join\n    y", "x\n    /somewhere/engine/parent.py:9 join\n    y"),
        (
            "Graph execution error:\n\nx\n2 root errors\n  (0) A:  feed 'a/Placeholder_1'\n\t [[b]]\n  (1) A:  c",
            "Graph execution error:\n\ny\n2 root errors\n  (0) A:  feed 'a/Placeholder'\n  (1) A:  d",
        ),
    ],
)
def test_noise(one: str, other: str) -> None:
    assert without_noise(trace_with(one)) == without_noise(trace_with(other, "3.8.20"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("line 3", "line 4"),
        ('  File "script.py", line 3, in f', '  File "script.py", line 4, in f'),
        ("value 0.5", "value 0.6"),
        ("dense/kernel:0", "dense/kernel_1:0"),
    ],
)
def test_what_is_no_noise(one: str, other: str) -> None:
    assert without_noise(trace_with(one)) != without_noise(trace_with(other))


def test_no_answer_is_no_recording(tmp_path: Path) -> None:
    end: Event = {"event": "end", "t": 1.0, "status": "timeout", "seconds": 1.0, "reason": "too slow"}
    stopped = Trace(({"event": "run", "t": 0.0, "settings": {}}, end))

    class TooSlow:
        limits = SimpleNamespace(at_once=8)

        def submit(self, *_: object) -> TooSlow:
            return self

        def result(self) -> Trace:
            return stopped

    runtime = Runtime(Path("python"), Versions("2.21.0", "3.15.1"))
    with pytest.raises(RecordingError, match=r"aggregation .* on 2.21.0: timeout, too slow"):
        record(cast(Engine, TooSlow()), EXPERIMENTS["aggregation"], runtime, tmp_path)
    assert not list(tmp_path.iterdir())


def test_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*.xz")) < 5_000_000


def test_recording_again_leaves_equal_files_alone(engine: Engine, tmp_path: Path) -> None:
    experiment, runtime = EXPERIMENTS["fit"], engine.runtime()
    assert record(engine, experiment, runtime, tmp_path)
    (file,) = tmp_path.rglob("*.xz")
    before = file.read_bytes()
    assert not record(engine, experiment, runtime, tmp_path)
    assert file.read_bytes() == before
