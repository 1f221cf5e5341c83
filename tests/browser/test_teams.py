"""Several annotators: a project in parts, a name for each person, and the merge of their work."""

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import DISC, RED, PageDriver
from tests.browser.test_accessibility import violations

MIRRORED_RED = (479 - RED[0], RED[1])


@pytest.fixture
def images(photo: Path, tmp_path: Path) -> list[Path]:
    """Three images: the fixture `photo`, mirrored, and upside down."""
    with Image.open(photo) as picture:
        picture.save(tmp_path / "one.png")
        ImageOps.mirror(picture).save(tmp_path / "two.png")
        ImageOps.flip(picture).save(tmp_path / "three.png")
    return [tmp_path / name for name in ("one.png", "two.png", "three.png")]


@pytest.fixture
def ann(driver: PageDriver, images: list[Path]) -> PageDriver:
    """Ann with three images and the classes `disc` and `box`."""
    driver.page.set_input_files("#file", images)
    expect(driver.page.locator("#image-list li")).to_have_count(3)
    driver.wait_encoded(images[0])
    name(driver, "Ann")
    driver.page.get_by_label("Name of the class object").fill("disc")
    driver.add_class("box")
    return driver


@pytest.fixture
def bo(open_page) -> Iterator[PageDriver]:
    """Bo, in another browser context."""
    with open_page() as driver:
        yield driver


def name(driver: PageDriver, person: str) -> None:
    """Give the person's name."""
    field = driver.page.get_by_label("Your name")
    field.fill(person)
    field.press("Enter")
    driver.page.get_by_role("application").focus()


def use_class(driver: PageDriver, number: int) -> None:
    """Use a class for new objects, by its number key."""
    driver.press(str(number))


def open_image(driver: PageDriver, file_name: str) -> None:
    """Open an image of the list, unless it is open, and wait until it is encoded."""
    if file_name in (driver.page.get_by_role("application").get_attribute("aria-label") or ""):
        return
    driver.page.locator("#about").evaluate("about => about.textContent = ''")
    driver.page.locator("#image-list li", has_text=file_name).get_by_role("button").first.click()
    driver.expect_image(file_name)
    driver.wait_encoded(Path(file_name))


def saved_parts(driver: PageDriver, count: int, shared: int) -> dict[str, bytes]:
    """Save the project in parts; return them by their paths."""
    driver.press_button("Export")
    driver.page.get_by_label("Parts").fill(str(count))
    driver.page.get_by_label("Images in every part").fill(str(shared))
    archive = zipfile.ZipFile(io.BytesIO(driver.save("Save in parts")))
    return {path: archive.read(path) for path in archive.namelist()}


def project_in(content: bytes) -> Any:
    """Return the document of a project file."""
    return json.loads(zipfile.ZipFile(io.BytesIO(content)).read("project.json"))


def names_in(content: bytes) -> list[str]:
    return [image["name"] for image in project_in(content)["images"]]


def saved_project(driver: PageDriver, path: Path) -> Path:
    driver.press_button("Export")
    path.write_bytes(driver.save("Save project"))
    return path


def exported(driver: PageDriver) -> list[tuple]:
    """Return image, class, annotator and mask of each exported object."""
    content = zipfile.ZipFile(io.BytesIO(driver.export("coco"))).read("annotations/instances.json")
    document = json.loads(content)
    images = {image["id"]: image["file_name"] for image in document["images"]}
    classes = {category["id"]: category["name"] for category in document["categories"]}
    return [
        (
            images[one["image_id"]],
            classes[one["category_id"]],
            one.get("attributes", {}).get("annotator"),
            one["segmentation"],
        )
        for one in document["annotations"]
    ]


def without_masks(objects: list[tuple]) -> list[tuple]:
    return sorted(one[:3] for one in objects)


@dataclass
class Shared:
    """Work of Ann, and of Bo in a file: `shared` is an image of both, `own` one of Bo's."""

    shared: str
    own: str
    bos: Path


@pytest.fixture
def work(ann: PageDriver, bo: PageDriver, tmp_path: Path) -> Shared:
    """Two parts of a project: on the shared image, both annotate the disc, Bo with another class
    and with the box.
    """
    parts = saved_parts(ann, 2, shared=1)
    first, second = (names_in(content) for content in parts.values())
    (shared,) = set(first) & set(second)
    (own,) = set(second) - {shared}
    where = {
        "one.png": (DISC, RED),
        "two.png": ((479 - DISC[0], DISC[1]), MIRRORED_RED),
        "three.png": ((DISC[0], 319 - DISC[1]), (RED[0], 319 - RED[1])),
    }
    disc, box = where[shared]
    open_image(ann, shared)
    use_class(ann, 1)
    ann.click(*disc)
    (tmp_path / "part-2.zip").write_bytes(parts["part-2.zip"])
    bo.page.set_input_files("#annotations", tmp_path / "part-2.zip")
    expect(bo.page.locator("#image-list li")).to_have_count(2)
    bo.wait_encoded(Path(shared))
    name(bo, "Bo")
    open_image(bo, shared)
    use_class(bo, 2)
    bo.click(*disc)
    bo.click(*box, keys=("Shift",))
    bo.press("m")
    open_image(bo, own)
    use_class(bo, 1)
    bo.click(*where[own][0])
    return Shared(shared, own, saved_project(bo, tmp_path / "bo.zip"))


def test_parts_have_all_classes_and_each_image_once_but_the_shared_ones(ann):
    parts = saved_parts(ann, 2, shared=1)
    assert list(parts) == ["part-1.zip", "part-2.zip"]
    first, second = (names_in(content) for content in parts.values())
    assert set(first) | set(second) == {"one.png", "two.png", "three.png"}
    assert [len(first), len(second)] == [2, 2]
    classes = [project_in(content)["classes"] for content in parts.values()]
    assert [one["name"] for one in classes[0]] == ["disc", "box"]
    assert classes[0] == classes[1]


def test_cancelled_merge_changes_nothing(ann, work):
    shared = work.shared
    before = exported(ann)
    assert without_masks(before) == [(shared, "disc", "Ann")]
    ann.page.set_input_files("#annotations", work.bos)
    dialog = ann.page.get_by_role("dialog", name="Merge projects")
    expect(dialog).to_contain_text(
        "2 images in both projects: agreement 0.00 over 3 objects; 3 differences"
    )
    expect(dialog).to_contain_text("other class, IoU 1.00")
    expect(dialog).to_contain_text("mine: object 1 by Ann, disc")
    expect(dialog).to_contain_text("theirs: object 1 by Bo, box")
    assert violations(ann.page) == []
    dialog.get_by_role("button", name="Cancel").click()
    expect(ann.page.locator("#hint")).to_have_text("Nothing was merged")
    assert exported(ann) == before


def test_two_people_annotate_parts_and_one_merges_and_decides(ann, bo, work):
    shared, own = work.shared, work.own
    ann.page.set_input_files("#annotations", work.bos)
    dialog = ann.page.get_by_role("dialog", name="Merge projects")
    section = dialog.get_by_role("region", name=shared)
    expect(section).to_contain_text("1 object here, 2 there; mean IoU of 1 pair 1.00")
    section.get_by_role("group", name="other class").get_by_label("theirs").check()
    with ann.page.expect_download() as download:
        dialog.get_by_role("button", name="Save agreement table").click()
    table = list(csv.reader(io.StringIO(Path(download.value.path()).read_text())))
    assert [shared, "disc / box", "1.0000", "object 1 by Ann", "object 1 by Bo"] in table
    assert len(table) == 4
    dialog.get_by_role("button", name="Apply").click()
    expect(ann.page.locator("#hint")).to_have_text(
        "2 images merged: agreement 0.00 over 3 objects; 3 differences decided"
    )
    expect(ann.page.locator("#image-list li")).to_have_count(3)
    merged = exported(ann)
    assert without_masks(merged) == sorted(
        [(shared, "box", "Bo"), (shared, "box", "Bo"), (own, "disc", "Bo")]
    )
    assert sorted(one[3]["counts"] for one in merged) == sorted(
        one[3]["counts"] for one in exported(bo)
    )
    reviewed = ann.page.locator("#image-list li", has_text=shared)
    expect(reviewed).to_contain_text("reviewed")

    # The same file again: everything agrees.
    ann.page.set_input_files("#annotations", work.bos)
    expect(dialog).to_contain_text("2 images in both projects: agreement 1.00 over 3 objects")
    dialog.get_by_role("button", name="Apply").click()
    expect(ann.page.locator("#hint")).to_contain_text("agreement 1.00")
    assert exported(ann) == merged

    # Undo takes the merge of an image back.
    open_image(ann, shared)
    ann.press("Control+z")
    assert without_masks(exported(ann)) == sorted([(own, "disc", "Bo"), (shared, "disc", "Ann")])


HOLD_FILES = """() => {
  const read = Blob.prototype.arrayBuffer, view = document.getElementById("view");
  const gate = new Promise((resolve) => { window.release = resolve; });
  window.held = 0;
  Blob.prototype.arrayBuffer = async function () {
    if (view.hidden) { held++; await gate; }
    return read.call(this);
  };
}"""
"""Holds the reading of files back while no image is open."""


def test_image_chosen_while_a_project_is_read_opens_after_the_merge_with_all_objects(ann, tmp_path):
    open_image(ann, "one.png")
    ann.click(*DISC)
    theirs = saved_project(ann, tmp_path / "theirs.zip")
    ann.press("Delete")
    open_image(ann, "two.png")
    ann.page.evaluate(HOLD_FILES)
    ann.page.set_input_files("#annotations", theirs)
    ann.wait_for(lambda: ann.page.evaluate("held > 0"))
    ann.page.locator("#image-list li", has_text="one.png").get_by_role("button").first.click()
    expect(ann.page.locator("#busy-text")).to_have_text("Reading the files")
    expect(ann.page.locator("#view")).to_be_hidden()
    ann.page.evaluate("release()")
    dialog = ann.page.get_by_role("dialog", name="Merge projects")
    dialog.get_by_role("button", name="All theirs").click()
    dialog.get_by_role("button", name="Apply").click()
    ann.expect_image("one.png")
    assert len(exported(ann)) == 1
    ann.click(*RED)
    assert len(exported(ann)) == 2


def test_buttons_take_all_of_one_side(ann, tmp_path):
    open_image(ann, "one.png")
    use_class(ann, 1)
    ann.click(*DISC)
    theirs = saved_project(ann, tmp_path / "theirs.zip")
    given = exported(ann)
    name(ann, "Cy")
    ann.press("Delete")
    use_class(ann, 2)
    ann.click(*RED)
    mine = exported(ann)
    assert without_masks(mine) == [("one.png", "box", "Cy")]
    for button, expected in (("All mine", mine), ("All theirs", given)):
        ann.page.set_input_files("#annotations", theirs)
        dialog = ann.page.get_by_role("dialog", name="Merge projects")
        dialog.get_by_role("button", name=button).click()
        dialog.get_by_role("button", name="Apply").click()
        # The image is closed until the merge is done; the hint may be that of the merge before.
        ann.expect_image("one.png")
        expect(ann.page.locator("#hint")).to_contain_text("2 differences decided")
        assert exported(ann) == expected, button


def test_objects_without_a_mask_are_not_merged_and_listed(ann, tmp_path):
    open_image(ann, "one.png")
    ann.click(*DISC)
    theirs = saved_project(ann, tmp_path / "theirs.zip")
    archive = zipfile.ZipFile(theirs)
    document = project_in(theirs.read_bytes())
    for image in document["images"]:
        if image["work"]:
            image["work"] |= {"shown": [], "masks": []}
    with zipfile.ZipFile(tmp_path / "without.zip", "w") as changed:
        for path in archive.namelist():
            is_document = path == "project.json"
            changed.writestr(path, json.dumps(document) if is_document else archive.read(path))
    before = exported(ann)
    ann.page.set_input_files("#annotations", tmp_path / "without.zip")
    dialog = ann.page.get_by_role("dialog", name="Merge projects")
    dialog.get_by_role("button", name="Apply").click()
    ann.expect_image("one.png")
    expect(ann.page.locator("#report-list li")).to_have_text(
        "one.png: 1 object not merged for want of a mask."
        " Open the image in that project to have masks made"
    )
    assert exported(ann) == before


def test_objects_of_both_are_kept_and_an_image_of_the_same_name_is_another_one(
    ann, bo, images, tmp_path
):
    open_image(ann, "one.png")
    ann.click(*DISC)
    with Image.open(images[0]) as picture:
        (tmp_path / "bo").mkdir()
        ImageOps.flip(picture).save(tmp_path / "bo" / "one.png", compress_level=1)
    (tmp_path / "bo" / "other.png").write_bytes(images[0].read_bytes())
    bo.page.set_input_files("#file", [tmp_path / "bo" / "one.png", tmp_path / "bo" / "other.png"])
    expect(bo.page.locator("#image-list li")).to_have_count(2)
    open_image(bo, "other.png")
    bo.click(*DISC)
    bos = saved_project(bo, tmp_path / "bo.zip")
    ann.page.set_input_files("#annotations", bos)
    dialog = ann.page.get_by_role("dialog", name="Merge projects")
    expect(dialog).to_contain_text("mine: object 1 by Ann, box")
    expect(dialog).to_contain_text("theirs: object 1, object")
    dialog.get_by_role("radio", name="both").check()
    dialog.get_by_role("button", name="Apply").click()
    expect(ann.page.locator("#image-list li")).to_have_count(4)
    expect(ann.page.locator("#image-list li", has_text="one-2.png")).to_have_count(1)
    objects = exported(ann)
    assert without_masks(objects) == sorted(
        [("one.png", "box", "Ann"), ("one.png", "object", None)], key=str
    )
    assert coco_mask.iou([objects[0][3]], [objects[1][3]], [0])[0, 0] == 1


def test_more_parts_than_images_are_refused_by_the_field(ann):
    ann.press_button("Export")
    ann.page.get_by_label("Parts").fill("4")
    ann.press_button("Save in parts")
    field = ann.page.get_by_label("Parts")
    message = "There are 3 images to divide, too few for 4 parts: each needs one of its own."
    ann.wait_for(lambda: field.evaluate("field => field.validationMessage") == message)
    field.fill("51")
    ann.press_button("Save in parts")
    assert "50" in field.evaluate("field => field.validationMessage")
    field.fill("3")
    with ann.page.expect_download():
        ann.press_button("Save in parts")


def test_name_outlives_a_reload_and_the_last_editor_is_named(ann):
    ann.click(*DISC)
    row = ann.page.locator("#objects li").first
    expect(row).to_have_attribute("title", "By Ann")
    name(ann, "Bo")
    ann.click(*RED)
    expect(row).to_have_attribute("title", "By Bo")
    ann.press("Control+z")
    expect(row).to_have_attribute("title", "By Ann")
    expect(ann.page.locator("#saved")).to_have_text("Saved")
    ann.page.reload()
    expect(ann.page.get_by_label("Your name")).to_have_value("Bo")
    expect(row).to_have_attribute("title", "By Ann")
