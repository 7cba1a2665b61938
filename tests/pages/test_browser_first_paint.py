"""Before TensorFlow is there: every page is whole but for what only a run can fill, and that comes when it can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from lessons import LESSONS
from lessons.language import SHARED, Texts
from lessons.lesson import AnyLesson
from tests.pages.browser import FIRST_RUN, serving, visitor
from tests.pages.held_import import HeldImport, held_import

APP = Texts(SHARED, "en")


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> HeldImport:
    return held_import(tmp_path_factory.mktemp("held"))


@pytest.fixture(scope="module")
def held_address(held: HeldImport) -> Iterator[str]:
    """The app on a server whose TensorFlow is held."""
    with serving(held.python) as server:
        yield server.address


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    with visitor(chromium) as page:
        yield page


def waits(page: Page) -> None:
    """The page says that TensorFlow is being imported."""
    expect(page.get_by_role("progressbar")).to_be_visible(timeout=FIRST_RUN)


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda lesson: lesson.name)
def test_a_lesson_is_whole_but_for_its_run(page: Page, held_address: str, lesson: AnyLesson) -> None:
    page.goto(f"{held_address}/{lesson.name}")
    waits(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(lesson.texts("en")("question"))
    expect(page.get_by_role("link", name="Home").first).to_be_visible()
    expect(page.get_by_role("button", name=APP("page.reset"))).to_be_visible()
    expect(page.get_by_role("tab", name=APP("page.code"))).to_be_visible()
    expect(page.get_by_role("tab", name=APP("page.versions"))).to_be_visible()
    expect(page.locator(".program")).to_contain_text("import")  # the program that is going to run
    expect(page.locator("[data-testid=stPlotlyChart]")).to_have_count(0)


def test_home_is_whole_but_for_its_picture(page: Page, held_address: str) -> None:
    page.goto(held_address)
    waits(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(APP("home.title"))
    for lesson in LESSONS:
        expect(page.locator(".st-key-lessons")).to_contain_text(lesson.texts("en")("question"))
    expect(page.locator("[data-testid=stPlotlyChart]")).to_have_count(0)


@pytest.mark.parametrize("name", ["versions", "status"])
def test_a_page_about_versions_does_not_wait(page: Page, held_address: str, name: str) -> None:
    page.goto(f"{held_address}/{name}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_role("table").first.or_(page.locator("[data-testid=stPlotlyChart]").first)).to_be_visible()


def test_the_rest_comes_when_tensorflow_is_there(page: Page, held: HeldImport, held_address: str) -> None:
    """The last of these tests: it lets go."""
    page.goto(f"{held_address}/aggregation?aggregation=SUM&replicas=3")
    waits(page)
    before = page.locator(".program").text_content()
    held.let_go()
    picture = page.locator(".st-key-figure-now")
    expect(picture).to_contain_text("1.6", timeout=FIRST_RUN)  # 1 and 0.1 + 0.2 + 0.3
    assert page.locator(".program").text_content() == before
    assert "aggregation=SUM&replicas=3" in page.url
