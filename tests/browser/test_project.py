"""A project: several images and classes, kept in the browser."""

import io
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, RED, PageDriver

PUT_FAILS = (
    "IDBObjectStore.prototype.put = () => { throw new DOMException('full', 'QuotaExceededError');"
    " }; null"
)
SLOW_STORAGE = """
const { request } = LockManager.prototype, released = new Promise((resolve) => (window.releaseStorage = resolve));
LockManager.prototype.request = function (name, options, hold) { return released.then(() => request.call(this, name, hold)); };
"""
"""Script of a browser whose storage is ready when the test says so, however long that takes: the lock
has no time limit."""
PRESS_TWICE = """() => {
  for (const key of ["d", "d"]) document.body.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}"""
ADD_FAILS = """() => {
  const { add } = IDBObjectStore.prototype;
  IDBObjectStore.prototype.add = function (...image) {
    const request = add.apply(this, image);
    request.addEventListener("success", () => this.transaction.abort());
    return request;
  };
}"""
NO_FILES = """
const { put } = IDBObjectStore.prototype;
IDBObjectStore.prototype.put = function (value, ...key) {
  const request = put.call(this, value, ...key);
  if (value instanceof Blob) this.transaction.abort();
  return request;
};
"""
"""Script of a browser whose database takes no files."""
NO_STORAGE = "Object.defineProperty(indexedDB, 'open', { value() { throw new Error('denied'); } });"


@pytest.fixture
def photos(photo: Path, tmp_path: Path) -> list[Path]:
    """The fixture `photo` and three images that are mirrored, turned and brighter."""
    with Image.open(photo) as picture:
        picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT).save(tmp_path / "b.png")
        picture.transpose(Image.Transpose.ROTATE_180).save(tmp_path / "c.png")
        picture.point(lambda value: min(255, value + 20)).save(tmp_path / "d.png")
    shutil.copy(photo, tmp_path / "a.png")
    return sorted(tmp_path.glob("?.png"))


@pytest.fixture
def project(driver: PageDriver, photos: list[Path]) -> PageDriver:
    """The user with four images, the first of them open."""
    driver.page.set_input_files("#file", photos)
    expect(driver.page.locator("#image-list li")).to_have_count(4)
    driver.wait_encoded(photos[0])
    return driver


def wait_saved(driver: PageDriver) -> None:
    expect(driver.page.locator("#saved")).to_have_text("Saved")


def reload(driver: PageDriver) -> None:
    wait_saved(driver)
    driver.page.reload()
    driver.page.wait_for_selector("#view:not([hidden])")


def show(driver: PageDriver, key: str, name: str) -> None:
    """Press a key that opens an image, and wait for it."""
    driver.page.keyboard.press(key)
    driver.expect_image(name)
    driver.wait_encoded(driver.image)


def test_objects_masks_classes_and_history_survive_a_reload_also_without_the_service(clicked):
    disc = clicked.visible_mask()
    clicked.add_class("box")
    clicked.click(*RED, keys=("Shift",))
    red = clicked.visible_mask()
    reload(clicked)
    assert not clicked.visible_mask().any()
    clicked.select("object 2")
    assert np.array_equal(clicked.visible_mask(), red)
    assert np.array_equal(clicked.visible_mask("others"), disc)
    expect(clicked.page.get_by_label("Name of the class box")).to_be_visible()
    clicked.press("Control+z")
    assert np.array_equal(clicked.visible_mask(), disc)
    clicked.press("Control+y")
    assert np.array_equal(clicked.visible_mask(), red)
    wait_saved(clicked)
    for path in ("embed", "mobile_sam"):
        clicked.page.route(f"**/{path}", lambda route: route.abort())
    reload(clicked)
    clicked.select("object 2")
    clicked.wait_for(lambda: np.array_equal(clicked.visible_mask(), red))


def test_image_opened_before_the_storage_is_ready_is_kept(open_page, photo):
    with open_page(script=SLOW_STORAGE) as driver:
        driver.page.set_input_files("#file", photo)
        expect(driver.page.locator("#busy")).to_have_text("Loading the image")
        driver.page.wait_for_timeout(300)
        driver.page.evaluate("releaseStorage()")
        driver.wait_encoded(photo)
        driver.click(*DISC)
        disc = driver.visible_mask()
        wait_saved(driver)
        driver.page.reload()
        driver.page.evaluate("releaseStorage()")
        driver.expect_image("scene.png")
        assert np.array_equal(driver.visible_mask("others"), disc)


def test_each_image_keeps_its_own_objects_until_it_is_removed(project):
    project.click(*DISC)
    disc = project.visible_mask()
    show(project, "d", "b.png")
    assert not project.visible_mask().any()
    project.click(479 - DISC[0], DISC[1])
    show(project, "a", "a.png")
    assert np.array_equal(project.visible_mask("others"), disc)
    counts = project.page.locator("#image-list .count")
    assert counts.all_inner_texts() == ["1", "1", "", ""]
    expect(project.page.locator("#image-position")).to_have_text("1 of 4")
    wait_saved(project)
    project.page.once("dialog", lambda dialog: dialog.accept())
    project.press_button("Remove a.png from the project")
    project.expect_image("b.png")
    reload(project)
    expect(project.page.locator("#image-list li")).to_have_count(3)


def test_images_after_the_open_one_are_queued_and_not_sent_again_until_the_folder_is_left(project):
    def asked(end: str = "/embed") -> int:
        return sum(url.endswith(end) for url in project.requests)

    project.wait_for(lambda: asked() == 4)
    with project.page.expect_request("**/embed") as sent:
        show(project, "d", "b.png")
    assert list(sent.value.post_data_json) == ["image_id"]
    project.click(*DISC)
    project.page.wait_for_timeout(300)
    assert asked() == 5
    project.page.evaluate(PRESS_TWICE)
    project.expect_image("d.png")
    expect(project.page.locator("#image-position")).to_have_text("4 of 4")
    project.page.once("dialog", lambda dialog: dialog.accept())
    with project.page.expect_request(
        lambda request: request.method == "DELETE" and "/embed/" in request.url
    ):
        project.press_button("New project")


def test_folder_is_opened_with_its_images_only_and_equal_names_get_numbers(
    driver, photo, photos, tmp_path
):
    (tmp_path / "notes.txt").write_text("not an image")
    driver.page.set_input_files("#folder", tmp_path)
    names = driver.page.locator("#image-list .file-name")
    expect(names).to_have_text(["a.png", "b.png", "c.png", "d.png"])
    for count in (5, 6, 7):
        driver.page.set_input_files("#file", photo)
        expect(names).to_have_count(count)
    assert names.all_inner_texts()[4:] == ["scene.png", "scene-2.png", "scene-3.png"]


def test_number_keys_give_classes_and_objects_of_a_deleted_class_get_another_one_in_all_images(
    project,
):
    for name in ("cat", "dog"):
        project.add_class(name)
    project.click(*DISC)
    project.press("2")
    project.click(*RED, keys=("Shift",))
    assert project.page.locator("#objects .category").all_inner_texts() == ["cat", "cat"]
    project.press("3")
    assert project.page.locator("#objects .category").all_inner_texts() == ["cat", "dog"]
    assert project.page.locator("#class-list .score").all_inner_texts() == ["0", "1", "1"]
    show(project, "d", "b.png")
    project.click(*DISC)
    wait_saved(project)
    questions: list[str] = []

    def accept(dialog) -> None:
        questions.append(dialog.message)
        dialog.accept()

    project.page.once("dialog", accept)
    project.press_button("Delete the class dog")
    expect(project.page.locator("#class-list .score")).to_have_text(["2", "1"])
    assert questions == ["Delete the class dog? Its 2 objects become object."]
    show(project, "a", "a.png")
    categories, hint = project.page.locator("#objects .category"), project.page.locator("#hint")
    project.press("2")
    expect(hint).to_have_text("Class of new objects: cat")
    assert categories.all_inner_texts()[:2] == ["cat", "object"]
    project.select("object 2")
    project.press("2")
    expect(hint).to_have_text("object → cat: object 2")
    assert categories.all_inner_texts()[:2] == ["cat", "cat"]


def test_undo_brings_an_object_back_with_its_class(project):
    for name in ("cat", "dog"):
        project.add_class(name)
    project.click(*DISC)
    project.press_button("Clear this object's clicks")
    project.press("2")
    project.press("Control+z")
    assert project.page.locator("#objects .category").all_inner_texts()[0] == "dog"


def test_objects_without_a_mask_get_the_class_that_the_question_names(project):
    for name in ("cat", "dog"):
        project.add_class(name)
    project.press("2")
    project.page.route("**/mobile_sam", lambda route: route.abort())
    project.page.mouse.click(*project.screen_xy(*DISC))
    expect(project.page.get_by_role("alert")).to_be_visible()
    for key in "n3d":
        project.page.keyboard.press(key)
    project.expect_image("b.png")
    wait_saved(project)
    project.press_button("Delete the class cat")
    expect(project.page.locator("#class-list .score")).to_have_count(2)
    project.page.keyboard.press("a")
    project.expect_image("a.png")
    assert project.page.locator("#objects .category").all_inner_texts()[0] == "object"


def test_reviewed_images_are_exported_without_objects_too_and_unlabelled_ones_are_not(
    project, photos, open_page, tmp_path
):
    project.click(*DISC)
    show(project, "d", "b.png")
    project.page.keyboard.press("m")
    expect(project.page.get_by_role("button", name="Reviewed", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    reload(project)
    expect(project.page.locator("#image-list .reviewed")).to_have_text("b.png, 0 objects, reviewed")
    (tmp_path / "yolo.zip").write_bytes(project.export("yolo"))
    labels = zipfile.ZipFile(tmp_path / "yolo.zip")
    sizes = {
        file.filename: file.file_size
        for file in labels.infolist()
        if file.filename.startswith("labels/")
    }
    assert set(sizes) == {"labels/a.txt", "labels/b.txt"}
    assert sizes["labels/a.txt"] > 0 == sizes["labels/b.txt"]
    coco = zipfile.ZipFile(io.BytesIO(project.export("coco"))).read("annotations/instances.json")
    assert [image["file_name"] for image in json.loads(coco)["images"]] == ["a.png", "b.png"]
    project.press_button("Export")
    (tmp_path / "project.zip").write_bytes(project.save("Save project"))
    for file, images in (("yolo.zip", photos), ("project.zip", [])):
        with open_page() as other:
            if images:
                other.page.set_input_files("#file", images)
                expect(other.page.locator("#image-list li")).to_have_count(4)
            other.page.set_input_files("#annotations", tmp_path / file)
            expect(other.page.locator("#image-list li")).to_have_text(
                [
                    re.compile(words)
                    for words in (
                        "a.png.*1 object$",
                        "b.png, 0 objects, reviewed",
                        "c.png",
                        "d.png",
                    )
                ]
            )


def test_list_is_filtered_and_searched_and_always_has_the_open_image(project):
    names, filters = (
        project.page.locator("#image-list .file-name"),
        project.page.get_by_label("Images in the list"),
    )
    project.click(*DISC)
    project.page.keyboard.press("m")
    show(project, "d", "b.png")
    for shown, listed in (
        ("Reviewed", ["a.png", "b.png"]),
        ("object", ["a.png", "b.png"]),
        ("Unlabelled", ["b.png", "c.png", "d.png"]),
    ):
        filters.select_option(shown)
        expect(names).to_have_text(listed)
    project.click(479 - DISC[0], DISC[1])
    expect(names).to_have_text(["b.png", "c.png", "d.png"])
    show(project, "d", "c.png")
    expect(names).to_have_text(["c.png", "d.png"])
    expect(project.page.locator("#image-position")).to_have_text("1 of 2")
    expect(project.page.locator("#images-hidden")).to_have_text("2 images hidden")
    filters.select_option("All images")
    project.page.get_by_label("Find an image by its name").fill("D.")
    expect(names).to_have_text(["c.png", "d.png"])


def test_class_name_that_another_class_has_is_refused(opened):
    opened.add_class("cat")
    opened.page.get_by_label("Name of the class cat").fill("object")
    opened.page.keyboard.press("Enter")
    expect(opened.page.locator("#hint")).to_contain_text("There is a class object already")
    expect(opened.page.get_by_label("Name of the class cat")).to_have_value("cat")


def test_classes_are_moved_by_dragging_and_keys_and_the_tenth_is_found_by_typing(project):
    for number in range(2, 11):
        project.add_class(f"class {number}")
    rows, keys = (
        project.page.locator("#class-list li"),
        project.page.locator("#class-list .class-key"),
    )
    keys.nth(2).drag_to(keys.nth(0))
    expect(keys.nth(0)).to_have_accessible_name("Use the class class 3 1")
    keys.nth(0).focus()
    project.press("Alt+ArrowDown")
    expect(keys.nth(1)).to_be_focused()
    expect(keys.nth(1)).to_have_accessible_name("Use the class class 3 2")
    project.press("1")
    project.press("/")
    project.page.keyboard.type("10")
    expect(rows.locator("visible=true").locator(".class-key")).to_have_count(1)
    project.press("Enter")
    expect(rows.locator("visible=true").locator(".class-key")).to_have_count(10)
    expect(keys.nth(9)).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("script", [NO_STORAGE, NO_FILES], ids=["no-database", "no-files"])
def test_browser_without_storage_says_so(open_page, photo, script):
    with open_page(script=script) as driver:
        expect(driver.page.locator("#saved")).to_have_text("Not kept")
        driver.open(photo)
        driver.click(*DISC)
        assert driver.visible_mask().any()


def test_second_tab_does_not_overwrite_the_first_one(project, photos):
    project.click(*DISC)
    wait_saved(project)
    other = project.page.context.new_page()
    other.goto(project.page.url)
    expect(other.locator("#saved")).to_have_text("Not kept")
    expect(other.locator("#saved")).to_have_attribute("title", re.compile("open in another tab"))
    other.close()
    reload(project)
    expect(project.page.locator("#saved")).to_have_text("Saved")
    assert project.page.locator("#image-list .count").all_inner_texts() == ["1", "", "", ""]


def test_work_that_could_not_be_saved_is_there_when_its_image_is_opened_again(project):
    project.page.evaluate(PUT_FAILS)
    project.click(*DISC)
    expect(project.page.locator("#saved")).to_have_text("Not saved")
    disc = project.visible_mask()
    show(project, "d", "b.png")
    show(project, "a", "a.png")
    assert np.array_equal(project.visible_mask("others"), disc)


def test_image_that_the_browser_fails_to_store_is_not_added(driver, photo):
    driver.page.evaluate(ADD_FAILS)
    driver.page.set_input_files("#file", photo)
    expect(driver.page.get_by_role("alert")).to_contain_text(
        "does not fit into this browser's storage"
    )
    expect(driver.page.locator("#image-list li")).to_have_count(0)
