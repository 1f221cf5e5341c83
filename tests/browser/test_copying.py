"""Copies of objects on the same image and on others, merged objects, and which of two
overlapping objects is on top.
"""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, RED, PageDriver
from tests.browser.test_accessibility import violations
from tests.browser.test_images import transfer_file
from tests.browser.test_screens import PHONE
from tests.unit.page.formats import rle

SMALL, LARGE = (slice(100, 160), slice(100, 180)), (slice(80, 300), slice(140, 440))
"""Rows and columns of two rectangles on an image of 480 x 320 pixels, which overlap."""
IN_BOTH = (160, 130)


@pytest.fixture
def series(driver: PageDriver, photo: Path, tmp_path: Path) -> PageDriver:
    """The user with three images: the fixture `photo` twice, and one of another size, which is
    the last.
    """
    with Image.open(photo) as picture:
        for number in (1, 2):
            picture.save(tmp_path / f"{number}.png")
        picture.resize((240, 160)).save(tmp_path / "3.png")
    driver.page.set_input_files("#file", [tmp_path / f"{number}.png" for number in (1, 2, 3)])
    expect(driver.page.locator("#image-list li")).to_have_count(3)
    driver.wait_encoded(tmp_path / "1.png")
    return driver


def names(driver: PageDriver) -> list[str]:
    """Return the names of the objects in the list, without the empty one for the next click."""
    rows = driver.page.locator("#objects li").all()
    return [
        row.locator("input").input_value() for row in rows if row.locator(".score").inner_text()
    ]


def classes(driver: PageDriver) -> list[str]:
    return [text for text in driver.page.locator("#objects .category").all_inner_texts() if text]


def go(driver: PageDriver, key: str, image: str) -> None:
    driver.press(key)
    driver.page.wait_for_selector(f"#view[aria-label^='{image},']")
    driver.wait_idle()


def test_copied_object_is_pasted_as_a_drawn_mask_on_this_image_and_the_next(series):
    hint = series.page.locator("#hint")
    series.press("Control+v")
    series.click(*DISC)
    mask = series.visible_mask()
    series.add_class("other")  # of new objects; the copy has the class of its original
    series.press("Control+c")
    expect(hint).to_have_text("object 1 copied")
    series.press("Control+v")
    expect(hint).to_have_text(
        "object 2 pasted on top of object 1: draw, erase or click to change it"
    )
    assert names(series) == ["object 1", "object 2"]
    assert classes(series) == ["object", "object"]
    expect(series.page.locator("#objects .active .score")).to_have_text("by hand")
    assert np.array_equal(series.visible_mask(), mask)
    series.press("Control+z")
    assert names(series) == ["object 1"]

    series.page.get_by_label("Name of object 1").fill("yolk")
    series.page.get_by_role("application").focus()
    series.press_button("Copy")
    go(series, "d", "2.png")
    series.press_button("Paste")
    expect(hint).to_have_text("yolk pasted")
    assert names(series) == ["yolk"]
    assert np.array_equal(series.visible_mask(), mask)
    go(series, "d", "3.png")
    series.press("Control+v")
    expect(hint).to_have_text(
        "Nothing copied: this image has another size, 240 x 160, not 480 x 320"
    )
    assert names(series) == []


def test_copying_leaves_texts_and_images_of_the_clipboard_alone(clicked, photo):
    page = clicked.page
    name = page.get_by_label("Name of object 1")
    name.fill("yolk")
    name.select_text()
    for key in ("Control+c", "ArrowRight", "Control+v", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#objects input")).to_have_value("yolkyolk")
    assert len(names(clicked)) == 1
    clicked.press_button("Paste")
    expect(page.locator("#hint")).to_have_text(
        "Nothing to paste: select an object and copy it first"
    )
    clicked.press_button("Copy")
    transfer_file(clicked, "paste", photo.read_bytes(), "pasted.png")
    clicked.expect_image("pasted.png")
    expect(page.locator("#image-list .count")).to_have_text(["1", ""])


def test_all_objects_are_copied_to_the_next_image_where_undo_removes_them(series):
    hint = series.page.locator("#hint")
    go(series, "d", "2.png")
    series.click(*RED)
    go(series, "a", "1.png")
    series.press("t")
    expect(hint).to_have_text("This image has no objects to copy")
    series.click(*DISC)
    disc = series.visible_mask()
    series.page.get_by_label("Name of object 1").fill("yolk")
    series.page.get_by_role("application").focus()
    series.click(*RED, keys=("Shift",))
    series.segment_everything()  # proposals are not copied
    go(series, "t", "2.png")
    expect(hint).to_have_text("1 object copied to 2.png; 1 was there already")
    assert names(series) == ["object 1", "yolk"]
    expect(series.page.locator("#image-list .count")).to_have_text(["2", "2", ""])
    series.page.get_by_role("button", name="Select yolk").click()
    assert np.array_equal(series.visible_mask(), disc)
    series.press_button("All to next")
    expect(hint).to_have_text(
        "Nothing copied: the next image has another size, 240 x 160, not 480 x 320"
    )
    series.expect_image("2.png")
    go(series, "a", "1.png")
    go(series, "t", "2.png")
    expect(hint).to_have_text("0 objects copied to 2.png; 2 were there already")
    assert names(series) == ["object 1", "yolk"]
    series.press("Control+z")
    assert names(series) == ["object 1"]
    go(series, "d", "3.png")
    assert names(series) == []
    series.press("t")
    expect(hint).to_have_text("This is the last image of the list")


def test_mask_on_its_way_is_kept_when_the_next_image_is_opened_at_once(series):
    held = series.hold("**/mobile_sam")
    series.page.mouse.click(*series.screen_xy(*DISC))
    series.wait_for(lambda: bool(held))
    series.page.keyboard.press("d")
    series.answer("**/mobile_sam", {})  # a request may follow the answer
    for route in held:
        route.continue_()
    series.page.wait_for_selector("#view[aria-label^='2.png,']")
    expect(series.page.locator("#image-list .count")).to_have_text(["1", "", ""])


def test_export_lists_objects_without_a_mask(series):
    go(series, "d", "2.png")
    series.click(*DISC)
    go(series, "a", "1.png")
    series.page.route("**/mobile_sam", lambda route: route.abort())
    series.page.mouse.click(*series.screen_xy(*RED))
    expect(series.page.get_by_role("alert")).to_be_visible()
    series.page.keyboard.press("d")
    series.page.wait_for_selector("#view[aria-label^='2.png,']")
    assert series.export("coco")
    report = series.page.locator("#report")
    expect(report).to_contain_text("Exported, but some objects are not finished")
    expect(report).to_contain_text(
        "1.png: 1 object left out for want of a mask. Open the image to have masks made"
    )


def test_export_lists_masks_from_before_the_last_click(series):
    series.click(*DISC)
    series.page.route("**/mobile_sam", lambda route: route.abort())
    series.page.mouse.click(*series.screen_xy(*RED), button="right")
    expect(series.page.get_by_role("alert")).to_be_visible()
    series.page.keyboard.press("d")
    series.page.wait_for_selector("#view[aria-label^='2.png,']")
    assert series.export("coco")
    expect(series.page.locator("#report-list li")).to_have_text(
        "1.png: 1 object with the mask from before your last change."
        " Open the image to have masks made"
    )


def test_options_stay_with_their_image_although_no_mask_was_made_with_them(series):
    slider = series.page.get_by_role("slider", name="Threshold")
    series.click(*DISC)
    series.page.route("**/mobile_sam", lambda route: route.abort())
    slider.fill("2")
    expect(series.page.get_by_role("alert")).to_be_visible()
    series.page.get_by_role("application").focus()
    series.page.keyboard.press("d")
    series.expect_image("2.png")
    slider.fill("0")
    series.page.get_by_role("application").focus()
    series.page.keyboard.press("a")
    series.expect_image("1.png")
    expect(slider).to_have_value("2")


def test_masks_stay_as_they_were_made_when_their_image_is_opened_again(series):
    slider, smooth = (
        series.page.get_by_role("slider", name="Threshold"),
        series.page.get_by_label("Smooth"),
    )
    series.click(*DISC)
    first = series.visible_mask()
    go(series, "d", "2.png")
    smooth.set_checked(False)
    slider.fill("2")
    series.click(*DISC)
    second = series.visible_mask()
    assert not np.array_equal(first, second)
    for key, image, value, mask in (("a", "1.png", "0", first), ("d", "2.png", "2", second)):
        go(series, key, image)
        expect(slider).to_have_value(value)
        expect(smooth).to_be_checked(checked=value == "0")
        assert np.array_equal(series.visible_mask("others"), mask)


def test_two_objects_are_merged_by_keyboard_under_the_name_and_class_of_the_selected_one(clicked):
    page, menu = clicked.page, clicked.page.locator("#merge-menu")
    clicked.press("j")
    expect(page.locator("#hint")).to_have_text("There is no other object that has a mask")
    expect(menu).to_be_hidden()
    disc = clicked.visible_mask()
    clicked.add_class("box")
    clicked.click(*RED, keys=("Shift",))
    both = disc | clicked.visible_mask()
    clicked.press("j")
    expect(menu.get_by_role("button")).to_have_text(["object 1, object"])
    expect(menu.get_by_role("button")).to_be_focused()
    assert violations(page) == []
    page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    assert names(clicked) == ["object 1", "object 2"]
    clicked.press("j")
    expect(menu.get_by_role("button")).to_be_focused()
    clicked.press("Enter")
    expect(page.locator("#hint")).to_have_text("object 1 merged into object 2")
    assert (names(clicked), classes(clicked)) == (["object 2"], ["box"])
    assert np.array_equal(clicked.visible_mask(), both)
    clicked.press("Control+z")
    assert names(clicked) == ["object 1", "object 2"]
    assert np.array_equal(clicked.visible_mask("others"), disc)


def test_objects_are_copied_and_merged_by_touch(open_page, photo):
    with open_page(**PHONE) as phone:
        phone.open(photo)
        phone.press_button("Dismiss this note")
        phone.page.touchscreen.tap(*phone.screen_xy(*DISC))
        phone.wait_idle()
        for button in ("Copy", "Paste", "Merge with…"):
            phone.page.get_by_role("button", name="Actions of the selected object").tap()
            phone.page.get_by_role("button", name=button, exact=True).tap()
        phone.page.get_by_role("button", name="object 1, object").tap()
        expect(phone.page.locator("#hint")).to_have_text("object 1 merged into object 2")
        assert names(phone) == ["object 2"]


@pytest.mark.parametrize("order", [("small", "large"), ("large", "small")])
def test_last_object_is_on_top_on_the_screen_for_a_click_and_in_label_maps(opened, tmp_path, order):
    masks = {"small": np.zeros((320, 480), bool), "large": np.zeros((320, 480), bool)}
    masks["small"][SMALL] = masks["large"][LARGE] = True
    categories = [
        {"id": 1, "name": "small", "color": "#ff0000"},
        {"id": 2, "name": "large", "color": "#0000ff"},
    ]
    ids = {one["name"]: one["id"] for one in categories}
    annotations = [
        {"image_id": 1, "category_id": ids[name], "name": name, "segmentation": rle(masks[name])}
        for name in order
    ]
    images = [{"id": 1, "file_name": "scene.png", "width": 480, "height": 320}]
    document = {"images": images, "categories": categories, "annotations": annotations}
    (tmp_path / "overlap.json").write_text(json.dumps(document))
    opened.page.set_input_files("#annotations", tmp_path / "overlap.json")
    expect(opened.page.locator("#hint")).to_have_text("2 objects in 1 image added")
    opened.expect_image("scene.png")  # the import closes it, and opens it again
    top, (x, y) = order[-1], IN_BOTH
    colour = {"small": [255, 0, 0, 255], "large": [0, 0, 255, 255]}[top]
    assert opened.layer_rgba("others")[y, x].tolist() == colour
    files = zipfile.ZipFile(io.BytesIO(opened.export("label-maps")))
    with Image.open(io.BytesIO(files.read("classes/scene.png"))) as picture:
        assert picture.getpixel(IN_BOTH) == ids[top]
    with Image.open(io.BytesIO(files.read("instances/scene.png"))) as picture:
        assert picture.getpixel(IN_BOTH) == 2
    opened.click(*IN_BOTH, keys=("Control",))
    expect(opened.page.locator("#objects .active input")).to_have_value(top)
