"""Recordings are the golden transcripts of the product: each is run again wherever its version is installed."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.engine import Engine, Request, Ticket
from engine.experiments import EXPERIMENTS
from engine.program import render
from engine.recordings import FOLDER, Recordings, record, recorded_settings, without_noise

RECORDINGS = Recordings()
EVERY = [(name, runtime) for name, experiment in EXPERIMENTS.items() for runtime in RECORDINGS.made_with(experiment)]


@pytest.mark.parametrize(("name", "runtime"), EVERY)
def test_a_run_is_what_its_recording_says(
    engine: Engine, submit_on: Callable[..., Ticket], name: str, runtime: str
) -> None:
    """The same program gives the same events: times, addresses and stack frames aside."""
    submit_on(runtime, name)  # skips where the version isn't installed; in CI that is a failure
    experiment = EXPERIMENTS[name]
    recordings = list(RECORDINGS.all(experiment, runtime))
    assert recordings
    requests = [Request.of(name, recording.trace.start["settings"], runtime) for recording in recordings]
    tickets = []
    for request, recording in zip(requests, recordings, strict=True):
        program = render(experiment, request.settings, engine.runtime(runtime).versions)
        assert program == recording.program, "the program has changed: make recordings"
        tickets.append(engine.submit(request, "recordings"))
    for request, recording, ticket in zip(requests, recordings, tickets, strict=True):
        at = f"{name} on {runtime}: {request.settings.to_words(changed_only=True)}"
        assert without_noise(ticket.result(280)) == without_noise(recording.trace), at


def test_every_declared_choice_is_recorded() -> None:
    for experiment in EXPERIMENTS.values():
        wanted = {request_key(settings.model_dump(mode="json")) for settings in recorded_settings(experiment)}
        for runtime in RECORDINGS.made_with(experiment):
            have = {request_key(each.trace.start["settings"]) for each in RECORDINGS.all(experiment, runtime)}
            assert have <= wanted, (experiment.name, runtime)
            assert have, (experiment.name, runtime)


def request_key(settings: dict[str, object]) -> str:
    return repr(sorted(settings.items(), key=lambda item: item[0]))


def test_a_recording_says_where_it_came_from_and_nothing_of_a_machine() -> None:
    for name, runtime in EVERY:
        provenance = RECORDINGS.made_with(EXPERIMENTS[name])[runtime]
        assert provenance.name == runtime
        assert provenance.platform
        assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", provenance.date)
        for recording in RECORDINGS.all(EXPERIMENTS[name], runtime):
            text = recording.trace.to_jsonl() + recording.trace.stderr
            assert not re.search(r"/(home|root|tmp|work|Users)/", text)


def test_nothing_takes_the_place_of_what_was_not_recorded() -> None:
    assert RECORDINGS.find(Request.of("aggregation", {"gradients": "0.123,0.456"}, "2.4.1")) is None
    assert RECORDINGS.find(Request.of("aggregation", {}, "9.9.9")) is None
    found = RECORDINGS.find(Request.of("aggregation", {}, "2.4.1"))
    assert found is not None
    assert [event["value"] for event in found.trace.of("variable")] == [1, 1, 1.1, 1.2]
    assert found.trace.start["tensorflow"] == "2.4.1"


def test_recordings_are_small() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*.xz")) < 5_000_000


def test_recording_again_leaves_equal_files_alone(engine: Engine, tmp_path: Path) -> None:
    experiment, runtime = EXPERIMENTS["fit"], engine.runtime()
    assert record(engine, experiment, runtime, tmp_path)
    (file,) = tmp_path.rglob("*.xz")
    before = file.read_bytes()
    assert not record(engine, experiment, runtime, tmp_path)
    assert file.read_bytes() == before
