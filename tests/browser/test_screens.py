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


WIDTHS = (*range(320, 1000, 20), *range(1000, 1921, 80))
SHORT = ((844, 390), (932, 430), (1024, 600), (320, 568))
"""Screens of phones that lie, of small laptops, and of the smallest phones."""
# Controls of the header and of a section that a pointer cannot reach without scrolling.
HIDDEN_CONTROLS = """(section) => [...document.querySelectorAll(`header :is(a, button), ${section}`)]
  .filter((control) => {
    const box = control.getBoundingClientRect();
    const at = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    return control.checkVisibility() && !control.contains(at);
  }).map((control) => control.outerHTML)"""
SHARE_OF_STAGE = "document.getElementById('stage').clientHeight / innerHeight"
MAIN_WIDTH = "document.documentElement.scrollWidth"


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


def sizes() -> list[dict[str, int]]:
    """Return sizes of windows."""
    windows = [*((width, 800) for width in WIDTHS), *SHORT]
    return [{"width": width, "height": height} for width, height in windows]


def test_empty_page_offers_images_in_every_window(driver):
    for size in sizes():
        driver.page.set_viewport_size(size)
        assert driver.page.evaluate(HIDDEN_CONTROLS, "#choose") == [], size
        assert driver.page.evaluate(SHARE_OF_STAGE) > 0.6, size
        assert driver.page.evaluate(MAIN_WIDTH) <= size["width"], size


def test_image_and_controls_are_on_the_screen_in_every_window(clicked):
    clicked.press_button("Dismiss this note")
    for size in sizes():
        clicked.page.set_viewport_size(size)
        assert clicked.page.evaluate(HIDDEN_CONTROLS, "#tools button, #tools label") == [], size
        assert clicked.page.evaluate(HIDDEN_CONTROLS, "#images > .row button") == [], size
        least = 0.66 if size["width"] <= 760 else 0.6
        assert clicked.page.evaluate(SHARE_OF_STAGE) > least, size
        assert clicked.page.evaluate(MAIN_WIDTH) <= size["width"], size


def test_export_dialog_fits_a_phone(phone):
    phone.press_button("Export")
    dialog = phone.page.get_by_role("dialog", name="Export")
    assert dialog.evaluate("one => one.scrollWidth <= one.clientWidth")
    for control in dialog.locator("button, input:not([type=hidden]), select").all():
        box = control.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= SIZE["width"]


def test_phone_has_the_classes_in_reach_of_the_thumb(phone):
    for name in ("boat", "balloon"):
        phone.press_button("Class")
        phone.page.keyboard.type(name)
        phone.page.keyboard.press("Enter")
    phone.page.evaluate("window.scrollTo(0, 0)")
    keys = phone.page.locator(".class-key")
    for key in keys.all():
        key.scroll_into_view_if_needed()
        box = key.bounding_box()
        assert box["y"] > SIZE["height"] / 2
        assert box["y"] + box["height"] <= SIZE["height"]
    assert phone.page.evaluate("window.scrollY") == 0
    keys.nth(1).tap()
    expect(keys.nth(1)).to_have_attribute("aria-pressed", "true")


def test_open_image_is_whole_in_the_list_of_every_window(driver, tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(9)]
    for number, path in enumerate(paths):
        Image.new("RGB", (480, 320), (20 * number, 140, 190)).save(path)
    driver.page.set_input_files("#file", paths)
    expect(driver.page.locator("#image-list li")).to_have_count(len(paths))
    driver.wait_encoded(paths[0])
    at = 0
    for size in sizes()[::4]:
        driver.page.set_viewport_size(size)
        at = min(at + 4, len(paths) - 1) - 1
        for key in "dddda":
            driver.press(key)
        driver.expect_image(paths[at].name)
        driver.wait_for(lambda: is_open_image_whole(driver))  # the list scrolls in a later frame


def is_open_image_whole(driver) -> bool:
    """Return whether the list shows all of the open image."""
    shown, frame = (
        driver.page.locator(name).bounding_box()
        for name in ("#image-list [aria-current]", "#image-list")
    )
    return all(
        shown[side] >= frame[side] - 1
        and shown[side] + shown[extent] <= frame[side] + frame[extent] + 1
        for side, extent in (("x", "width"), ("y", "height"))
    )


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
