"""The app as people meet it: a real server, and a real Chromium that looks at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.engine.processes import until

ROOT = Path(__file__).parents[2]
# Without these, Chromium looks for its maker's servers at every start.
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
# The first is the newest: a figure that is being replaced may stay for a moment.
FIGURE = ".st-key-figure-now"
# ms. A busy machine takes its time; what is there sooner is not waited for any longer.
FIRST_RUN = 180_000  # TensorFlow may still have to be imported
TOGGLED = 60_000
expect.set_options(timeout=TOGGLED)


def chromium_path() -> str | None:
    """Where this machine has a Chromium."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class Server:
    """The app, and where it is."""

    process: subprocess.Popen[bytes]
    address: str


def serve(python: str | Path = sys.executable) -> Server:
    """Start the app, and wait until it answers (its first page, not TensorFlow)."""
    port = free_port()
    process = subprocess.Popen(
        [python, "-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.headless", "true"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def answers() -> bool:
        assert process.poll() is None, f"the app did not start; exit status {process.poll()}"
        try:
            urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1).close()
        except (urllib.error.URLError, TimeoutError):
            return False
        return True

    if not until(answers, 120):
        process.kill()
        raise RuntimeError("the app did not answer within 120 seconds")
    return Server(process, f"http://localhost:{port}")


@contextmanager
def serving(python: str | Path = sys.executable) -> Iterator[Server]:
    """The app, for as long as the block lasts."""
    server = serve(python)
    try:
        yield server
    finally:
        server.process.send_signal(signal.SIGINT)
        try:
            server.process.wait(30)
        except subprocess.TimeoutExpired:
            server.process.kill()
            server.process.wait()


def descendants(server: Server) -> list[int]:
    """Every process that the server started, and that these did: TensorFlow's parents, and runs."""
    found, todo = [], [server.process.pid]
    while todo:
        for thread in Path(f"/proc/{todo.pop()}/task").glob("*"):  # whichever thread started it
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                started = [int(pid) for pid in (thread / "children").read_text().split()]
                found += started
                todo += started
    return found


@contextmanager
def slow_runs(server: Server) -> Iterator[None]:
    """While the block lasts, the runs of this server hardly get on: what is to be seen meanwhile is not over before a
    busy browser has drawn it, however fast TensorFlow is. Each is stopped most of the time."""
    over = threading.Event()

    def send(number: signal.Signals) -> None:
        for pid in descendants(server):
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(pid) != os.getsid(pid):  # a run has a group of its own, a parent leads its session
                    os.kill(pid, number)

    def alternate() -> None:
        while not over.wait(0.02):
            send(signal.SIGSTOP)
            over.wait(0.5)
            send(signal.SIGCONT)

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=[*QUIET, *sandbox])
        yield chromium
        chromium.close()


class visitor:  # noqa: N801  used as a function
    """A visitor with a browser of their own: nothing is shared with the others."""

    def __init__(self, chromium: Browser, locale: str = "en-US", width: int = 1366, height: int = 768) -> None:
        self.context: BrowserContext = chromium.new_context(locale=locale, viewport={"width": width, "height": height})
        self.context.set_default_timeout(TOGGLED)

    def __enter__(self) -> Page:
        return self.context.new_page()

    def __exit__(self, *_: object) -> None:
        self.context.close()


def shows(page: Page, *values: str, name: str = "now", timeout: int = TOGGLED) -> None:
    """Wait until the copies in the figure end with these values, and these only."""
    page.wait_for_function(
        """([name, values]) => {
            const all = document.querySelectorAll(`.st-key-figure-${name} svg text`);
            const texts = [...all].map(text => text.textContent);
            const copies = texts.filter(text => text.includes('→')).map(text => text.split('→')[1].trim());
            return JSON.stringify(copies) === JSON.stringify(values);
        }""",
        arg=[name, list(values)],
        timeout=timeout,
    )


def pick(page: Page, option: str) -> None:
    page.get_by_role("radio", name=option, exact=True).click()


def query(page: Page) -> str:
    search: str = page.evaluate("location.search")
    return search


def fits_every_window(page: Page) -> None:
    """Fails where something makes the page wider than a laptop's, a projector's or a telephone's window."""
    for width, height in ((1366, 768), (1920, 1080), (390, 844)):
        page.set_viewport_size({"width": width, "height": height})
        # The style may come a moment after what it is for.
        fits = "width => document.querySelector('[data-testid=stMain]').scrollWidth <= width"
        page.wait_for_function(fits, arg=width)


def figure_texts(page: Page, name: str = "now") -> list[str]:
    """Every text in the figure, as it stands."""
    texts = page.locator(f".st-key-figure-{name} svg text").all_text_contents()
    return [text.replace("\xa0", " ").strip() for text in texts if text.strip()]


def no_text_lies_on_another(page: Page) -> None:
    """Fails where two texts of the figure that can be seen cover each other."""
    boxes = page.evaluate(
        """() => [...document.querySelectorAll('.st-key-figure-now svg text')]
            .filter(text => text.textContent.trim() && getComputedStyle(text).opacity > 0)
            .map(text => ({text: text.textContent, ...text.getBoundingClientRect().toJSON()}))"""
    )
    for number, one in enumerate(boxes):
        for other in boxes[number + 1 :]:
            across = min(one["right"], other["right"]) - max(one["left"], other["left"])
            down = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
            assert across <= 1 or down <= 4, f"{one['text']!r} on {other['text']!r}"
