"""A choice that is in the URL by a word of its own, whatever it is called in the visitor's language."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import streamlit as st

from pages.parts.address import tell_unknown
from pages.parts.shell import get_app_texts


def choice(
    name: str,
    options: Sequence[str],
    label: str,
    shown: Callable[[str], str] = str,
    *,
    forget: bool = False,
    keep: Collection[str] = ("lang", "hide", "predict", "embed", "embed_options"),
) -> str:
    """One of the options; the first is the default, and leaves the URL clean. With `forget`, a choice takes everything
    out of the URL that is not among `keep`, because it belongs to the choice before."""
    given = st.query_params.get(name)
    if given is not None:
        tell_unknown(name, given, options, get_app_texts())
    value = given if given is not None and given in options else options[0]
    key = f"choice-{name}"
    st.session_state[key] = value

    def write() -> None:
        left = {word: st.query_params.get_all(word) for word in st.query_params if not forget or word in keep}
        left.pop(name, None)
        if st.session_state[key] != options[0]:
            left[name] = [st.session_state[key]]
        st.query_params.from_dict(left)

    st.segmented_control(label, options, required=True, format_func=shown, key=key, on_change=write, wrap=True)
    return value
