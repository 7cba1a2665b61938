"""The version control: which TensorFlow a page shows, in the URL as `tf`, and with another Keras as `tf_with_keras`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from engine.engine import Engine
from engine.experiments import Experiment
from engine.offers import Offer, offers
from engine.request import Request
from engine.runtimes import RuntimeMissingError, choose, version_key
from engine.settings import Settings
from lessons.language import Texts
from pages.parts.engine import shared_recordings
from pages.parts.markdown import code

TF, KERAS = "tf", "tf_with_keras"
RECORDED = ":material/history:"  # beside everything that did not run here


def offered(engine: Engine, experiment: Experiment[Any]) -> dict[str, Offer]:
    """Every version that this experiment can be shown on, the default first; what was installed a moment ago too."""
    recordings = shared_recordings()
    for name in recordings.made_with(experiment).keys() - engine.runtimes.keys():
        with contextlib.suppress(RuntimeMissingError):
            engine.runtime(name)
    return offers(experiment, engine.runtimes, recordings)


def request_on(offer: Offer | None, experiment: Experiment[Any], settings: Settings) -> Request:
    """A request for just that version."""
    if offer is None:
        return Request(experiment, settings)
    keras = offer.versions.keras if offer.other_keras else None
    return Request(experiment, settings, offer.versions.tensorflow, keras)


def version_words(offer: Offer, default: Offer | None) -> dict[str, str]:
    """What the URL says of a version: nothing of the default one."""
    if offer == default:
        return {}
    return {TF: offer.versions.tensorflow} | ({KERAS: offer.versions.keras} if offer.other_keras else {})


def version_of(given: Mapping[str, str], choices: Mapping[str, Offer], texts: Texts) -> Offer | None:
    """The version that these words name, or the default one; what is not there is told. None where there is none."""
    default = next(iter(choices.values()), None)
    # A runtime's name, as the status page has it, will do too; a URL's + is a space to those who decode it.
    tensorflow, keras = given.get(TF, "").replace(" ", "+") or None, given.get(KERAS) or None
    if tensorflow and "+keras-" in tensorflow:
        tensorflow, _, keras = tensorflow.partition("+keras-")
    if tensorflow is None and keras is None:
        return default
    try:
        return choose(choices, tensorflow, keras)
    except RuntimeMissingError:
        asked = " + Keras ".join(code(word[:40]) for word in (tensorflow or "2.21", keras) if word)
        known = ", ".join(f"`{name}`" for name in sorted(choices, key=version_key))
        st.warning(texts("version.unknown", given=asked, allowed=known), icon=":material/link_off:")
        return default


def version_control(
    engine: Engine, experiment: Experiment[Any], texts: Texts, line: DeltaGenerator | None
) -> Offer | None:
    """The version that the URL names, and the control for it, in that line; without a line the URL alone decides."""
    choices = offered(engine, experiment)
    chosen = version_of({name: st.query_params.get(name, "") for name in (TF, KERAS)}, choices, texts)
    if chosen is None or line is None:
        return chosen
    default = next(iter(choices.values()))
    usual = {offer.versions.tensorflow: offer for offer in choices.values() if not offer.other_keras}
    keras = {name: offer for name, offer in choices.items() if _same_tensorflow(offer, chosen)}
    st.session_state["version"] = chosen.versions.tensorflow
    with line:
        st.markdown(texts("version.label"), width="content", help=texts("version.help"))
        st.segmented_control(
            texts("version.label"),
            sorted(usual, key=version_key),
            required=True,
            format_func=lambda version: version if usual[version].live else f"{version} {RECORDED}",
            key="version",
            on_change=lambda: write_version(usual[st.session_state["version"]], default),
            label_visibility="collapsed",
        )
        if len(keras) > 1:
            st.session_state["version-keras"] = chosen.name
            st.selectbox(
                texts("version.keras"),
                sorted(keras, key=lambda name: version_key(keras[name].versions.keras)),
                format_func=lambda name: f"Keras {keras[name].versions.keras}",
                key="version-keras",
                on_change=lambda: write_version(keras[st.session_state["version-keras"]], default),
                label_visibility="collapsed",
                width=160,
            )
    return chosen


def _same_tensorflow(one: Offer, other: Offer) -> bool:
    return one.versions.tensorflow == other.versions.tensorflow


def write_version(offer: Offer, default: Offer | None) -> None:
    """Put a version into the URL (a callback), in one step of the browser's history."""
    kept = {name: st.query_params.get_all(name) for name in st.query_params if name not in (TF, KERAS)}
    st.query_params.from_dict({**kept, **version_words(offer, default)})
