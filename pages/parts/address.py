"""The URL: which of its settings are not accepted, told once and clearly."""

from __future__ import annotations

import streamlit as st

from engine.settings import Problem, Setting, Settings, SettingsError
from lessons.language import Texts

PROBLEMS, SETTLED = "address_problems", "address_settled"
PAGE_WORDS = ("lang", "held", "hide", "tab", "embed", "embed_options")  # of the page itself, not settings


def allowed(setting: Setting, words: Texts) -> str:
    """What a setting accepts, in the visitor's language."""
    form = "number_or_none" if setting.kind == "number" and setting.optional else setting.kind
    return words(
        f"allowed.{form}",
        choices=", ".join(setting.choices),
        minimum=f"{setting.minimum:g}" if setting.minimum is not None else "",
        maximum=f"{setting.maximum:g}" if setting.maximum is not None else "",
    )


def told(problem: Problem, model: type[Settings], words: Texts) -> str:
    """A problem as a sentence: what was given, and what is allowed."""
    declared = {setting.name: setting for setting in model.declared()}
    given = problem.given.replace("`", "'")
    if problem.setting not in declared:
        return words("page.unknown", setting=problem.setting.replace("`", "'"), allowed=", ".join(declared))
    setting = declared[problem.setting]
    # What a check over several settings says is more than the setting's own declaration.
    accepts = allowed(setting, words) if problem.allowed == setting.allowed else problem.allowed
    return words("page.refused_value", setting=setting.name, given=given, allowed=accepts)


def check_address(model: type[Settings], words: Texts) -> None:
    """Warn of what the URL has that is not accepted. Call it before any widget is made, and `settle` after the last.

    A widget that is bound to the URL silently takes another value for one it can't have, and Streamlit then cleans
    the URL. So what was there is looked at first, and the warning stays until something else is chosen.
    """
    problems = _problems(model)
    if problems:
        st.session_state[PROBLEMS] = problems
        st.session_state.pop(SETTLED, None)
    elif SETTLED in st.session_state and st.session_state[SETTLED] != _choices(model):
        st.session_state.pop(PROBLEMS, None)
        st.session_state.pop(SETTLED, None)
    for problem in st.session_state.get(PROBLEMS, ()):
        st.warning(words("page.refused", problem=told(problem, model, words)), icon=":material/link_off:")


def settle(model: type[Settings]) -> None:
    """Remember what the controls made of the URL, so that a choice after it is noticed."""
    if PROBLEMS in st.session_state:
        st.session_state.setdefault(SETTLED, _choices(model))


def acceptable(model: type[Settings]) -> dict[str, str]:
    """The settings that the URL has, less those that are not accepted."""
    refused = {problem.setting for problem in st.session_state.get(PROBLEMS, ())}
    return {
        name: st.query_params[name] for name in model.model_fields if name in st.query_params and name not in refused
    }


def _problems(model: type[Settings]) -> tuple[Problem, ...]:
    declared = {setting.name: setting for setting in model.declared()}
    names = [name for name in st.query_params if name not in PAGE_WORDS]
    twice = [
        Problem(name, " & ".join(st.query_params.get_all(name))[:80], declared[name].allowed)
        for name in names
        if name in declared and len(st.query_params.get_all(name)) > 1
    ]
    once = {name: st.query_params[name] for name in names if name not in {problem.setting for problem in twice}}
    try:
        model.parse(once)
    except SettingsError as error:
        # A list is typed as text: it stays in its control, and the page says there what is wrong with it.
        typed = [name for name, setting in declared.items() if setting.kind == "numbers"]
        return (*twice, *(problem for problem in error.problems if problem.setting not in typed))
    return tuple(twice)


def _choices(model: type[Settings]) -> tuple[object, ...]:
    return tuple(st.session_state.get(name) for name in model.model_fields)
