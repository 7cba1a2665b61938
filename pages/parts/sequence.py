"""The control of a sequence of operations: a row for each, with what it is, and buttons to move and remove it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from engine.experiments.variable_scope import CAPTURED, MAX_OPERATIONS, NAMES, OPTIONS, SCOPES, Operation
from engine.settings import Setting, Settings
from lessons.language import Texts
from lessons.variable_scope import editing
from pages.parts.address import write_address

LEFT_OUT = ""  # an option that the call doesn't have
Operations = tuple[Operation, ...]


def sequence(setting: Setting, model: type[Settings], page: str, texts: Texts) -> None:
    """The rows, and beneath them a button for each kind that can be added."""
    operations = editing.explicit(st.session_state[setting.name])

    def keep(changed: Operations | None) -> None:
        words = None if changed is None else editing.words(changed)
        if words is not None:
            st.session_state[setting.name] = words
            write_address(model, page)

    st.markdown(texts(f"controls.{setting.name}.label"), help=texts(f"controls.{setting.name}.help"))
    depth = 0
    with st.container(gap=None, key="sequence"):
        for place, operation in enumerate(operations):
            depth -= operation.kind == "close"
            _row(operations, place, depth, keep, texts)
            depth += operation.is_block
        with st.container(horizontal=True, gap="small", key="sequence-add"):
            for kind, call in editing.CALLS.items():
                changed = editing.added(operations, kind)
                st.button(
                    call,
                    key=f"add-{kind}",
                    icon=":material/add:",
                    type="tertiary",
                    help=texts("editor.add") if changed else texts("editor.full", most=MAX_OPERATIONS),
                    disabled=changed is None,
                    on_click=keep,
                    args=(changed,),
                )


def _row(
    operations: Operations, place: int, depth: int, keep: Callable[[Operations | None], None], texts: Texts
) -> None:
    operation = operations[place]
    with st.container(horizontal=True, gap=None, vertical_alignment="center", key=f"row-{place}-deep-{depth}"):
        if operation.kind == "close":
            opened = operations[editing.start_of(operations, place)]
            st.caption(texts("editor.end", name=_plain(opened.name)), width="stretch")
        else:
            with st.popover(f"{_told(operation)}", width="stretch", type="tertiary", key=f"edit-{place}"):
                _edit(operations, place, keep, texts)
        for name, icon, changed in (
            ("up", "arrow_upward", editing.moved(operations, place, -1)),
            ("down", "arrow_downward", editing.moved(operations, place, 1)),
            ("remove", "close", None if operation.kind == "close" else editing.removed(operations, place)),
        ):
            st.button(
                "",
                key=f"{name}-{place}",
                icon=f":material/{icon}:",
                type="tertiary",
                help=texts(f"editor.{name}"),
                disabled=changed is None,
                on_click=keep,
                args=(changed,),
            )


def _told(operation: Operation) -> str:
    """An operation as Markdown, short: what is called, the name, and the options."""
    mark = CAPTURED if operation.captured else ""
    options = " · ".join(editing.short(key, value) for key, value in operation.options.items())
    return f"{_plain(editing.CALLS[operation.kind])} {mark}**{_plain(operation.name)}**" + (
        f" {_plain(options)}" if options else ""
    )


def _plain(text: str) -> str:
    return text.replace("_", "\\_").replace("[", "\\[")


def _edit(operations: Operations, place: int, keep: Callable[[Operations | None], None], texts: Texts) -> None:
    """The choices of one operation. What isn't accepted is not among them, or changes nothing."""
    operation = operations[place]
    kinds = [kind for kind in editing.CALLS if editing.NEW[kind].is_block == operation.is_block]

    def change(**parts: Any) -> None:
        keep(editing.replaced(operations, place, replace(operation, **parts)))

    def changed_kind(key: str) -> None:
        new = editing.NEW[st.session_state[key]]
        name = operation.name if operation.name in (SCOPES if new.is_block else NAMES) else new.name
        keep(editing.replaced(operations, place, replace(new, name=name)))

    def changed_option(option: str, key: str) -> None:
        options = {**operation.options, option: st.session_state[key]}
        change(options={name: options[name] for name in OPTIONS[operation.kind] if options.get(name)})

    _choice("kind", place, texts("editor.kind"), kinds, operation.kind, changed_kind, editing.CALLS.__getitem__)
    names = SCOPES if operation.is_block else NAMES
    _choice(
        "name",
        place,
        texts("editor.name"),
        list(names),
        operation.name,
        lambda key: change(name=st.session_state[key]),
    )
    if operation.kind == "scope":
        by_object = replace(operation, captured=True)
        key = f"op-{place}-captured"
        st.session_state[key] = operation.captured
        st.toggle(
            texts("editor.by_object"),
            key=key,
            on_change=lambda: change(captured=st.session_state[key]),
            disabled=not operation.captured and editing.replaced(operations, place, by_object) is None,
        )
    for option, values in OPTIONS[operation.kind].items():
        chosen = operation.options.get(option, LEFT_OUT)
        _choice(
            option,
            place,
            option,
            [LEFT_OUT, *values],
            chosen,
            partial(changed_option, option),
            lambda value: value or texts("editor.left_out"),
        )


def _choice(
    name: str,
    place: int,
    label: str,
    options: list[str],
    value: str,
    changed: Callable[[str], None],
    shown: Callable[[str], str] = str,
) -> None:
    key = f"op-{place}-{name}"
    st.session_state[key] = value
    st.segmented_control(
        label, options, required=True, format_func=shown, key=key, on_change=changed, args=(key,), wrap=True
    )
