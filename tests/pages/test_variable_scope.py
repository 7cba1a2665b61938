"""The page on variable scopes: its editor of operations, its presets, its remedies, and nonsense in its URL."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.pages.test_app import app, drawn
from tests.pages.test_guide import press, query

pytestmark = pytest.mark.usefixtures("pages_engine")
PAGE = "pages/variable_scope.py"
TWICE = "scope:s,get:v:shape=1:initializer=1.0,close,scope:s,get:v:shape=1:initializer=1.0"


def outcome(test: AppTest) -> str:
    shown = drawn(test)
    return "refused" if "✕" in shown else shown.partition("<b>Python names: ")[2].partition("<")[0]


@pytest.mark.parametrize(("locale", "said"), [("en-US", "Python names: 4"), ("zh-CN", "Python 名字：4 个")])
def test_the_article_is_there_at_first(locale: str, said: str) -> None:
    test = app(PAGE, locale=locale)
    assert said in drawn(test)
    assert "my_variable_scope/var1:0" in drawn(test)


def test_the_second_example_is_a_click_away() -> None:
    (link,) = app(PAGE).get("page_link")
    assert (link.proto.page, link.proto.query_string) == ("placement", "device_setter=article")


def test_an_operation_is_edited() -> None:
    """Two scopes of one name: refused, until the second says AUTO_REUSE; in the URL as in the program."""
    test = app(PAGE, operations=TWICE)
    assert outcome(test) == "refused"
    test.segmented_control(key="op-3-reuse").set_value("AUTO_REUSE").run()
    assert outcome(test) == "2 · variables: 1"
    assert query(test)["operations"] == TWICE.replace("close,scope:s", "close,scope:s:reuse=AUTO_REUSE")
    test.segmented_control(key="op-3-name").set_value("t").run()
    assert outcome(test) == "2 · variables: 2"
    (program,) = [each.proto.body for each in test.get("html") if 'class="program"' in each.proto.body]
    assert "AUTO_REUSE" in program
    test.segmented_control(key="op-1-kind").set_value("variable").run()
    assert "variable:v" in query(test)["operations"]


def test_operations_are_added_moved_and_removed() -> None:
    test = app(PAGE, operations="scope:s,op:v")
    press(test, "add-get")
    assert query(test)["operations"] == "scope:s,op:v,get:v:shape=1:initializer=1.0"
    press(test, "up-2")
    assert query(test)["operations"] == "scope:s,get:v:shape=1:initializer=1.0,op:v"
    press(test, "down-2")  # past the end of the block
    assert query(test)["operations"] == "scope:s,get:v:shape=1:initializer=1.0,close,op:v"
    press(test, "remove-0")
    assert query(test)["operations"] == "get:v:shape=1:initializer=1.0,op:v"
    press(test, "remove-1")
    assert query(test)["operations"] == "get:v:shape=1:initializer=1.0"
    assert test.button(key="remove-0").disabled


def test_a_preset_and_its_fix() -> None:
    test = app(PAGE)
    press(test, "guide-without_reuse")
    assert query(test)["operations"] == TWICE
    assert outcome(test) == "refused"
    assert "`scope:s:reuse=AUTO_REUSE`" in test.button(key="fix").label
    press(test, "fix")
    assert outcome(test) == "2 · variables: 1"
    press(test, "guide-article_tf")
    assert "AttributeError" in drawn(test)
    press(test, "fix")
    assert outcome(test) == "4 · variables: 2"


@pytest.mark.parametrize(
    ("operations", "change"),
    [
        # a word that is there already elsewhere
        ("scope:s:reuse=AUTO_REUSE,get:v:shape=1,get:v:shape=2", "`get:v:shape=1`"),
        ("get:v:shape=1,get:v", "`scope:my_variable_scope:reuse=AUTO_REUSE`"),
        # without room for one more, the call goes
        (f"get:v:shape=1,get:v,{','.join(['op:w'] * 6)}", "~~`get:v`~~"),
    ],
)
def test_the_button_of_a_fix_says_what_it_changes(operations: str, change: str) -> None:
    test = app(PAGE, operations=operations)
    assert test.button(key="fix").label.endswith(change)
    press(test, "fix")
    assert outcome(test) != "refused"


@pytest.mark.parametrize("words", ["nonsense", "scope:s,close,close", "", ",".join(["op:v"] * 9), "get:v:shape=9"])
def test_nonsense_in_the_url_is_told(words: str) -> None:
    test = app(PAGE, operations=words)
    (warning,) = test.warning
    assert "operations" in warning.value
    assert outcome(test) == "4 · variables: 2"
    press(test, "add-op")  # and what is chosen next takes its place
    assert not test.warning


@pytest.mark.parametrize(("locale", "answer"), [("en-US", "shared"), ("zh-CN", "apart"), ("en-US", "refused")])
def test_a_prediction_is_asked_first_and_told_beside_the_truth(locale: str, answer: str) -> None:
    """The article: 4 names, 2 variables."""
    test = app(PAGE, locale=locale, predict="first")
    assert not test.get("plotly_chart")
    press(test, f"predict-{answer}")
    assert test.get("plotly_chart")
    assert len(test.success) == (answer == "shared")
    assert len(test.warning) == (answer != "shared")
