"""Phones, zoom and large images."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.person import Person, request_masks

PHONE = {"viewport": {"width": 393, "height": 727}, "device_scale_factor": 2.75, "is_mobile": True, "has_touch": True}


def test_tap_on_a_phone_is_a_click(browser, builtin_server, photo):
    with Person.open_page(browser, builtin_server, **PHONE) as person:
        person.open(photo)
        person.page.touchscreen.tap(*person.screen_xy(150, 160))
        person.wait_idle()
        assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[[150, 160]])[0])
        expect(person.page.locator(".marker")).to_have_count(1)
        person.press_button("New")
        for x in (340, 350, 360):
            person.page.touchscreen.tap(*person.screen_xy(x, 150))
            person.wait_idle()
        assert person.page.evaluate("window.scrollY") == 0
        wide, screen = person.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        assert wide == screen
        for button in person.page.locator("#tools button:visible, #panel button:visible").all():
            box = button.bounding_box()
            assert box
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= screen


def test_pinch_zooms_about_the_midpoint(browser, builtin_server, photo):
    with Person.open_page(browser, builtin_server, **PHONE) as person:
        person.open(photo)
        session = person.page.context.new_cdp_session(person.page)
        x, y = person.screen_xy(240, 160)

        def touch(kind: str, offset: float) -> None:
            points = (
                [] if kind == "touchEnd" else [{"x": x - offset, "y": y, "id": 0}, {"x": x + offset, "y": y, "id": 1}]
            )
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        touch("touchStart", 40)
        for offset in (50, 60, 70, 80):
            touch("touchMove", offset)
        touch("touchEnd", 0)
        assert person.screen_xy(240, 160) == pytest.approx((x, y), abs=3)
        left, right = person.screen_xy(140, 160)[0], person.screen_xy(340, 160)[0]
        person.page.locator("#zoom-fit").click()
        fitted = person.screen_xy(340, 160)[0] - person.screen_xy(140, 160)[0]
        assert (right - left) / fitted == pytest.approx(2, rel=0.1)
        assert not person.visible_mask().any()


def test_clicks_hit_their_pixel_after_zoom_and_pan(person, builtin_server, photo):
    person.open(photo)
    person.page.mouse.move(*person.screen_xy(150, 160))
    before = person.screen_xy(150, 160)
    person.page.mouse.wheel(0, -600)
    assert person.screen_xy(150, 160) == pytest.approx(before, abs=2)
    person.page.locator("#view").focus()
    person.page.keyboard.down("Space")
    x, y = person.screen_xy(150, 160)
    person.page.mouse.down()
    person.page.mouse.move(x + 60, y - 30)
    person.page.mouse.up()
    person.page.keyboard.up("Space")
    assert person.screen_xy(150, 160) == pytest.approx((x + 60, y - 30), abs=2)
    person.click(150, 160)
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[[150, 160]])[0])
    person.page.keyboard.press("0")
    assert person.screen_xy(150, 160) == pytest.approx(before, abs=2)


def test_large_image_is_painted_reduced_and_saved_in_full(person, builtin_server, tmp_path):
    picture = Image.new("RGB", (3000, 2400), (96, 140, 190))
    ImageDraw.Draw(picture).ellipse([800, 700, 1800, 1700], fill=(235, 200, 60))
    picture.save(tmp_path / "large.png")
    person.open(tmp_path / "large.png")
    person.click(1300, 1200)
    mask = request_masks(builtin_server, tmp_path / "large.png", pos_coords=[[1300, 1200]])[0]
    assert np.array_equal(person.visible_mask(), mask[::2, ::2])
    saved = tmp_path / "mask.png"
    saved.write_bytes(person.save("Mask PNG"))
    assert np.array_equal(np.array(Image.open(saved).convert("L")) == 255, mask)
