"""Imported boxes become the model's masks, by a button."""

import io
import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import PageDriver

DISC_BOX = [80, 90, 140, 140]
RED_BOX = [290, 80, 122, 142]
"""Loose boxes around the disc and the red box of `photo`: x, y, width, height."""


def import_boxes(driver: PageDriver, tmp_path: Path, *boxes: list[int]) -> None:
    """Import COCO with an annotation per box, and one with a mask."""
    boxes_only: list[dict[str, object]] = [{"bbox": box} for box in boxes]
    polygon: dict[str, object] = {
        "bbox": [10, 10, 20, 20],
        "segmentation": [[10, 10, 30, 10, 30, 30, 10, 30]],
    }
    annotations = [
        {"id": number, "image_id": 1, "category_id": 1, **one}
        for number, one in enumerate([*boxes_only, polygon], 1)
    ]
    document = {
        "images": [{"id": 1, "file_name": "scene.png", "width": 480, "height": 320}],
        "categories": [{"id": 1, "name": "thing"}],
        "annotations": annotations,
    }
    (tmp_path / "boxes.json").write_text(json.dumps(document))
    driver.page.set_input_files("#annotations", tmp_path / "boxes.json")
    expect(driver.page.locator("#hint")).to_have_text(
        f"{len(annotations)} objects in 1 image added"
    )


def masks_of(driver: PageDriver) -> list[np.ndarray]:
    archive = zipfile.ZipFile(io.BytesIO(driver.export("coco")))
    document = json.loads(archive.read("annotations/instances.json"))
    return [
        np.asarray(coco_mask.decode(one["segmentation"]), bool) for one in document["annotations"]
    ]


@pytest.fixture
def tighten(opened: PageDriver) -> Locator:
    return opened.page.get_by_role("button", name="Tighten boxes")


def test_imported_boxes_become_the_models_masks_in_one_undoable_step(opened, tighten, tmp_path):
    expect(tighten).to_be_hidden()
    import_boxes(opened, tmp_path, DISC_BOX, RED_BOX)
    *whole, drawn = masks_of(opened)
    assert [int(mask.sum()) for mask in whole] == [140 * 140, 122 * 142]

    tighten.click()
    hint = opened.page.locator("#hint")
    expect(hint).to_have_text("2 objects tightened")
    expect(tighten).to_be_hidden()
    *tightened, same = masks_of(opened)
    assert np.array_equal(same, drawn)
    for mask, (x, y, width, height) in zip(tightened, (DISC_BOX, RED_BOX), strict=True):
        corners = [x, y, x + width - 1, y + height - 1]
        assert np.array_equal(mask, opened.request_masks(box=corners)[0])
        assert 0 < mask.sum() < width * height

    opened.press_button("Undo")
    expect(tighten).to_be_visible()
    assert all(map(np.array_equal, masks_of(opened), [*whole, drawn]))


def test_tightened_masks_are_there_after_a_reload(opened, tighten, tmp_path):
    import_boxes(opened, tmp_path, DISC_BOX)
    tighten.click()
    expect(opened.page.locator("#hint")).to_have_text("1 object tightened")
    before = masks_of(opened)
    opened.page.reload()
    opened.expect_image("scene.png")
    assert all(map(np.array_equal, masks_of(opened), before))
    expect(tighten).to_be_hidden()


def test_box_that_the_models_mask_does_not_fit_is_left(opened, tighten, tmp_path):
    import_boxes(opened, tmp_path, DISC_BOX, [230, 280, 8, 8])
    before = masks_of(opened)
    tighten.click()
    expect(opened.page.locator("#hint")).to_have_text(
        "1 object tightened; 1 object left as before: the model's mask does not fit the box"
    )
    after = masks_of(opened)
    assert np.array_equal(after[1], before[1])
    assert not np.array_equal(after[0], before[0])
    expect(tighten).to_be_visible()


def test_failed_request_changes_no_box(opened, tighten, tmp_path):
    import_boxes(opened, tmp_path, DISC_BOX, RED_BOX)
    before = masks_of(opened)
    problem = {"status": 500, "content_type": "application/problem+json", "body": "{}"}
    opened.page.route(re.compile("/mobile_sam$"), lambda route: route.fulfill(**problem))
    tighten.click()
    expect(opened.page.locator("#alert")).to_contain_text("status 500")
    assert all(map(np.array_equal, masks_of(opened), before))
    expect(tighten).to_be_visible()
