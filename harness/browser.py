"""Headless Chromium of this machine."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""Programs, the one that takes the least processor time first: the shell has no tabs, menus and
profiles."""


def find_chromium() -> str | None:
    """Return the path of Chromium, or None if there is none on PATH."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium(*arguments: str) -> Iterator[Browser]:
    """Start a browser.

    Args:
        arguments: further ones of its command line.

    Raises:
        FileNotFoundError: there is no Chromium on PATH.
    """
    program = find_chromium()
    if program is None:
        raise FileNotFoundError(
            f"expected one of {', '.join(NAMES)} on PATH: on Debian, `apt-get install {NAMES[0]}`"
        )
    with sync_playwright() as playwright:
        # The sandbox does not work for root or in containers; only this project's pages are opened.
        options = ["--no-sandbox", *arguments]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()
