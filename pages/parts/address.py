"""The URL: what it says of the settings goes into the controls, and what is chosen there goes into the URL.

Streamlit can bind a widget to the URL by itself, but then a choice makes no step in the browser's history, an option is
written as it is shown, and what is not accepted vanishes without a word. So the page does both ways itself: the back
button undoes one choice after another, and what is refused is named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from engine.settings import Problem, Setting, Settings, SettingsError, as_words
from lessons.language import Texts
from pages.parts.markdown import code, inside_code

# Of the page itself, not settings of an experiment.
PAGE_WORDS = ("lang", "held", "hide", "predict", "tf", "tf_with_keras", "view", "experiment", "embed", "embed_options")
ADDRESS, PROBLEMS = "address", "address_problems"
REPLACED = "replaced_addresses"  # by changes since the page was last drawn to its end


def read_address(model: type[Settings], page: str) -> None:
    """Put what the URL says into the controls, if it says something new: a link, a reload, back or forward.

    Call it before any control is made. What is not accepted is kept for `tell_problems`; its control has the default.
    """
    given = {name: st.query_params.get_all(name) for name in st.query_params if name not in PAGE_WORDS}
    values, problems = accepted(model, given)
    if st.session_state.get(ADDRESS) != (page, given) and not _is_late(page, given):
        st.session_state.update({**values, ADDRESS: (page, given), PROBLEMS: problems})
    for name, value in values.items():
        st.session_state.setdefault(name, value)  # another page was shown meanwhile; Streamlit drops what it had not


def settle_address() -> None:
    """The page is drawn to its end: what the URL says from now on is what the visitor has it say."""
    st.session_state.pop(REPLACED, None)


def _is_late(page: str, given: Mapping[str, list[str]]) -> bool:
    """Whether the URL is one of before a change that the browser had not heard of yet. Clicks that come faster than a
    page is drawn are handled as one, with the URL that there was at the last; there and back again is then no change
    to a control, and that URL would undo the first click. The back button is told apart by Streamlit."""
    context = get_script_run_ctx()
    goes_back = context is not None and context.is_history_navigation
    return not goes_back and (page, given) in st.session_state.get(REPLACED, [])


def write_address(model: type[Settings], page: str, *, without: Collection[str] = ()) -> None:
    """Put what the controls hold into the URL, what is at its default left out: one step in the browser's history.

    `without` names words of the page itself that go with it.
    """
    changed = _changed(model)
    kept = {name: st.query_params.get_all(name) for name in st.query_params if name in PAGE_WORDS}
    kept = {name: words for name, words in kept.items() if name not in without}
    st.session_state.setdefault(REPLACED, []).append(st.session_state.get(ADDRESS))
    st.query_params.from_dict({**kept, **changed})
    st.session_state[ADDRESS] = (page, {name: [word] for name, word in changed.items()})
    st.session_state[PROBLEMS] = ()


def explicit() -> frozenset[str]:
    """The settings that the URL names: all others are left to their defaults."""
    _, given = st.session_state.get(ADDRESS, ("", {}))
    return frozenset(given)


def _changed(model: type[Settings]) -> dict[str, str]:
    """What the controls hold, as words, less what leaving it out would give as well: a default may follow from other
    settings."""
    values = {name: st.session_state.get(name) for name in control_values(model())}
    held = {name: value for name, value in values.items() if value not in (None, "")}
    try:
        words = model.parse(held).to_words(changed_only=True)
    except SettingsError:  # while something that is not accepted is typed
        usual = control_values(model())
        return {name: as_words(value) for name, value in held.items() if value != usual[name]}
    # Lists stay as they were typed.
    lists = {setting.name for setting in model.declared() if setting.kind == "numbers"}
    return {name: as_words(held[name]) if name in lists else word for name, word in words.items() if name in held}


def tell_problems(model: type[Settings], texts: Texts) -> None:
    """Warn of what the URL has that is not accepted. The warning stays until something else is chosen."""
    for problem in st.session_state[PROBLEMS]:
        st.warning(texts("page.refused", problem=problem_text(problem, model, texts)), icon=":material/link_off:")


def tell_unknown(name: str, given: str, options: Collection[str], texts: Texts) -> None:
    """Warn of a word of the page itself that the URL has, where it is none of those there are."""
    if given not in options:
        given = inside_code(given[:80])
        problem = texts("page.refused_value", setting=name, given=given, allowed=texts.items(options))
        st.warning(texts("page.refused", problem=problem), icon=":material/link_off:")


def accepted(model: type[Settings], given: Mapping[str, list[str]]) -> tuple[dict[str, Any], tuple[Problem, ...]]:
    """What the controls are to hold for this URL, and what in it is not accepted. What no setting is called by is
    somebody else's, such as `utm_source`."""
    declared = {setting.name: setting for setting in model.declared()}
    several = {name: values for name, values in given.items() if name in declared and len(values) > 1}
    problems = [Problem(name, " & ".join(values)[:80], declared[name].allowed) for name, values in several.items()]
    words = {name: values[-1] for name, values in given.items() if name in declared and name not in several}
    # A list is typed as text: it stays in its control as it is, and the page says there what is wrong with it.
    typed = {name: words.pop(name) for name, setting in declared.items() if setting.kind == "numbers" and name in words}
    while True:
        try:
            return {**control_values(model.parse(words)), **typed}, tuple(problems)
        except SettingsError as error:
            problems += error.problems
            words = {name: word for name, word in words.items() if name not in {each.setting for each in problems}}


def control_values(settings: Settings) -> dict[str, Any]:
    """What each control holds for these settings. A list's is empty: left out, it follows from the others."""
    lists = {setting.name for setting in settings.declared() if setting.kind == "numbers"}
    return {name: "" if name in lists else value for name, value in settings.model_dump().items()}


def problem_text(problem: Problem, model: type[Settings], texts: Texts) -> str:
    """A problem as a sentence: what was given, and what is allowed. `texts` are of who declares the settings, as a rule
    of an experiment's own has its text there."""
    if problem.rule:
        values = {name: _value_text(value, texts) for name, value in problem.values.items()}
        if "each" in problem.values:
            values["each"] = texts(f"each.{problem.values['each']}")
        allowed = texts(f"refused.{problem.rule}", **values)
    else:
        allowed = _allowed(next(each for each in model.declared() if each.name == problem.setting), texts)
    return texts("page.refused_value", setting=problem.setting, given=inside_code(problem.given), allowed=allowed)


def _value_text(value: object, texts: Texts) -> object:
    if isinstance(value, tuple):
        return texts.items(code(str(part)) for part in value)
    return value if isinstance(value, int) else code(str(value))


def _allowed(setting: Setting, texts: Texts) -> str:
    """What a setting accepts, in the visitor's language."""
    form: str = setting.kind
    if setting.optional and setting.kind in ("integer", "number"):
        form += "_or_none"
    elif setting.longest is not None:
        form += "_up_to"
    return texts(
        f"allowed.{form}",
        choices=texts.items(setting.choices),
        minimum=f"{setting.minimum:g}" if setting.minimum is not None else "",
        maximum=f"{setting.maximum:g}" if setting.maximum is not None else "",
        shortest=setting.shortest,
        longest=setting.longest,
        each=texts(f"each.{setting.each}") if setting.each else "",
    )
