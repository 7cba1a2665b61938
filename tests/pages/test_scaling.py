"""The scaling page (AppTest): curves, their story, one click that fixes, a question first, and the sweep."""

from __future__ import annotations

import json
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from engine.engine import Engine
from engine.request import Request
from engine.trace import Trace
from lessons.scaling import sweep
from lessons.scaling.lesson import LESSON
from pages.parts import running
from tests.pages.test_app import app, drawn

pytestmark = pytest.mark.usefixtures("pages_engine")
PAGE = "pages/scaling.py"


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_the_mistake_and_its_fix(locale: str) -> None:
    test = app(PAGE, locale, loss="per_replica_mean", steps="20")
    assert " 4 " in headline(test)
    assert "`loss=global_mean`" in test.button(key="fix").label
    test.button(key="fix").click().run()
    assert not test.exception
    assert headline(test).startswith("=")
    assert "fix" not in [button.key for button in test.button]
    assert test.query_params["steps"] == "20" or test.query_params["steps"] == ["20"]


def headline(test: AppTest) -> str:
    notes = json.loads(drawn(test))["layout"]["annotations"]
    (bold,) = [note["text"] for note in notes if note["text"].startswith("<b>")]
    return str(bold).removeprefix("<b>").removesuffix("</b>")


def test_every_setting_has_a_control() -> None:
    test = app(PAGE, steps="5")
    for setting in LESSON.experiment.settings.declared():
        test.get_by_key(setting.name)


def test_a_question_first() -> None:
    test = app(PAGE, loss="per_replica_mean", steps="5", predict="first")
    assert not test.get("plotly_chart")
    test.button(key="predict-n_times").click().run()
    assert test.success
    assert " 4 " in headline(test)


def test_it_is_drawn_while_it_goes_on(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture has more steps than the one before; the story is told of the last one only."""
    seen: list[Trace] = []
    real = LESSON.figure

    def figure(trace: Trace, texts: Any) -> Any:
        seen.append(trace)
        return real(trace, texts)

    object.__setattr__(LESSON, "figure", figure)
    monkeypatch.setattr(running, "REDRAW_SECONDS", 0.0)
    monkeypatch.setattr(running, "WAIT_NOTICE_AFTER", 0.0)
    try:
        test = app(PAGE, steps="400", seed="77")
    finally:
        object.__setattr__(LESSON, "figure", real)
    assert [trace.status for trace in seen] == ["running"] * (len(seen) - 1) + ["ok"]
    counts = [len(trace.of("step")) for trace in seen]
    assert len(counts) > 1
    assert counts == sorted(counts)
    assert counts[-1] == 400
    assert len(test.get("plotly_chart")) == 1
    assert engine.cached(Request.of("scaling", {"steps": 400, "seed": 77})) is not None


def test_the_sweep_runs_when_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "RATES", (0.1, 1.0))
    monkeypatch.setattr(sweep, "REPLICAS", (1, 2))
    monkeypatch.setattr(sweep, "STEPS", 5)
    test = app(PAGE, steps="5")
    assert len(test.get("plotly_chart")) == 1
    test.session_state["tab"] = "Sweep"
    test.run(timeout=120)
    assert not test.exception, test.exception
    (heat,) = [element for element in test.get("plotly_chart") if "-sweep-" in element.proto.id]
    spec = json.loads(heat.proto.spec)
    words = [note["text"] for note in spec["layout"]["annotations"]]
    assert len(words) == 2 * 2
    assert "…" not in words
    assert "4" in test.caption[-1].value
