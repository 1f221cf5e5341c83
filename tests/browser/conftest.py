"""The page in this machine's Chromium, against the real service with the built-in weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser

from benchmarks.browser import chromium, find_chromium
from tests.browser.person import Person
from tests.e2e.server import Server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """For one file's tests, and no longer: while it is there, no other test can run an event loop of its own."""
    if find_chromium() is None:
        pytest.skip("there is no Chromium on PATH (on Debian: apt-get install chromium)")
    with chromium() as running:
        yield running


@pytest.fixture
def person(browser: Browser, builtin_server: Server) -> Iterator[Person]:
    """Somebody with the page before them; nothing goes wrong in it, and nothing leaves this machine."""
    with Person.at(browser, builtin_server) as somebody:
        yield somebody


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene of 480 x 320 pixels: a yellow disc about (150, 160), a red box about (350, 150), on blue and green."""
    picture = Image.new("RGB", (480, 320), (96, 140, 190))
    draw = ImageDraw.Draw(picture)
    draw.rectangle([0, 240, 480, 320], fill=(70, 110, 60))
    draw.ellipse([90, 100, 210, 220], fill=(235, 200, 60))
    draw.rectangle([300, 90, 400, 210], fill=(190, 50, 45))
    path = tmp_path_factory.mktemp("photo") / "scene.png"
    picture.save(path)
    return path
