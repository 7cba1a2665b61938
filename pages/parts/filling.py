"""Many runs for one picture: what is known at once is drawn at once, and the rest as it is run. Can be stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from engine.engine import Engine
from engine.request import Request
from engine.runtimes import RuntimeMissingError
from lessons.language import Texts
from pages.parts.engine import shared_recordings
from pages.parts.running import Shown, together

REDRAW_SECONDS = 0.7  # seconds between two drawings, at least


def fill(
    engine: Engine, name: str, requests: Sequence[Request], draw: Callable[[Mapping[int, Shown]], None], texts: Texts
) -> None:
    """Draw the runs, by their place in `requests`: those that are cached, else recorded; then, where the version is
    installed here, run those that are not cached. `name` is what is being filled, so that it can be stopped."""
    found, missing = _known(engine, requests)
    total = len(requests)
    draw(found)
    bar, button = st.empty(), st.empty()
    here = sum(shown.recording is None for shown in found.values())
    stopped = st.session_state.get("stopped") == name
    if missing and stopped:
        bar.caption(texts("matrix.stopped", done=here, total=total))
        button.button(
            texts("matrix.go_on"), icon=":material/play_arrow:", on_click=lambda: st.session_state.pop("stopped", None)
        )
        return
    if missing:
        bar.progress(here / total, texts("matrix.filling", done=here, total=total))
        button.button(
            texts("matrix.stop"),
            icon=":material/stop:",
            on_click=lambda: st.session_state.update(stopped=name),
        )
        drawn, shown = time.monotonic(), here
        with together(engine, [requests[place] for place in missing]) as runs:
            while not runs.done:
                ended = {missing[place]: shown for place, shown in runs.ended().items() if shown is not None}
                if ended:
                    found |= ended
                    here += len(ended)
                    bar.progress(here / total, texts("matrix.filling", done=here, total=total))
                if here > shown and time.monotonic() - drawn > REDRAW_SECONDS:
                    draw(found)
                    drawn, shown = time.monotonic(), here
        draw(found)
        button.empty()
    key = "filled" if here == total else "filled_some"
    bar.caption(texts(f"matrix.{key}", done=here, total=total))


def _known(engine: Engine, requests: Sequence[Request]) -> tuple[dict[int, Shown], list[int]]:
    """What needs no run, and the places of what can be run here."""
    found: dict[int, Shown] = {}
    missing = []
    for place, request in enumerate(requests):
        try:
            run = engine.cached(request)
        except RuntimeMissingError:
            run = None
        else:
            if run is None:
                missing.append(place)
        if run is not None:
            found[place] = Shown(run.trace, run.program, cached=True)
        elif recording := shared_recordings().find(request):
            found[place] = Shown(recording.trace, recording.program, recording=recording.provenance)
    return found, missing
