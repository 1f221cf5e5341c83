"""Clicks, boxes and automatic objects: displayed masks equal the API's for the same prompts, pixel by pixel."""

import re

import numpy as np
from playwright.sync_api import expect

from tests.browser.person import DISC, MEADOW, RED

STOP_AT_PROGRESS = """() => {
  const bar = document.getElementById("progress-bar"), stop = document.getElementById("everything-stop");
  window.stopped = new Promise((resolve) => {
    new MutationObserver(() => resolve(stop.click())).observe(bar, { attributeFilter: ["value"] });
  });
}"""
"""Press "Stop" in the page as the first progress is shown: a test could be too late."""


def test_click_paints_the_mask_over_the_image(opened):
    before = opened.screenshot()
    opened.click(*DISC)
    opened.assert_mask_is_the_apis(pos_coords=[DISC])
    mask = opened.visible_mask()
    ys, xs = np.mgrid[:320, :480]
    disc = (xs - 150) ** 2 + (ys - 160) ** 2 <= 60**2
    assert (mask & disc).sum() / (mask | disc).sum() > 0.8

    after = opened.screenshot()
    x, y = (round(at) for at in opened.screen_xy(120, 150))
    assert np.abs(after[y, x].astype(int) - before[y, x]).max() > 30
    x, y = (round(at) for at in opened.screen_xy(440, 60))
    assert np.array_equal(after[y, x], before[y, x])
    expect(opened.page.locator("#latency")).to_have_text(re.compile(r"^last click \d+ ms$"))


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
    markers = opened.page.locator(".marker")
    expect(markers).to_have_count(1)
    first = opened.visible_mask()
    opened.page.mouse.move(*opened.screen_xy(300, 90))
    opened.page.mouse.down()
    opened.page.mouse.move(*opened.screen_xy(400, 200), steps=3)
    opened.page.keyboard.press("Escape")
    opened.page.mouse.up()
    opened.page.keyboard.press("b")
    opened.page.keyboard.press("ArrowLeft")
    opened.press("Escape")
    assert np.array_equal(opened.visible_mask(), first)
    expect(markers).to_have_count(1)
    expect(opened.page.locator("#box")).to_be_hidden()


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
    expect(clicked.page.locator(".marker")).to_have_count(0)


def test_objects_have_own_colours_and_names(clicked):
    disc, disc_colour = clicked.visible_mask(), clicked.layer_rgba()[160, 150]
    clicked.click(*RED, keys=("Shift",))
    red, red_colour = clicked.visible_mask(), clicked.layer_rgba()[150, 350]
    assert not np.array_equal(disc_colour, red_colour)
    assert np.array_equal(clicked.visible_mask("others"), disc)
    clicked.press("Control+z")  # one step for the click and its new object
    expect(clicked.page.locator("#objects li")).to_have_count(1)
    assert np.array_equal(clicked.visible_mask(), disc)
    clicked.press("Control+y")

    clicked.click(*DISC, keys=("Control",))
    assert np.array_equal(clicked.visible_mask(), disc)
    assert np.array_equal(clicked.visible_mask("others"), red)

    field = clicked.page.get_by_label("Name of object 2")
    field.fill("a red box")
    field.press("Enter")
    clicked.press_button("New")
    expect(clicked.page.get_by_label("Name of object 3")).to_be_visible()
    clicked.press("Control+z")
    clicked.click(*RED, keys=("Control",))
    clicked.press_button("Hide a red box")
    assert not clicked.visible_mask().any()
    clicked.press_button("Delete object 1")
    expect(clicked.page.locator("#objects li")).to_have_count(1)


def test_mask_is_painted_while_another_row_is_hovered_and_a_cleared_one_does_not_reappear(clicked):
    clicked.press("n")
    clicked.page.locator("#objects li").first.hover()
    clicked.page.locator("#view").focus()
    for key in ["Shift+ArrowRight"] * 5 + ["Enter"]:
        clicked.press(key)
    assert clicked.visible_mask()[RED[1], RED[0]]
    clicked.press("Escape")
    held = clicked.hold("**/mobile_sam")
    clicked.page.mouse.click(*clicked.screen_xy(*MEADOW))
    clicked.wait_for(lambda: bool(held))
    assert not clicked.visible_mask().any()
    held.pop().continue_()
    clicked.wait_idle()
    assert clicked.visible_mask()[MEADOW[1], MEADOW[0]]


def test_click_before_encoding_waits_for_the_embedding(person, photo):
    person.page.set_input_files("#file", photo)
    person.page.wait_for_selector("#view:not([hidden])")
    person.page.locator("#hover").set_checked(False)
    person.page.mouse.click(*person.screen_xy(*DISC))
    person.page.wait_for_selector("#latency[data-milliseconds]")
    person.image = photo
    person.assert_mask_is_the_apis(pos_coords=[DISC])


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

    opened.press("n")
    opened.drag((290, 80), (410, 220))
    opened.assert_mask_is_the_apis(box=[290, 80, 410, 220])


def test_mask_options_apply_to_all_objects_later_clicks_and_the_next_image(clicked, photo):
    clicked.press("n")
    clicked.click(*MEADOW)
    clicked.page.get_by_label("Smooth").set_checked(False)
    slider = clicked.page.get_by_role("slider", name="Threshold")
    slider.focus()
    for _ in range(4):
        clicked.press("ArrowRight")
    expect(slider).to_have_attribute("aria-valuetext", "2 tighter")
    options = {"min_mask_region_area": 0, "mask_threshold": 2}
    clicked.wait_idle()
    clicked.assert_mask_is_the_apis(pos_coords=[MEADOW], **options)
    assert np.array_equal(clicked.visible_mask("others"), clicked.request_masks(pos_coords=[DISC], **options)[0])
    clicked.click(*RED, button="right")
    clicked.assert_mask_is_the_apis(pos_coords=[MEADOW], neg_coords=[RED], **options)
    clicked.open(photo)
    clicked.click(*DISC)
    clicked.assert_mask_is_the_apis(pos_coords=[DISC], **options)


def test_segment_everything_is_one_undoable_step_and_its_objects_can_be_refined(opened):
    opened.page.get_by_label("Grid").select_option("8")
    for _ in range(2):  # the second is ignored: it is already running
        opened.page.keyboard.press("e")
    opened.page.wait_for_selector("#progress", state="hidden")
    rows = opened.page.locator("#objects li")
    expect(opened.page.locator("#hint")).to_contain_text("objects found")
    assert sum(url.endswith("/everything") for url in opened.requests) == 1
    assert rows.count() > 1
    assert (opened.visible_mask() | opened.visible_mask("others")).mean() > 0.5
    opened.press("Control+z")
    expect(rows).to_have_count(1)
    assert not opened.visible_mask("others").any()
    opened.press("Control+y")

    opened.click(*DISC)  # a found object keeps its grid click
    assert opened.visible_mask()[DISC[1], DISC[0]]
    expect(opened.page.locator(".marker")).to_have_count(0)
    opened.click(*MEADOW, button="right")
    marker = opened.page.locator(".marker.positive").get_attribute("aria-label")
    x, y = (int(number) for number in marker.removeprefix("Remove positive click at ").split(", "))
    opened.assert_mask_is_the_apis(pos_coords=[[x, y]], neg_coords=[MEADOW])


def test_segment_everything_can_be_stopped(opened):
    opened.page.evaluate(STOP_AT_PROGRESS)
    opened.press_button("Start")
    opened.page.evaluate("stopped")
    opened.page.wait_for_selector("#progress", state="hidden")
    expect(opened.page.locator("#objects li")).to_have_count(1)
    expect(opened.page.get_by_role("alert")).to_be_hidden()
    opened.click(*DISC)
    assert opened.visible_mask()[DISC[1], DISC[0]]
