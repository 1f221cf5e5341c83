"""Refine here: clicks on small objects are answered from the visible part of a large image."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from orchestrator.masks import upsample
from orchestrator.regions import rounded
from tests.browser.page_driver import BALL, BALL_RADIUS, BESIDE, LARGE_SIZE, PageDriver
from tests.browser.test_export import copied
from tests.browser.test_mending import choose
from tests.browser.test_project import reload


@pytest.fixture
def zoomed(driver: PageDriver, large: Path) -> PageDriver:
    """The user with `large` open, zoomed in to its disc."""
    driver.open(large)
    expect(driver.page.locator("#refine")).to_be_hidden()
    zoom_in(driver, BALL)
    return driver


def zoom_in(driver: PageDriver, pixel: tuple[float, float]) -> None:
    driver.page.mouse.move(*driver.screen_xy(*pixel))
    for _ in range(6):
        driver.page.mouse.wheel(0, -300)
    expect(driver.page.locator("#refine")).to_be_visible()


def iou_with_disc(mask: np.ndarray) -> float:
    ys, xs = np.mgrid[: LARGE_SIZE[1], : LARGE_SIZE[0]]
    truth = (xs - BALL[0]) ** 2 + (ys - BALL[1]) ** 2 <= (BALL_RADIUS + 0.5) ** 2
    return float((mask & truth).sum() / (mask | truth).sum())


def frame_of(driver: PageDriver) -> list[int]:
    """Return the frame of the selected object's part: x0, y0, x1, y1."""
    sides: list[float] = driver.page.locator("#part").evaluate(
        "({ style }) => [style.left, style.top, style.width, style.height].map(parseFloat)"
    )
    left, top, width, height = map(round, sides)
    return [left, top, left + width, top + height]


def test_small_object_is_better_when_refined_and_its_mask_is_that_of_the_region(zoomed):
    zoomed.click(*BALL)
    whole = zoomed.visible_mask()
    assert whole.any()
    bodies = zoomed.answer("**/mobile_sam", {})
    zoomed.press("f")
    zoomed.wait_for(lambda: any("multimask_output" not in body for body in bodies))
    zoomed.wait_idle()
    refined = zoomed.visible_mask()
    assert iou_with_disc(refined) > max(0.75, iou_with_disc(whole))

    (body,) = [body for body in bodies if "multimask_output" not in body]
    assert "input_image" not in body
    assert body["region"] == frame_of(zoomed) == list(rounded(body["region"], LARGE_SIZE[::-1]))
    smooth = {"min_mask_region_area": body["min_mask_region_area"]}
    zoomed.assert_mask_is_the_apis(pos_coords=[BALL], region=body["region"], **smooth)

    zoomed.press("Control+z")
    assert np.array_equal(zoomed.visible_mask(), whole)
    zoomed.press("Control+y")
    assert np.array_equal(zoomed.visible_mask(), refined)


def test_refined_object_survives_a_reload_and_is_exported(zoomed, large):
    zoomed.press_button("Refine here")
    zoomed.click(*BALL)
    refined = zoomed.visible_mask()
    reload(zoomed)
    zoomed.select("object 1")
    assert np.array_equal(zoomed.visible_mask(), refined)
    _, saved = zoomed.saved_annotation()
    assert np.array_equal(saved, refined)

    command = copied(zoomed, "Copy curl")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=large.parent,
        env=environment,
        capture_output=True,
        check=True,
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert np.array_equal(coco_mask.decode(answer["masks"][0]["rle"]).astype(bool), refined)
    assert answer["region"] == frame_of(zoomed)
    assert f"region={json.dumps(answer['region'], separators=(',', ':'))}" in copied(zoomed)


def test_further_clicks_use_the_part_or_outside_of_it_the_whole_image(zoomed):
    zoomed.press_button("Refine here")
    zoomed.click(*BALL)
    refined = zoomed.visible_mask()
    bodies = zoomed.answer("**/mobile_sam", {})
    zoomed.click(*BESIDE, button="right")
    assert bodies
    assert all("image_id" in body and "input_image" not in body for body in bodies)
    zoomed.press("Control+z")

    zoomed.press("0")
    expect(zoomed.page.locator("#refine")).to_be_hidden()
    expect(zoomed.page.locator("#hint")).to_contain_text("Zoomed out")
    assert np.array_equal(zoomed.visible_mask(), refined)
    zoomed.page.mouse.click(*zoomed.screen_xy(300, 300), button="right")
    expect(zoomed.page.locator("#hint")).to_contain_text("whole image")  # it ends after six seconds
    zoomed.wait_idle()
    zoomed.assert_mask_is_the_apis(pos_coords=[BALL], neg_coords=[(300, 300)])
    zoomed.press("Control+z")
    assert np.array_equal(zoomed.visible_mask(), refined)


def test_click_on_a_drawn_object_sends_what_was_drawn_in_the_part_and_keeps_the_rest(zoomed):
    near, far = (BALL[0] + 70, BALL[1]), (300, 300)
    choose(zoomed, "Brush")
    zoomed.click(*near)
    zoomed.press("0")
    zoomed.click(*far)
    drawn = zoomed.visible_mask()
    choose(zoomed, "Click")
    zoom_in(zoomed, BALL)
    zoomed.press_button("Refine here")
    bodies = zoomed.answer("**/mobile_sam", {})
    zoomed.click(*BALL)
    left, top, right, bottom = frame_of(zoomed)
    width, height = right - left, bottom - top
    sent = np.load(io.BytesIO(base64.b64decode(bodies[-1]["mask_input"])))
    scale = 1024 / max(width, height)
    placed = upsample(sent, (round(height * scale), round(width * scale)), (height, width)) > 0
    part = drawn[top : top + height, left : left + width]
    assert (placed & part).sum() / (placed | part).sum() > 0.85
    mask = zoomed.visible_mask()
    assert (mask & drawn).sum() == drawn.sum()
    assert iou_with_disc(mask & ~drawn) > 0.6

    zoomed.click(*near, button="right")
    mask = zoomed.visible_mask()
    assert not mask[near[1], near[0]]
    assert mask[far[1], far[0]]
    assert mask[BALL[1], BALL[0]]
