"""One choice of settings on every version, side by side: each row as its run ends, differences marked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from engine.engine import Engine
from engine.experiments import Experiment
from engine.request import Request
from engine.settings import Settings
from lessons import outcome_of
from lessons.language import Texts
from lessons.outcome import Outcome
from lessons.versions.flavour import Flavour, flavours
from pages.parts.cells import badge, get_versions_texts, linked
from pages.parts.markdown import plain
from pages.parts.running import Shown, together
from pages.parts.version import RECORDED, offered

REDRAW_SECONDS = 1.0  # between two drawings of the table while TensorFlow is imported


def versions_table(engine: Engine, shown: Request) -> None:
    """The same settings on every version, as a tab of a lesson: beside the version that the lesson shows."""
    side_by_side(engine, shown.experiment, shown.settings, _name(shown), mark=True)


def side_by_side(
    engine: Engine,
    experiment: Experiment[Any],
    settings: Settings,
    reference: str | None,
    *,
    mark: bool = False,
) -> None:
    """Run and show. `reference` names the flavour that the others are compared with; None is the default version.
    `mark` says that it is what the page shows above."""
    texts = get_versions_texts()
    offers = offered(engine, experiment)
    default = next(iter(offers.values()), None)
    columns = flavours(experiment, offers)
    if reference not in {flavour.name for flavour in columns}:
        usual = [flavour.name for flavour in columns if flavour.offer is default]
        reference = usual[-1] if usual else None
    requests = [flavour.request(experiment, settings) for flavour in columns]
    found: dict[int, Shown | None] = {}
    table, progress = st.empty(), st.empty()
    drawn: list[tuple[str, str]] = []
    with together(engine, requests) as runs:
        while True:
            rows = [_row(engine, columns[place], found, place, texts) for place in range(len(columns))]
            if rows != drawn:
                drawn = rows
                outcomes = {columns[place].name: _outcome(shown, texts) for place, shown in found.items()}
                table.table(
                    _columns(rows, columns, requests, outcomes, reference, default, texts, mark=mark),
                    border="horizontal",
                    alt=texts("table.alternative"),
                )
                progress.caption(texts("table.running", done=len(found), total=len(columns)))
            if runs.done:
                break
            since = time.monotonic()
            while not (ended := runs.ended(0.4)) and not runs.done:
                importing = any(_is_starting(engine, flavour) for flavour in columns)
                if importing and time.monotonic() - since > REDRAW_SECONDS:
                    break  # its row says how far it is
            found |= ended
    progress.empty()


def _name(request: Request) -> str:
    """The name of the flavour that a request is for."""
    name = f"{request.tensorflow}+keras-{request.keras}" if request.keras else str(request.tensorflow)
    return f"{name} tf_keras" if getattr(request.settings, "keras", "") == "tf_keras" else name


def _outcome(shown: Shown | None, texts: Texts) -> Outcome | None:
    return None if shown is None else outcome_of(shown.trace, texts.language)


def _is_starting(engine: Engine, flavour: Flavour) -> bool:
    return flavour.offer.live and engine.state(flavour.offer.name).name == "starting"


def _row(
    engine: Engine,
    flavour: Flavour,
    found: Mapping[int, Shown | None],
    place: int,
    texts: Texts,
) -> tuple[str, str]:
    """What came of a run, and where it ran, as Markdown."""
    if place not in found:
        if _is_starting(engine, flavour):
            percent = int(100 * engine.state(flavour.offer.name).progress)
            return texts("table.starting", percent=percent), ""
        return texts("table.waiting"), ""
    shown = found[place]
    if shown is None:
        if flavour.offer.live:
            return plain(texts("table.not_recorded")), ""
        return texts("table.not_recorded"), texts("table.get", command=flavour.offer.command)
    outcome = outcome_of(shown.trace, texts.language)
    said = f"{badge(outcome)} {outcome.why}".rstrip()
    recording = shown.recording
    if recording is None:
        return said, f":material/bolt: {texts('table.live')}"
    where = texts("table.recorded", date=recording.date, platform=recording.platform)
    return said, f"{RECORDED} {where}"


def _columns(
    rows: Sequence[tuple[str, str]],
    flavours: Sequence[Flavour],
    requests: Sequence[Request],
    outcomes: Mapping[str, Outcome | None],
    reference: str | None,
    default: Any,
    texts: Texts,
    *,
    mark: bool,
) -> dict[str, list[str]]:
    beside = outcomes.get(reference) if reference else None
    differences = []
    for flavour in flavours:
        mine = outcomes.get(flavour.name)
        if flavour.name == reference:
            differences.append(texts("table.shown") if mark else "—")
        elif mine is None or beside is None:
            differences.append("")
        elif mine == beside:
            differences.append(f"= {texts('table.same')}")
        else:
            differences.append(f"**≠ {texts('table.differs')}**")
    return {
        texts("table.version"): [
            linked(plain(flavour.offer.versions.tensorflow), request, default, flavour)
            for flavour, request in zip(flavours, requests, strict=True)
        ],
        texts("table.keras"): [flavour.keras for flavour in flavours],
        texts("table.outcome"): [said for said, _ in rows],
        texts("table.difference", version=reference or ""): differences,
        texts("table.source"): [where for _, where in rows],
    }
