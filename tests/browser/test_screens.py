"""Phones, narrow windows and zoom."""

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.page_driver import DISC, RED

SIZE = {"width": 393, "height": 727}
PHONE = {"viewport": SIZE, "device_scale_factor": 2.75, "is_mobile": True, "has_touch": True}


# Centres of buttons and inputs of the toolbar that are covered, or not on the screen.
UNREACHABLE = """() => [...document.querySelectorAll("#tools button, #tools label")].filter((control) => {
  const box = control.getBoundingClientRect(), x = box.x + box.width / 2, y = box.y + box.height / 2;
  return box.width && !control.contains(document.elementFromPoint(x, y));
}).map((control) => control.outerHTML)"""


@pytest.fixture
def phone(open_page, photo):
    """A user with the photo open on a phone."""
    with open_page(**PHONE) as driver:
        driver.open(photo)
        # On the built-in weights; it takes some of the screen.
        driver.press_button("Dismiss this note")
        yield driver


def test_pinch_zooms_about_the_midpoint_and_a_tap_is_a_click(phone):
    x, y = phone.screen_xy(240, 160)
    fit = phone.page.locator("#zoom-fit").inner_text()
    for kind, offset in (("touchStart", 40), *(("touchMove", at) for at in (50, 60, 70, 80))):
        phone.touch(kind, (x - offset, y), (x + offset, y))
    phone.touch("touchEnd")
    assert phone.screen_xy(240, 160) == pytest.approx((x, y), abs=3)
    scales = [
        int(text.removesuffix(" %")) for text in (phone.page.locator("#zoom-fit").inner_text(), fit)
    ]
    assert scales[0] / scales[1] == pytest.approx(2, rel=0.1)
    assert not phone.visible_mask().any()

    phone.press("0")
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


def test_phone_shows_a_large_image_the_progress_and_no_texts_on_keys(phone, tmp_path):
    Image.new("RGB", (300, 600), (96, 140, 190)).save(tmp_path / "portrait.png")
    page = phone.page
    phone.open(tmp_path / "portrait.png")
    assert phone.screen_xy(0, 600)[1] - phone.screen_xy(0, 0)[1] >= 0.45 * SIZE["height"]
    page.get_by_role("button", name="Help and shortcuts").click()
    expect(page.get_by_role("dialog").get_by_text("two fingers")).to_be_visible()
    expect(page.get_by_role("dialog").locator("kbd:visible")).to_have_count(0)
    page.keyboard.press("Escape")
    held = phone.hold("**/everything")
    page.get_by_role("button", name="Start").click()
    phone.wait_for(lambda: bool(held))
    page.evaluate("window.scrollTo(0, 0)")
    expect(page.get_by_role("progressbar")).to_be_in_viewport()
    page.get_by_role("button", name="Stop").tap()
    expect(page.get_by_role("progressbar")).to_be_hidden()


def test_toolbar_is_whole_in_a_narrow_window(clicked):
    view, tools = clicked.page.locator("#view"), clicked.page.locator("#tools")
    for width in (1280, 1040, 980, 780, 700):
        clicked.page.set_viewport_size({"width": width, "height": 700})
        for key in "rgv":
            clicked.press(key)
            outer, inner = view.bounding_box(), tools.bounding_box()
            assert outer["x"] <= inner["x"], width
            assert inner["x"] + inner["width"] <= outer["x"] + outer["width"], width
            assert clicked.page.evaluate(UNREACHABLE) == [], width


def test_names_of_objects_are_not_cut_off_by_class_score_or_proposal(clicked):
    page = clicked.page
    clicked.add_class("class of a long name")
    clicked.click(*RED, keys=("Shift",))
    for key in ("Control+c", "Control+v"):  # a mask by hand
        clicked.press(key)
    for number, name in ((2, "traffic light no. 39"), (3, "traffic light no. 40 on the left")):
        page.get_by_label(f"Name of object {number}").fill(name)
        page.keyboard.press("Enter")
    clicked.segment_everything()
    fields = page.locator("#objects .name")
    assert fields.count() > 3
    cut_off = (
        "fields => fields.filter((field) => field.scrollWidth > field.clientWidth).map(({ title })"
        " => title)"
    )
    for width in (1280, 900, 390):
        page.set_viewport_size({"width": width, "height": 800})
        titles = fields.evaluate_all(cut_off)
        assert titles in ([], ["traffic light no. 40 on the left"]), width  # that name has a title
        assert page.evaluate("document.documentElement.scrollWidth") <= width
