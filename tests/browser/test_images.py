"""Opening images: samples, files, drag and drop, clipboard; large images."""

import base64
import io

import numpy as np
from PIL import Image, ImageDraw
from playwright.sync_api import expect

from tests.browser.person import DISC
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


def transfer_file(person, event: str, data: bytes, name: str = "scene.png", kind: str = "image/png") -> None:
    person.page.evaluate(TRANSFER_FILE, [event, kind, name, base64.b64encode(data).decode()])


def test_pasted_or_dropped_image_is_opened(person, photo):
    for event in ("paste", "drop"):
        person.page.locator("#about").evaluate("about => about.textContent = ''")
        transfer_file(person, event, photo.read_bytes())
        person.wait_encoded(photo)
        person.click(*DISC)
        person.assert_mask_is_the_apis(pos_coords=[DISC])


def test_samples_have_thumbnails_and_are_opened(person):
    thumbnails = person.page.locator("#samples img")
    expect(thumbnails).to_have_count(len(list((FOLDER / "samples").iterdir())))
    for thumbnail in thumbnails.all():
        person.wait_for(lambda: thumbnail.evaluate("image => image.naturalWidth") > 0)  # noqa: B023
    person.press_button("Still life")
    person.page.wait_for_selector("#about:not(:empty)")
    with Image.open(FOLDER / "samples" / "still-life.jpg") as sample:
        label = f"still-life.jpg, {sample.width} by {sample.height} pixels"
    expect(person.page.get_by_role("application")).to_have_attribute("aria-label", label)


def test_clicks_on_a_bmp_and_on_a_rotated_jpeg_follow_the_displayed_image(person, photo, tmp_path):
    with Image.open(photo) as picture:
        picture.save(tmp_path / "scene.bmp")
        exif = Image.Exif()
        exif[0x0112] = 6  # rotate by 90° clockwise for display
        picture.rotate(90, expand=True).save(tmp_path / "turned.jpg", quality=95, exif=exif.tobytes())
    person.open(tmp_path / "scene.bmp")
    person.click(*DISC)
    person.image = photo
    person.assert_mask_is_the_apis(pos_coords=[DISC])
    person.open(tmp_path / "turned.jpg")
    person.click(*DISC)
    mask = person.visible_mask()
    assert mask.shape == (320, 480)
    assert mask[DISC[1], DISC[0]]
    assert not mask[20, 20]


def test_new_image_resets_objects_and_history(clicked, tmp_path):
    Image.new("RGB", (200, 300), (80, 80, 90)).save(tmp_path / "other.png")
    clicked.open(tmp_path / "other.png")
    assert clicked.visible_mask().shape == (300, 200)
    assert not clicked.visible_mask().any()
    expect(clicked.page.locator(".marker")).to_have_count(0)
    expect(clicked.page.get_by_role("button", name="Undo")).to_be_disabled()


def test_latest_of_two_requested_images_is_opened(person, photo):
    held = person.hold("**/still-life.jpg")
    person.press_button("Still life")
    person.wait_for(lambda: bool(held))
    expect(person.page.locator("#busy")).to_have_text("Loading the image")
    person.open(photo)
    person.click(*DISC)
    held.pop().continue_()
    person.page.wait_for_timeout(300)
    assert person.visible_mask().shape == (320, 480)
    assert person.visible_mask()[DISC[1], DISC[0]]


def test_dropped_link_does_not_navigate(modules):
    assert modules.evaluate(
        "() => !document.body.dispatchEvent("
        "new DragEvent('drop', { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true }))"
    )


def test_file_that_cannot_be_opened_is_reported_before_upload(person):
    large = io.BytesIO()
    Image.new("1", (6000, 5000)).save(large, "PNG")
    for name, kind, content, message in (
        ("notes.txt", "text/plain", b"hello", "This is not an image. Choose a PNG, JPEG or WebP file."),
        ("broken.png", "image/png", b"hello", "This browser cannot read broken.png as an image"),
        ("large.png", "image/png", large.getvalue(), "30.0 megapixels; this service accepts up to 25.0."),
    ):
        transfer_file(person, "drop", content, name, kind)
        expect(person.page.get_by_role("alert")).to_contain_text(message)
    assert not any(url.endswith("/embed") for url in person.requests)


def test_large_image_is_painted_reduced_and_saved_in_full(person, tmp_path):
    picture = Image.new("RGB", (3000, 2400), (96, 140, 190))
    ImageDraw.Draw(picture).ellipse([800, 700, 1800, 1700], fill=(235, 200, 60))
    picture.save(tmp_path / "large.png")
    person.open(tmp_path / "large.png")
    person.click(1300, 1200)
    mask = person.request_masks(pos_coords=[[1300, 1200]])[0]
    assert np.array_equal(person.visible_mask(), mask[::2, ::2])
    assert np.array_equal(person.saved_mask(), mask)
