"""One session from a folder of images to an export, with a reload and a killed service in the middle."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect
from pycocotools.coco import COCO

from tests.browser.person import Person
from tests.e2e.server import start_server

IMAGES, CORRECTED = 20, 10
CLASSES = ("disc", "box", "bar")
CENTRES = {"disc": (110, 120), "box": (350, 110), "bar": (240, 260)}


def scene(index: int) -> Image.Image:
    """Return a picture of 480 x 320 pixels with one object of each class."""
    shift = 2 * index
    picture = Image.new("RGB", (480, 320), (90 + index, 140, 185))
    draw = ImageDraw.Draw(picture)
    draw.ellipse([60, 70, 160 + shift // 2, 170], fill=(235, 200, 60))
    draw.rectangle([300, 60, 400, 160 - shift // 2], fill=(190, 50, 45))
    draw.rectangle([120 + shift, 245, 360, 275], fill=(240, 240, 240))
    return picture


def show_next(person: Person, name: str) -> None:
    person.page.keyboard.press("d")
    wait_for_image(person, name)


def wait_for_image(person: Person, name: str) -> None:
    person.expect_image(name)
    person.page.wait_for_selector("#about:not(:empty)")


def annotate(person: Person, *, correct: bool) -> dict[str, np.ndarray]:
    """Click on the three objects, correct the last by hand; return the masks on the screen by class."""
    found = {}
    for number, name in enumerate(CLASSES, start=1):
        if number > 1:
            person.press("n")
        person.press(str(number))
        person.click(*CENTRES[name])
        if correct and number == len(CLASSES):
            person.press("r")
            person.drag((250, 255), (300, 265))
            person.press("v")
        found[name] = person.visible_mask()
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_session_with_a_reload_and_a_killed_service_is_exported_as_on_the_screen(browser, builtin_repository, tmp_path):
    supervision = pytest.importorskip("supervision")
    folder = tmp_path / "photos"
    folder.mkdir()
    names = [f"{index:02}.png" for index in range(IMAGES)]
    for index, name in enumerate(names):
        scene(index).save(folder / name)
    models = str(builtin_repository)
    server = start_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=models)
    expected: dict[str, dict[str, np.ndarray]] = {}
    with Person.open_page(browser, server) as person:
        person.page.set_input_files("#folder", folder)
        expect(person.page.locator("#image-list li")).to_have_count(IMAGES)
        wait_for_image(person, f"photos/{names[0]}")
        person.page.locator("#hover").set_checked(False)
        person.page.get_by_label("Name of the class object").fill(CLASSES[0])
        for name in CLASSES[1:]:
            person.add_class(name)
        for index, name in enumerate(names):
            if index:
                show_next(person, f"photos/{name}")
            expected[name] = annotate(person, correct=index < CORRECTED)
            if index == IMAGES // 3:
                expect(person.page.locator("#saved")).to_have_text("Saved")
                person.page.reload()
                wait_for_image(person, f"photos/{name}")
                person.page.locator("#hover").set_checked(False)
                person.page.get_by_role("application").focus()
                assert np.array_equal(person.visible_mask(), expected[name]["bar"])
            if index == 2 * IMAGES // 3:
                server.kill()
                server = start_server(tmp_path / "log2", port=server.port, MOBILE_SAM_MODEL_REPOSITORY=models)
        person.page.get_by_role("button", name="Project…").click()
        person.page.locator("#export-images").set_checked(True)
        zipfile.ZipFile(io.BytesIO(person.save("Save annotations"))).extractall(tmp_path / "out")
    server.stop()
    (annotations,) = (tmp_path / "out").glob("**/*.json")
    coco = COCO(annotations)
    classes = {category["id"]: category["name"] for category in coco.loadCats(coco.getCatIds())}
    for image in coco.loadImgs(coco.getImgIds()):
        objects = coco.loadAnns(coco.getAnnIds(imgIds=image["id"]))
        wanted = expected[Path(image["file_name"]).name]
        assert [classes[each["category_id"]] for each in objects] == list(CLASSES)
        for each in objects:
            assert np.array_equal(coco.annToMask(each), wanted[classes[each["category_id"]]])
    images = tmp_path / "out" / "images"
    dataset = supervision.DetectionDataset.from_coco(str(images), str(annotations), force_masks=True)
    assert len(dataset) == IMAGES
    loaded = {Path(path).name: found for path, _, found in dataset}
    for name, wanted in expected.items():
        for class_id, mask in zip(loaded[name].class_id, loaded[name].mask, strict=True):
            assert np.array_equal(mask, wanted[dataset.classes[class_id]])
