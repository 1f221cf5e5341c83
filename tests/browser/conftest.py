"""Fixtures: the page in the locally installed Chromium, served by the real service with the
built-in weights.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Browser, Page, expect

from harness import Server
from harness.browser import chromium, find_chromium
from tests.browser.page_driver import BALL, BALL_RADIUS, DISC, LARGE_SIZE, TIMEOUT_S, PageDriver
from tests.skips import missing


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if find_chromium() is None:
        pytest.skip(missing("chromium"))
    expect.set_options(timeout=1000 * TIMEOUT_S)
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def modules(browser: Browser, builtin_server: Server) -> Iterator[Page]:
    """A page in which tests only import the page's JavaScript modules."""
    with PageDriver.open_page(browser, builtin_server) as driver:
        yield driver.page


@pytest.fixture
def open_page(
    browser: Browser, builtin_server: Server
) -> Callable[..., AbstractContextManager[PageDriver]]:
    """Open the page with options of a browser context."""
    return partial(PageDriver.open_page, browser, builtin_server)


@pytest.fixture
def driver(open_page: Callable[..., AbstractContextManager[PageDriver]]) -> Iterator[PageDriver]:
    """A user with the page open; fails on script errors and on requests to other hosts."""
    with open_page() as driver:
        yield driver


@pytest.fixture
def opened(driver: PageDriver, photo: Path) -> PageDriver:
    """The user with `photo` open."""
    driver.open(photo)
    return driver


@pytest.fixture
def clicked(opened: PageDriver) -> PageDriver:
    """The user after a click on the disc of `photo`."""
    opened.click(*DISC)
    return opened


@pytest.fixture(scope="session")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PNG of 480 x 320 pixels: a yellow disc and a red box on blue and green."""
    picture = Image.new("RGB", (480, 320), (96, 140, 190))
    draw = ImageDraw.Draw(picture)
    draw.rectangle([0, 240, 480, 320], fill=(70, 110, 60))
    draw.ellipse([90, 100, 210, 220], fill=(235, 200, 60))
    draw.rectangle([300, 90, 400, 210], fill=(190, 50, 45))
    path = tmp_path_factory.mktemp("photo") / "scene.png"
    picture.save(path)
    return path


@pytest.fixture(scope="session")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PNG of 2400 x 1600 pixels: a small disc on a noisy ground."""
    noise = np.random.default_rng(0).normal(0, 6, (LARGE_SIZE[1], LARGE_SIZE[0], 1))
    picture = Image.fromarray((np.array([90, 120, 80]) + noise).clip(0, 255).astype(np.uint8))
    x, y = BALL
    ImageDraw.Draw(picture).ellipse(
        [x - BALL_RADIUS, y - BALL_RADIUS, x + BALL_RADIUS, y + BALL_RADIUS], fill=(230, 90, 60)
    )
    path = tmp_path_factory.mktemp("large") / "large.png"
    picture.save(path, compress_level=1)
    return path
