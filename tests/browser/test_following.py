"""Follow: objects on the next image of a series, where the model finds them."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from benchmarks.objects import iou
from tests.browser.page_driver import PageDriver
from tests.e2e.test_command_line import mobile_sam

FRAMES, LAST_WITH_BOX = 12, 6
SIZE = (480, 320)
RADIUS = 45
MIN_IOU = 0.85


def disc_at(number: int) -> tuple[int, int]:
    """Return the centre of the disc on a frame."""
    return 90 + 14 * number, 110 + 6 * number


def box_at(number: int) -> tuple[int, int]:
    """Return the upper left corner of the box on a frame."""
    return 380 - 9 * number, 40 + 2 * number


def frame(number: int) -> Image.Image:
    """Return a frame: a yellow disc that moves, and a red box that is gone at last."""
    noise = np.random.default_rng(number).normal(0, 3, (SIZE[1], SIZE[0], 3))
    picture = Image.fromarray((np.array([96, 140, 190]) + noise).clip(0, 255).astype(np.uint8))
    draw = ImageDraw.Draw(picture)
    if number <= LAST_WITH_BOX:
        x, y = box_at(number)
        draw.rectangle([x, y, x + 70, y + 60], fill=(190, 50, 45))
    x, y = disc_at(number)
    draw.ellipse([x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS], fill=(235, 200, 60))
    return picture


def disc(number: int) -> np.ndarray:
    """Return the mask of the disc on a frame, (H, W) bool."""
    xs, ys = np.meshgrid(np.arange(SIZE[0]), np.arange(SIZE[1]))
    x, y = disc_at(number)
    return np.asarray(np.hypot(xs - x, ys - y) <= RADIUS)


@pytest.fixture
def series(driver: PageDriver, tmp_path: Path) -> PageDriver:
    """The user with a series of frames, a disc and a box labelled on the first one."""
    paths = [tmp_path / f"{number:02}.png" for number in range(FRAMES)]
    for number, path in enumerate(paths):
        frame(number).save(path)
    driver.page.set_input_files("#file", paths)
    expect(driver.page.locator("#image-list li")).to_have_count(FRAMES)
    driver.wait_encoded(paths[0])
    driver.click(*disc_at(0))
    driver.page.get_by_label("Name of object 1").fill("ball")
    driver.page.keyboard.press("Enter")
    driver.page.get_by_role("application").focus()
    x, y = box_at(0)
    driver.click(x + 35, y + 30, keys=("Shift",))
    return driver


def follow(series: PageDriver, number: int) -> None:
    """Follow to the frame with this number."""
    series.press("l")
    series.expect_image(f"{number:02}.png")
    expect(series.page.locator("#hint")).to_contain_text("followed")
    series.wait_idle()


def test_objects_are_followed_over_twelve_images_and_a_lost_one_is_marked(series):
    review = series.page.get_by_role("button", name=re.compile("^Review "))
    for number in range(1, FRAMES):
        follow(series, number)
        if number == LAST_WITH_BOX + 1:
            expect(series.page.locator("#hint")).to_contain_text("2 objects followed, 1 to review")
        elif number == LAST_WITH_BOX + 2:
            hint = series.page.locator("#hint")
            expect(hint).to_contain_text("1 object followed, none to review; 1 left behind")
        series.select("ball")
        assert iou(series.visible_mask(), disc(number)) > MIN_IOU, number
        expect(review).to_have_count(1 if number == LAST_WITH_BOX + 1 else 0)


def test_review_ends_by_the_button_by_a_change_and_returns_with_undo(series):
    for number in range(1, LAST_WITH_BOX + 2):
        follow(series, number)
    review = series.page.get_by_role("button", name=re.compile("^Review "))
    expect(review).to_have_attribute("title", re.compile("Following is in doubt: .*"))
    assert series.export("yolo")
    expect(series.page.locator("#report-list li")).to_have_text(
        "07.png: 1 object to review. Following is in doubt: masks may be wrong"
    )
    review.click()
    expect(review).to_have_count(0)
    assert series.export("yolo")
    expect(series.page.locator("#report")).to_be_hidden()
    series.page.get_by_role("application").focus()
    series.press("Control+z")
    expect(review).to_have_count(1)
    lost = series.page.locator("#objects li").filter(has=review)
    lost.locator(".pick").click()
    series.press("r")
    series.drag((20, 20), (40, 24))
    expect(review).to_have_count(0)


def test_follow_waits_for_masks_that_are_on_their_way(series):
    held = series.hold("**/mobile_sam")
    series.press("n")
    series.page.mouse.click(*series.screen_xy(30, 290))
    series.wait_for(lambda: bool(held))
    series.page.keyboard.press("l")
    series.page.wait_for_timeout(300)
    series.expect_image("00.png")
    expect(series.page.locator("#hint")).not_to_contain_text("followed")
    series.answer("**/mobile_sam", {})  # more requests follow the answer at once
    held.pop().continue_()
    series.expect_image("01.png")
    expect(series.page.locator("#hint")).to_contain_text("3 objects followed")


def test_objects_that_the_next_image_has_already_are_not_followed_again(series):
    follow(series, 1)
    series.press("a")
    series.expect_image("00.png")
    follow(series, 1)
    expect(series.page.locator("#hint")).to_have_text(
        "0 objects followed, none to review; 2 were there already"
    )
    expect(series.page.locator("#image-list .count").nth(1)).to_have_text("2")


def test_objects_are_followed_on_images_of_16_bits(driver, tmp_path):
    paths = [tmp_path / f"{number:02}.png" for number in range(2)]
    for number, path in enumerate(paths):
        grey = np.array(frame(number).convert("L"), np.uint16)
        Image.fromarray(grey * 4 + 500).save(path)
    driver.page.set_input_files("#file", paths)
    expect(driver.page.locator("#image-list li")).to_have_count(2)
    driver.wait_encoded(paths[0])
    driver.click(*disc_at(0))
    follow(driver, 1)
    assert iou(driver.visible_mask("others"), disc(1)) > MIN_IOU


def test_following_that_failed_is_not_repeated_on_another_image(series):
    series.press("d")
    series.expect_image("01.png")
    series.click(*disc_at(1))
    series.press("a")
    series.expect_image("00.png")
    for path in ("**/embed", "**/readyz"):
        series.page.route(path, lambda route: route.abort())
    series.press("l")
    alert = series.page.get_by_role("alert")
    expect(alert).to_be_visible()
    series.press("d")
    series.expect_image("01.png")
    for path in ("**/embed", "**/readyz"):
        series.page.unroute(path)
    expect(alert).to_be_hidden()
    series.wait_encoded(series.image.with_name("01.png"))
    series.page.wait_for_timeout(1000)
    series.expect_image("01.png")


def test_image_that_is_chosen_while_objects_are_followed_stays(series):
    held = series.hold("**/embed")
    series.page.keyboard.press("l")
    series.wait_for(lambda: bool(held))
    series.page.locator("#image-list li").nth(4).get_by_role("button").first.click()
    series.expect_image("04.png")
    series.answer("**/embed", {})
    for route in held:
        route.continue_()
    series.wait_encoded(series.image.with_name("04.png"))
    series.expect_image("04.png")
    expect(series.page.locator("#image-list .count").nth(1)).to_have_text("")


def test_mark_of_review_survives_a_merge(series, tmp_path):
    for number in range(1, LAST_WITH_BOX + 2):
        follow(series, number)
    series.press_button("Export")
    (tmp_path / "project.zip").write_bytes(series.save("Save project"))
    review = series.page.get_by_role("button", name=re.compile("^Review "))
    series.page.locator("#objects li").filter(has=review).locator(".pick").click()
    series.page.get_by_role("application").focus()
    series.press("Delete")
    expect(review).to_have_count(0)
    series.page.set_input_files("#annotations", tmp_path / "project.zip")
    dialog = series.page.get_by_role("dialog", name="Merge projects")
    dialog.get_by_role("button", name="Apply").click()
    expect(review).to_have_count(1)


def test_marks_of_review_survive_a_reload(series):
    for number in range(1, LAST_WITH_BOX + 2):
        follow(series, number)
    expect(series.page.locator("#saved")).to_have_text("Saved")
    series.page.reload()
    series.expect_image(f"{LAST_WITH_BOX + 1:02}.png")
    expect(series.page.get_by_role("button", name=re.compile("^Review "))).to_have_count(1)


def test_masks_that_the_command_doubts_are_marked_in_the_page(series, tmp_path):
    series.wait_idle()
    series.press_button("Export")
    (tmp_path / "project.zip").write_bytes(series.save("Save project"))
    options = ("--from", "project.zip", "--out", "found", "--url", series.server.url)
    done = mobile_sam(tmp_path, "follow", ".", *options)
    assert done.returncode == 0, done.stderr
    review = series.page.get_by_role("button", name=re.compile("^Review "))
    expect(review).to_have_count(0)
    series.page.set_input_files("#annotations", tmp_path / "found" / "review.json")
    expect(series.page.locator("#hint")).to_contain_text("added")
    series.page.locator("#image-list li").nth(LAST_WITH_BOX + 1).get_by_role("button").first.click()
    series.expect_image(f"{LAST_WITH_BOX + 1:02}.png")
    expect(review).to_have_count(1)
    expect(review).to_have_attribute("title", re.compile("Following is in doubt: .*"))


def test_follow_says_why_it_cannot(series, tmp_path):
    Image.new("RGB", (300, 200)).save(tmp_path / "other.png")
    series.page.set_input_files("#file", tmp_path / "other.png")
    view = series.page.get_by_role("application")
    expect(view).to_have_attribute("aria-label", "other.png, 300 by 200 pixels")
    hint = series.page.locator("#hint")
    series.press("l")
    expect(hint).to_have_text("This is the last image of the list")
    series.press("a")
    series.expect_image(f"{FRAMES - 1:02}.png")
    series.press("l")
    expect(hint).to_have_text("This image has no objects to follow")
    series.click(*disc_at(FRAMES - 1))
    series.press("l")
    expect(hint).to_have_text("Nothing followed: the next image has another size, 300 x 200")
