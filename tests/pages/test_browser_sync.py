"""A cluster in a real Chromium: a run that is drawn while it goes on, then played; buttons that slow down and kill."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.pages.browser import fits_every_window

FIRST_RUN = 120_000  # ms: TensorFlow may still have to be imported
LATER = 60_000
LIVE, DONE = "[class*='st-key-live-now']", ".st-key-figure-now"


@pytest.fixture(scope="module")
def page(chromium: Browser, address: str) -> Page:
    """One visitor for all tests, who has been there once."""
    page = visitor(chromium, address)
    page.goto(f"{address}/sync_replicas?steps=2")
    expect(page.locator(DONE)).to_be_visible(timeout=FIRST_RUN)
    return page


def visitor(chromium: Browser, address: str) -> Page:
    return chromium.new_context(base_url=address, locale="en-US", viewport={"width": 1366, "height": 768}).new_page()


def height(page: Page, figure: str) -> float:
    """The height of the figure there, as soon as there is one. A live one is replaced again and again."""
    found = page.wait_for_function(
        "figure => document.querySelector(`${figure} .js-plotly-plot`)?.getBoundingClientRect().height",
        arg=figure,
        timeout=LATER,
    )
    return float(found.json_value())


def test_a_run_is_drawn_while_it_goes_on_and_keeps_its_place(page: Page) -> None:
    """Two slow workers take ten rounds: the live figure is there before the end, and as high as the last one."""
    page.goto("/sync_replicas?steps=10&delays=0.4,0.4")
    before = height(page, LIVE)
    assert height(page, DONE) == before
    expect(page.get_by_text("✓ 10 updates, and global_step is 10")).to_be_visible(timeout=LATER)


def test_play_step_and_scrub(page: Page) -> None:
    page.goto("/sync_replicas?steps=3&tokens=zero")
    banner = page.get_by_text("✓ 3 updates, and global_step is 3")
    expect(banner).to_be_visible(timeout=LATER)
    page.locator(f"{DONE} .updatemenu-button", has_text="Next").click()  # after the last picture comes the first
    expect(banner).to_be_hidden(timeout=LATER)
    expect(page.locator(DONE).get_by_text("the first step begins")).to_be_visible(timeout=LATER)
    page.locator(f"{DONE} .updatemenu-button", has_text="Play").click()
    expect(banner).to_be_visible(timeout=LATER)


def test_a_deadlock_is_a_result_with_who_waits(page: Page) -> None:
    """Averages of two, and one of two workers is killed by a click."""
    page.goto("/sync_replicas?steps=3")
    page.get_by_text("✓ 3 updates").wait_for(timeout=LATER)
    page.locator(".st-key-action-kill-worker-1 button").first.click()
    expect(page.get_by_text("waiting for a token: worker:0")).to_be_visible(timeout=LATER)
    expect(page.locator(DONE).get_by_text("killed", exact=True)).to_be_visible()
    assert "kill_worker=1" in page.url
    page.locator(".st-key-fix button").first.click()
    expect(page.get_by_text("✓ 3 updates")).to_be_visible(timeout=LATER)
    assert "replicas_to_aggregate=1" in page.url
    page.go_back()
    expect(page.get_by_text("waiting for a token: worker:0")).to_be_visible(timeout=LATER)


def test_what_replaced_it_runs_when_it_is_looked_at(page: Page) -> None:
    """Two workers' gradients, -1 and -2, of a loss that each has divided by 2."""
    page.goto("/sync_replicas?steps=2&tokens=zero")
    page.get_by_text("✓ 2 updates").wait_for(timeout=LATER)
    page.get_by_role("tab", name="What replaced it").click()
    table = page.get_by_role("table", name="What replaced it")
    expect(table.get_by_text("−0.5, −1 Σ −1.5 → 0.15")).to_be_visible(timeout=FIRST_RUN)
    expect(table.get_by_text("−0.5, −1 Σ −1.5 → 0.3")).to_be_visible()
    page.get_by_role("radio", name="parameter_server", exact=True).click()
    expect(page.get_by_text("A chief hands out 2 steps")).to_be_visible(timeout=FIRST_RUN)
    expect(table.get_by_text("Σ")).to_have_count(0)
    expect(page.locator(DONE).get_by_text("✓ 2 updates")).to_be_visible()  # the lesson's own run has stayed


def test_it_fits_every_window(page: Page) -> None:
    page.goto("/sync_replicas?optimizers=3&global_step=composite&steps=2")
    page.get_by_text("✓ 2 updates").wait_for(timeout=LATER)
    fits_every_window(page)
