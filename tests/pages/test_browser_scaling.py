"""The scaling page in a real Chromium: curves that grow, a newer choice, and a sweep that can be stopped."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect

from tests.engine.processes import until
from tests.pages.browser import FIRST_RUN, Server, pick, query, slow_runs, visitor

# Streamlit keeps what was displaced, hidden, until the script has ended.
FINAL = ".st-key-figure-now:not([data-retained])"
LIVE = "[class*=st-key-live-now]"


def says(page: Page, text: str | re.Pattern[str]) -> None:
    expect(page.locator(FINAL)).to_contain_text(text, timeout=FIRST_RUN)


def test_it_is_shown_while_it_trains_and_then_told(page: Page, server: Server) -> None:
    """In one place all the time: as high as it is at the end, and never two pictures at once."""
    page.add_init_script(
        """window.pictures = [];
        new MutationObserver(() => {
            const all = [...document.querySelectorAll('[data-testid=stPlotlyChart]')]
                .filter(e => e.checkVisibility());
            const names = all.map(e => e.closest('[class*=st-key-]').className.match(/st-key-(live|figure)-now/)[1]);
            window.pictures.push([names, all.map(e => e.getBoundingClientRect().height)]);
        }).observe(document, {childList: true, subtree: true});"""
    )
    with slow_runs(server):
        page.goto(f"{server.address}/scaling?steps=400&seed=4321&replicas=4")
        expect(page.locator(LIVE)).to_be_visible(timeout=FIRST_RUN)
    says(page, "= Equal")
    expect(page.get_by_text("What happened")).to_be_visible()
    check_pictures(page)
    page.evaluate("window.pictures = []")
    with slow_runs(server):
        pick(page, "per_replica_mean")  # from one run to the next
        expect(page.locator(LIVE)).to_be_visible()
    says(page, "First step 4 ×")
    check_pictures(page)


def check_pictures(page: Page) -> None:
    """What was to be seen up to now: a live one and the last, never two at once, and all as high as each other."""
    pictures = page.evaluate("window.pictures")
    assert {"live", "figure"} == {name for names, _ in pictures for name in names}
    assert all(len(names) <= 1 for names, _ in pictures)
    assert len({height for _, heights in pictures for height in heights if height}) == 1


def test_a_newer_choice_takes_the_place_of_a_run(page: Page, address: str) -> None:
    page.goto(f"{address}/scaling?steps=400&seed=99")
    expect(page.locator(f"{LIVE}, {FINAL}").first).to_be_visible(timeout=FIRST_RUN)
    for option in ("per_replica_mean", "global_mean", "per_replica_mean"):
        pick(page, option)
    says(page, "First step 4 ×")
    assert "loss=per_replica_mean" in query(page)
    page.get_by_role("button", name="Fix it").click()
    says(page, "= Equal")
    page.go_back()
    says(page, "First step 4 ×")


def test_there_and_back_before_the_browser_has_heard_of_the_first(page: Page, address: str) -> None:
    """Clicks that the server takes as one, with the URL of before the first: they must not undo it."""
    there: list[WebSocketRoute] = []
    held: dict[str, list[str | bytes] | None] = {"to the server": None, "to the browser": None}

    def pass_on(name: str, to: WebSocketRoute) -> Callable[[str | bytes], None]:
        def take(message: str | bytes) -> None:
            waiting = held[name]
            to.send(message) if waiting is None else waiting.append(message)

        return take

    def between(browser: WebSocketRoute) -> None:
        server = browser.connect_to_server()
        there.extend((server, browser))
        browser.on_message(pass_on("to the server", server))
        server.on_message(pass_on("to the browser", browser))

    page.route_web_socket("**/_stcore/stream", between)
    page.goto(f"{address}/scaling?steps=400&seed=77")
    expect(page.locator(f"{LIVE}, {FINAL}").first).to_be_visible(timeout=FIRST_RUN)
    told: list[str | bytes] = []
    asked: list[str | bytes] = []
    held["to the browser"] = told
    pick(page, "per_replica_mean")
    assert until(lambda: waits_for(page, told), 60)  # the server has it, and says that it runs
    held["to the server"] = asked
    pick(page, "global_mean")
    pick(page, "per_replica_mean")
    assert until(lambda: waits_for(page, asked), 60)
    for name, to in zip(held, there, strict=True):
        messages, held[name] = held[name], None
        assert messages
        for message in messages:
            to.send(message)
    says(page, "First step 4 ×")
    assert "loss=per_replica_mean" in query(page)


def waits_for(page: Page, messages: list[str | bytes]) -> bool:
    """Let Playwright hand over what has come, and look whether that is something."""
    page.wait_for_timeout(10)
    return bool(messages)


def test_back_in_the_middle_of_a_run(page: Page, address: str) -> None:
    page.goto(f"{address}/scaling?steps=400&seed=78")
    says(page, "= Equal")
    pick(page, "per_replica_mean")
    page.wait_for_url(re.compile("loss=per_replica_mean"))
    page.go_back()
    says(page, "= Equal")
    assert "loss" not in query(page)


def test_a_sweep_fills_in_and_stops_at_once(page: Page, address: str) -> None:
    page.goto(f"{address}/scaling?steps=5")
    says(page, "= Equal")
    page.get_by_role("tab", name="Sweep").click()
    heat = page.locator("[class*=st-key-sweep]")
    expect(heat).to_contain_text(re.compile(r"0\.\d"))  # a cell, while others wait
    page.get_by_role("button", name="Stop").last.click()
    expect(page.get_by_text(re.compile(r"^Stopped"))).to_be_visible(timeout=15_000)
    expect(heat).to_contain_text("…")
    page.goto(f"{address}/status")
    expect(page.locator("[data-testid=stMain]")).to_contain_text("Running")
    expect(page.locator("[data-testid=stMetricValue]").first).to_have_text("0", timeout=15_000)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_nothing_is_wider_than_a_telephone(chromium: Browser, address: str, locale: str) -> None:
    with visitor(chromium, locale, 390, 844) as page:
        page.goto(f"{address}/scaling?steps=5&loss=per_replica_mean")
        expect(page.locator(FINAL)).to_be_visible(timeout=FIRST_RUN)
        assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth") <= 390
