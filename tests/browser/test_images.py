"""Opening images: samples, files, drag and drop, clipboard."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.person import request_masks
from utils.page import FOLDER

DISC = (150, 160)

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


@pytest.mark.parametrize("event", ["paste", "drop"])
def test_pasted_or_dropped_image_is_opened(person, builtin_server, photo, event):
    transfer_file(person, event, photo.read_bytes())
    person.page.wait_for_selector("#about:not(:empty)")
    person.page.locator("#hover").set_checked(False)
    person.click(*DISC)
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC])[0])


@pytest.mark.parametrize("sample", sorted(path.name for path in (FOLDER / "samples").iterdir()))
def test_sample_is_opened_and_encoded(person, sample):
    label = sample.removesuffix(".jpg").replace("-", " ").capitalize()
    person.press_button(label)
    person.page.wait_for_selector("#about:not(:empty)")
    expect(person.page.get_by_role("application")).to_have_attribute(
        "aria-label", re.compile(rf"^{sample}, \d+ by \d+ pixels$")
    )


def test_every_sample_has_a_thumbnail(person):
    thumbnails = person.page.locator("#samples img")
    expect(thumbnails).to_have_count(len(list((FOLDER / "samples").iterdir())))
    for thumbnail in thumbnails.all():
        person.wait_for(lambda: thumbnail.evaluate("image => image.naturalWidth") > 0)  # noqa: B023


def test_bmp_is_converted_by_the_browser(person, builtin_server, photo, tmp_path):
    with Image.open(photo) as picture:
        picture.save(tmp_path / "scene.bmp")
    person.open(tmp_path / "scene.bmp")
    person.click(*DISC)
    assert np.array_equal(person.visible_mask(), request_masks(builtin_server, photo, pos_coords=[DISC])[0])


def test_clicks_follow_the_exif_orientation(person, builtin_server, photo, tmp_path):
    with Image.open(photo) as picture:
        exif = Image.Exif()
        exif[0x0112] = 6  # rotate by 90° clockwise for display
        picture.rotate(90, expand=True).save(tmp_path / "turned.jpg", quality=95, exif=exif.tobytes())
    person.open(tmp_path / "turned.jpg")
    person.click(*DISC)
    mask = person.visible_mask()
    assert mask.shape == (320, 480)
    assert mask[DISC[1], DISC[0]]
    assert not mask[20, 20]


def test_new_image_resets_objects_and_history(person, photo, tmp_path):
    person.open(photo)
    person.click(*DISC)
    Image.new("RGB", (200, 300), (80, 80, 90)).save(tmp_path / "other.png")
    person.open(tmp_path / "other.png")
    assert person.visible_mask().shape == (300, 200)
    assert not person.visible_mask().any()
    expect(person.page.locator(".marker")).to_have_count(0)
    expect(person.page.get_by_role("button", name="Undo")).to_be_disabled()


def test_latest_of_two_requested_images_is_opened(person, photo):
    held: list = []
    person.page.route("**/still-life.jpg", lambda route: held.append(route))  # noqa: PLW0108
    person.press_button("Still life")
    person.wait_for(lambda: bool(held))
    expect(person.page.locator("#busy")).to_have_text("Loading the image")
    person.open(photo)
    person.click(*DISC)
    held.pop().continue_()
    person.page.wait_for_timeout(300)
    assert person.visible_mask().shape == (320, 480)
    assert person.visible_mask()[DISC[1], DISC[0]]


def test_unsaved_objects_require_confirmation(person, photo, tmp_path):
    questions: list[str] = []

    def dismiss(dialog) -> None:
        questions.append(dialog.message)
        dialog.dismiss()

    person.page.on("dialog", dismiss)
    person.open(photo)
    person.click(*DISC)
    person.click(350, 150, keys=("Shift",))
    transfer_file(person, "drop", photo.read_bytes(), "other.png")
    person.wait_for(lambda: bool(questions))
    assert questions == ["Discard 2 unsaved objects?"]
    assert person.visible_mask().any()
    person.save("COCO JSON")
    transfer_file(person, "drop", photo.read_bytes(), "other.png")
    person.wait_for(lambda: not person.visible_mask().any())
    assert len(questions) == 1


def test_dropped_link_does_not_navigate(person):
    prevented = person.page.evaluate(
        "() => !document.body.dispatchEvent("
        "new DragEvent('drop', { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true }))"
    )
    assert prevented


def test_non_image_files_are_reported(person, tmp_path):
    transfer_file(person, "drop", b"hello", "notes.txt", "text/plain")
    expect(person.page.get_by_role("alert")).to_contain_text("This is not an image. Choose a PNG, JPEG or WebP file.")
    transfer_file(person, "drop", b"hello", "broken.png", "image/png")
    expect(person.page.get_by_role("alert")).to_contain_text("This browser cannot read broken.png as an image")


def test_oversized_image_is_rejected_before_upload(person):
    file = io.BytesIO()
    Image.new("1", (6000, 5000)).save(file, "PNG")
    transfer_file(person, "drop", file.getvalue(), "large.png")
    expected = "The image has 30.0 megapixels; this service accepts up to 25.0."
    expect(person.page.get_by_role("alert")).to_contain_text(expected)
    assert not any(url.endswith("/embed") for url in person.requests)
