"""A lesson page: controls, a run, the figure, what happened, and the tabs beneath. The same for every lesson."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.mutable_tab_container import TabContainer

from engine.offers import Offer, how_to_get
from engine.program import notebook
from engine.request import Request
from engine.runtimes import runtime_name
from engine.settings import SettingsError
from engine.trace import Trace
from lessons import LESSONS
from lessons.language import Texts, number
from lessons.lesson import AnyLesson
from pages.parts.actions import actions
from pages.parts.address import problem_text, read_address, settle_address, tell_problems, tell_unknown
from pages.parts.charts import PLOTLY
from pages.parts.code import changed_lines, program_html
from pages.parts.controls import chosen, control, reset
from pages.parts.engine import shared_engine
from pages.parts.guide import guide, offer_fix
from pages.parts.pinned import pin_run, pinned_run
from pages.parts.predict import ask, is_asked, predict_switch, verdict
from pages.parts.running import Shown, run
from pages.parts.scope_box import scope_box
from pages.parts.shell import chosen_language, page_of
from pages.parts.side_by_side import versions_table
from pages.parts.successor import successor
from pages.parts.sweep import sweep_tab
from pages.parts.version import KERAS, RECORDED, TF, offered, request_on, version_control, version_of, version_words

HIDEABLE = ("controls", "story", "tabs")  # parts that the URL can leave out


def lesson_page(name: str) -> None:
    """The whole page of the lesson of that name. What the visitor chose is in the URL, so that a link reopens exactly
    this."""
    (lesson,) = (each for each in LESSONS if each.name == name)
    texts = lesson.texts(chosen_language())
    model = lesson.experiment.settings
    hidden = {word for word in st.query_params.get("hide", "").split(",") if word}
    st.title(texts("question"), anchor=False)
    for word in hidden:
        tell_unknown("hide", word, HIDEABLE, texts)
    read_address(model, lesson.name)
    tell_problems(model, texts)
    # A held run is in the URL too; the switch shows whether there is one.
    st.session_state["compare"] = "held" in st.query_params
    if "controls" in hidden:
        offer = version_control(shared_engine(), lesson.experiment, texts, None)
        request = _request(lesson, offer)
        line, result = st.container(horizontal=True, gap="small"), st.container()
    else:
        left, right = st.columns([3, 8], gap="medium")
        with right:
            # What is to run, and, when it has, what ran: in one line.
            line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="version-line")
            offer = version_control(shared_engine(), lesson.experiment, texts, line)
        with left:
            request = _controls(lesson, offer, texts)
        with right:
            guide(lesson, request, texts)
            actions(lesson, request, texts)
            result = st.container()
    # All that needs no run is there before one is waited for: the first may take as long as TensorFlow's import.
    tabs = _tabs(lesson, request, texts) if request is not None and "tabs" not in hidden else None
    if lesson.see_also is not None:
        other, settings = lesson.see_also
        st.page_link(
            page_of(other),
            label=texts("see_also"),
            icon=":material/arrow_forward:",
            query_params=settings,
        )
    with result:
        shown = _result(lesson, request, texts, hidden, line, tabs)
    if request is not None and tabs is not None:
        _fill(tabs, lesson, request, shown, texts)
    settle_address()


def _controls(lesson: AnyLesson, offer: Offer | None, texts: Texts) -> Request | None:
    model = lesson.experiment.settings
    declared = {setting.name: setting for setting in model.declared()}
    off: frozenset[str] = frozenset()
    captions: Mapping[str, str] = {}
    with contextlib.suppress(SettingsError):
        settings = model.parse(chosen(model))
        off, captions = lesson.unused(settings), lesson.captions(settings)

    def show(name: str) -> None:
        control(declared[name], model, lesson.name, texts, disabled=name in off, caption=captions.get(name))

    st.markdown(texts("intro"))
    if lesson.places:
        scope_box(lesson, texts)
    for name in lesson.first:
        show(name)
    with st.expander(texts("page.more"), icon=":material/tune:"):
        for name in declared:
            if name not in lesson.first:
                show(name)
    request = _request(lesson, offer)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            texts("page.reset"),
            help=texts("page.reset_help"),
            icon=":material/restart_alt:",
            on_click=reset,
            args=(model, lesson.name),
        )
        st.toggle(
            texts("page.compare"),
            key="compare",
            help=texts("page.compare_help"),
            on_change=_hold,
            args=(lesson, request, offer),
            disabled=request is None,
        )
        if lesson.prediction is not None:
            predict_switch(texts)
    return request


def _request(lesson: AnyLesson, offer: Offer | None) -> Request | None:
    """What is asked for, or None where that can't be (`_refused` tells why, where the result would be)."""
    model = lesson.experiment.settings
    try:
        return request_on(offer, lesson.experiment, model.parse(chosen(model)))
    except SettingsError:
        return None


def _refused(lesson: AnyLesson, texts: Texts) -> None:
    model = lesson.experiment.settings
    try:
        model.parse(chosen(model))
    except SettingsError as error:
        for problem in error.problems:
            st.error(texts("page.not_run", problem=problem_text(problem, model, texts)), icon=":material/error:")


def _hold(lesson: AnyLesson, request: Request | None, offer: Offer | None) -> None:
    if st.session_state["compare"] and request is not None:
        default = next(iter(offered(shared_engine(), lesson.experiment).values()), None)
        version = version_words(offer, default) if offer else {}
        st.query_params["held"] = urlencode({**request.settings.to_words(changed_only=True), **version}) or "defaults"
    else:
        st.query_params.pop("held", None)


def _held(lesson: AnyLesson, texts: Texts) -> Request | None:
    """The run that is held beside the present one, from the URL."""
    text, model = st.query_params.get("held"), lesson.experiment.settings
    if text is None:
        return None
    try:
        given = {} if text == "defaults" else dict(parse_qsl(text, keep_blank_values=True))
        version = {name: given.pop(name, "") for name in (TF, KERAS)}
        offer = version_of(version, offered(shared_engine(), lesson.experiment), texts)
        words = {name: word for name, word in given.items() if name in model.model_fields}
        return request_on(offer, lesson.experiment, model.parse(words))
    except SettingsError as error:
        for problem in error.problems:
            shown = problem_text(problem, model, texts)
            st.warning(texts("page.held_refused", problem=shown), icon=":material/link_off:")
        return None


def _result(
    lesson: AnyLesson,
    request: Request | None,
    texts: Texts,
    hidden: set[str],
    line: DeltaGenerator,
    tabs: _Tabs | None,
) -> Shown | None:
    """Run, draw and tell; `line` is where the badges go. Returns what is shown, None where nothing could be."""
    if request is None:
        _refused(lesson, texts)
        return None
    held = _held(lesson, texts)
    if held is None:
        shown = _run_and_draw(lesson, request, texts, "now", line, tabs)
    else:
        shown = _side_by_side(lesson, held, request, texts)
    has_story = shown is not None and len(shown.trace.events) > 2 and not is_asked(lesson, request)
    if shown is not None and has_story and "story" not in hidden:
        _story(lesson, shown.trace, texts)
    return shown


def _side_by_side(lesson: AnyLesson, held: Request, now: Request, texts: Texts) -> Shown | None:
    shown = None
    for column, request, name in zip(st.columns(2, gap="medium"), (held, now), ("held", "now"), strict=True):
        with column:
            changed = request.settings.to_words(changed_only=True)
            if (held.tensorflow, held.keras) != (now.tensorflow, now.keras):
                changed = {"tf": runtime_name(request.tensorflow or "", request.keras), **changed}
            st.markdown(
                f"**{texts(f'page.{name}')}** · " + (", ".join(f"`{k}={v}`" for k, v in changed.items()) or "—")
            )
            badges = st.container(horizontal=True, gap="small")
            shown = _run_and_draw(lesson, request, texts, name, badges)
    return shown


def _run_and_draw(
    lesson: AnyLesson,
    request: Request,
    texts: Texts,
    name: str,
    badges: DeltaGenerator,
    tabs: _Tabs | None = None,
) -> Shown | None:
    """Run, and draw: a live figure also while the run goes on, in the place where it then stays. The Code tab has the
    program from when the run has to be waited for."""
    above, below = st.container(), st.container()
    place: DeltaGenerator | None = None
    pictures = itertools.count()

    def draw(trace: Trace, key: str = "") -> None:
        # The picture before this run stays until there is another, and that one takes its place; an `st.empty` made
        # beforehand would take it away.
        nonlocal place
        key = key or f"live-{name}-{next(pictures)}"
        place = (below if place is None else place).plotly_chart(
            lesson.figure(trace, texts), key=key, config=PLOTLY, alt=lesson.alternative(trace, texts)
        )

    def show_program(program: str) -> None:
        if tabs is not None:
            tabs.code = tabs.code.html(program_html(program, frozenset(), fold=texts("code.reporting")))

    covered = is_asked(lesson, request)
    with above:
        shown = pinned_run(lesson, request, name) or run(
            shared_engine(), request, texts, draw if lesson.live and not covered else None, show_program
        )
        if shown is not None:
            pin_run(lesson, request, name, shown)
            _badges(shown, texts, badges)
            _say_if_stopped(shown.trace, texts, name)
            if covered and shown.trace.answered:
                ask(lesson, request, texts)
                return shown
            verdict(lesson, request, shown.trace, texts)
    if shown is not None and len(shown.trace.events) > 2:  # where there is more than the engine's own
        draw(shown.trace, f"figure-{name}")
    return shown


def _say_if_stopped(trace: Trace, texts: Texts, name: str) -> None:
    if not trace.answered:
        reason = texts(f"run.why.{trace.end['why']}", detail=trace.end["detail"], task=trace.end.get("task", ""))
        st.error(texts(f"run.{trace.status}", reason=reason), icon=":material/error:")
        st.button(texts("run.again"), key=f"again-{name}")


def _badges(shown: Shown, texts: Texts, line: DeltaGenerator) -> None:
    """What ran: versions, devices, seconds, and whether it ran just now, or where and when it was recorded."""
    start, recording = shown.trace.start, shown.recording
    with line:
        if not shown.trace.answered:
            return  # nothing ran to its end, so there is nothing to say of what ran
        if recording is not None:
            st.badge(
                texts("badge.recorded", date=recording.date, platform=recording.platform),
                icon=RECORDED,
                color="violet",
                help=texts("badge.recorded_help", python=recording.python, made_by=recording.made_by),
            )
        else:
            st.badge(
                texts("badge.cached" if shown.cached else "badge.live"),
                icon=":material/bolt:",
                color="green",
                help=texts("badge.cached_help" if shown.cached else "badge.live_help"),
            )
        st.badge(f"TensorFlow {start['tensorflow']} · Keras {start['keras']}", color="orange")
        st.badge(", ".join(start["devices"]), color="gray", help=texts("badge.devices"))
        st.badge(texts("badge.seconds", seconds=number(round(shown.trace.seconds, 2))), color="gray")
        if recording is not None:
            keras = recording.keras if recording.other_keras else None
            st.caption(texts("version.get", command=how_to_get(recording.tensorflow, keras)), width="content")


def _story(lesson: AnyLesson, trace: Trace, texts: Texts) -> None:
    st.subheader(texts("page.happened"), anchor=False)
    st.markdown(texts.sentences(lesson.story(trace, texts)))
    offer_fix(lesson, trace, texts)
    if trace.error is not None:
        # TensorFlow's own words, whole; what they mean has been said above.
        st.code(f"{trace.error['type']}: {trace.error['message'].strip()}", language=None, wrap_lines=True)


@dataclass
class _Tabs:
    """The tabs under a result; None where the lesson has no such tab, or it would tell what is asked."""

    code: DeltaGenerator  # or what is shown there while the run is waited for, whose place the rest takes
    trace: DeltaGenerator | None = None
    sweep: TabContainer | None = None
    versions: TabContainer | None = None
    successor: TabContainer | None = None


def _tabs(lesson: AnyLesson, request: Request, texts: Texts) -> _Tabs:
    """The tabs, with nothing in them yet."""
    if is_asked(lesson, request):
        return _Tabs(st.tabs([texts("page.code")])[0])
    more = {"sweep": lesson.sweep, "versions": True, "successor": lesson.successor}
    names = {"sweep": "sweep.title", "versions": "page.versions", "successor": "successor.title"}
    names = {name: names[name] for name, there in more.items() if there}
    titles = [texts("page.code"), texts("page.trace"), *map(texts, names.values())]
    code, trace, *others = st.tabs(titles, key="tab", on_change="rerun")
    return _Tabs(code, trace, **dict(zip(names, others, strict=True)))


def _fill(tabs: _Tabs, lesson: AnyLesson, request: Request, shown: Shown | None, texts: Texts) -> None:
    """Code and trace of the run. The rest (a sweep, other versions, what replaced it) runs when it is opened."""
    if shown is not None:
        covered = is_asked(lesson, request)
        with tabs.code.container():
            trace = Trace((shown.trace.start, shown.trace.end)) if covered else shown.trace
            _code(lesson, Shown(trace, shown.program), texts)
        if tabs.trace is not None and not covered:
            with tabs.trace:
                _trace(shown.trace, texts)
    else:
        for tab in (tabs.code, tabs.trace):
            if tab is not None:
                tab.caption(texts("page.no_run"))
    if lesson.sweep is not None and tabs.sweep is not None and tabs.sweep.open:
        with tabs.sweep:
            sweep_tab(shared_engine(), lesson.sweep, request, texts)
    if tabs.versions is not None and tabs.versions.open:
        with tabs.versions:
            versions_table(shared_engine(), request)
    if shown is not None and lesson.successor is not None and tabs.successor is not None and tabs.successor.open:
        with tabs.successor:
            successor(shared_engine(), lesson.successor, request, shown.trace, texts)


def _code(lesson: AnyLesson, shown: Shown, texts: Texts) -> None:
    program, trace = shown.program, shown.trace
    # The program before this one stays what it is compared with until the program changes again.
    before, now = st.session_state.get(f"programs-{lesson.name}", (None, None))
    if program != now:
        before, now = now, program
        st.session_state[f"programs-{lesson.name}"] = (before, now)
    changed = changed_lines(before, program)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            f"{lesson.name}.py",
            program,
            file_name=f"{lesson.name}.py",
            mime="text/x-python",
            icon=":material/download:",
            on_click="ignore",
        )
        st.download_button(
            texts("code.notebook"),
            notebook(program),
            file_name=f"{lesson.name}.ipynb",
            mime="application/x-ipynb+json",
            icon=":material/download:",
            help=texts("code.notebook_help"),
            on_click="ignore",
        )
        note = texts("code.about", file=f"{lesson.name}.py")
        if changed:
            note += " " + texts("code.marked", count=len(changed))
        st.caption(note, width="stretch")
    raised = trace.error["line"] if trace.error else None
    st.html(program_html(program, changed, raised, texts("code.reporting")))


def _trace(trace: Trace, texts: Texts) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            texts("trace.download"),
            trace.to_jsonl(),
            file_name="trace.jsonl",
            mime="application/x-ndjson",
            icon=":material/download:",
            on_click="ignore",
        )
        st.caption(texts("trace.about"), width="stretch")
    st.dataframe([_row(event) for event in trace.events], hide_index=True, alt=texts("page.trace"))
    with st.expander(texts("trace.stderr"), icon=":material/notes:"):
        if trace.stderr.strip():
            st.code(trace.stderr, language=None, wrap_lines=True)
        else:
            st.caption(texts("trace.no_stderr"))


def _row(event: Mapping[str, Any]) -> dict[str, str]:
    """An event as a row of text: every value in one column would otherwise have to be of one kind."""
    first = ("t", "event", "step", "replica", "variable", "counter", "value")
    row = {name: str(event[name]) if name in event else "" for name in first}
    row["…"] = ", ".join(f"{name}={value}" for name, value in event.items() if name not in first)
    return row
