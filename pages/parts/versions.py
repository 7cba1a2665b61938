"""The parts of the page on versions, one at a time: a choice, two matrices, and the time line of Keras 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import streamlit as st

from engine.engine import Engine
from engine.experiments.fit import FIT
from engine.experiments.scope_placement import SCOPE_PLACEMENT
from engine.offers import Offer
from engine.request import Request
from engine.settings import SettingsError
from lessons import COMPARISONS, outcome_of
from lessons.language import Texts, number
from lessons.lesson import Lesson
from lessons.outcome import Kind
from lessons.versions import fit as fit_reading
from lessons.versions import matrix, timeline
from lessons.versions.flavour import Flavour, flavours
from pages.parts.address import problem_text, read_address, settle_address, tell_problems
from pages.parts.cells import COLORS, SIGNS, address, get_versions_texts
from pages.parts.charts import PLOTLY
from pages.parts.choice import choice
from pages.parts.controls import chosen, control
from pages.parts.filling import fill
from pages.parts.grid import Cell, grid_html, legend_html
from pages.parts.running import Shown
from pages.parts.side_by_side import side_by_side
from pages.parts.version import RECORDED, offered

VIEWS: Final = ("placements", "direct", "timeline", "choice")


def versions_page(engine: Engine) -> None:
    """The whole page. Which part is shown is in the URL, as `view`."""
    texts = get_versions_texts()
    st.title(texts("question"), anchor=False)
    st.markdown(texts("intro"))
    view = choice("view", VIEWS, texts("view.label"), lambda name: texts(f"view.{name}"), forget=True)
    if view == "choice":
        _choice(engine, texts)
    elif view == "timeline":
        _timeline(engine, texts)
    else:
        _matrix(engine, "placements" if view == "placements" else "direct", texts)


# --------------------------------------------------------------------------------------------------------- one choice


def _choice(engine: Engine, texts: Texts) -> None:
    st.markdown(texts("choice.about"))
    left, right = st.columns([3, 8], gap="medium")
    offered_here = {comparison.experiment.name: comparison for comparison in COMPARISONS}
    with left:
        name = choice(
            "experiment",
            tuple(offered_here),
            texts("choice.experiment"),
            lambda name: offered_here[name].texts(texts.language)("experiment"),
            forget=True,
            keep=("lang", "hide", "view", "embed", "embed_options"),
        )
        comparison = offered_here[name]
        model, lesson_texts = comparison.experiment.settings, comparison.texts(texts.language)
        first = (*comparison.places, *comparison.first) if isinstance(comparison, Lesson) else comparison.first
        page = f"versions-{name}"
        read_address(model, page)
        declared = {setting.name: setting for setting in model.declared()}
        for each in first:
            control(declared[each], model, page, lesson_texts)
        with st.expander(texts("page.more"), icon=":material/tune:"):
            for each, setting in declared.items():
                # Each Keras is a row of its own.
                if each not in (*first, "keras"):
                    control(setting, model, page, lesson_texts)
    with right:
        tell_problems(model, lesson_texts)
        try:
            settings = model.parse(chosen(model))
        except SettingsError as error:
            for problem in error.problems:
                said = texts("page.not_run", problem=problem_text(problem, model, lesson_texts))
                st.error(said, icon=":material/error:")
            return
        side_by_side(engine, comparison.experiment, settings, None)
    settle_address()


# ------------------------------------------------------------------------------------------------------------ matrices


def _matrix(engine: Engine, which: matrix.Which, texts: Texts) -> None:
    st.markdown(texts(f"{which}.about"))
    with st.container(horizontal=True):
        if which == "placements":
            optimizer = choice("optimizer", ("momentum", "sgd", "adam"), texts("controls.optimizer.label"))
            mode = choice("mode", ("eager", "function"), texts("controls.mode.label"))
            rows = matrix.placements(optimizer, mode)
        else:
            place = choice(
                "apply_scope", ("out", "in"), texts("matrix.apply_scope"), lambda name: texts(f"matrix.{name}")
            )
            mode = choice("mode", ("function", "eager"), texts("controls.mode.label"))
            rows = matrix.direct(place, mode)
    offers = offered(engine, SCOPE_PLACEMENT)
    columns = flavours(SCOPE_PLACEMENT, offers)
    default = next(iter(offers.values()), None)
    cells = matrix.cells(rows, len(columns))
    requests = [columns[column].request(SCOPE_PLACEMENT, rows[row].settings) for row, column in cells]
    legend: tuple[Kind, ...] = ("right", "odd", "raised")
    st.html(legend_html([(kind, texts(f"matrix.{kind}")) for kind in legend], texts("matrix.recorded")))
    table = st.empty()
    heads = [texts("controls.optimizer.label" if name == "optimizer" else f"matrix.{name}") for name in rows[0].own]
    tops = [(flavour.offer.versions.tensorflow, flavour.keras) for flavour in columns]

    def draw(found: Mapping[int, Shown]) -> None:
        drawn = [
            _cell(found.get(place), requests[place], columns[column], default, texts)
            for place, (_, column) in enumerate(cells)
        ]
        lines = [
            (_own(row, texts), drawn[place * len(columns) : (place + 1) * len(columns)])
            for place, row in enumerate(rows)
        ]
        table.html(grid_html(texts(f"{which}.alternative"), heads, tops, lines))

    fill(engine, f"{which}-{st.query_params.to_dict()}", requests, draw, texts)


def _own(row: matrix.Row, texts: Texts) -> list[str]:
    """What a row is."""
    return [texts(f"matrix.{word}") if word in ("in", "out") else word for word in row.own.values()]


def _cell(shown: Shown | None, request: Request, flavour: Flavour, default: Offer | None, texts: Texts) -> Cell:
    if shown is None:
        return Cell(None, texts("matrix.waiting" if flavour.offer.live else "matrix.none"))
    recording = shown.recording
    provenance = texts("table.recorded", date=recording.date, platform=recording.platform) if recording else ""
    where = address(request.experiment, request.settings, flavour.offer, default)
    return Cell(outcome_of(shown.trace, texts.language), address=where, recorded=provenance)


# ----------------------------------------------------------------------------------------------------------- time line


def _timeline(engine: Engine, texts: Texts) -> None:
    *_, (weight, _) = fit_reading.arithmetic(timeline.SHORT.model_dump())
    st.markdown(texts("timeline.about", weight=number(weight)))
    columns = flavours(FIT, offered(engine, FIT))
    requests = [column.request(FIT, settings) for column in columns for settings in timeline.RUNS]
    figure, table, count = st.empty(), st.empty(), 0

    def draw(found: Mapping[int, Shown]) -> None:
        nonlocal count
        count += 1
        points = [
            _point(column, found.get(2 * place), found.get(2 * place + 1)) for place, column in enumerate(columns)
        ]
        figure.plotly_chart(
            timeline.figure(points, texts),
            config=PLOTLY,
            key=f"timeline-{count}",
            alt=timeline.alternative(points, texts),
        )
        table.table(_meanings(points, found, texts), border="horizontal", alt=texts("timeline.table"))

    fill(engine, "timeline", requests, draw, texts)
    st.caption(texts("timeline.open_markers"))


def _point(flavour: Flavour, short: Shown | None, long: Shown | None) -> timeline.Point:
    recorded = any(shown is not None and shown.recording is not None for shown in (short, long))
    return timeline.Point(flavour, short.trace if short else None, long.trace if long else None, recorded)


def _meanings(points: Sequence[timeline.Point], found: Mapping[int, Shown], texts: Texts) -> dict[str, list[str]]:
    """What each Keras does, in a sentence, and where that ran."""
    said, where = [], []
    for place, point in enumerate(points):
        shown = found.get(2 * place)
        verdict = timeline.verdict(point, texts)
        kind: Kind = "right" if point.right else "odd"
        said.append(f":{COLORS[kind]}-badge[{SIGNS[kind]}] {verdict}" if verdict else texts("matrix.waiting"))
        if shown is None:
            where.append("")
        elif shown.recording is None:
            where.append(f":material/bolt: {texts('table.live')}")
        else:
            told_of = texts("table.recorded", date=shown.recording.date, platform=shown.recording.platform)
            where.append(f"{RECORDED} {told_of}")
    return {
        texts("timeline.keras"): [
            f"{point.flavour.keras} · TF {point.flavour.offer.versions.tensorflow}" for point in points
        ],
        texts("timeline.meaning"): said,
        texts("timeline.source"): where,
    }
