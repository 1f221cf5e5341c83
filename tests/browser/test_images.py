"""Opening images: samples, files, drag and drop, clipboard; large images."""

import base64
import io
import re

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.page_driver import DISC
from utils.page import FOLDER

TRANSFER_FILE = """([event, type, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const transferEvent = event === "paste"
    ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true })
    : new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.body.dispatchEvent(transferEvent);
}"""


def transfer_file(
    driver, event: str, data: bytes, name: str = "scene.png", kind: str = "image/png"
) -> None:
    driver.page.evaluate(TRANSFER_FILE, [event, kind, name, base64.b64encode(data).decode()])


def test_pasted_or_dropped_image_a_bmp_and_a_rotated_jpeg_are_opened_as_displayed(
    driver, photo, tmp_path
):
    for event in ("paste", "drop"):
        driver.page.locator("#about").evaluate("about => about.textContent = ''")
        transfer_file(driver, event, photo.read_bytes())
        driver.wait_encoded(photo)
        driver.click(*DISC)
        driver.assert_mask_is_the_apis(pos_coords=[DISC])

    with Image.open(photo) as picture:
        picture.save(tmp_path / "scene.bmp")
        exif = Image.Exif()
        exif[0x0112] = 6  # rotate by 90° clockwise for display
        picture.rotate(90, expand=True).save(
            tmp_path / "turned.jpg", quality=95, exif=exif.tobytes()
        )
    driver.open(tmp_path / "scene.bmp")
    driver.click(*DISC)
    driver.image = photo
    driver.assert_mask_is_the_apis(pos_coords=[DISC])
    driver.open(tmp_path / "turned.jpg")
    driver.click(*DISC)
    mask = driver.visible_mask()
    assert mask.shape == (320, 480)
    assert mask[DISC[1], DISC[0]]
    assert not mask[20, 20]


def test_samples_have_thumbnails_and_are_opened(driver):
    thumbnails = driver.page.locator("#samples img")
    expect(thumbnails).to_have_count(len(list((FOLDER / "samples").iterdir())))
    for thumbnail in thumbnails.all():
        driver.wait_for(lambda: thumbnail.evaluate("image => image.naturalWidth") > 0)  # noqa: B023
    driver.press_button("Still life")
    driver.page.wait_for_selector("#about:not(:empty)")
    with Image.open(FOLDER / "samples" / "still-life.jpg") as sample:
        label = f"still-life.jpg, {sample.width} by {sample.height} pixels"
    expect(driver.page.get_by_role("application")).to_have_attribute("aria-label", label)


def test_latest_of_two_requested_images_is_opened(driver, photo):
    held = driver.hold("**/still-life.jpg")
    driver.press_button("Still life")
    driver.wait_for(lambda: bool(held))
    expect(driver.page.locator("#busy")).to_have_text("Loading the image")
    driver.open(photo)
    driver.click(*DISC)
    held.pop().continue_()
    driver.page.wait_for_timeout(300)
    assert driver.visible_mask().shape == (320, 480)
    assert driver.visible_mask()[DISC[1], DISC[0]]


def test_file_is_added_although_another_one_is_opened_meanwhile(driver, large, photo):
    for file in (large, photo):
        driver.page.set_input_files("#file", file)
    driver.expect_image("scene.png")
    expect(driver.page.locator("#image-list li")).to_have_count(2)


def test_dropped_link_does_not_navigate(modules):
    assert modules.evaluate(
        "() => !document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: new"
        " DataTransfer(), bubbles: true, cancelable: true }))"
    )


def test_files_that_cannot_be_added_are_listed_with_reason_and_remedy_until_the_list_is_dismissed(
    driver, photo
):
    large = io.BytesIO()
    Image.new("1", (6000, 5000)).save(large, "PNG")
    files = [
        ("a.png", "image/png", photo.read_bytes()),
        (
            "b.heic",
            "",
            photo.read_bytes(),
        ),  # a browser that reads HEIC finds out by the content, as with PNG
        ("broken.png", "image/png", b"hello"),
        ("large-1.png", "image/png", large.getvalue()),
        ("large-2.png", "image/png", large.getvalue()),
        ("notes.txt", "text/plain", b"hello"),
        ("phone.HEIC", "", b"hello"),
    ]
    inputs = [{"name": name, "mimeType": kind, "buffer": content} for name, kind, content in files]
    driver.page.set_input_files("#file", inputs)
    report = driver.page.locator("#report")
    expect(report.locator("strong")).to_have_text("2 of 7 files added")
    too_large = "it has 30.0 megapixels; this service accepts up to 25.0."
    broken = [
        re.compile(
            "^broken.png: this browser cannot read it as an image: it is damaged, .* Save it again"
            " as PNG"
        ),
        "notes.txt: this is not an image. Choose a PNG, JPEG or WebP file.",
        re.compile(
            "^phone.HEIC: this browser cannot read HEIC. Save it as JPEG, or open this page in"
            " Safari"
        ),
    ]
    expect(report.locator("li")).to_have_text(
        [f"large-1.png: {too_large}", f"large-2.png: {too_large}", *broken]
    )
    driver.page.get_by_role("button", name="Next image").click()
    driver.expect_image("b.heic")
    driver.press_button("Add 2 smaller copies")
    expect(report.locator("strong")).to_have_text("4 of 7 files added")
    expect(report.locator("li")).to_have_text(broken)
    expect(report.locator("#report-action")).to_be_hidden()
    driver.press_button("Dismiss this list")
    expect(report).to_be_hidden()


def test_large_image_is_painted_reduced_and_saved_in_full(driver, tmp_path):
    picture = Image.new("RGB", (3000, 2400), (96, 140, 190))
    ImageDraw.Draw(picture).ellipse([800, 700, 1800, 1700], fill=(235, 200, 60))
    picture.save(tmp_path / "large.png")
    driver.open(tmp_path / "large.png")
    driver.click(1300, 1200)
    mask = driver.request_masks(pos_coords=[[1300, 1200]])[0]
    assert np.array_equal(driver.visible_mask(), mask[::2, ::2])
    assert np.array_equal(driver.saved_mask(), mask)
