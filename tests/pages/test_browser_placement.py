"""The lesson on placement in a real Chromium: a write that arrives, and one that doesn't."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.engine.processes import until
from tests.pages.browser import FIRST_RUN, figure_texts

pytestmark = pytest.mark.timeout(600)


def says(page: Page, text: str, timeout: int = FIRST_RUN) -> None:
    assert until(lambda: text in figure_texts(page), timeout / 1000), figure_texts(page)


def test_the_first_address_after_a_start_and_the_way_to_a_shared_variable(page: Page, address: str) -> None:
    page.goto(f"{address}/placement?device_setter=article&sizes=4,2")
    says(page, "TypeError: no graph was built")
    page.get_by_role("button", name="Fix it").click()
    says(page, "✓ The write arrives: one variable")
    assert "reads 1" in figure_texts(page)
    page.go_back()
    says(page, "TypeError: no graph was built")


def test_the_figure_moves(page: Page, address: str) -> None:
    page.goto(f"{address}/placement?sizes=4,2")
    says(page, "✓ The write arrives: one variable")
    for text in ("Worker 0 writes 1 into each", "Every variable has its place, and holds 0"):
        back_to(page, text)


def back_to(page: Page, text: str) -> None:
    """Go back by one picture. A click that comes before the last move is over leads to where that went."""
    for _ in range(10):
        page.locator(".st-key-figure-now").get_by_text("Back").click()
        if until(lambda: text in figure_texts(page), 3):
            return
    pytest.fail(f"{text!r} is not among {figure_texts(page)}")
