"""Controls: a widget for every setting, made from its declaration. Each is bound to the URL by the setting's name.

Options are shown by their own names, in every language: they are TensorFlow's words, and Streamlit puts an option into
the URL as it is shown. So control, URL, command line and program all say the same.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from engine.settings import Setting, Settings
from lessons.language import Texts

MANY = 4  # choices that are shown side by side; more go into a list


def control(setting: Setting, default: Any, words: Texts, lesson: Texts, *, disabled: bool = False) -> Any:
    """The widget of one setting, with a sentence on what it changes. Returns what it holds."""
    label = lesson(f"controls.{setting.name}.label")
    about = lesson(f"controls.{setting.name}.help")
    common: dict[str, Any] = {
        "key": setting.name,
        "bind": "query-params",
        "disabled": disabled,
        "help": about,
    }
    if setting.kind == "choice":
        if len(setting.choices) <= MANY:
            value = st.segmented_control(
                label,
                setting.choices,
                default=default,
                required=True,
                width="stretch",
                wrap=True,
                **common,
            )
        else:
            value = st.selectbox(label, setting.choices, index=setting.choices.index(default), **common)
        st.caption(lesson(f"controls.{setting.name}.options.{value or default}.text"))
        return value
    if setting.kind == "integer":
        return st.slider(label, int(setting.minimum or 0), int(setting.maximum or 0), value=default, **common)
    if setting.kind == "number":
        return st.number_input(
            label,
            float(setting.minimum or 0),
            float(setting.maximum or 0),
            value=default,
            step=0.1,
            format="%g",
            placeholder=words("page.none") if setting.optional else None,
            **common,
        )
    return st.text_input(label, placeholder=_plain(default), **common)


def _plain(value: Any) -> str:
    return "" if value is None else str(value)


def chosen(model: type[Settings]) -> dict[str, Any]:
    """What the controls hold now, less what is left to its default."""
    values = {name: st.session_state.get(name) for name in model.model_fields}
    return {name: value for name, value in values.items() if value is not None and value != ""}


def reset(model: type[Settings]) -> None:
    """Every control back to its default (a callback: it must run before the widgets are made)."""
    for setting in model.declared():
        st.session_state[setting.name] = "" if setting.kind == "numbers" else setting.default
