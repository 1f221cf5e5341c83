"""Phones and zoom."""

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.person import DISC

PHONE = {"viewport": {"width": 393, "height": 727}, "device_scale_factor": 2.75, "is_mobile": True, "has_touch": True}


@pytest.fixture
def phone(open_page, photo):
    """A user with the photo open on a phone."""
    with open_page(**PHONE) as person:
        person.open(photo)
        person.press_button("Dismiss this note")  # on the built-in weights; it takes some of the screen
        yield person


def test_tap_on_a_phone_is_a_click(phone):
    phone.page.touchscreen.tap(*phone.screen_xy(*DISC))
    phone.wait_idle()
    phone.assert_mask_is_the_apis(pos_coords=[DISC])
    expect(phone.page.locator(".marker")).to_have_count(1)
    phone.press_button("New")
    for x in (340, 350, 360):
        phone.page.touchscreen.tap(*phone.screen_xy(x, 150))
        phone.wait_idle()
    assert phone.page.evaluate("window.scrollY") == 0
    wide, screen = phone.page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide == screen
    for button in phone.page.locator("#tools button:visible, #panel button:visible").all():
        box = button.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= screen


def test_pinch_zooms_about_the_midpoint(phone):
    x, y = phone.screen_xy(240, 160)

    def touch(kind: str, *offsets: float) -> None:
        phone.touch(kind, *((x + offset, y) for offset in offsets))

    def width():
        return phone.screen_xy(340, 160)[0] - phone.screen_xy(140, 160)[0]

    touch("touchStart", -40, 40)
    for offset in (50, 60, 70, 80):
        touch("touchMove", -offset, offset)
    touch("touchEnd")
    assert phone.screen_xy(240, 160) == pytest.approx((x, y), abs=3)
    zoomed = width()
    phone.page.locator("#zoom-fit").click()
    assert zoomed / width() == pytest.approx(2, rel=0.1)
    assert not phone.visible_mask().any()


def test_clicks_hit_their_pixel_after_zoom_and_pan(opened):
    opened.page.mouse.move(*opened.screen_xy(*DISC))
    before = opened.screen_xy(*DISC)
    opened.page.mouse.wheel(0, -600)
    assert opened.screen_xy(*DISC) == pytest.approx(before, abs=2)
    opened.page.locator("#view").focus()
    opened.page.keyboard.down("Space")
    x, y = opened.screen_xy(*DISC)
    opened.page.mouse.down()
    opened.page.mouse.move(x + 60, y - 30)
    opened.page.mouse.up()
    opened.page.keyboard.up("Space")
    assert opened.screen_xy(*DISC) == pytest.approx((x + 60, y - 30), abs=2)
    opened.click(*DISC)
    opened.assert_mask_is_the_apis(pos_coords=[DISC])
    opened.page.keyboard.press("0")
    assert opened.screen_xy(*DISC) == pytest.approx(before, abs=2)


def test_phone_shows_a_large_image_the_progress_and_no_texts_on_keys(open_page, tmp_path):
    Image.new("RGB", (300, 600), (96, 140, 190)).save(tmp_path / "portrait.png")
    with open_page(**{**PHONE, "viewport": {"width": 390, "height": 844}}) as person:
        page = person.page
        expect(page.get_by_text("Drop an image here")).to_be_hidden()
        person.open(tmp_path / "portrait.png")
        assert person.screen_xy(0, 600)[1] - person.screen_xy(0, 0)[1] >= 0.55 * 844
        page.get_by_role("button", name="Help and shortcuts").click()
        expect(page.get_by_role("dialog").get_by_text("two fingers")).to_be_visible()
        expect(page.get_by_role("dialog").locator("kbd:visible")).to_have_count(0)
        page.keyboard.press("Escape")
        held = person.hold("**/everything")
        page.get_by_role("button", name="Start").click()
        person.wait_for(lambda: bool(held))
        page.evaluate("window.scrollTo(0, 0)")
        expect(page.get_by_role("progressbar")).to_be_in_viewport()
        page.get_by_role("button", name="Stop").tap()
        expect(page.get_by_role("progressbar")).to_be_hidden()
