"""Clicks, boxes and automatic objects: displayed masks equal the API's for the same prompts,
pixel by pixel.
"""

import re

import numpy as np
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, MEADOW, OPEN_SECTIONS, RED

STOP_AT_PROGRESS = """() => {
  const ids = ["progress-bar", "progress-text", "everything-stop"];
  const [bar, text, stop] = ids.map((id) => document.getElementById(id));
  window.stopped = new Promise((resolve) => {
    const observer = new MutationObserver(() => (observer.disconnect(), stop.click(), resolve(text.textContent)));
    observer.observe(bar, { attributeFilter: ["value"] });
  });
}"""
"""Press "Stop" in the page as the first progress is shown, which is read: a test could be too
late."""


def test_click_paints_the_mask_over_the_image(opened):
    before = opened.screenshot()
    at = tuple(round(side) for side in reversed(opened.screen_xy(440, 60)))
    opened.page.get_by_label("Brightness").fill("200")
    assert opened.screenshot()[at].sum() > before[at].sum()
    opened.page.get_by_label("Brightness").dblclick()
    opened.click(*DISC)
    opened.assert_mask_is_the_apis(pos_coords=[DISC])
    mask = opened.visible_mask()
    ys, xs = np.mgrid[:320, :480]
    disc = (xs - 150) ** 2 + (ys - 160) ** 2 <= 60**2
    assert (mask & disc).sum() / (mask | disc).sum() > 0.8

    after = opened.screenshot()
    x, y = (round(side) for side in opened.screen_xy(120, 150))
    assert np.abs(after[y, x].astype(int) - before[y, x]).max() > 30
    assert np.array_equal(after[at], before[at])
    expect(opened.page.locator("#latency")).to_have_text(re.compile(r"^last click \d+ ms, server$"))


def test_click_can_be_negative_but_not_alone(opened):
    opened.click(*RED, button="right")
    expect(opened.page.locator("#hint")).to_contain_text("Now click the object itself")
    assert not opened.visible_mask().any()
    opened.click(*DISC)
    opened.assert_mask_is_the_apis(pos_coords=[DISC], neg_coords=[RED])
    opened.press_button(f"Remove negative click at {RED[0]}, {RED[1]}")
    opened.assert_mask_is_the_apis(pos_coords=[DISC])
    opened.page.get_by_text("Exclude", exact=True).click()
    opened.click(*MEADOW)
    opened.assert_mask_is_the_apis(pos_coords=[DISC], neg_coords=[MEADOW])


def test_drag_draws_a_box_that_escape_cancels(opened):
    for start, end in (((290, 80), (410, 220)), ((410, 220), (290, 80))):
        opened.drag(start, end)
        opened.assert_mask_is_the_apis(box=[290, 80, 410, 220])
        opened.press("Control+z")
    opened.page.mouse.dblclick(*opened.screen_xy(*DISC))
    opened.wait_idle()
    expect(opened.page.locator(".marker")).to_have_count(1)
    first = opened.visible_mask()
    opened.page.mouse.move(*opened.screen_xy(300, 90))
    opened.page.mouse.down()
    opened.page.mouse.move(*opened.screen_xy(400, 200), steps=3)
    opened.page.keyboard.press("Escape")
    opened.page.mouse.up()
    for key in ("b", "ArrowLeft", "Escape"):
        opened.press(key)
    assert np.array_equal(opened.visible_mask(), first)
    expect(opened.page.locator("#box")).to_be_hidden()


def test_box_is_moved_and_resized_by_mouse_keys_and_touch_until_escape(opened):
    page, box = opened.page, [290, 80, 410, 220]
    opened.drag((290, 80), (410, 220))
    for start, end, changed in (
        ((410, 220), (400, 210), [290, 80, 400, 210]),
        ((290, 145), (295, 170), [295, 80, 400, 210]),
        ((320, 80), (325, 90), [300, 90, 405, 220]),
        ((320, 90), (479, 90), [374, 90, 479, 220]),
    ):
        opened.drag(start, end)
        opened.assert_mask_is_the_apis(box=changed)
    for _ in range(4):
        opened.press("Control+z")
    opened.assert_mask_is_the_apis(box=box)

    page.get_by_role("button", name="Top left corner of the box").focus()
    opened.press("Shift+ArrowLeft")
    opened.press("ArrowDown")
    opened.assert_mask_is_the_apis(box=[270, 81, 410, 220])
    page.get_by_role("button", name="Move the box").focus()
    opened.press("ArrowUp")
    opened.assert_mask_is_the_apis(box=[270, 80, 410, 219])
    x, y = opened.screen_xy(270, 80)
    for kind, *at in (
        ("touchStart", (x, y)),
        ("touchMove", opened.screen_xy(290, 80)),
        ("touchEnd",),
    ):
        opened.touch(kind, *at)
    opened.wait_idle()
    opened.assert_mask_is_the_apis(box=[290, 80, 410, 219])

    page.mouse.move(*opened.screen_xy(410, 219))
    page.mouse.down()
    page.mouse.move(*opened.screen_xy(310, 100), steps=3)
    page.keyboard.press("Escape")
    page.mouse.up()
    expect(page.get_by_role("button", name="Remove box from 290,80 to 410,219")).to_be_visible()
    opened.assert_mask_is_the_apis(box=[290, 80, 410, 219])


def test_undo_redo_clear_and_markers_restore_masks(clicked):
    first = clicked.visible_mask()
    clicked.click(*MEADOW)
    both = clicked.visible_mask()
    assert not np.array_equal(first, both)
    clicked.press_button("Undo")
    assert np.array_equal(clicked.visible_mask(), first)
    clicked.press("Control+z")
    assert not clicked.visible_mask().any()
    clicked.press_button("Redo")
    clicked.press("Control+y")
    assert np.array_equal(clicked.visible_mask(), both)
    clicked.press_button("Remove positive click at 240, 290")
    assert np.array_equal(clicked.visible_mask(), first)
    clicked.press_button("Clear this object's clicks")
    assert not clicked.visible_mask().any()


def test_objects_have_the_colour_of_their_class_or_own_ones_and_names(clicked):
    disc, disc_colour = clicked.visible_mask(), clicked.layer_rgba()[160, 150]
    clicked.click(*RED, keys=("Shift",))
    red = clicked.visible_mask()
    assert np.array_equal(disc_colour, clicked.layer_rgba()[150, 350])
    clicked.page.get_by_label("Colour of the class object").fill("#10a020")
    assert clicked.layer_rgba()[150, 350].tolist() == [0x10, 0xA0, 0x20, 255]
    expect(clicked.page.locator("#saved")).to_have_text("Saved")
    clicked.page.reload()
    clicked.wait_encoded(clicked.image)
    clicked.select("object 2")
    assert clicked.layer_rgba("others")[160, 150].tolist() == [0x10, 0xA0, 0x20, 255]
    clicked.page.get_by_label("Colour by class").set_checked(False)
    assert not np.array_equal(
        clicked.layer_rgba("others")[160, 150], clicked.layer_rgba()[150, 350]
    )
    assert np.array_equal(clicked.visible_mask("others"), disc)
    clicked.press("Control+z")  # one step for the click and its new object
    expect(clicked.page.locator("#objects li")).to_have_count(1)
    clicked.press("Control+y")

    clicked.click(*DISC, keys=("Control",))
    assert np.array_equal(clicked.visible_mask(), disc)
    assert np.array_equal(clicked.visible_mask("others"), red)

    field = clicked.page.get_by_label("Name of object 2")
    field.fill("a red box")
    field.press("Enter")
    clicked.click(*RED, keys=("Control",))
    clicked.press_button("Hide a red box")
    assert not clicked.visible_mask().any()
    clicked.press_button("Delete object 1")
    expect(clicked.page.get_by_label("Name of object 1")).to_have_count(0)
    expect(clicked.page.get_by_label("Name of a red box")).to_be_visible()


def test_escape_leaves_an_object_and_one_click_can_begin_one_beside_the_mask(clicked):
    disc, rows = clicked.visible_mask(), clicked.page.locator("#objects li")
    for _ in range(2):
        clicked.press("Escape")
        assert np.array_equal(clicked.visible_mask("others"), disc)
        expect(rows).to_have_count(2)
    clicked.click(*RED)
    clicked.page.get_by_label("One click, one object").set_checked(True)
    clicked.click(*MEADOW)
    expect(rows).to_have_count(3)
    clicked.click(*DISC, keys=("Shift",))
    clicked.click(*RED, button="right")
    clicked.assert_mask_is_the_apis(pos_coords=[MEADOW, DISC], neg_coords=[RED])
    clicked.drag((290, 80), (410, 220))
    expect(rows).to_have_count(4)
    clicked.assert_mask_is_the_apis(box=[290, 80, 410, 220])


def test_click_after_a_reload_begins_an_object_of_the_class_that_a_key_chooses(open_page, photo):
    with open_page(one_click=True) as driver:
        driver.open(photo)
        driver.click(*DISC)
        disc, rows = driver.visible_mask(), driver.page.locator("#objects li")
        driver.add_class("box")
        driver.press("1")
        expect(driver.page.locator("#saved")).to_have_text("Saved")
        driver.page.reload()
        driver.wait_encoded(photo)
        expect(driver.page.get_by_label("One click, one object")).to_be_checked()
        assert not driver.visible_mask().any()
        driver.press("2")
        expect(driver.page.locator("#hint")).to_have_text("Class of new objects: box")
        driver.click(*RED)
        driver.assert_mask_is_the_apis(pos_coords=[RED])
        assert np.array_equal(driver.visible_mask("others"), disc)
        expect(rows.locator(".category")).to_have_text(["object", "box"])


def test_first_press_on_a_name_selects_the_object_and_leaves_the_keys_to_the_image(clicked):
    clicked.add_class("box")
    clicked.press("1")
    clicked.press("Escape")
    name = clicked.page.get_by_label("Name of object 1")
    name.click()
    clicked.press("2")
    expect(name).to_have_value("object 1")
    expect(clicked.page.locator("#objects .category").first).to_have_text("box")
    name.click()
    clicked.page.keyboard.press("End")
    clicked.page.keyboard.type("2")
    expect(name).to_have_value("object 12")


def test_negative_click_that_changes_nothing_on_a_drawing_says_so(opened):
    opened.press("g")
    opened.drag((20, 20), (70, 70))
    opened.press("v")
    drawn = opened.visible_mask()
    opened.click(*RED, button="right")
    expect(opened.page.locator("#hint")).to_contain_text("The click changed nothing here")
    assert np.array_equal(opened.visible_mask(), drawn)


def test_mask_is_painted_while_another_row_is_hovered_and_a_cleared_one_does_not_reappear(clicked):
    clicked.press("n")
    clicked.page.locator("#objects li").first.hover()
    clicked.page.locator("#view").focus()
    for key in ["Shift+ArrowRight"] * 5 + ["Enter"]:
        clicked.press(key)
    assert clicked.visible_mask()[RED[1], RED[0]]
    clicked.press_button("Clear this object's clicks")
    held = clicked.hold("**/mobile_sam")
    clicked.page.mouse.click(*clicked.screen_xy(*MEADOW))
    clicked.wait_for(lambda: bool(held))
    assert not clicked.visible_mask().any()
    held.pop().continue_()
    clicked.wait_idle()
    assert clicked.visible_mask()[MEADOW[1], MEADOW[0]]


def test_click_before_encoding_waits_for_the_embedding(driver, photo):
    driver.page.set_input_files("#file", photo)
    driver.page.wait_for_selector("#view:not([hidden])")
    driver.page.evaluate(OPEN_SECTIONS)
    driver.page.locator("#hover").set_checked(False)
    driver.page.mouse.click(*driver.screen_xy(*DISC))
    driver.page.wait_for_selector("#latency[data-milliseconds]")
    driver.image = photo
    driver.assert_mask_is_the_apis(pos_coords=[DISC])


def test_preview_follows_the_pointer_with_the_mask_options_until_the_click_takes_it_over(opened):
    bodies = opened.answer("**/mobile_sam", {})
    opened.page.get_by_label("Threshold").fill("-3")
    opened.page.locator("#hover").set_checked(True)
    expected = opened.request_masks(pos_coords=[DISC], mask_threshold=-3)[0]
    opened.page.mouse.move(*opened.screen_xy(20, 20))
    opened.page.mouse.move(*opened.screen_xy(*DISC))
    opened.wait_for(lambda: np.array_equal(opened.visible_mask("preview"), expected))
    assert not opened.visible_mask().any()
    previews = len(bodies)
    assert (bodies[-1]["min_mask_region_area"], bodies[-1]["mask_threshold"]) == (20, -3)
    opened.click(*DISC)
    assert not opened.visible_mask("preview").any()
    assert np.array_equal(opened.visible_mask(), expected)
    assert len(bodies) == previews


def test_mask_is_requested_while_the_button_is_down_and_painted_at_its_release(opened):
    bodies = opened.answer("**/mobile_sam", {})
    marks: dict[str, list[tuple[int, int]]] = {}
    for field, at, button in (("pos_coords", DISC, "left"), ("neg_coords", MEADOW, "right")):
        before = opened.visible_mask()
        opened.page.mouse.move(*opened.screen_xy(*at))
        with opened.page.expect_response("**/mobile_sam"):
            opened.page.mouse.down(button=button)
        opened.page.wait_for_timeout(100)
        assert np.array_equal(opened.visible_mask(), before)
        assert not opened.visible_mask("preview").any()
        opened.page.mouse.up(button=button)
        opened.wait_idle()
        marks[field] = [at]
        assert len(bodies) == len(marks)
        opened.assert_mask_is_the_apis(**marks)


def test_mask_options_apply_to_all_objects_later_clicks_and_the_next_image(clicked, photo):
    clicked.press("n")
    clicked.click(*MEADOW)
    clicked.page.get_by_label("Smooth").set_checked(False)
    slider = clicked.page.get_by_role("slider", name="Threshold")
    slider.fill("2")
    expect(slider).to_have_attribute("aria-valuetext", "2 tighter")
    clicked.wait_idle()
    options = {"min_mask_region_area": 0, "mask_threshold": 2}
    clicked.assert_mask_is_the_apis(pos_coords=[MEADOW], **options)
    assert np.array_equal(
        clicked.visible_mask("others"), clicked.request_masks(pos_coords=[DISC], **options)[0]
    )
    clicked.open(photo)
    clicked.click(*DISC)
    clicked.assert_mask_is_the_apis(pos_coords=[DISC], **options)


def test_segment_everything_can_be_stopped_and_is_one_undoable_step_whose_objects_can_be_refined(
    opened,
):
    rows = opened.page.locator("#objects li")
    opened.page.evaluate(STOP_AT_PROGRESS)
    opened.press_button("Start")
    assert opened.page.evaluate("stopped") == "0 %"
    opened.page.wait_for_selector("#progress", state="hidden")
    expect(rows).to_have_count(1)
    expect(opened.page.get_by_role("alert")).to_be_hidden()

    opened.page.get_by_label("Grid").select_option("8")
    for _ in range(2):  # the second is ignored: it is already running
        opened.page.keyboard.press("e")
    opened.page.wait_for_selector("#progress", state="hidden")
    assert sum(url.endswith("/everything") for url in opened.requests) == 2
    assert (opened.visible_mask() | opened.visible_mask("others")).mean() > 0.5
    opened.press("Control+z")
    expect(rows).to_have_count(1)
    assert not opened.visible_mask("others").any()
    opened.press("Control+y")

    opened.click(*DISC)  # a found object keeps its grid click
    assert opened.visible_mask()[DISC[1], DISC[0]]
    opened.click(*MEADOW, button="right")
    marker = opened.page.locator(".marker.positive").get_attribute("aria-label")
    x, y = (int(number) for number in marker.removeprefix("Remove positive click at ").split(", "))
    opened.assert_mask_is_the_apis(pos_coords=[[x, y]], neg_coords=[MEADOW])
