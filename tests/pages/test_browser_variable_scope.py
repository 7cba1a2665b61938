"""The page on variable scopes in a real Chromium: editing, the moving figure, and that it fits a telephone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page

from tests.engine.processes import until
from tests.pages.browser import (
    FIRST_RUN,
    TOGGLED,
    figure_texts,
    no_text_lies_on_another,
    query,
    visitor,
)

LONG = "scope:my_variable_scope,scope:my_variable_scope,get:var1:shape=4x2:partitioner=fixed_size_2,variable:w,op:w"


def says(page: Page, text: str, timeout: int = TOGGLED) -> None:
    """Wait until the figure has this text in it."""
    page.wait_for_function(
        "text => [...document.querySelectorAll('.st-key-figure-now svg text')].some(t => t.textContent.includes(text))",
        arg=text,
        timeout=timeout,
    )


def test_edit_reload_and_back(chromium: Browser, address: str) -> None:
    with visitor(chromium) as page:
        page.goto(f"{address}/variable_scope")
        says(page, "variables: 2", timeout=FIRST_RUN)
        page.get_by_role("button", name="Without reuse").click()
        says(page, "ValueError")
        page.get_by_role("button", name="Fix it").click()
        says(page, "variables: 1")
        page.reload()
        says(page, "variables: 1", timeout=FIRST_RUN)
        page.locator(".st-key-edit-3 button").first.click()
        page.get_by_role("radio", name="t", exact=True).click()
        says(page, "t/v:0")
        page.go_back()
        says(page, "variables: 1")
        assert "AUTO_REUSE" in query(page)


def test_the_figure_steps_without_the_server(chromium: Browser, address: str) -> None:
    with visitor(chromium) as page:
        page.goto(f"{address}/variable_scope")
        says(page, "10 was written into var1", timeout=FIRST_RUN)
        step_back(page, "what each variable holds at first")
        step_back(page, "get_variable returns what is there")  # var4 has come, and holds nothing yet
        assert "var2 = var4" in figure_texts(page)
        step_back(page, "get_variable makes a variable")
        assert "var2" in figure_texts(page)
        assert "var2 = var4" not in figure_texts(page)


def step_back(page: Page, text: str) -> None:
    """Click until the figure says that."""
    for _ in range(12):
        before = figure_texts(page)
        if text in before:
            return
        page.locator(".st-key-figure-now").get_by_text("Back").click()
        until(lambda before=before: figure_texts(page) != before, 5)  # type: ignore[misc]
    raise AssertionError(f"{text!r} is not in {figure_texts(page)}")


@pytest.mark.parametrize(
    ("locale", "width", "height"), [("zh-CN", 390, 844), ("en-US", 390, 844), ("en-US", 1366, 768)]
)
def test_nothing_is_wider_than_the_window_and_no_text_lies_on_another(
    chromium: Browser, address: str, locale: str, width: int, height: int
) -> None:
    with visitor(chromium, locale, width, height) as page:
        page.goto(f"{address}/variable_scope?operations={LONG}")
        says(page, "w_1:0", timeout=FIRST_RUN)
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= width
        no_text_lies_on_another(page)
