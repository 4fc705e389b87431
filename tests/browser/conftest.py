"""A browser for the tests of this folder: Debian's Chromium, driven by Playwright.

It is started once and closed with the last test of the folder: Playwright's loop must not be there
when tests with loops of their own run in the same process. Pictures of what the tests saw are left
in `artifacts/`, for people to look at.
"""

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

PICTURES = Path(__file__).parents[2] / "artifacts"
PATIENCE = 15_000
"""Milliseconds after which what a test waits for does not come any more."""


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        why = "there is no chromium: apt-get install chromium"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        # As root, as in containers, its sandbox does not start; it opens nothing but our own pages.
        # And containers have little shared memory.
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=path, args=options)
        yield browser
        browser.close()


class Serving:
    """Apps behind uvicorn, in threads of this process."""

    def __init__(self) -> None:
        self._running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def __call__(self, make: Callable[[str], FastAPI]) -> str:
        """The address of what `make` makes for it."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        config = uvicorn.Config(make(base), log_config=None, ws="none", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        self._running.append((server, thread))
        return base

    def stop(self) -> None:
        for server, _ in self._running:
            server.should_exit = True
        for _, thread in self._running:
            thread.join(10)


@pytest.fixture(scope="package")
def serve() -> Iterator[Serving]:
    serving = Serving()
    yield serving
    serving.stop()


class Tab:
    """A tab, and what the page in it had to complain about."""

    def __init__(self, page: Page, name: str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self._name = name
        page.set_default_timeout(PATIENCE)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self._heard(message.type, message.text))

    def _heard(self, kind: str, text: str) -> None:
        # A status that the page understands is none of its errors.
        if kind in ("error", "warning") and not text.startswith("Failed to load resource"):
            self.complaints.append(text)

    def picture(self, name: str) -> None:
        """Leave a picture of the whole page."""
        PICTURES.mkdir(exist_ok=True)
        file = PICTURES / f"{self._name}-{name}.png"
        size = self.page.viewport_size
        assert size is not None
        height = self.page.evaluate("document.documentElement.scrollHeight")
        self.page.set_viewport_size({"width": size["width"], "height": max(height, size["height"])})
        self.page.screenshot(path=file)
        self.page.set_viewport_size(size)


OpenTab = Callable[..., Tab]


@pytest.fixture
def open_tab(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[OpenTab]:
    """Opens tabs with sessions of their own; none of their pages may complain."""
    opened: list[tuple[BrowserContext, Tab]] = []

    def make(**options: object) -> Tab:
        context = chromium.new_context(**options)  # type: ignore[arg-type]
        tab = Tab(context.new_page(), request.node.name.removeprefix("test_").replace("/", "-"))
        opened.append((context, tab))
        return tab

    yield make
    complaints = [complaint for _, tab in opened for complaint in tab.complaints]
    for context, _ in opened:
        context.close()
    assert complaints == []
