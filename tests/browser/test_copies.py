"""Images above the service's limits are opened as copies; masks are exported at the size of the
original.
"""

import io
import json
import re

import numpy as np
from PIL import Image
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import DISC

SMALL = {"max_body_bytes": 32_000_000, "max_image_pixels": 100_000, "max_objects": 256}


def open_refused(driver, path, offer: str) -> None:
    """Open an image above the limits, then the copy that the page offers."""
    driver.page.set_input_files("#file", path)
    expect(driver.page.get_by_role("alert")).to_contain_text("this service accepts up to")
    assert not any(url.endswith("/embed") for url in driver.requests)
    driver.press_button(offer)
    driver.wait_encoded(path)
    expect(driver.page.get_by_role("alert")).to_be_hidden()


def test_smaller_copy_is_exported_and_imported_at_full_size(open_page, photo, tmp_path):
    with open_page(info={"limits": SMALL}) as driver:
        open_refused(driver, photo, "Open a copy of 0.1 megapixels")
        scale = (96_000 / (480 * 320)) ** 0.5
        driver.click(*(at * scale for at in DISC))
        about = (
            r"480 . 320 pixels, opened as a copy of 379 . 252, exported at full size, encoded in .*"
        )
        expect(driver.page.locator("#about")).to_have_text(re.compile(about))
        shown = driver.visible_mask()
        assert shown.shape == (252, 379)
        rows, columns = (
            (np.arange(size) + 0.5) * side / size for size, side in ((320, 252), (480, 379))
        )
        expected = shown[np.ix_(rows.astype(int), columns.astype(int))]
        assert np.array_equal(driver.saved_mask(), expected)
        coco = driver.saved_coco()
        assert (coco["images"][0]["width"], coco["images"][0]["height"]) == (480, 320)
        assert np.array_equal(
            coco_mask.decode(coco["annotations"][0]["segmentation"]).astype(bool), expected
        )
        with Image.open(io.BytesIO(driver.save("Cutout"))) as saved, Image.open(photo) as original:
            assert np.array_equal(np.array(saved)[expected][:, :3], np.array(original)[expected])
        for button in ("copy-python", "copy-curl"):
            expect(driver.page.locator(f"#{button}")).to_be_disabled()
        (tmp_path / "coco.json").write_text(json.dumps(coco))
        driver.page.set_input_files("#annotations", tmp_path / "coco.json")
        identical = "0 objects in 0 images added; 1 identical one was there already"
        expect(driver.page.locator("#hint")).to_have_text(identical)
        driver.press_button("Delete object 1")
        driver.page.set_input_files("#annotations", tmp_path / "coco.json")
        expect(driver.page.locator("#hint")).to_have_text("1 object in 1 image added")
        driver.page.locator("#objects li").filter(
            has=driver.page.locator(".score:not(:empty)")
        ).click()
        assert np.array_equal(driver.visible_mask(), shown)


def test_large_file_is_opened_as_a_jpeg_of_the_same_size(open_page, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    limits = {**SMALL, "max_image_pixels": 1_000_000, "max_body_bytes": 450_000}
    with open_page(info={"limits": limits}) as driver:
        open_refused(driver, tmp_path / "noise.png", "Open a JPEG copy of the same size")
        about = re.compile("400 . 300 pixels, opened as a JPEG copy, encoded")
        expect(driver.page.locator("#about")).to_have_text(about)
