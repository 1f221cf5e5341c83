"""Outlines drawn from nothing: polygons and rectangles by mouse, touch and keyboard."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, MEADOW
from tests.browser.test_mending import (
    choose,
    differing,
    drag_handle,
    points,
    polygon_mask,
    position,
)
from tests.browser.test_screens import PHONE

CORNERS = [(60, 50), (220, 70), (200, 250), (80, 230)]
MAX_DIFFERENT = 100
"""Pixels on the lines between the corners: the pointer's position on the screen is not exact."""


def add(driver, *corners: tuple[int, int]) -> None:
    for corner in corners:
        driver.page.mouse.click(*driver.screen_xy(*corner))


def assert_drawn(mask: np.ndarray, corners: list[tuple[int, int]] = CORNERS) -> None:
    assert differing(mask, polygon_mask([(x + 0.5, y + 0.5) for x, y in corners])) < MAX_DIFFERENT


def expect_points(driver, corners: list[tuple[int, int]]) -> None:
    found = [side for handle in points(driver).all() for side in position(handle)]
    assert found == pytest.approx([side for corner in corners for side in corner], abs=1)


@pytest.fixture
def drawing(opened):
    """The user with the polygon in hand, and nothing on the image."""
    opened.press("g")
    expect(opened.page.locator("#hint")).to_contain_text("Click to add points")
    return opened


def test_clicks_add_points_that_are_taken_back_until_the_first_one_closes_the_outline(drawing):
    page, handles = drawing.page, points(drawing)
    add(drawing, *CORNERS[:3], (300, 20))
    drawing.press("Backspace")
    expect(handles).to_have_count(3)
    for key, count in (("Control+z", 4), ("Control+z", 3), ("Control+z", 2), ("Control+y", 3)):
        drawing.press(key)
        expect(handles).to_have_count(count)
    page.mouse.move(*drawing.screen_xy(*CORNERS[3]))
    drawn = [
        float(number)
        for number in re.findall(r"[\d.]+", page.locator("#outline path").last.get_attribute("d"))
    ]
    assert drawn == pytest.approx([side + 0.5 for corner in CORNERS for side in corner], abs=0.6)
    assert not drawing.visible_mask().any()

    add(drawing, CORNERS[3], CORNERS[0])
    assert_drawn(drawing.visible_mask())
    expect(page.locator("#objects .score")).to_have_text("by hand")
    expect_points(drawing, CORNERS)
    expect(page.locator("#active-lines")).to_be_hidden()  # the outline is shown in its place
    drag_handle(drawing, handles.nth(2), 0, 40)
    drawing.press("Control+z")
    drag_handle(drawing, handles.nth(2), 0, 30)
    drawing.press_button("Apply")
    assert_drawn(drawing.visible_mask(), [*CORNERS[:2], (200, 280), CORNERS[3]])
    for _ in range(2):
        drawing.press("Control+z")
    assert not drawing.visible_mask().any()
    assert not any(url.endswith("/mobile_sam") for url in drawing.requests)


def test_outline_is_stored_when_it_is_closed_or_left(drawing, photo):
    polygon = drawing.page.get_by_role("radio", name="Polygon")
    for close, is_left in (
        (lambda: add(drawing, CORNERS[3]), False),  # a double click
        (lambda: drawing.press("Enter"), False),
        (lambda: drawing.press_button("Apply"), True),
        (lambda: drawing.press("r"), True),
    ):
        add(drawing, *CORNERS)
        close()
        assert_drawn(drawing.visible_mask())
        expect(polygon).to_be_checked(checked=not is_left)
        expect_points(drawing, [] if is_left else CORNERS)
        for key in ("v", "Delete", "g"):
            drawing.press(key)
        assert not drawing.visible_mask().any()
    add(drawing, *CORNERS)
    drawing.press("n")
    assert_drawn(drawing.visible_mask("others"))
    expect(polygon).to_be_checked()
    add(drawing, *CORNERS)
    drawing.open(photo)
    drawing.press("a")
    drawing.expect_image("scene.png")
    assert_drawn(drawing.visible_mask("others"))
    expect(polygon).to_be_checked()


def test_two_points_are_no_outline(drawing):
    add(drawing, *CORNERS[:2])
    drawing.press("Enter")
    expect(drawing.page.locator("#hint")).to_contain_text("three points")
    drawing.page.get_by_label("Brightness").fill("120")
    expect(points(drawing)).to_have_count(2)
    drawing.press("r")
    drawing.press("g")
    expect(points(drawing)).to_have_count(0)
    expect(drawing.page.get_by_role("button", name="Undo")).to_be_disabled()


def test_drag_draws_a_rectangle_and_escape_cancels_the_drag_then_the_points_then_leaves(drawing):
    page, mouse, handles = drawing.page, drawing.page.mouse, points(drawing)
    mouse.move(*drawing.screen_xy(300, 90))
    mouse.down()
    mouse.move(*drawing.screen_xy(100, 200), steps=3)
    page.keyboard.press("Escape")
    mouse.up()
    expect(handles).to_have_count(0)
    add(drawing, *CORNERS)
    drawing.press("Escape")
    expect(handles).to_have_count(0)
    drawing.press("Control+z")
    expect(handles).to_have_count(4)
    drawing.press("Escape")
    drawing.press("Escape")
    expect(page.get_by_role("radio", name="Click")).to_be_checked()
    assert not drawing.visible_mask().any()

    drawing.press("g")
    drawing.drag((300, 90), (100, 200))
    ys, xs = np.nonzero(drawing.visible_mask())
    sides = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
    assert sides == pytest.approx([100, 90, 300, 200], abs=1)
    assert len(xs) == (sides[2] - sides[0]) * (sides[3] - sides[1])
    expect(handles).to_have_count(4)
    mask = drawing.visible_mask()
    drawing.drag(MEADOW, DISC)  # an outline is open: this moves the image
    assert np.array_equal(drawing.visible_mask(), mask)


def test_keys_draw_an_outline_with_the_crosshair(drawing):
    page, handles = drawing.page, points(drawing)
    page.locator("#view").focus()
    for keys in (["Enter"], ["Shift+ArrowRight"] * 2, ["Shift+ArrowDown"] * 2):
        for key in [*keys, "Enter"] if keys[0] != "Enter" else keys:
            drawing.press(key)
    expect(handles).to_have_count(3)
    drawing.press("Enter")  # once more at the last point
    expect(page.locator("#objects .score")).to_have_text("by hand")
    assert_drawn(drawing.visible_mask(), [(240, 160), (280, 160), (280, 200)])
    expect_points(drawing, [(240, 160), (280, 160), (280, 200)])


def test_fingers_draw_an_outline_and_zoom_without_a_point(open_page, photo):
    with open_page(**PHONE) as phone:
        phone.open(photo)
        phone.press_button("Dismiss this note")
        choose(phone, "Polygon")
        tap = phone.page.touchscreen.tap
        for corner in CORNERS[:3]:
            tap(*phone.screen_xy(*corner))
        x, y = phone.screen_xy(*MEADOW)
        for kind, offset in (("touchStart", 40), *(("touchMove", at) for at in (42, 44, 46))):
            phone.touch(kind, (x - offset, y), (x + offset, y))
        phone.touch("touchEnd")
        expect(points(phone)).to_have_count(3)
        for corner in (CORNERS[3], CORNERS[0]):
            tap(*phone.screen_xy(*corner))
        expect(points(phone)).to_have_count(4)
        expect(phone.page.locator("#objects .score")).to_have_text("by hand")
        assert_drawn(phone.visible_mask())
