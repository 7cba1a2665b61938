"""Controls: a widget for every setting, made from its declaration.

Options are shown by their own names, in every language: they are TensorFlow's words. So control, URL, command line and
program all say the same. A control holds what `read_address` put into it; it has no default of its own.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.settings import Setting, Settings, SettingsError, as_words
from lessons.language import Texts
from pages.parts.address import control_values, explicit, write_address
from pages.parts.sequence import sequence

MAX_CHIPS = 4  # choices that are shown side by side; more go into a list


def control(
    setting: Setting,
    model: type[Settings],
    page: str,
    texts: Texts,
    *,
    disabled: bool = False,
    caption: str | None = None,
) -> None:
    """The widget of one setting, with a sentence on what it changes: the text named `caption`, or the option's own."""
    if setting.kind == "words":
        sequence(setting, model, page, texts)
        return
    label = texts(f"controls.{setting.name}.label")
    common: dict[str, Any] = {
        "key": setting.name,
        "disabled": disabled,
        "help": texts(f"controls.{setting.name}.help"),
        "on_change": _changed,
        "args": (model, page, setting.name),
    }
    if setting.kind == "choice":
        if len(setting.choices) <= MAX_CHIPS:
            st.segmented_control(label, setting.choices, required=True, width="stretch", wrap=True, **common)
        else:
            st.selectbox(label, setting.choices, **common)
        said = f"captions.{caption}" if caption else f"options.{st.session_state[setting.name]}.text"
        st.caption(texts(f"controls.{setting.name}.{said}"))
    elif setting.kind == "integer" and setting.optional:
        st.segmented_control(label, range(int(setting.minimum or 0), int(setting.maximum or 0) + 1), **common)
    elif setting.kind == "integer":
        st.slider(label, int(setting.minimum or 0), int(setting.maximum or 0), **common)
    elif setting.kind == "number":
        placeholder = texts("page.none") if setting.optional else as_words(setting.default)
        low, high = float(setting.minimum or 0), float(setting.maximum or 0)
        st.number_input(label, low, high, value=None, step=0.1, format="%g", placeholder=placeholder, **common)
    else:
        st.text_input(label, placeholder=as_words(_left_out(model, setting.name)), **common)


def chosen(model: type[Settings]) -> dict[str, Any]:
    """What the controls hold now, less what is left to its default."""
    values = {name: st.session_state.get(name) for name in model.model_fields}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def choose(model: type[Settings], page: str, values: dict[str, Any]) -> None:
    """Set controls (a callback: it must run before the widgets are made)."""
    st.session_state.update(values)
    write_address(model, page)


def reset(model: type[Settings], page: str) -> None:
    """Every control back to its default, the version too, and no run held (a callback)."""
    st.session_state.update(control_values(model()))
    write_address(model, page, without=("held", "tf", "tf_with_keras"))


def _changed(model: type[Settings], page: str, name: str) -> None:
    _follow(model, name)
    if name in _counts(model):
        _fit_lists(model)
    write_address(model, page)


def _counts(model: type[Settings]) -> frozenset[str]:
    """The settings that say how many numbers a list has."""
    return frozenset(setting.counted_by for setting in model.declared() if setting.kind == "numbers")


def _follow(model: type[Settings], changed: str) -> None:
    """What was left out, and so follows from the others, follows them still. With fewer replicas or workers, what was
    said of one that is no longer there is left out too."""
    lists = {setting.name for setting in model.declared() if setting.kind == "numbers"}
    given = {*explicit(), changed, *lists}
    while True:
        values = {name: value for name, value in chosen(model).items() if name in given and name not in lists}
        try:
            settings = model.parse(values)
            break
        except SettingsError as error:
            unfit = {problem.setting for problem in error.problems} & given - {changed}
            if changed not in _counts(model) or not unfit:
                return  # what was changed does not go with the rest; the page says so
            given -= unfit
    st.session_state.update({name: value for name, value in settings.model_dump().items() if name not in given})


def _fit_lists(model: type[Settings]) -> None:
    """Lists have one number a replica, or a worker: cut them, or go on with the numbers that they have by default."""
    for setting in model.declared():
        typed = st.session_state.get(setting.name)
        if setting.kind == "numbers" and typed:
            numbers = [part.strip() for part in typed.split(",")]
            usual = as_words(_left_out(model, setting.name)).split(",")
            st.session_state[setting.name] = ", ".join(numbers[: len(usual)] + usual[len(numbers) :])


def _left_out(model: type[Settings], name: str) -> Any:
    """What a setting is, with the others as they are chosen, where it is left out."""
    lists = {setting.name for setting in model.declared() if setting.kind == "numbers"}
    others = {key: value for key, value in chosen(model).items() if key != name and key not in lists}
    try:
        return getattr(model.parse(others), name)
    except SettingsError:
        return getattr(model(), name)
