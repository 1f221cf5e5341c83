"""Projects and annotations as files: exported and imported again."""

import io
import json
import re
import zipfile
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import DISC, RED, PageDriver

LEAST_IOU = {
    "project": 1,
    "coco": 1,
    "coco-polygons": 0.97,
    "yolo": 0.97,
    "voc": 0.97,
    "labelme": 0.97,
    "label-studio": 1,
    "label-maps": 1,
}
"""Of masks that are exported in a format and imported again: polygons are simplified."""


@pytest.fixture
def images(photo: Path, tmp_path: Path) -> list[Path]:
    """The fixture `photo`, and the same mirrored."""
    with Image.open(photo) as picture:
        picture.save(tmp_path / "one.png")
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "two.png")
    return [tmp_path / "one.png", tmp_path / "two.png"]


@pytest.fixture
def annotated(driver: PageDriver, images: list[Path]) -> PageDriver:
    """The user with three objects of two classes on two images; one between was deleted, and one
    moved up.
    """
    driver.page.set_input_files("#file", images)
    expect(driver.page.locator("#image-list li")).to_have_count(2)
    driver.wait_encoded(images[0])
    driver.page.get_by_label("Name of the class object").fill("disc")
    driver.add_class("gone")
    driver.press_button("Delete the class gone")
    driver.click(*DISC)
    driver.add_class("box")
    driver.page.get_by_role("button", name="Use the class box").focus()
    driver.press("Alt+ArrowUp")
    driver.click(*RED, keys=("Shift",))
    driver.page.keyboard.press("d")
    driver.expect_image("two.png")
    driver.wait_encoded(images[1])
    driver.click(479 - RED[0], RED[1])
    return driver


def dataset(driver: PageDriver) -> tuple[list[dict], list[tuple]]:
    """Return the classes and, for each object, its image, the id of its class and its run
    lengths.
    """
    document = json.loads(
        zipfile.ZipFile(io.BytesIO(driver.export("coco"))).read("annotations/instances.json")
    )
    names = {image["id"]: image["file_name"] for image in document["images"]}
    objects = [
        (names[one["image_id"]], one["category_id"], one["segmentation"])
        for one in document["annotations"]
    ]
    return document["categories"], objects


def test_classes_keep_ids_and_objects_masks_through_the_project_and_every_format_with_its_images(
    annotated, open_page, tmp_path
):
    classes, objects = dataset(annotated)
    assert [(one["id"], one["name"]) for one in classes] == [(1, "disc"), (3, "box")]
    assert [one[:2] for one in objects] == [("one.png", 1), ("one.png", 3), ("two.png", 3)]
    with open_page() as other:
        other.page.on("dialog", lambda dialog: dialog.accept())
        for form, validation in [*((form, 0) for form in LEAST_IOU), ("yolo", 50), ("labelme", 50)]:
            hints = [
                "2 images added; 3 objects in 2 images added",
                "0 objects in 0 images added; 3 identical ones were there already",
            ]
            if form == "project":
                annotated.press_button("Export")
                (tmp_path / "set.zip").write_bytes(annotated.save("Save project"))
                hints = ["3 objects in 2 images added"]
            else:
                (tmp_path / "set.zip").write_bytes(annotated.export(form, validation))
                archive = zipfile.ZipFile(tmp_path / "set.zip")
                assert archive.testzip() is None
                assert (
                    "images/one.png" in archive.namelist()
                    or validation
                    or form in ("voc", "labelme")
                )
            for hint in hints:
                other.page.set_input_files("#annotations", tmp_path / "set.zip")
                expect(other.page.locator("#hint")).to_have_text(hint)
            expect(other.page.locator("#image-list li")).to_have_count(2)
            other.expect_image("one.png")
            found_classes, found = dataset(other)
            assert found_classes == classes, form
            found, expected = (sorted(each, key=lambda one: one[0]) for each in (found, objects))
            assert [one[:2] for one in found] == [one[:2] for one in expected], form
            for (*_, mask), (*_, known) in zip(found, expected, strict=True):
                assert coco_mask.iou([mask], [known], [0])[0, 0] >= LEAST_IOU[form], form
            other.press_button("New project")
            expect(other.page.locator("#image-list li")).to_have_count(0)


def test_images_of_a_dataset_that_cannot_be_read_are_listed(annotated, open_page, tmp_path):
    content = annotated.export("coco")
    with (
        zipfile.ZipFile(io.BytesIO(content)) as archive,
        zipfile.ZipFile(tmp_path / "set.zip", "w") as damaged,
    ):
        for name in archive.namelist():
            damaged.writestr(name, b"no image" if name == "images/two.png" else archive.read(name))
    with open_page() as other:
        other.page.set_input_files("#annotations", tmp_path / "set.zip")
        expect(other.page.locator("#hint")).to_have_text(
            "1 image added; 2 objects in 1 image added"
        )
        problems = other.page.locator("#report-list li")
        expect(problems).to_have_count(2)
        expect(problems.nth(0)).to_contain_text("two.png: this browser cannot read it as an image")
        expect(problems.nth(1)).to_have_text(
            "two.png: add this image first; 1 object could not be imported"
        )


def test_files_that_cannot_be_used_are_reported(opened, tmp_path):
    other_image = (
        b'{"images": [{"id": 1, "file_name": "other.png", "width": 9, "height": 9}],'
        b' "annotations": []}'
    )
    for content, message in (
        (b"{", "not valid JSON"),
        (b'{"shapes": 1, "imagePath": "one.png"}', "neither COCO"),
        (other_image, "no objects"),
    ):
        (tmp_path / "labels.json").write_bytes(content)
        opened.page.set_input_files("#annotations", tmp_path / "labels.json")
        expect(opened.page.get_by_role("alert")).to_contain_text(message)
    opened.page.wait_for_selector("#view:not([hidden])")


def test_image_whose_annotation_was_left_out_is_not_reviewed(opened, tmp_path):
    image = {"id": 1, "file_name": "scene.png", "width": 480, "height": 320}
    document = {"images": [image], "categories": [{"id": 1, "name": "box"}]}
    for boxes, words in (([None], "scene.png, 0 objects"), ([], "scene.png, 0 objects, reviewed")):
        annotations = [{"id": 1, "image_id": 1, "category_id": 1, "bbox": box} for box in boxes]
        (tmp_path / "labels.json").write_text(json.dumps({**document, "annotations": annotations}))
        opened.page.set_input_files("#annotations", tmp_path / "labels.json")
        expect(opened.page.locator("#report")).to_be_visible(visible=bool(boxes))
        expect(opened.page.locator("#image-list li")).to_have_text(re.compile(f"{words}$"))


def coco_of(objects: list[dict], classes: dict[int, str], name: str = "scene.png") -> str:
    """Return COCO annotations of one image with 480 x 320 pixels."""
    document = {
        "images": [{"id": 1, "file_name": name, "width": 480, "height": 320}],
        "categories": [{"id": number, "name": text} for number, text in classes.items()],
        "annotations": [{"id": i, "image_id": 1, **one} for i, one in enumerate(objects, 1)],
    }
    return json.dumps(document)


def import_text(driver: PageDriver, tmp_path: Path, text: str) -> None:
    (tmp_path / "labels.json").write_text(text)
    driver.page.set_input_files("#annotations", tmp_path / "labels.json")


def test_mask_of_a_click_is_not_imported_again_unless_its_class_is_another(clicked, tmp_path):
    clicked.wait_idle()
    mask = dataset(clicked)[1][0][2]
    ours = {"category_id": 1, "segmentation": mask}
    import_text(clicked, tmp_path, coco_of([ours, ours], {1: "object"}))
    hint = clicked.page.locator("#hint")
    expect(hint).to_have_text("0 objects in 0 images added; 2 identical ones were there already")
    assert len(dataset(clicked)[1]) == 1

    other = {"category_id": 2, "segmentation": mask}
    import_text(clicked, tmp_path, coco_of([ours, other, other], {1: "object", 2: "cat"}))
    expect(hint).to_have_text("1 object in 1 image added; 2 identical ones were there already")
    expect(clicked.page.locator("#report-list li")).to_have_text(
        "scene.png: 1 object added with the mask of an object of another class"
    )
    assert len(dataset(clicked)[1]) == 2


def test_proposal_that_is_imported_becomes_the_imported_object(opened, tmp_path):
    opened.segment_everything()
    proposals = opened.page.locator("#objects li.proposal")
    count = proposals.count()
    assert count > 0
    proposals.first.locator(".pick").click()
    opened.press("1")
    opened.wait_idle()
    (_, _, mask), *_ = dataset(opened)[1]
    opened.press_button("Undo")
    expect(proposals).to_have_count(count)
    ours = {"category_id": 1, "segmentation": mask, "name": "mine"}
    import_text(opened, tmp_path, coco_of([ours], {1: "object"}))
    expect(opened.page.locator("#hint")).to_have_text("1 object in 1 image added")
    expect(proposals).to_have_count(count - 1)
    assert [one[2] for one in dataset(opened)[1]] == [mask]
    opened.press_button("Undo")
    expect(proposals).to_have_count(count)
