"""One session from a folder of images to an export, with a reload and a killed service in the middle."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect
from pycocotools.coco import COCO

from harness import start_server
from tests.browser.person import Person

IMAGES, RELOAD_AT, KILL_AT = 4, 1, 2
CENTRES = {"disc": (110, 120), "box": (350, 110), "bar": (240, 260)}
"""A pixel of each class's object in the pictures."""


def scene(index: int) -> Image.Image:
    """Return a picture of 480 x 320 pixels with one object of each class."""
    picture = Image.new("RGB", (480, 320), (90 + index, 140, 185))
    draw = ImageDraw.Draw(picture)
    draw.ellipse([60, 70, 160 + 3 * index, 170], fill=(235, 200, 60))
    draw.rectangle([300, 60, 400, 160 - 3 * index], fill=(190, 50, 45))
    draw.rectangle([120 + 3 * index, 245, 360, 275], fill=(240, 240, 240))
    return picture


def annotate(person: Person) -> list[np.ndarray]:
    """Click on the three objects, correct the last by hand; return the masks on the screen."""
    found = []
    for number, centre in enumerate(CENTRES.values(), start=1):
        person.press("n")
        person.press(str(number))
        person.click(*centre)
        if number == len(CENTRES):
            person.press("r")
            person.drag((250, 255), (300, 265))
            person.press("v")
        found.append(person.visible_mask())
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_session_with_a_reload_and_a_killed_service_is_exported_as_on_the_screen(browser, builtin_repository, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for index in range(IMAGES):
        scene(index).save(folder / f"{index}.png")
    models = str(builtin_repository)
    server = start_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=models)
    expected = []
    with Person.open_page(browser, server) as person:
        person.page.set_input_files("#folder", folder)
        expect(person.page.locator("#image-list li")).to_have_count(IMAGES)
        person.page.get_by_label("Name of the class object").fill("disc")
        for name in ("box", "bar"):
            person.add_class(name)
        for index in range(IMAGES):
            if index:
                person.page.keyboard.press("d")
            person.expect_image(f"photos/{index}.png")
            person.wait_encoded(folder / f"{index}.png")
            expected.append(annotate(person))
            if index == RELOAD_AT:
                expect(person.page.locator("#saved")).to_have_text("Saved")
                person.page.reload()
                person.expect_image(f"photos/{index}.png")
                person.page.get_by_role("application").focus()
                assert np.array_equal(person.visible_mask(), expected[-1][-1])
            if index == KILL_AT:
                server.kill()
                server = start_server(tmp_path / "log2", port=server.port, MOBILE_SAM_MODEL_REPOSITORY=models)
        person.press_button("Export dataset…")
        zipfile.ZipFile(io.BytesIO(person.save("Save annotations"))).extractall(tmp_path / "out")
    server.stop()
    (annotations,) = (tmp_path / "out").glob("**/*.json")
    coco = COCO(annotations)
    for image in coco.loadImgs(coco.getImgIds()):
        objects = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
        assert [coco.cats[each["category_id"]]["name"] for each in objects] == list(CENTRES)
        for each, mask in zip(objects, expected[int(Path(image["file_name"]).stem)], strict=True):
            assert np.array_equal(coco.annToMask(each), mask)
