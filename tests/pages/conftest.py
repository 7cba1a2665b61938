"""What the browser tests share: a Chromium, the app, and a visitor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.pages.browser import browser, chromium_path, free_port, serving, visitor


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A Chromium; without one, the tests are skipped, and fail where CI is set."""
    if chromium_path() is None:
        message = "no Chromium on PATH (Debian: apt-get install chromium fonts-noto-cjk)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of the app on a server of its own."""
    with serving(free_port()) as address:
        yield address


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page of a new visitor."""
    with visitor(chromium) as page:
        yield page
