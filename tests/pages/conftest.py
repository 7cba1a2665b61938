"""What the tests of pages share: the engine that all pages get, the app on a server, a Chromium, and a visitor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from engine.engine import Engine
from engine.runtimes import Runtime
from pages.parts import engine as shared
from tests.engine.processes import alive, until
from tests.pages.browser import Server, browser, chromium_path, descendants, serving, visitor
from tests.pages.held_import import HeldImport, held_import


def pages_get(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """Until this goes on, pages get this engine as they else get a new one."""
    monkeypatch.setattr(shared, "Engine", lambda: engine)
    shared.shared_engine.clear()
    yield engine
    shared.shared_engine.clear()


@pytest.fixture
def pages_engine(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The engine of pages as scripts (AppTest): that of all tests, which has imported TensorFlow already."""
    yield from pages_get(engine, monkeypatch)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """A Chromium; without one, the tests are skipped, and fail where CI is set."""
    if chromium_path() is None:
        message = "no Chromium on PATH (Debian: apt-get install chromium fonts-noto-cjk)"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with browser() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def server(tensorflow: Runtime) -> Iterator[Server]:  # noqa: ARG001  it starts TensorFlow
    """The app on a server, the same for all tests. Ctrl-C ends it, and leaves no process."""
    with serving() as server:
        yield server
        started = descendants(server)
    assert until(lambda: not any(map(alive, started)), 30)


@pytest.fixture(scope="session")
def address(server: Server) -> str:
    return server.address


@pytest.fixture
def held(tmp_path: Path) -> HeldImport:
    """A Python for a server of the test's own, which imports TensorFlow when it is told to."""
    return held_import(tmp_path)


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """An empty page of a new visitor."""
    with visitor(chromium) as page:
        yield page
