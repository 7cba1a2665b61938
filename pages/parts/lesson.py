"""A lesson page: controls, a run, the figure, what happened, and the tabs beneath. The same for every lesson."""

from __future__ import annotations

import itertools
from typing import Any
from urllib.parse import parse_qsl, urlencode

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

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
from pages.parts.shell import chosen_language, get_app_texts, page_of
from pages.parts.side_by_side import versions_table
from pages.parts.successor import successor
from pages.parts.sweep import sweep_tab
from pages.parts.version import KERAS, RECORDED, TF, offered, request_on, version_control, version_of, version_words

HIDEABLE = ("controls", "story", "tabs")  # parts that the URL can leave out


def lesson_page(name: str) -> None:
    """The whole page of the lesson of that name. What the visitor chose is in the URL, so that a link reopens exactly
    this."""
    (lesson,) = (each for each in LESSONS if each.name == name)
    app_texts, lesson_texts = get_app_texts(), lesson.texts(chosen_language())
    model = lesson.experiment.settings
    hidden = {word for word in st.query_params.get("hide", "").split(",") if word}
    st.title(lesson_texts("question"), anchor=False)
    for word in hidden:
        tell_unknown("hide", word, HIDEABLE, app_texts)
    read_address(model, lesson.name)
    tell_problems(model, app_texts)
    # A held run is in the URL too; the switch shows whether there is one.
    st.session_state["compare"] = "held" in st.query_params
    if "controls" in hidden:
        offer = version_control(shared_engine(), lesson.experiment, app_texts, None)
        request = _request(lesson, offer)
        shown = _result(lesson, request, app_texts, lesson_texts, hidden, st.container(horizontal=True, gap="small"))
    else:
        left, right = st.columns([3, 8], gap="medium")
        with right:
            # What is to run, and, when it has, what ran: in one line.
            line = st.container(horizontal=True, vertical_alignment="center", gap="small", key="version-line")
            offer = version_control(shared_engine(), lesson.experiment, app_texts, line)
        with left:
            request = _controls(lesson, offer, app_texts, lesson_texts)
        with right:
            guide(lesson, request, lesson_texts)
            actions(lesson, request, app_texts, lesson_texts)
            shown = _result(lesson, request, app_texts, lesson_texts, hidden, line)
    if request is not None and "tabs" not in hidden:
        _tabs(lesson, request, shown, app_texts, lesson_texts)
    if lesson.see_also is not None:
        other, settings = lesson.see_also
        st.page_link(
            page_of(other),
            label=lesson_texts("see_also"),
            icon=":material/arrow_forward:",
            query_params=settings,
        )
    settle_address()


def _controls(lesson: AnyLesson, offer: Offer | None, app_texts: Texts, lesson_texts: Texts) -> Request | None:
    model = lesson.experiment.settings
    declared = {setting.name: setting for setting in model.declared()}
    try:
        off = lesson.unused(model.parse(chosen(model)))
    except SettingsError:
        off = frozenset()
    st.markdown(lesson_texts("intro"))
    if lesson.places:
        scope_box(lesson, lesson_texts)
    for name in lesson.first:
        control(declared[name], model, lesson.name, app_texts, lesson_texts, disabled=name in off)
    with st.expander(app_texts("page.more"), icon=":material/tune:"):
        for name, setting in declared.items():
            if name not in lesson.first:
                control(setting, model, lesson.name, app_texts, lesson_texts, disabled=name in off)
    request = _request(lesson, offer)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            app_texts("page.reset"),
            help=app_texts("page.reset_help"),
            icon=":material/restart_alt:",
            on_click=reset,
            args=(model, lesson.name),
        )
        st.toggle(
            app_texts("page.compare"),
            key="compare",
            help=app_texts("page.compare_help"),
            on_change=_hold,
            args=(lesson, request, offer),
            disabled=request is None,
        )
        if lesson.prediction is not None:
            predict_switch(app_texts)
    return request


def _request(lesson: AnyLesson, offer: Offer | None) -> Request | None:
    """What is asked for, or None where that can't be (`_refused` tells why, where the result would be)."""
    model = lesson.experiment.settings
    try:
        return request_on(offer, lesson.experiment, model.parse(chosen(model)))
    except SettingsError:
        return None


def _refused(lesson: AnyLesson, app_texts: Texts) -> None:
    model = lesson.experiment.settings
    try:
        model.parse(chosen(model))
    except SettingsError as error:
        for problem in error.problems:
            st.error(
                app_texts("page.not_run", problem=problem_text(problem, model, app_texts)), icon=":material/error:"
            )


def _hold(lesson: AnyLesson, request: Request | None, offer: Offer | None) -> None:
    if st.session_state["compare"] and request is not None:
        default = next(iter(offered(shared_engine(), lesson.experiment).values()), None)
        version = version_words(offer, default) if offer else {}
        st.query_params["held"] = urlencode({**request.settings.to_words(changed_only=True), **version}) or "defaults"
    else:
        st.query_params.pop("held", None)


def _held(lesson: AnyLesson, app_texts: Texts) -> Request | None:
    """The run that is held beside the present one, from the URL."""
    text = st.query_params.get("held")
    if text is None:
        return None
    try:
        given = {} if text == "defaults" else dict(parse_qsl(text, keep_blank_values=True))
        version = {name: given.pop(name, "") for name in (TF, KERAS)}
        offer = version_of(version, offered(shared_engine(), lesson.experiment), app_texts)
        return request_on(offer, lesson.experiment, lesson.experiment.settings.parse(given))
    except SettingsError as error:
        for problem in error.problems:
            shown = problem_text(problem, lesson.experiment.settings, app_texts)
            st.warning(app_texts("page.held_refused", problem=shown), icon=":material/link_off:")
        return None


def _result(
    lesson: AnyLesson,
    request: Request | None,
    app_texts: Texts,
    lesson_texts: Texts,
    hidden: set[str],
    line: DeltaGenerator,
) -> Shown | None:
    """Run, draw and tell; `line` is where the badges go. Returns what is shown, None where nothing could be."""
    if request is None:
        _refused(lesson, app_texts)
        return None
    held = _held(lesson, app_texts)
    if held is None:
        shown = _run_and_draw(lesson, request, app_texts, lesson_texts, "now", line)
    else:
        shown = _side_by_side(lesson, held, request, app_texts, lesson_texts)
    has_story = shown is not None and len(shown.trace.events) > 2 and not is_asked(lesson, request)
    if shown is not None and has_story and "story" not in hidden:
        _story(lesson, shown.trace, app_texts, lesson_texts)
    return shown


def _side_by_side(
    lesson: AnyLesson, held: Request, now: Request, app_texts: Texts, lesson_texts: Texts
) -> Shown | None:
    shown = None
    for column, request, name in zip(st.columns(2, gap="medium"), (held, now), ("held", "now"), strict=True):
        with column:
            changed = request.settings.to_words(changed_only=True)
            if (held.tensorflow, held.keras) != (now.tensorflow, now.keras):
                changed = {"tf": runtime_name(request.tensorflow or "", request.keras), **changed}
            st.markdown(
                f"**{app_texts(f'page.{name}')}** · " + (", ".join(f"`{k}={v}`" for k, v in changed.items()) or "—")
            )
            badges = st.container(horizontal=True, gap="small")
            shown = _run_and_draw(lesson, request, app_texts, lesson_texts, name, badges)
    return shown


def _run_and_draw(
    lesson: AnyLesson,
    request: Request,
    app_texts: Texts,
    lesson_texts: Texts,
    name: str,
    badges: DeltaGenerator,
) -> Shown | None:
    """Run, and draw: a live figure also while the run goes on, in the place where it then stays."""
    above, below = st.container(), st.container()
    place: DeltaGenerator | None = None
    pictures = itertools.count()

    def draw(trace: Trace, key: str = "") -> None:
        # The picture before this run stays until there is another, and that one takes its place; an `st.empty` made
        # beforehand would take it away.
        nonlocal place
        key = key or f"live-{name}-{next(pictures)}"
        place = (below if place is None else place).plotly_chart(
            lesson.figure(trace, lesson_texts), key=key, config=PLOTLY, alt=lesson.alternative(trace, lesson_texts)
        )

    covered = is_asked(lesson, request)
    with above:
        shown = pinned_run(lesson, request, name) or run(
            shared_engine(), request, app_texts, draw if lesson.live and not covered else None
        )
        if shown is not None:
            pin_run(lesson, request, name, shown)
            _badges(shown, app_texts, badges)
            _say_if_stopped(shown.trace, app_texts, name)
            if covered and shown.trace.answered:
                ask(lesson, request, app_texts, lesson_texts)
                return shown
            verdict(lesson, request, shown.trace, app_texts, lesson_texts)
    if shown is not None and len(shown.trace.events) > 2:  # where there is more than the engine's own
        draw(shown.trace, f"figure-{name}")
    return shown


def _say_if_stopped(trace: Trace, app_texts: Texts, name: str) -> None:
    if not trace.answered:
        reason = app_texts(f"run.why.{trace.end['why']}", detail=trace.end["detail"], task=trace.end.get("task", ""))
        st.error(app_texts(f"run.{trace.status}", reason=reason), icon=":material/error:")
        st.button(app_texts("run.again"), key=f"again-{name}")


def _badges(shown: Shown, app_texts: Texts, line: DeltaGenerator) -> None:
    """What ran: versions, devices, seconds, and whether it ran just now, or where and when it was recorded."""
    start, recording = shown.trace.start, shown.recording
    with line:
        if not shown.trace.answered:
            return  # nothing ran to its end, so there is nothing to say of what ran
        if recording is not None:
            st.badge(
                app_texts("badge.recorded", date=recording.date, platform=recording.platform),
                icon=RECORDED,
                color="violet",
                help=app_texts("badge.recorded_help", python=recording.python, made_by=recording.made_by),
            )
        else:
            st.badge(
                app_texts("badge.cached" if shown.cached else "badge.live"),
                icon=":material/bolt:",
                color="green",
                help=app_texts("badge.cached_help" if shown.cached else "badge.live_help"),
            )
        st.badge(f"TensorFlow {start['tensorflow']} · Keras {start['keras']}", color="orange")
        st.badge(", ".join(start["devices"]), color="gray", help=app_texts("badge.devices"))
        st.badge(app_texts("badge.seconds", seconds=number(round(shown.trace.seconds, 2))), color="gray")
        if recording is not None:
            keras = recording.keras if recording.other_keras else None
            st.caption(app_texts("version.get", command=how_to_get(recording.tensorflow, keras)), width="content")


def _story(lesson: AnyLesson, trace: Trace, app_texts: Texts, lesson_texts: Texts) -> None:
    st.subheader(app_texts("page.happened"), anchor=False)
    st.markdown(lesson_texts.sentences(lesson.story(trace, lesson_texts)))
    offer_fix(lesson, trace, app_texts)
    if trace.error is not None:
        # TensorFlow's own words, whole; what they mean has been said above.
        st.code(f"{trace.error['type']}: {trace.error['message'].strip()}", language=None, wrap_lines=True)


def _tabs(lesson: AnyLesson, request: Request, shown: Shown | None, app_texts: Texts, lesson_texts: Texts) -> None:
    """Code and trace of the run. The rest (a sweep, other versions, what replaced it) runs when it is opened."""
    if shown is not None and is_asked(lesson, request):
        with st.tabs([app_texts("page.code")])[0]:  # the rest would tell
            _code(lesson, Shown(Trace((shown.trace.start, shown.trace.end)), shown.program), app_texts)
        return
    names = [app_texts("page.code"), app_texts("page.trace")] if shown else []
    more = [lesson_texts("sweep.title")] if lesson.sweep else []
    replaced = [lesson_texts("successor.title")] if shown and lesson.successor else []
    tabs = st.tabs([*names, *more, app_texts("page.versions"), *replaced], key="tab", on_change="rerun")
    versions = tabs[len(names) + len(more)]
    if shown is not None:
        code, events, *_ = tabs
        with code:
            _code(lesson, shown, app_texts)
        with events:
            _trace(shown.trace, app_texts)
    if lesson.sweep is not None and tabs[len(names)].open:
        with tabs[len(names)]:
            sweep_tab(shared_engine(), lesson.sweep, request, lesson_texts)
    if versions.open:
        with versions:
            versions_table(shared_engine(), request)
    if shown is not None and lesson.successor is not None and tabs[-1].open:
        with tabs[-1]:
            successor(lesson.successor, request, shown.trace, app_texts, lesson_texts)


def _code(lesson: AnyLesson, shown: Shown, app_texts: Texts) -> None:
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
            app_texts("code.notebook"),
            notebook(program),
            file_name=f"{lesson.name}.ipynb",
            mime="application/x-ipynb+json",
            icon=":material/download:",
            help=app_texts("code.notebook_help"),
            on_click="ignore",
        )
        note = app_texts("code.about", file=f"{lesson.name}.py")
        if changed:
            note += " " + app_texts("code.marked", count=len(changed))
        st.caption(note, width="stretch")
    raised = trace.error["line"] if trace.error else None
    st.html(program_html(program, changed, raised, app_texts("code.reporting")))


def _trace(trace: Trace, app_texts: Texts) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.download_button(
            app_texts("trace.download"),
            trace.to_jsonl(),
            file_name="trace.jsonl",
            mime="application/x-ndjson",
            icon=":material/download:",
            on_click="ignore",
        )
        st.caption(app_texts("trace.about"), width="stretch")
    st.dataframe([_row(event) for event in trace.events], hide_index=True, alt=app_texts("page.trace"))
    with st.expander(app_texts("trace.stderr"), icon=":material/notes:"):
        if trace.stderr.strip():
            st.code(trace.stderr, language=None, wrap_lines=True)
        else:
            st.caption(app_texts("trace.no_stderr"))


def _row(event: dict[str, Any]) -> dict[str, str]:
    """An event as a row of text: every value in one column would otherwise have to be of one kind."""
    first = ("t", "event", "step", "replica", "variable", "counter", "value")
    row = {name: str(event[name]) if name in event else "" for name in first}
    row["…"] = ", ".join(f"{name}={value}" for name, value in event.items() if name not in first)
    return row
