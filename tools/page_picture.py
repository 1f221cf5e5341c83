"""Screenshot of the page at /ui for the README: `make page-picture` while `make serve WEIGHTS=official` runs.

Opens the sample with the balloons, marks eight objects with a click or a box each, and takes a screenshot.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, expect

from benchmarks.browser import chromium
from tests.browser.person import IMAGE_TO_SCREEN

SAMPLE = "balloons.jpg"
CLICKS_XY = ((903, 310), (494, 280), (1134, 280), (380, 310), (626, 460), (1036, 595))
"""Pixels of the sample: five balloons and the red boat."""
BOXES_XYXY = ((248, 308, 384, 502), (299, 518, 492, 767))
"""The balloon in front of another one, and the white boat."""
WIDTH, HEIGHT, SCALE = 1180, 720, 1.5
"""Window size in CSS pixels, and device pixels per CSS pixel."""


def take(url: str) -> Image.Image:
    """Return the screenshot, RGB.

    Args:
        url: base URL of a service with the official weights.
    """
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light"
        )
        page = context.new_page()
        page.goto(f"{url}/ui")
        expect(page.locator("#weights")).to_have_text("weights: official")
        page.locator(f'#samples button:has(img[src*="{SAMPLE}"])').click()
        page.wait_for_selector("#about:not(:empty)")
        page.locator("#hover").set_checked(False)
        for x, y in CLICKS_XY:
            page.keyboard.down("Shift")
            page.mouse.click(*_on_screen(page, x, y))
            page.keyboard.up("Shift")
            _wait(page)
        for x0, y0, x1, y1 in BOXES_XYXY:
            page.get_by_role("button", name="New").click()
            page.mouse.move(*_on_screen(page, x0, y0))
            page.mouse.down()
            page.mouse.move(*_on_screen(page, x1, y1), steps=4)
            page.mouse.up()
            _wait(page)
        return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def _on_screen(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return the window coordinates of an image pixel."""
    x, y = page.evaluate(IMAGE_TO_SCREEN, [x, y])
    return x, y


def _wait(page: Page) -> None:
    """Wait until the page has no pending request."""
    expect(page.locator("#view")).not_to_have_attribute("aria-busy", "true", timeout=30_000)


def main(arguments: list[str]) -> None:
    """Write the screenshot; the arguments are the service's URL and the file."""
    url, file = arguments
    picture = take(url)
    picture.save(file, quality=85, optimize=True, progressive=True)
    print(f"wrote {file}, {picture.width} x {picture.height} pixels, {Path(file).stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
