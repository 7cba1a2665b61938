"""Predict first: a run stays covered until the visitor has said what will come of it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from engine.engine import Engine
from engine.request import Request
from lessons.aggregation.lesson import LESSON as AGGREGATION
from lessons.scope_placement.lesson import LESSON as SCOPE
from tests.pages.test_app import app, copies

pytestmark = pytest.mark.usefixtures("pages_engine")


def figures(test: AppTest) -> int:
    return len(test.get("plotly_chart"))


def test_a_run_is_covered_until_something_is_said() -> None:
    test = app(aggregation="SUM", predict="first")
    assert test.toggle(key="predict").value
    assert figures(test) == 0
    assert [tab.label for tab in test.tabs] == ["Code"]
    test.button(key="predict-mean").click().run()
    assert copies(test) == ["1.3", "1.3"]  # 1 + 0.1 + 0.2
    assert "MEAN" in test.warning[0].value
    test.segmented_control(key="aggregation").set_value("MEAN").run()
    assert figures(test) == 0
    test.button(key="predict-mean").click().run()
    assert copies(test) == ["1.15", "1.15"]
    assert "The mean" in test.success[0].value
    test.segmented_control(key="aggregation").set_value("SUM").run()  # it was said, and is remembered
    assert copies(test) == ["1.3", "1.3"]
    assert test.query_params["predict"] == "first"


def test_it_can_be_skipped_and_switched_off() -> None:
    test = app(predict="first", locale="zh-CN")
    test.button(key="predict-nothing").click().run()
    assert figures(test) == 1
    assert not test.success
    assert not test.warning
    test.segmented_control(key="aggregation").set_value("MEAN").run()
    assert figures(test) == 0
    test.toggle(key="predict").set_value(False).run()
    assert figures(test) == 1
    assert "predict" not in test.query_params


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({"aggregation": "NONE"}, {"own"}),
        ({"aggregation": "SUM"}, {"sum"}),
        ({"aggregation": "MEAN"}, {"mean"}),
        ({"aggregation": "ONLY_FIRST_REPLICA"}, {"first"}),
        ({"aggregation": "MEAN", "route": "optimizer"}, {"sum"}),
        ({"aggregation": "SUM", "value": "python"}, {"error"}),
        ({"replicas": "1"}, {"sum", "mean", "first", "own"}),
        # Two groups of three // 2 replicas: the last one's is lost.
        ({"route": "optimizer", "replicas": "3", "cross_device": "hierarchical_copy"}, {"other"}),
    ],
)
def test_answers_on_aggregation(engine: Engine, settings: dict[str, str], right: set[str]) -> None:
    assert AGGREGATION.prediction is not None
    assert AGGREGATION.prediction.answers(engine.run(Request.of("aggregation", settings))) == right


@pytest.mark.parametrize(
    ("settings", "right"),
    [
        ({}, "as_one"),
        ({"model_scope": "out"}, "error"),
        ({"step": "direct", "optimizer": "sgd", "apply_scope": "out", "mode": "function"}, "not_as_one"),
    ],
)
def test_answers_on_scope(engine: Engine, settings: dict[str, str], right: str) -> None:
    assert SCOPE.prediction is not None
    assert SCOPE.prediction.answers(engine.run(Request.of("scope_placement", settings))) == {right}
