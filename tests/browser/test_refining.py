"""Refine here: clicks on small objects are answered from the visible part of a large image."""

import base64
import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect
from pycocotools import mask as coco_mask

from orchestrator.masks import upsample
from tests.browser.person import BALL, BALL_RADIUS, BESIDE, LARGE_SIZE, Person
from tests.browser.test_copies import open_refused
from tests.browser.test_export import copied
from tests.browser.test_mending import choose
from tests.browser.test_project import reload


@pytest.fixture
def zoomed(person: Person, large: Path) -> Person:
    """The user with `large` open, zoomed in to its disc."""
    person.open(large)
    expect(person.page.locator("#refine")).to_be_hidden()
    zoom_in(person, BALL)
    return person


def zoom_in(person: Person, pixel: tuple[float, float]) -> None:
    person.page.mouse.move(*person.screen_xy(*pixel))
    for _ in range(6):
        person.page.mouse.wheel(0, -300)
    expect(person.page.locator("#refine")).to_be_visible()


def iou_with_disc(mask: np.ndarray) -> float:
    ys, xs = np.mgrid[: LARGE_SIZE[1], : LARGE_SIZE[0]]
    truth = (xs - BALL[0]) ** 2 + (ys - BALL[1]) ** 2 <= (BALL_RADIUS + 0.5) ** 2
    return float((mask & truth).sum() / (mask | truth).sum())


def sent_image(body: dict) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(body["input_image"].split(",")[1])))


def mask_of_part(person: Person, part: Image.Image, body: dict) -> np.ndarray:
    """Request the mask of a part as a separate image."""
    person.image = person.image.with_name("part.png")
    part.save(person.image)
    mask: np.ndarray = person.request_masks(**{name: body[name] for name in ("pos_coords", "min_mask_region_area")})[0]
    return mask


def frame_of(person: Person) -> list[int]:
    """Return the frame of the selected object's part: left, top, width, height."""
    sides: list[float] = person.page.locator("#part").evaluate(
        "({ style }) => [style.left, style.top, style.width, style.height].map(parseFloat)"
    )
    return [round(side) for side in sides]


def test_small_object_is_better_when_refined_and_its_mask_lies_exactly_where_the_service_found_it(zoomed, large):
    zoomed.click(*BALL)
    whole = zoomed.visible_mask()
    bodies = zoomed.answer("**/mobile_sam", {})
    zoomed.press("f")
    refined = zoomed.visible_mask()
    assert iou_with_disc(refined) > max(0.75, iou_with_disc(whole))

    (body,) = [body for body in bodies if "multimask_output" not in body]
    part, [[x, y]] = sent_image(body), body["pos_coords"]
    left, top = BALL[0] - round(x), BALL[1] - round(y)
    with Image.open(large) as picture:
        crop = picture.crop((left, top, left + part.width, top + part.height))
        assert np.array_equal(np.array(part.convert("RGB")), np.array(crop))
    expected = np.zeros_like(refined)
    expected[top : top + part.height, left : left + part.width] = mask_of_part(zoomed, part, body)
    assert np.array_equal(refined, expected)

    zoomed.press("Control+z")
    assert np.array_equal(zoomed.visible_mask(), whole)
    zoomed.press("Control+y")
    assert np.array_equal(zoomed.visible_mask(), refined)


def test_refined_object_survives_a_reload_and_is_exported(zoomed, large):
    zoomed.press_button("Refine here")
    zoomed.click(*BALL)
    refined = zoomed.visible_mask()
    reload(zoomed)
    assert np.array_equal(zoomed.visible_mask(), refined)
    _, saved = zoomed.saved_annotation()
    assert np.array_equal(saved, refined)

    left, top, width, height = frame_of(zoomed)
    part = refined[top : top + height, left : left + width]
    command = copied(zoomed, "Copy curl")
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", command], cwd=large.parent, env=environment, capture_output=True, check=True, timeout=60
    )
    assert np.array_equal(coco_mask.decode(json.loads(done.stdout)["masks"][0]["rle"]).astype(bool), part)
    note = f"# This mask covers a part of the image. The part's first pixel is ({left}, {top})."
    assert note in copied(zoomed)


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
    zoomed.click(300, 300, button="right")
    expect(zoomed.page.locator("#hint")).to_contain_text("whole image")
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
    left, top, width, height = frame_of(zoomed)
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


def test_part_of_a_copy_is_cut_from_the_original(open_page, large):
    limits = {"max_body_bytes": 32_000_000, "max_image_pixels": 1_000_000, "max_objects": 256}
    with open_page(info={"limits": limits}) as person:
        open_refused(person, large, "Open a copy of 1 megapixels")
        scale = (960_000 / (LARGE_SIZE[0] * LARGE_SIZE[1])) ** 0.5
        ball = ((BALL[0] + 0.5) * scale - 0.5, (BALL[1] + 0.5) * scale - 0.5)
        zoom_in(person, ball)
        bodies = person.answer("**/mobile_sam", {})
        person.press_button("Refine here")
        person.click(*ball)
        part, (left, top, width, height) = sent_image(bodies[0]), frame_of(person)
        assert part.size == pytest.approx((width / scale, height / scale), abs=1)
        shown, found = person.visible_mask(), mask_of_part(person, part, bodies[0])
        rows, columns = (
            ((np.arange(length) + 0.5) * full / length).astype(int)
            for length, full in zip((height, width), found.shape, strict=True)
        )
        assert np.array_equal(shown[top : top + height, left : left + width], found[np.ix_(rows, columns)])
        assert shown.sum() == found[np.ix_(rows, columns)].sum() > 0
