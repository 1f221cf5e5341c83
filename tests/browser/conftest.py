"""Fixtures: the page in the locally installed Chromium, served by the real service with the built-in weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser

from benchmarks.browser import chromium, find_chromium
from tests.browser.person import Person
from tests.e2e.server import Server

FOLDER = Path(__file__).parent


class SharedBrowser:
    """One browser for all tests in this folder.

    It must be closed before tests of other folders run: they cannot start an event loop while it is open.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._running: Browser | None = None

    def get(self) -> Browser:
        if self._running is None:
            self._running = self._stack.enter_context(chromium())
        return self._running

    def close(self) -> None:
        self._stack.close()
        self._running = None


SHARED_BROWSER = SharedBrowser()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.hookimpl(trylast=True)  # after fixtures have closed their pages
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    if nextitem is None or FOLDER not in nextitem.path.parents:
        SHARED_BROWSER.close()


@pytest.fixture
def browser() -> Browser:
    if find_chromium() is None:
        pytest.skip("no Chromium on PATH (on Debian: apt-get install chromium)")
    return SHARED_BROWSER.get()


@pytest.fixture
def person(browser: Browser, builtin_server: Server) -> Iterator[Person]:
    """A user with the page open; fails on script errors and on requests to other hosts."""
    with Person.open_page(browser, builtin_server) as person:
        yield person


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PNG of 480 x 320 pixels: a yellow disc at (150, 160) and a red box at (350, 150) on blue and green."""
    picture = Image.new("RGB", (480, 320), (96, 140, 190))
    draw = ImageDraw.Draw(picture)
    draw.rectangle([0, 240, 480, 320], fill=(70, 110, 60))
    draw.ellipse([90, 100, 210, 220], fill=(235, 200, 60))
    draw.rectangle([300, 90, 400, 210], fill=(190, 50, 45))
    path = tmp_path_factory.mktemp("photo") / "scene.png"
    picture.save(path)
    return path
