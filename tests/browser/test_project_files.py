"""Projects and annotations as files: out, in again, and in other libraries."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from pycocotools.coco import COCO

from tests.browser.person import DISC, RED, Person

FORMATS = ["coco", "coco-polygons", "yolo", "voc", "labelme", "label-maps"]


@pytest.fixture
def images(photo: Path, tmp_path: Path) -> list[Path]:
    """The fixture `photo`, and the same mirrored."""
    with Image.open(photo) as picture:
        picture.save(tmp_path / "one.png")
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "two.png")
    return [tmp_path / "one.png", tmp_path / "two.png"]


@pytest.fixture
def masks(person: Person, images: list[Path]) -> list[np.ndarray]:
    """Masks on the screen after annotating three objects of two classes on two images."""
    person.page.set_input_files("#file", images)
    expect(person.page.locator("#image-list li")).to_have_count(2)
    person.wait_encoded(images[0])
    person.click(*DISC)
    found = [person.visible_mask()]
    person.add_class("box")
    person.click(*RED, keys=("Shift",))
    found.append(person.visible_mask())
    person.page.keyboard.press("d")
    person.expect_image("two.png")
    person.wait_encoded(images[1])
    person.click(479 - RED[0], RED[1])
    return [*found, person.visible_mask()]


def export(person: Person, name: str, *, form: str = "coco", with_images: bool = False) -> zipfile.ZipFile:
    """Export the project as `name`, the text of a button of the dialog."""
    person.press_button("Project…")
    person.page.locator("#export-format").select_option(form)
    person.page.locator("#export-images").set_checked(with_images)
    return zipfile.ZipFile(io.BytesIO(person.save(name)))


def reopened(open_page: Callable, files: list[Path], images: list[Path], count: int) -> list[np.ndarray]:
    """Open files in a browser without storage, after these images; return the masks of each image's objects."""
    found = []
    with open_page() as other:
        if images:
            other.page.set_input_files("#file", images)
            expect(other.page.locator("#image-list li")).to_have_count(len(images))
        other.page.set_input_files("#annotations", files)
        expect(other.page.locator("#hint")).to_have_text(f"{count} objects in 2 images added")
        other.page.wait_for_selector("#view:not([hidden])")
        other.wait_for(lambda: other.visible_mask("others").any() or other.visible_mask().any())
        found.append(other.visible_mask("others") | other.visible_mask())
        other.page.get_by_role("application").focus()
        other.page.keyboard.press("d")
        other.expect_image("two.png")
        other.wait_for(lambda: other.visible_mask("others").any() or other.visible_mask().any())
        found.append(other.visible_mask("others") | other.visible_mask())
    return found


def test_coco_export_has_the_masks_on_the_screen(person, masks, tmp_path):
    archive = export(person, "Save annotations", with_images=True)
    (name,) = [name for name in archive.namelist() if name.endswith(".json")]
    archive.extractall(tmp_path / "out")
    coco = COCO(tmp_path / "out" / name)
    assert {category["name"] for category in coco.loadCats(coco.getCatIds())} == {"object", "box"}
    annotations = coco.loadAnns(coco.getAnnIds())
    assert all(np.array_equal(coco.annToMask(each), mask) for each, mask in zip(annotations, masks, strict=True))
    assert [coco.cats[each["category_id"]]["name"] for each in annotations] == ["object", "box", "box"]
    assert (tmp_path / "out" / "images" / "one.png").is_file()


def test_every_format_is_written_and_annotations_and_projects_can_be_opened_again(
    person, masks, images, open_page, tmp_path
):
    for form in FORMATS:
        archive = export(person, "Save annotations", form=form)
        assert archive.testzip() is None
        assert archive.namelist()
        if form == "coco":
            archive.extractall(tmp_path)
    person.press_button("Project…")
    (tmp_path / "project.zip").write_bytes(person.save("Save project"))
    (annotations,) = tmp_path.glob("**/*.json")
    for file, known in ((annotations, images), (tmp_path / "project.zip", [])):
        found = reopened(open_page, [file], known, 3)
        assert np.array_equal(found[0], masks[0] | masks[1])
        assert np.array_equal(found[1], masks[2])


def test_files_that_cannot_be_used_are_reported(opened, tmp_path):
    other_image = b'{"images": [{"id": 1, "file_name": "other.png", "width": 9, "height": 9}], "annotations": []}'
    for content, message in (
        (b"{", "not valid JSON"),
        (b'{"shapes": 1, "imagePath": "one.png"}', "neither COCO"),
        (other_image, "no objects"),
    ):
        (tmp_path / "labels.json").write_bytes(content)
        opened.page.set_input_files("#annotations", tmp_path / "labels.json")
        expect(opened.page.get_by_role("alert")).to_contain_text(message)
    opened.page.wait_for_selector("#view:not([hidden])")
