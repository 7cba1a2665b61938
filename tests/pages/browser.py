"""The app as people meet it: a real server, and a real Chromium that looks at it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
# Without these, Chromium looks for its maker's servers at every start.
QUIET = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]

# A loaded machine takes its time; what is there sooner is not waited for any longer.
expect.set_options(timeout=30_000)


def chromium_path() -> str | None:
    """Where this machine has a Chromium."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        return int(probe.getsockname()[1])


def serve(port: int) -> subprocess.Popen[bytes]:
    """Start the app, and wait until it answers (its first page, not TensorFlow)."""
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port), "--server.headless", "true"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=1).close()
            return server
        except (urllib.error.URLError, TimeoutError):
            if server.poll() is not None or time.monotonic() > end:
                server.kill()
                raise RuntimeError(f"the app did not start; exit status {server.poll()}") from None
            time.sleep(0.05)


@contextmanager
def serving(port: int) -> Iterator[str]:
    """The app on this port, for as long as the block lasts. Gives its address."""
    server = serve(port)
    try:
        yield f"http://localhost:{port}"
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=[*QUIET, *sandbox])
        yield chromium
        chromium.close()


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
