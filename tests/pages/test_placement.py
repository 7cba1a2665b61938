"""The page of the lesson on placement."""

from __future__ import annotations

import pytest

from tests.pages.test_app import app, drawn

PAGE = "pages/placement.py"
pytestmark = pytest.mark.usefixtures("pages_engine")


def test_from_the_articles_call_to_a_shared_variable() -> None:
    """TypeError; fixed, the write arrives. So it does from a call whose result is not used."""
    test = app(PAGE, device_setter="article", sizes="4,2")
    assert "TypeError: no graph was built" in drawn(test)
    test.button(key="fix").click().run()
    assert "device_setter" not in test.query_params  # it is at its default
    assert "The write arrives" in drawn(test)
    test = app(PAGE, device_setter="unused", sizes="4,2")
    assert "each worker has its own" in drawn(test)
    test.button(key="fix").click().run()
    assert "The write arrives" in drawn(test)
    assert not test.exception


def test_in_chinese() -> None:
    test = app(PAGE, locale="zh-CN", sizes="4,2")
    assert "写入传到了" in drawn(test)


def test_sizes_that_are_not_accepted_say_so() -> None:
    test = app(PAGE, sizes="0")
    assert any("sizes" in warning.value for warning in (*test.warning, *test.error))


def test_with_one_worker_no_prediction_is_called_wrong() -> None:
    """Whether worker 1 reads the write can't be said where there is none."""
    test = app(PAGE, workers="1", sizes="2", predict="first")
    test.button(key="predict-two").click().run()
    assert "nobody to share with" in drawn(test)
    assert not test.warning
    assert not test.success
