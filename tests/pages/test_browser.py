"""The app in a real Chromium on a real server: what people do, in the order they might do it."""

from __future__ import annotations

import re
import signal
import time

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import Sample
from tests.engine.processes import alive, until
from tests.pages.browser import (
    FIGURE,
    FIRST_RUN,
    ROOT,
    descendants,
    figure_texts,
    fits_every_window,
    no_text_lies_on_another,
    pick,
    query,
    serve,
    serving,
    shows,
    visitor,
)
from tests.pages.held_import import HeldImport

CHINESE, ENGLISH = re.compile("[\u4e00-\u9fff]"), re.compile("^[ -~’—“”]+$")


# ------------------------------------------------------------------------------------------------ the first visit


def test_the_first_visitors_after_a_start_may_come_by_lessons_links(chromium: Browser, held: HeldImport) -> None:
    """Two at once: with app.py around each page, with its query, and with progress while TensorFlow is imported."""
    with serving(held.python) as server, visitor(chromium) as one, visitor(chromium, locale="zh-CN") as other:
        one.goto(f"{server.address}/aggregation?aggregation=SUM&replicas=3", wait_until="commit")
        other.goto(f"{server.address}/aggregation?aggregation=MEAN", wait_until="commit")
        for page in (one, other):
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_role("radio", name="中文")).to_be_visible()
            expect(page.get_by_role("progressbar")).to_be_visible()
        held.let_go()
        shows(one, "1.6", "1.6", "1.6", timeout=FIRST_RUN)
        shows(other, "1.15", "1.15", timeout=FIRST_RUN)
        assert query(one) == "?aggregation=SUM&replicas=3"
        expect(one.get_by_role("link", name="Home").first).to_be_visible()
        expect(other.get_by_role("link", name="首页").first).to_be_visible()


def test_any_page_may_be_the_first_after_a_start(chromium: Browser, held: HeldImport, sample: Sample) -> None:
    """It has app.py around it, and is there before TensorFlow is."""
    for file in sample(sorted((ROOT / "pages").glob("*.py")), 1 / 4):
        path = "" if file.stem == "home" else file.stem
        with serving(held.python) as server, visitor(chromium) as page:
            page.goto(f"{server.address}/{path}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.get_by_role("radio", name="中文")).to_be_visible()
            expect(page.get_by_role("link", name="Status").first).to_be_visible()
            assert page.url == f"{server.address}/{path}"


# ------------------------------------------------------------------------------------------------ a lesson in use


def test_from_home_to_a_toggle(page: Page, address: str) -> None:
    page.goto(address)
    shows_picture = page.locator("[data-testid=stPlotlyChart]")
    expect(shows_picture).to_be_visible(timeout=FIRST_RUN)
    page.locator("[data-testid=stBaseButton-primary]").click()
    shows(page, "1.1", "1.2")
    pick(page, "MEAN")
    shows(page, "1.15", "1.15")
    assert query(page) == "?aggregation=MEAN"


def test_reload_share_and_back(page: Page, chromium: Browser, address: str) -> None:
    page.goto(address)
    page.get_by_role("link", name="Aggregation").first.click()
    shows(page, "1.1", "1.2", timeout=FIRST_RUN)
    pick(page, "SUM")
    shows(page, "1.3", "1.3")
    page.reload()
    shows(page, "1.3", "1.3")
    with visitor(chromium) as friend:
        friend.goto(page.url)
        shows(friend, "1.3", "1.3")
        expect(friend.get_by_role("radio", name="SUM", exact=True)).to_be_checked()
    pick(page, "MEAN")
    shows(page, "1.15", "1.15")
    page.go_back()  # undoes one choice after another
    shows(page, "1.3", "1.3")
    expect(page.get_by_role("radio", name="SUM", exact=True)).to_be_checked()
    page.go_back()
    shows(page, "1.1", "1.2")
    page.go_back()
    expect(page.locator("[data-testid=stBaseButton-primary]")).to_be_visible()
    page.go_forward()
    shows(page, "1.1", "1.2")
    page.go_forward()
    shows(page, "1.3", "1.3")
    expect(page.get_by_role("radio", name="SUM", exact=True)).to_be_checked()


def test_quick_toggling_ends_with_the_last_choice(page: Page, address: str) -> None:
    """The newest settings win, however many came before."""
    page.goto(f"{address}/aggregation?gradients=0.4,0.8")
    shows(page, "1.4", "1.8", timeout=FIRST_RUN)
    for option in ("SUM", "MEAN", "ONLY_FIRST_REPLICA", "NONE", "SUM", "MEAN"):
        pick(page, option)
    shows(page, "1.6", "1.6")
    time.sleep(1)
    shows(page, "1.6", "1.6")


def test_two_tabs_do_not_disturb_each_other(chromium: Browser, address: str) -> None:
    with visitor(chromium) as one:
        other = one.context.new_page()
        one.goto(f"{address}/aggregation?aggregation=SUM")
        other.goto(f"{address}/aggregation?aggregation=MEAN")
        shows(one, "1.3", "1.3", timeout=FIRST_RUN)
        shows(other, "1.15", "1.15", timeout=FIRST_RUN)
        pick(one, "NONE")
        shows(one, "1.1", "1.2")
        shows(other, "1.15", "1.15")


def test_an_optimizer_sums_whatever_the_aggregation(page: Page, address: str) -> None:
    page.goto(f"{address}/aggregation?route=optimizer")
    shows(page, "0.7", "0.7", timeout=FIRST_RUN)  # 1 - (0.1 + 0.2)
    for option in ("SUM", "MEAN", "ONLY_FIRST_REPLICA"):
        pick(page, option)
        expect(page.locator(FIGURE).first).to_contain_text(option)
        shows(page, "0.7", "0.7")


def test_typing_gradients(page: Page, address: str) -> None:
    page.goto(f"{address}/aggregation?aggregation=SUM")
    shows(page, "1.3", "1.3", timeout=FIRST_RUN)
    page.get_by_text("More settings").click()
    field = page.locator(".st-key-gradients input")
    field.fill("2, 3")
    field.press("Enter")
    shows(page, "6", "6")
    field.fill("2, 3, 4")
    field.press("Enter")
    expect(page.get_by_text("2, 3, 4 was given")).to_be_visible()


def test_nonsense_in_the_url(page: Page, address: str) -> None:
    page.goto(f"{address}/aggregation?replicas=99&aggregation=SUM")
    alert = page.locator("[data-testid=stAlert]")
    expect(alert).to_contain_text("99", timeout=FIRST_RUN)
    expect(alert).to_contain_text("1 to 8")
    shows(page, "1.3", "1.3", timeout=FIRST_RUN)
    pick(page, "MEAN")
    shows(page, "1.15", "1.15")
    expect(alert).to_have_count(0)


def test_compare_and_reset(page: Page, chromium: Browser, address: str) -> None:
    page.goto(f"{address}/aggregation?aggregation=SUM")
    shows(page, "1.3", "1.3", timeout=FIRST_RUN)
    page.get_by_text("Compare", exact=True).click()
    shows(page, "1.3", "1.3", name="held")
    pick(page, "MEAN")
    shows(page, "1.15", "1.15")
    shows(page, "1.3", "1.3", name="held")
    with visitor(chromium) as friend:
        friend.goto(page.evaluate("location.href"))
        shows(friend, "1.3", "1.3", name="held")
        shows(friend, "1.15", "1.15")
    page.get_by_role("button", name="Reset").click()
    shows(page, "1.1", "1.2")
    assert until(lambda: query(page) == "")


# ------------------------------------------------------------------------------------------------ the moving figure


def test_the_figure_plays_steps_and_scrubs_without_the_server(page: Page, address: str) -> None:
    """Every frame is in the browser: it moves while the server is not asked for anything."""
    sent: list[str] = []
    page.on("websocket", lambda socket: socket.on("framesent", lambda frame: sent.append(str(frame))))
    page.goto(f"{address}/aggregation?aggregation=SUM&steps=2")
    shows(page, "1.6", "1.6", timeout=FIRST_RUN)
    expect(page.locator("[data-testid=stApp]")).to_have_attribute("data-test-script-state", "notRunning")
    assert sent, "the page talks to the server through this socket"
    sent.clear()
    page.evaluate(
        """figure => {
            window.seen = [];
            const look = () => seen.push([...document.querySelectorAll(`${figure} svg text`)].map(t => t.textContent));
            new MutationObserver(look).observe(document, {childList: true, subtree: true, characterData: true});
        }""",
        FIGURE,
    )
    figure = page.locator(FIGURE).first
    figure.get_by_text("Play").click()

    def passed() -> list[list[str]]:
        return [after(texts) for texts in page.evaluate("window.seen")]

    assert until(lambda: ["1.3", "1.3"] in passed(), 60), "the first step must be passed"
    assert until(lambda: passed()[-1] == ["1.6", "1.6"], 60), "it plays to the end"
    slider = figure.locator(".slider-rail-touch-rect").bounding_box()
    assert slider is not None
    page.mouse.click(slider["x"] + 2, slider["y"] + slider["height"] / 2)
    assert until(lambda: ended(page) != ["1.6", "1.6"]), "the slider goes to the beginning"
    for _ in range(20):
        before = figure_texts(page)
        figure.get_by_text("Next").click()
        assert until(lambda before=before: figure_texts(page) != before), "each click moves it"  # type: ignore[misc]
        if ended(page) == ["1.3", "1.3"]:
            break
    assert ended(page) == ["1.3", "1.3"], "a phase at a time, forward"
    assert sent == []


def ended(page: Page) -> list[str]:
    return after(figure_texts(page))


def after(texts: list[str]) -> list[str]:
    """What the copies hold after a step, of all texts of the figure."""
    return [text.split("→")[1].strip() for text in texts if "→" in text]


# ------------------------------------------------------------------------------------------------ language, size, theme


def test_the_browsers_language_first_and_the_switch_after(chromium: Browser, address: str) -> None:
    with visitor(chromium, locale="zh-CN") as page:
        page.goto(f"{address}/aggregation")
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(CHINESE, timeout=FIRST_RUN)
        shows(page, "1.1", "1.2", timeout=FIRST_RUN)
        document = page.locator("html")
        expect(document).to_have_attribute("lang", "zh-Hans")
        expect(page).to_have_title("聚合 aggregation · Replica Lab")
        page.get_by_role("radio", name="English").click()
        expect(heading).to_have_text(ENGLISH)
        expect(document).to_have_attribute("lang", "en")
        expect(page).to_have_title("Aggregation · Replica Lab")
        page.get_by_role("link", name="Home").first.click()
        expect(heading).to_have_text(ENGLISH)
        expect(page).to_have_title("Home · Replica Lab")
        assert "lang=en" in query(page)
        page.reload()
        expect(heading).to_have_text(ENGLISH)


@pytest.mark.parametrize("locale", ["en-US", "zh-CN"])
def test_nothing_is_wider_than_the_window(chromium: Browser, address: str, locale: str) -> None:
    with visitor(chromium, locale) as page:
        for path in ("/", "/aggregation?replicas=8&steps=3"):
            page.goto(address + path)
            expect(page.locator("[data-testid=stPlotlyChart]")).to_be_visible(timeout=FIRST_RUN)
            fits_every_window(page)


def test_text_in_the_figure_does_not_overlap(chromium: Browser, address: str) -> None:
    for width in (390, 1366):
        with visitor(chromium, width=width, height=844) as page:
            page.goto(f"{address}/aggregation?replicas=4&route=optimizer&steps=3")
            shows(page, *["−2"] * 4, timeout=FIRST_RUN)  # 1 - 3 * (0.1 + 0.2 + 0.3 + 0.4)
            no_text_lies_on_another(page)


# ------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left_when_the_app_stops(chromium: Browser, held: HeldImport, number: signal.Signals) -> None:
    """By Ctrl-C, by kill, and by kill -9, while TensorFlow is imported. (Others: `server`, and tests/engine.)"""
    server = serve(held.python)
    with visitor(chromium) as page:
        page.goto(f"{server.address}/aggregation")
        expect(page.get_by_role("progressbar")).to_be_visible()
        started = descendants(server)
        assert started
        server.process.send_signal(number)
        server.process.wait(30)
        assert until(lambda: not any(map(alive, started)), 30)
