"""Versions in a real Chromium, live where they are installed here, else from recordings: either way the same values."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.engine.processes import until
from tests.pages.browser import (
    FIGURE,
    FIRST_RUN,
    Server,
    fits_every_window,
    pick,
    query,
    shows,
    slow_runs,
    visitor,
)

pytestmark = pytest.mark.timeout(600)
ALL_VERSIONS = 240_000  # ms: four TensorFlows may have to be imported, on two cores


def version(page: Page, name: str) -> None:
    page.locator(".st-key-version").get_by_role("radio", name=re.compile(rf"^{re.escape(name)}")).click()


def test_another_tensorflow_is_a_click_away(page: Page, chromium: Browser, address: str) -> None:
    page.goto(f"{address}/aggregation?aggregation=SUM")
    shows(page, "1.3", "1.3", timeout=FIRST_RUN)
    version(page, "2.4.1")
    expect(page.locator(".st-key-version-line")).to_contain_text("TensorFlow 2.4.1", timeout=FIRST_RUN)
    shows(page, "1.3", "1.3")
    assert until(lambda: query(page) == "?aggregation=SUM&tf=2.4.1")
    pick(page, "MEAN")
    shows(page, "1.15", "1.15")
    expect(page.locator(".st-key-version-line")).to_contain_text(
        re.compile(r"ran live|recorded 20\d\d-\d\d-\d\d, Linux")
    )
    with visitor(chromium) as friend:
        friend.goto(page.evaluate("location.href"))
        shows(friend, "1.15", "1.15", timeout=FIRST_RUN)
        expect(friend.locator(".st-key-version-line")).to_contain_text("TensorFlow 2.4.1")
    page.go_back()
    shows(page, "1.3", "1.3")
    page.go_back()
    expect(page.locator(".st-key-version-line")).to_contain_text("TensorFlow 2.21")
    assert query(page) == "?aggregation=SUM"


def test_opposite_versions(page: Page, address: str) -> None:
    """Without strategy.run: an error on 2.4.1, and on 2.5.0 no error and one replica that trains."""
    page.goto(f"{address}/scope_placement?step=direct&apply_scope=out&optimizer=sgd&mode=function&steps=3&tf=2.4.1")
    figure = page.locator(FIGURE).first
    expect(figure).to_contain_text("ValueError", timeout=FIRST_RUN)
    version(page, "2.5.0")
    expect(figure).to_contain_text("0.7", timeout=FIRST_RUN)
    expect(figure).not_to_contain_text("ValueError")


def test_the_same_settings_on_every_version(page: Page, address: str) -> None:
    page.goto(f"{address}/scope_placement?model_scope=out")
    expect(page.locator(FIGURE).first).to_contain_text("ValueError", timeout=FIRST_RUN)
    page.get_by_role("tab", name="Versions").click()
    table = page.get_by_role("table", name="The outcome of these settings on each version")
    expect(table.get_by_text("slot variable")).to_have_count(2, timeout=ALL_VERSIONS)
    expect(table.get_by_text("colocate_vars_with")).to_have_count(3, timeout=ALL_VERSIONS)
    expect(table.get_by_text("differs")).to_have_count(2)
    expect(table.get_by_text("shown here")).to_have_count(1)


def test_the_matrix_fills_and_a_cell_opens_its_run(page: Page, address: str) -> None:
    page.goto(f"{address}/versions?view=direct")
    cells = page.locator(".grid td > a")
    expect(cells).to_have_count(60, timeout=FIRST_RUN)  # recordings are there at once
    expect(page.get_by_text(re.compile(r"^(All 60|\d+ of 60) runs were made on this server"))).to_be_visible(
        timeout=ALL_VERSIONS
    )
    expect(cells).to_have_count(60)
    expect(page.locator(".grid td.odd > a", has_text="one replica only")).to_have_count(6)
    cells.filter(has_text="one replica only").first.click()
    expect(page.locator(FIGURE).first).to_contain_text("0.7", timeout=FIRST_RUN)
    expect(page.locator(".st-key-version-line")).to_contain_text("TensorFlow 2.5.0")
    assert {"step=direct", "optimizer=sgd", "mode=function", "tf=2.5.0"} <= set(query(page)[1:].split("&"))
    page.go_back()
    expect(cells).to_have_count(60, timeout=FIRST_RUN)


def test_filling_can_be_stopped(page: Page, server: Server) -> None:
    """What nobody waits for any more is not run: the queue is empty soon after."""
    with slow_runs(server):
        page.goto(f"{server.address}/versions?optimizer=adam&mode=function")
        expect(page.locator(".grid td > a")).to_have_count(80, timeout=FIRST_RUN)
        stop = page.get_by_role("button", name="Stop", exact=True).filter(has_text="Stop").last
        stop.click(timeout=FIRST_RUN)
        expect(page.get_by_text(re.compile("^Stopped: "))).to_be_visible()
    expect(page.locator(".grid td > a")).to_have_count(80)
    page.get_by_role("link", name="Status").first.click()
    for label in ("Running", "Waiting"):
        metric = page.locator("[data-testid=stMetric]", has_text=label)
        expect(metric.locator("[data-testid=stMetricValue]")).to_have_text("0")
    page.go_back()
    page.get_by_role("button", name="Run the rest").click()
    expect(page.get_by_text(re.compile("have been made here|were made on this server"))).to_be_visible()


def test_the_time_line(page: Page, address: str) -> None:
    page.goto(f"{address}/versions?view=timeline")
    chart = page.locator("[data-testid=stPlotlyChart]")
    for text in ("0.8574", "0.4219", "0.343", "NaN", "3.4.1", "3.15"):
        expect(chart.first).to_contain_text(text, timeout=FIRST_RUN)


def test_the_status_page_looks_again_by_itself(page: Page, address: str) -> None:
    page.goto(f"{address}/status")
    parents = page.get_by_role("table").first
    expect(parents).to_contain_text("2.21", timeout=FIRST_RUN)
    before = parents.inner_text()
    assert until(lambda: parents.inner_text() != before, 60)  # its seconds, at least
    for name in ("2.4.1", "2.15.1", "2.21.0+keras-3.4.1"):
        expect(page.get_by_text(name, exact=True).last).to_be_visible(timeout=FIRST_RUN)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_nothing_is_wider_than_the_window(chromium: Browser, address: str, locale: str) -> None:
    with visitor(chromium, locale) as page:
        for path, there in (
            ("/versions", ".grid td > a"),
            ("/versions?view=direct", ".grid td > a"),
            ("/versions?view=timeline", "[data-testid=stPlotlyChart]"),
            ("/versions?view=choice", "table"),
            ("/status", "[data-testid=stMetric]"),
            ("/aggregation?tf=2.5.0", "[data-testid=stPlotlyChart]"),
        ):
            page.goto(address + path)
            expect(page.locator(there).first).to_be_visible(timeout=FIRST_RUN)
            fits_every_window(page)
