"""What leads on: the guide's buttons over the figure, and the one that fixes a run."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from lessons.scope_placement.lesson import LESSON
from tests.pages.test_app import app, drawn

pytestmark = pytest.mark.usefixtures("pages_engine")
PAGE = "pages/scope_placement.py"


def press(test: AppTest, key: str) -> None:
    test.button(key=key).click().run()
    assert not test.exception, test.exception


def query(test: AppTest) -> dict[str, str]:
    """What the URL says; a word that stood in it before is a list of one."""
    return {name: words if isinstance(words, str) else words[0] for name, words in test.query_params.items()}


def test_following_a_link_sets_what_it_names_and_nothing_else() -> None:
    test = app(PAGE, optimizer="adam", steps="5", lang="en", held="optimizer=sgd")
    press(test, "guide-model_out")
    assert query(test) == {"model_scope": "out", "lang": "en", "held": "optimizer=sgd"}
    assert test.segmented_control(key="model_scope").value == "out"
    assert test.slider(key="steps").value == 2
    assert "ValueError" in drawn(test)  # beside the held run
    press(test, "guide-all_in")
    assert "model_scope" not in query(test)
    assert "✓" in drawn(test)


def test_a_link_to_another_version_goes_there_and_one_that_names_none_stays() -> None:
    test = app(PAGE)
    (link,) = [link for link in LESSON.guide if link.name == "direct_new"]
    press(test, f"guide-{link.name}")
    assert query(test)["tf"] == link.tensorflow
    press(test, "guide-model_out")
    assert query(test)["tf"] == link.tensorflow
    assert "ValueError" in drawn(test)
    assert test.button(key="guide-model_out").proto.type == "primary"


def test_a_click_moves_a_thing_out_of_the_scope_and_back() -> None:
    test = app(PAGE)
    press(test, "place-optimizer_scope")
    assert query(test) == {"optimizer_scope": "out"}
    assert "RuntimeError" in drawn(test)
    press(test, "place-optimizer_scope")
    assert query(test) == {}
    assert "✓" in drawn(test)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_a_failed_run_is_mended_by_a_click(locale: str) -> None:
    test = app(PAGE, locale=locale, optimizer_scope="out", steps="3")
    assert "RuntimeError" in drawn(test)
    assert "`optimizer_scope=in`" in test.button(key="fix").label
    press(test, "fix")
    assert query(test)["steps"] == "3"
    assert "optimizer_scope" not in query(test)
    assert "✓" in drawn(test)
    assert "fix" not in [button.key for button in test.button]


def test_a_lesson_without_guide_has_no_such_buttons_and_what_goes_right_no_fix() -> None:
    keys = [button.key or "" for button in app(aggregation="MEAN").button]
    assert not [key for key in keys if key == "fix" or key.startswith("guide")]
