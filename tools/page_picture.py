"""Screenshots of the page at /ui for the documentation: `make page-picture` while `make serve WEIGHTS=official` runs.

`page.jpg`: the sample with the balloons, with eight objects by a click or a box each. `annotating.jpg`: a project of
all samples with three classes.
"""

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import Page, expect

from benchmarks.browser import chromium
from mobile_sam_client import Client
from tests.browser.person import IMAGE_TO_SCREEN
from utils.page import FOLDER

SAMPLE = "balloons.jpg"
CLICKS_XY = ((903, 310), (494, 280), (1134, 280), (380, 310), (626, 460), (1036, 595))
"""Pixels of the sample: five balloons and the red boat."""
BOXES_XYXY = ((248, 308, 384, 502), (299, 518, 492, 767))
"""The balloon in front of another one, and the white boat."""
SAIL_XY = (390, 660)
OBJECTS = {"balloon": ((903, 310), (494, 280), (380, 310)), "boat": ((390, 660), (1036, 595)), "buoy": ((845, 760),)}
"""Clicks by class."""
WIDTH, HEIGHT, SCALE = 1180, 720, 1.5
"""Window size in CSS pixels, and device pixels per CSS pixel."""


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """Open the page of a service with the official weights."""
    with chromium() as browser:
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light"
        )
        page = context.new_page()
        page.goto(f"{url}/ui")
        expect(page.locator("#weights")).to_have_text("weights: official")
        yield page


def one_image(page: Page) -> None:
    """Open the sample with the balloons and mark eight objects."""
    page.locator(f'#samples button:has(img[src*="{SAMPLE}"])').click()
    _wait_for_image(page)
    for x, y in CLICKS_XY:
        _click(page, x, y)
    for x0, y0, x1, y1 in BOXES_XYXY:
        page.get_by_role("button", name="New", exact=True).click()
        page.mouse.move(*_on_screen(page, x0, y0))
        page.mouse.down()
        page.mouse.move(*_on_screen(page, x1, y1), steps=4)
        page.mouse.up()
        _wait(page)


def project(page: Page) -> None:
    """Open all samples, add classes, and mark the balloons, boats and a buoy."""
    page.set_input_files("#file", sorted((FOLDER / "samples").glob("*.jpg")))
    page.locator("#image-list button", has_text=SAMPLE).click()
    _wait_for_image(page)
    field = page.get_by_label("Name of the class object")
    field.fill(next(iter(OBJECTS)))
    field.press("Enter")
    for number, (name, clicks) in enumerate(OBJECTS.items(), start=1):
        if number > 1:
            page.get_by_role("button", name="Class", exact=True).click()
            page.keyboard.type(name)
            page.keyboard.press("Enter")
        page.locator("#view").focus()
        for x, y in clicks:
            page.keyboard.press("n")
            page.keyboard.press(str(number))
            _click(page, x, y)
    page.mouse.move(0, 0)
    page.wait_for_timeout(7000)  # until the last hint is gone


def styles(url: str) -> Image.Image:
    """Return the answers to a click on a sail, side by side: overlay, cutout, mask and the three candidates, RGB."""
    photo = FOLDER / "samples" / SAMPLE
    crop = (248, 480, 548, 800)
    with Client(url) as client:
        found = client.segment(photo, pos_coords=SAIL_XY, multimask_output=True, segmented_image="none")
        automatic = client.segment(photo, pos_coords=SAIL_XY, segmented_image="none")
        cutout = automatic.cutout()
    checkered = Image.new("RGBA", cutout.size, "#d8dae2")
    checkered.alpha_composite(cutout)
    pictures: list[tuple[str, Image.Image]] = [
        ("overlay", automatic.overlay()),
        ("cutout", checkered),
        ("mask", Image.fromarray(automatic.mask)),
    ]
    pictures += [
        (f"candidate {n}, {each.score:.2f}", each.overlay()) for n, each in enumerate(found.candidates, start=1)
    ]
    width, height = crop[2] - crop[0], crop[3] - crop[1]
    sheet = Image.new("RGB", (len(pictures) * (width + 10) - 10, height + 34), "white")
    draw = ImageDraw.Draw(sheet)
    for column, (name, picture) in enumerate(pictures):
        sheet.paste(picture.convert("RGB").crop(crop), (column * (width + 10), 34))
        draw.text((column * (width + 10) + 4, 6), name, "black", ImageFont.load_default(20))
    return sheet


PICTURES = {"page.jpg": one_image, "annotating.jpg": project}


def _wait_for_image(page: Page) -> None:
    page.wait_for_selector("#about:not(:empty)")
    page.locator("#hover").set_checked(False)


def _click(page: Page, x: float, y: float) -> None:
    """Click on a new object at an image pixel."""
    page.keyboard.down("Shift")
    page.mouse.click(*_on_screen(page, x, y))
    page.keyboard.up("Shift")
    _wait(page)


def _on_screen(page: Page, x: float, y: float) -> tuple[float, float]:
    """Return the window coordinates of an image pixel."""
    x, y = page.evaluate(IMAGE_TO_SCREEN, [x, y])
    return x, y


def _wait(page: Page) -> None:
    """Wait until the page has no pending request."""
    expect(page.locator("#view")).not_to_have_attribute("aria-busy", "true", timeout=30_000)


def main(arguments: list[str]) -> None:
    """Write the screenshots; the arguments are the service's URL and the folder."""
    url, folder = arguments
    styles(url).save(Path(folder) / "styles.jpg", quality=85, optimize=True, progressive=True)
    for name, prepare in PICTURES.items():
        with opened(url) as page:
            prepare(page)
            expect(page.locator("#saved")).to_have_text("Saved")
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        file = Path(folder) / name
        picture.save(file, quality=85, optimize=True, progressive=True)
        print(f"wrote {file}, {picture.width} x {picture.height} pixels, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main(sys.argv[1:])
