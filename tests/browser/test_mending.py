"""Masks edited by hand: brush, eraser, polygon, and what later clicks do to them."""

import cv2
import numpy as np
import pytest
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from tests.browser.page_driver import DISC, MEADOW, RED
from tests.browser.test_export import copied

YS, XS = np.mgrid[:320, :480] + 0.5


def near(line: tuple[tuple[float, float], tuple[float, float]], radius: float) -> np.ndarray:
    """Return the pixels whose centre is within the radius of a line between the centres of two
    pixels, (H, W) bool.
    """
    (x0, y0), (x1, y1) = ((x + 0.5, y + 0.5) for x, y in line)
    squared = (x1 - x0) ** 2 + (y1 - y0) ** 2
    share = np.clip(((XS - x0) * (x1 - x0) + (YS - y0) * (y1 - y0)) / max(squared, 1e-9), 0, 1)
    return np.asarray(np.hypot(XS - x0 - share * (x1 - x0), YS - y0 - share * (y1 - y0)) <= radius)


def assert_stroke(
    before: np.ndarray, after: np.ndarray, line, radius: int, erased: bool = False
) -> None:
    """Compare a mask before and after a stroke; the pointer's position on the screen is not
    exact.
    """
    assert (after[near(line, radius - 0.5)] == (not erased)).all()
    outside = ~near(line, radius + 0.5)
    assert np.array_equal(after[outside], before[outside])


def differing(one: np.ndarray, other: np.ndarray) -> int:
    """Return the number of different pixels."""
    return int((one != other).sum())


def choose(driver, tool: str) -> None:
    driver.page.get_by_role("radio", name=tool, exact=True).check(force=True)


def radius(driver) -> int:
    return int(driver.page.locator("#radius-value").inner_text().removesuffix(" px"))


def answer(driver, name: str) -> None:
    bar = driver.page.get_by_role("alertdialog")
    bar.get_by_role("button", name=name, exact=True).click()
    driver.wait_idle()
    expect(bar).to_be_hidden()


def begin_stroke(driver, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Press the button at a pixel, and move the pointer to another one."""
    mouse = driver.page.mouse
    mouse.move(*driver.screen_xy(*start))
    mouse.down()
    mouse.move(*driver.screen_xy(*end), steps=5)


@pytest.fixture
def painted(clicked):
    """The user after a click on the disc and a stroke over the meadow, with the brush in hand."""
    choose(clicked, "Brush")
    clicked.drag((200, 260), (280, 260))
    return clicked


def test_brush_and_eraser_change_the_pixels_under_the_stroke_unless_it_is_cancelled(clicked):
    masks = [clicked.visible_mask()]
    clicked.press("r")
    for keys, line, erased in (
        ("", ((200, 240), (300, 290)), False),
        (",,,,", ((150, 80), (150, 240)), True),
        ("r", ((200, 260), (300, 260)), True),
    ):
        for key in keys:
            clicked.press(key)
        if keys == ",,,,":
            clicked.page.keyboard.down("Shift")
        clicked.drag(*line)
        clicked.page.keyboard.up("Shift")
        masks.append(clicked.visible_mask())
        assert_stroke(masks[-2], masks[-1], line, radius(clicked), erased)
    expect(clicked.page.get_by_role("radio", name="Eraser")).to_be_checked()
    expect(clicked.page.locator("#objects .score")).to_have_text("by hand")
    for expected in masks[2::-1]:
        clicked.press("Control+z")
        assert np.array_equal(clicked.visible_mask(), expected)
    expect(clicked.page.locator("#objects .score")).not_to_have_text("by hand")
    clicked.press("Control+y")

    choose(clicked, "Brush")
    clicked.page.mouse.move(*clicked.screen_xy(*RED))
    clicked.page.mouse.down()
    clicked.page.mouse.move(*clicked.screen_xy(*MEADOW))
    assert clicked.visible_mask()[RED[1], RED[0]]  # before the stroke ends
    clicked.page.keyboard.press("Escape")
    clicked.page.mouse.up()
    assert np.array_equal(clicked.visible_mask(), masks[1])


def test_brush_draws_a_new_object_and_pans_with_space(opened):
    choose(opened, "Brush")
    opened.page.keyboard.down("Space")
    x, y = opened.screen_xy(*RED)
    opened.drag(RED, (320, 140))
    opened.page.keyboard.up("Space")
    assert opened.screen_xy(*RED) != pytest.approx((x, y), abs=5)
    assert not opened.visible_mask().any()
    opened.page.locator("#view").focus()
    opened.press("ArrowLeft")
    opened.press("Enter")
    assert differing(opened.visible_mask(), near(((239, 160), (239, 160)), radius(opened))) == 0
    assert not any(url.endswith("/mobile_sam") for url in opened.requests)


@pytest.mark.parametrize("has_mask", [True, False])
def test_stroke_changes_the_object_on_which_it_began(opened, has_mask):
    if has_mask:
        opened.click(*DISC)
    opened.page.get_by_label("Grid").select_option("8")
    held = opened.hold("**/everything")
    opened.page.keyboard.press("e")
    opened.wait_for(lambda: bool(held))
    before = opened.visible_mask()
    choose(opened, "Brush")
    begin_stroke(opened, (200, 260), (280, 260))
    held.pop().continue_()
    opened.page.wait_for_selector("#progress", state="hidden")
    opened.page.mouse.up()
    opened.wait_idle()
    expect(opened.page.locator("#image-list .count")).to_have_text("1")
    assert_stroke(before, opened.visible_mask(), ((200, 260), (280, 260)), radius(opened))


@pytest.mark.parametrize("tool", ["Brush", "Click"])
def test_gesture_ends_with_its_image(opened, tmp_path, tool):
    (tmp_path / "other.png").write_bytes(opened.image.read_bytes())
    opened.open(tmp_path / "other.png")
    choose(opened, tool)
    begin_stroke(opened, (200, 260), (280, 280))
    opened.page.keyboard.press("a")
    opened.expect_image("scene.png")
    opened.page.mouse.up()
    opened.wait_idle()
    expect(opened.page.locator("#image-list .count")).to_have_text(["", ""])
    assert not opened.visible_mask().any()


def test_exports_contain_the_edited_mask(painted):
    mask = painted.visible_mask()
    assert np.array_equal(painted.saved_mask(), mask)
    annotation, saved = painted.saved_annotation()
    assert np.array_equal(saved, mask)
    assert "score" not in annotation
    assert all(
        "edited by hand" in copied(painted, button) for button in ("Copy Python", "Copy curl")
    )


def island(mask: np.ndarray, x: int, y: int) -> np.ndarray:
    """Return the connected pixels of a mask around a pixel, (H, W) bool; empty if the mask does
    not have it.
    """
    _, islands = cv2.connectedComponents(mask.astype(np.uint8), connectivity=8)
    return np.asarray(mask & (islands == islands[y, x]) & mask[y, x])


def test_clicks_after_a_stroke_change_the_mask_around_them_and_keep_the_rest(painted):
    drawn, bodies = painted.visible_mask(), painted.answer("**/mobile_sam", {})
    choose(painted, "Click")
    with painted.page.expect_response("**/mobile_sam"):  # ahead of the click
        painted.page.mouse.move(*painted.screen_xy(*RED))
        painted.page.mouse.down()
    painted.page.mouse.up()
    painted.wait_idle()
    (body,) = bodies
    assert body["pos_coords"] == [list(RED)]
    answer = painted.request_masks(pos_coords=[RED], mask_input=body["mask_input"])[0]
    extended = painted.visible_mask()
    assert np.array_equal(extended, drawn | island(answer & ~drawn, *RED))
    assert extended.sum() > drawn.sum() + 1000
    assert all(
        "edited by hand" in copied(painted, button) for button in ("Copy Python", "Copy curl")
    )

    painted.click(250, 262, button="right")
    asked = {
        "pos_coords": [DISC, RED],
        "neg_coords": [(250, 262)],
        "mask_input": body["mask_input"],
    }
    assert bodies[-1]["mask_input"] == body["mask_input"]
    answer = painted.request_masks(**asked)[0]
    reduced = drawn | island(answer & ~drawn, *RED)
    reduced &= ~island(drawn & ~answer, 250, 262)
    assert np.array_equal(painted.visible_mask(), reduced)
    assert not reduced[262, 250]

    expect(painted.page.locator("#saved")).to_have_text("Saved")
    painted.page.reload()
    painted.wait_encoded(painted.image)
    painted.select("object 1")
    assert np.array_equal(painted.visible_mask(), reduced)
    painted.press_button("Remove negative click at 250, 262")
    assert np.array_equal(painted.visible_mask(), extended)
    painted.press_button(f"Remove positive click at {RED[0]}, {RED[1]}")
    assert np.array_equal(painted.visible_mask(), drawn)
    for expected in (extended, reduced, extended, drawn):
        painted.press("Control+z")
        assert np.array_equal(painted.visible_mask(), expected)
    expect(painted.page.get_by_role("alertdialog")).to_be_hidden()

    choose(painted, "Brush")
    painted.drag((100, 30), (200, 30))
    stroked = painted.visible_mask()
    assert_stroke(drawn, stroked, ((100, 30), (200, 30)), radius(painted))
    choose(painted, "Click")
    painted.click(*RED)  # as before, on another mask
    assert painted.visible_mask()[stroked].all()
    assert painted.visible_mask()[RED[1], RED[0]]


def test_negative_click_on_an_outline_without_positive_clicks_is_asked_with_its_box(opened):
    opened.press("g")
    opened.drag((60, 90), (260, 230))
    opened.press("v")
    drawn, bodies = opened.visible_mask(), opened.answer("**/mobile_sam", {})
    ys, xs = np.nonzero(drawn)
    opened.page.mouse.move(*opened.screen_xy(240, 220))
    with opened.page.expect_response("**/mobile_sam"):  # ahead of the click
        opened.page.mouse.down(button="right")
    opened.page.mouse.up(button="right")
    opened.wait_idle()
    assert len(bodies) == 1
    assert bodies[-1]["box"] == [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
    assert bodies[-1]["neg_coords"] == [[240, 220]]
    answer = opened.request_masks(
        **{key: bodies[-1][key] for key in ("box", "neg_coords", "mask_input")}
    )[0]
    assert np.array_equal(opened.visible_mask(), drawn & ~island(drawn & ~answer, 240, 220))


def test_box_or_an_earlier_mark_on_an_edited_object_asks_before_replacing_it(painted):
    mask = painted.visible_mask()
    choose(painted, "Click")
    for change in (
        lambda: painted.drag((290, 80), (410, 220)),
        lambda: painted.page.locator(".marker").click(),
    ):
        change()
        expect(painted.page.get_by_role("alertdialog")).to_contain_text("edited by hand")
        answer(painted, "Cancel")
        assert np.array_equal(painted.visible_mask(), mask)
        expect(painted.page.locator(".marker")).to_have_count(1)
    painted.drag((290, 80), (410, 220))
    painted.press("Escape")
    assert np.array_equal(painted.visible_mask(), mask)

    painted.drag((290, 80), (410, 220))
    answer(painted, "Keep and add a new object")
    assert np.array_equal(painted.visible_mask("others"), mask)
    painted.assert_mask_is_the_apis(box=[290, 80, 410, 220])
    painted.press("Control+z")

    painted.drag((290, 80), (410, 220))
    answer(painted, "Replace")
    painted.assert_mask_is_the_apis(pos_coords=[DISC], box=[290, 80, 410, 220])
    painted.press("Control+z")
    assert np.array_equal(painted.visible_mask(), mask)


def points(driver):
    return driver.page.locator("#points .point")


def position(point) -> tuple[int, int]:
    """Return a point's image pixels, x then y, from its label."""
    x, y = point.get_attribute("aria-label").rpartition(" at ")[2].split(", ")
    return int(x), int(y)


def drag_handle(driver, handle, x: float, y: float) -> None:
    """Drag a handle of the polygon by so many image pixels."""
    box = handle.bounding_box()
    scale = driver.screen_xy(1, 0)[0] - driver.screen_xy(0, 0)[0]
    start = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    driver.page.mouse.move(*start)
    driver.page.mouse.down()
    driver.page.mouse.move(start[0] + x * scale, start[1] + y * scale, steps=3)
    driver.page.mouse.up()


def polygon_mask(corners: list[tuple[float, float]]) -> np.ndarray:
    """Return the pixels in a polygon, (H, W) bool."""
    polygon = [float(number) for corner in corners for number in corner]
    return np.asarray(coco_mask.decode(coco_mask.frPyObjects([polygon], 320, 480))[..., 0], bool)


@pytest.fixture
def outlined(opened):
    """The user with the outline of a large dot, painted by hand, as a polygon."""
    choose(opened, "Brush")
    opened.page.locator("#radius").fill("100")
    opened.click(*DISC)
    opened.press("g")
    return opened


def test_dragged_points_change_the_mask_and_other_edges_and_holes_stay(outlined):
    before, handles = outlined.visible_mask(), points(outlined)
    corners = [position(handle) for handle in handles.all()]
    top = min(range(len(corners)), key=lambda index: corners[index][1])
    drag_handle(outlined, handles.nth(top), 0, -40)
    assert position(handles.nth(top)) == pytest.approx(
        (corners[top][0], corners[top][1] - 40), abs=1
    )
    outlined.press_button("Apply")
    after = outlined.visible_mask()
    left, right = corners[top - 1], corners[(top + 1) % len(corners)]
    spike = polygon_mask([left, (corners[top][0], corners[top][1] - 40), right])
    assert differing(after, before | spike) < 60
    assert np.array_equal(after[170:], before[170:])
    expect(outlined.page.get_by_role("radio", name="Click")).to_be_checked()
    outlined.press("Control+z")
    assert np.array_equal(outlined.visible_mask(), before)

    choose(outlined, "Eraser")
    outlined.page.locator("#radius").fill("60")
    outlined.click(*DISC)
    ring = outlined.visible_mask()
    assert not ring[DISC[1], DISC[0]]
    outlined.press("g")
    drag_handle(outlined, points(outlined).first, -20, 0)
    outlined.press("n")  # applies the edits
    changed = outlined.visible_mask("others")
    assert not changed[DISC[1], DISC[0]]
    assert 0 < differing(changed, ring) < 800


def test_export_from_the_header_has_the_dragged_points(outlined):
    _, before = outlined.saved_annotation()
    drag_handle(outlined, points(outlined).first, -30, 0)
    _, saved = outlined.saved_annotation()
    assert differing(saved, before) > 50
    assert np.array_equal(saved, outlined.visible_mask())


def test_points_are_added_and_deleted_by_mouse_undone_and_discarded(outlined):
    before, handles = outlined.visible_mask(), points(outlined)
    count = handles.count()
    drag_handle(outlined, outlined.page.locator("#points .edge:visible").first, 30, 30)
    expect(handles).to_have_count(count + 1)
    handles.nth(2).click(modifiers=["Alt"])
    handles.nth(3).dblclick()
    expect(handles).to_have_count(count - 1)
    x, y = (
        sum(ends) / 2
        for ends in zip(position(handles.nth(5)), position(handles.nth(6)), strict=True)
    )
    outlined.page.mouse.dblclick(*outlined.screen_xy(x - 0.5, y - 0.5))
    expect(handles).to_have_count(count)
    for expected in (count - 1, count, count + 1):
        outlined.press("Control+z")
        expect(handles).to_have_count(expected)
    outlined.press_button("Redo")
    outlined.press("Escape")
    expect(handles).to_have_count(0)
    assert np.array_equal(outlined.visible_mask(), before)


def test_detail_changes_the_points_but_not_the_mask_and_keys_move_add_and_delete_points(outlined):
    before, count = outlined.visible_mask(), points(outlined).count()
    detail = outlined.page.get_by_label("Detail")
    detail.fill("8")
    assert points(outlined).count() > count
    detail.fill("0")
    assert 3 <= points(outlined).count() < count
    drag_handle(outlined, points(outlined).first, -30, 0)
    detail.fill("4")
    for _ in range(2):
        outlined.press("Control+z")
    outlined.press("v")
    assert np.array_equal(outlined.visible_mask(), before)

    outlined.press("g")
    page, handles = outlined.page, points(outlined)
    count = handles.count()
    page.locator("#view").focus()
    page.keyboard.press("Tab")
    x, y = position(handles.first)
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("ArrowUp")
    assert position(handles.first) == (x - 20, y - 1)
    page.keyboard.press("a")
    expect(handles).to_have_count(count + 1)
    expect(handles.nth(1)).to_be_focused()
    page.keyboard.press("Delete")
    expect(handles).to_have_count(count)
    outlined.press("Enter")
    assert outlined.visible_mask()[y, x - 12]
