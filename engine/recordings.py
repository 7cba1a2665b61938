"""Recordings: traces that are kept in the repo, with where they came from, for versions that are not installed.

There is a file for each experiment and runtime, with the choices that the experiment declares (`recorded`). A file is
xz-compressed lines: the first is the provenance, the others are a run each, its settings, a tab, and the run. It has
no times but those of the runs, so that equal traces make equal files.
"""

from __future__ import annotations

import datetime
import itertools
import json
import lzma
import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from engine.engine import Engine
from engine.experiments import Experiment
from engine.job import Ticket
from engine.program import render
from engine.request import Request
from engine.runtimes import Runtime, RuntimeMissingError, choose, runtime_name, version_key
from engine.settings import Settings, SettingsError
from engine.trace import Event, Trace
from engine.versions import Versions

FOLDER = Path(__file__).parent / "recordings"
ROOT = Path(__file__).parent.parent
COMMAND = "python -m engine recordings"
DECIMALS = 3  # of the seconds in a recording

# What a machine's folders are called says nothing, and is nobody's business. The engine has seen to TensorFlow's.
PATHS = (
    (re.compile(re.escape(f"{ROOT}/")), ""),
    (re.compile(r"/[^\s\"'<>]*/(?=lib/python3\.\d+/)"), ""),
    (re.compile(r"/[^\s\"'<>]*/(__autograph_generated_file)\w+"), r"\1"),
)
# What differs in the texts of two equal runs.
NOISE = (
    # The frames of a stack beside the program's own: the engine's, and those within TensorFlow.
    (re.compile(r'^ *File "(?!script\.py").*\n+', re.MULTILINE), ""),
    (re.compile(r"^ *\S*engine/parent\.py:\d+ .*\n", re.MULTILINE), ""),
    # Of several operations of a graph that fail, which is the first is a matter of threads.
    (re.compile(r"\AGraph execution error:.*?\(0\) ([^\n]*).*", re.DOTALL), r"Graph execution error: \1"),
    (re.compile(r"\bPlaceholder_\d+"), "Placeholder"),
    (re.compile(r"0x[0-9a-f]+"), "0x"),
    (re.compile(r"\b(id=|(?:__inference|__forward|__backward)_\w*?_)\d+"), r"\1"),
)


class RecordingError(RuntimeError):
    """Something could not be recorded, because it gave no answer."""


class NotRecordedError(LookupError):
    """There is no recording of what was asked for; the message says what is recorded instead."""


@dataclass(frozen=True)
class Provenance:
    """Where a recording came from. `other_keras` is a Runtime's; `date` is the day it was made (UTC)."""

    tensorflow: str
    keras: str
    tf_keras: str | None
    other_keras: bool
    python: str
    platform: str
    date: str
    made_by: str

    @property
    def name(self) -> str:
        """The name of the runtime that it was made with."""
        return runtime_name(self.tensorflow, self.keras if self.other_keras else None)

    @property
    def versions(self) -> Versions:
        return Versions(self.tensorflow, self.keras, self.tf_keras)


@dataclass(frozen=True)
class Recording:
    """One run as it was: its trace, the program that ran, and where that was."""

    trace: Trace
    program: str
    provenance: Provenance


class Recordings:
    """The recordings of a folder. A file is read when something in it is first wanted."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._provenance: dict[str, dict[str, Provenance]] = {}
        self._lines: dict[tuple[str, str], dict[str, str]] = {}

    def made_with(self, experiment: Experiment[Any]) -> dict[str, Provenance]:
        """Where the recordings of an experiment came from, by the name of the runtime, the newest TensorFlow first."""
        if experiment.name not in self._provenance:
            found = [_provenance(file) for file in (self._folder / experiment.name).glob("tf-*.xz")]
            found.sort(key=lambda provenance: (not provenance.other_keras, version_key(provenance.name)), reverse=True)
            self._provenance[experiment.name] = {provenance.name: provenance for provenance in found}
        return self._provenance[experiment.name]

    def find(self, request: Request) -> Recording | None:
        """The recording of just that: these settings, with the versions that the request names (the newest, where it
        names none). None where there is none: nothing takes its place."""
        try:
            provenance = choose(self.made_with(request.experiment), request.tensorflow, request.keras)
        except RuntimeMissingError:
            return None
        line = self._runs(request.experiment, provenance.name).get(_key(request.settings))
        return None if line is None else _recording(line, provenance)

    def get(self, request: Request) -> Recording:
        """As `find`. Raises NotRecordedError, which says what is recorded, where there is none."""
        recording = self.find(request)
        if recording is None:
            raise NotRecordedError(f"not recorded: {request.command}; {self._nearest(request)}")
        return recording

    def _nearest(self, request: Request) -> str:
        """What is recorded of an experiment, in words: on which versions, or there the choice with the fewest other
        values."""
        made = self.made_with(request.experiment)
        try:
            name = choose(made, request.tensorflow, request.keras).name
        except RuntimeMissingError:
            return f"{request.experiment.name} is recorded on: {', '.join(made) or 'none'}"
        wanted = request.settings.model_dump(mode="json")
        choices = [json.loads(key) for key in self._runs(request.experiment, name)]
        nearest = min(choices, key=lambda choice: sum(choice[setting] != wanted[setting] for setting in wanted))
        other = request.experiment.settings.parse(nearest)
        command = Request(request.experiment, other, request.tensorflow, request.keras).command
        return f"of the {len(choices)} choices that are recorded on {name} the nearest is: {command} --recorded"

    def all(self, experiment: Experiment[Any], name: str) -> Iterator[Recording]:
        """Every recording of an experiment on the runtime of that name."""
        provenance = self.made_with(experiment)[name]
        for line in self._runs(experiment, name).values():
            yield _recording(line, provenance)

    def _runs(self, experiment: Experiment[Any], name: str) -> dict[str, str]:
        """What each run's line has after its settings, by these."""
        where = (experiment.name, name)
        if where not in self._lines:
            text = lzma.decompress(_file(self._folder, experiment, name).read_bytes()).decode()
            lines = text.splitlines()[1:]
            self._lines[where] = {key: run for key, _, run in (line.partition("\t") for line in lines)}
        return self._lines[where]


# ------------------------------------------------------------------------------------------------------------ making


def recorded_settings(experiment: Experiment[Any]) -> list[Settings]:
    """Every choice that an experiment declares to be recorded, in a fixed order."""
    settings: dict[str, Settings] = {}
    for grid in experiment.recorded:
        for options in itertools.product(*grid.values()):
            chosen = experiment.settings.parse(dict(zip(grid, options, strict=True)))
            settings[_key(chosen)] = chosen
    return [settings[key] for key in sorted(settings)]


def is_recorded_on(experiment: Experiment[Any], runtime: Runtime) -> bool:
    """Whether there is to be a recording of that experiment on that runtime."""
    wanted = bool(experiment.recorded) and (experiment.on_each_keras or not runtime.other_keras)
    return wanted and experiment.runs_on(runtime.versions)


def record(engine: Engine, experiment: Experiment[Any], runtime: Runtime, folder: Path = FOLDER) -> bool:
    """Record an experiment on a runtime. Returns False where that is what the recording says already: then the file is
    left as it is, with its own date. Raises RecordingError where a run gave no answer."""
    runs: dict[str, Recording] = {}
    provenance: Provenance | None = None
    for settings, program, trace in _run_all(engine, experiment, runtime):
        if not trace.answered:
            words = " ".join(f"{name}={value}" for name, value in settings.to_words(changed_only=True).items())
            raise RecordingError(f"{experiment.name} {words} on {runtime.name}: {trace.status}, {trace.end['reason']}")
        if provenance is None:
            provenance = _made_now(runtime, trace)
        runs[_key(settings)] = Recording(_portable(trace), program, provenance)
    if provenance is None:
        return False  # it accepts none of these choices
    existing = Recordings(folder)
    if runtime.name in existing.made_with(experiment):
        said = {_key_of(recording.trace): recording for recording in existing.all(experiment, runtime.name)}
        if said.keys() == runs.keys() and all(_same(said[key], run) for key, run in runs.items()):
            return False
    lines = [json.dumps(asdict(provenance))]
    lines += [f"{key}\t{_line(run)}" for key, run in sorted(runs.items())]
    file = _file(folder, experiment, runtime.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    return True


def without_noise(trace: Trace) -> list[dict[str, Any]]:
    """The events of a trace less what differs between two equal runs on one version: times, the addresses and numbers
    that objects have in messages, stack frames outside the program, the release of Python, and which of a cluster's
    tasks was faster: the events of each are together."""
    start, *events, end = trace.without_times()
    return [
        {name: _cleaned(value, NOISE) for name, value in event.items() if name not in ("tensorflow", "keras", "python")}
        for event in (start, *sorted(events, key=lambda event: str(event.get("task", ""))), end)
    ]


def _run_all(engine: Engine, experiment: Experiment[Any], runtime: Runtime) -> Iterator[tuple[Settings, str, Trace]]:
    """Run every choice that the runtime accepts, some at a time, in order."""
    tickets: list[tuple[Settings, str, Ticket]] = []
    for settings in recorded_settings(experiment):
        request = Request(experiment, settings, runtime.name)
        try:
            program = render(experiment, settings, runtime.versions)
            tickets.append((settings, program, engine.submit(request, "recordings")))
        except SettingsError:
            continue  # such as keras=tf_keras, where there is none
        if len(tickets) == engine.limits.at_once:
            first, program, ticket = tickets.pop(0)
            yield first, program, ticket.result()
    for settings, program, ticket in tickets:
        yield settings, program, ticket.result()


def _made_now(runtime: Runtime, trace: Trace) -> Provenance:
    return Provenance(
        tensorflow=runtime.versions.tensorflow,
        keras=runtime.versions.keras,
        tf_keras=runtime.versions.tf_keras,
        other_keras=runtime.other_keras,
        python=trace.start["python"],
        platform=f"{platform.system()} {platform.machine()}",
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        made_by=COMMAND,
    )


def _same(one: Recording, other: Recording) -> bool:
    return one.program == other.program and without_noise(one.trace) == without_noise(other.trace)


# ------------------------------------------------------------------------------------------------------ what is written


def _key(settings: Settings) -> str:
    return json.dumps(settings.model_dump(mode="json"), sort_keys=True)


def _key_of(trace: Trace) -> str:
    return json.dumps(trace.start["settings"], sort_keys=True)


def _file(folder: Path, experiment: Experiment[Any], name: str) -> Path:
    return folder / experiment.name / f"tf-{name.replace('+', '-')}.jsonl.xz"


def _provenance(file: Path) -> Provenance:
    with lzma.open(file, "rt", encoding="utf-8") as lines:
        return Provenance(**json.loads(lines.readline()))


def _line(recording: Recording) -> str:
    return json.dumps(
        {"program": recording.program, "events": recording.trace.events, "stderr": recording.trace.stderr},
        ensure_ascii=False,
    )


def _recording(line: str, provenance: Provenance) -> Recording:
    run = json.loads(line)
    return Recording(Trace(tuple(run["events"]), run["stderr"]), run["program"], provenance)


def _portable(trace: Trace) -> Trace:
    """A trace as it may leave this machine."""
    return Trace(tuple(map(_portable_event, trace.events)), _cleaned(trace.stderr, PATHS))


def _portable_event(event: Event) -> Event:
    fields: dict[str, Any] = {name: _cleaned(value, PATHS) for name, value in event.items()}
    for name in {"t", "seconds"} & fields.keys():
        fields[name] = round(fields[name], DECIMALS)
    return cast("Event", fields)


def _cleaned(value: Any, rules: Iterable[tuple[re.Pattern[str], str]]) -> Any:
    if isinstance(value, str):
        for pattern, replacement in rules:
            value = pattern.sub(replacement, value)
    return value
