"""Ways to bring an image."""

from __future__ import annotations

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.browser.person import asked
from utils.page import FOLDER

DISC = (150, 160)

BRING = """([event, type, name, data]) => {
  const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const made = event === "paste"
    ? new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true })
    : new DragEvent("drop", { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.body.dispatchEvent(made);
}"""


def bring(person, event: str, data: bytes, name: str = "scene.png", kind: str = "image/png") -> None:
    person.page.evaluate(BRING, [event, kind, name, base64.b64encode(data).decode()])


@pytest.mark.parametrize("event", ["paste", "drop"])
def test_an_image_is_pasted_or_dropped(person, builtin_server, photo, event):
    bring(person, event, photo.read_bytes())
    person.page.wait_for_selector("#about:not(:empty)")
    person.page.locator("#hover").set_checked(False)
    person.click(*DISC)
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC])[0])


@pytest.mark.parametrize("sample", sorted(path.name for path in (FOLDER / "samples").iterdir()))
def test_a_sample_is_taken_and_an_object_found_on_it(person, sample):
    label = sample.removesuffix(".jpg").replace("-", " ").capitalize()
    person.push(label)
    person.page.wait_for_selector("#about:not(:empty)")
    expect(person.page.get_by_role("application")).to_have_attribute(
        "aria-label", re.compile(rf"^{sample}, \d+ by \d+ pixels$")
    )


def test_every_sample_on_the_page_is_there_and_shown(person):
    thumbnails = person.page.locator("#samples img")
    expect(thumbnails).to_have_count(len(list((FOLDER / "samples").iterdir())))
    for thumbnail in thumbnails.all():
        person.waits_for(lambda: thumbnail.evaluate("image => image.naturalWidth") > 0)  # noqa: B023


def test_a_format_that_only_the_browser_reads_is_taken_too(person, builtin_server, photo, tmp_path):
    with Image.open(photo) as picture:
        picture.save(tmp_path / "scene.bmp")
    person.open(tmp_path / "scene.bmp")
    person.click(*DISC)
    assert np.array_equal(person.sees(), asked(builtin_server, photo, pos_coords=[DISC])[0])


def test_a_turned_photograph_is_clicked_as_it_is_seen(person, builtin_server, photo, tmp_path):
    with Image.open(photo) as picture:
        exif = Image.Exif()
        exif[0x0112] = 6  # to be turned right by a quarter
        picture.rotate(90, expand=True).save(tmp_path / "turned.jpg", quality=95, exif=exif.tobytes())
    person.open(tmp_path / "turned.jpg")
    person.click(*DISC)
    mask = person.sees()
    assert mask.shape == (320, 480)
    assert mask[DISC[1], DISC[0]]
    assert not mask[20, 20]


def test_another_image_begins_anew(person, photo, tmp_path):
    person.open(photo)
    person.click(*DISC)
    Image.new("RGB", (200, 300), (80, 80, 90)).save(tmp_path / "other.png")
    person.open(tmp_path / "other.png")
    assert person.sees().shape == (300, 200)
    assert not person.sees().any()
    expect(person.page.locator(".marker")).to_have_count(0)
    expect(person.page.get_by_role("button", name="Undo")).to_be_disabled()


def test_the_last_of_two_images_that_were_wanted_comes(person, photo):
    held: list = []
    person.page.route("**/still-life.jpg", lambda route: held.append(route))  # noqa: PLW0108
    person.push("Still life")
    person.waits_for(lambda: bool(held))
    expect(person.page.locator("#busy")).to_have_text("Reading the image")
    person.open(photo)
    person.click(*DISC)
    held.pop().continue_()
    person.page.wait_for_timeout(300)
    assert person.sees().shape == (320, 480)
    assert person.sees()[DISC[1], DISC[0]]


def test_work_that_is_not_saved_is_not_left_without_a_question(person, photo, tmp_path):
    asked_for: list[str] = []

    def stay(dialog) -> None:
        asked_for.append(dialog.message)
        dialog.dismiss()

    person.page.on("dialog", stay)
    person.open(photo)
    person.click(*DISC)
    person.click(350, 150, keys=("Shift",))
    bring(person, "drop", photo.read_bytes(), "other.png")
    person.waits_for(lambda: bool(asked_for))
    assert asked_for == ["Leave 2 objects that are not saved?"]
    assert person.sees().any()
    person.save("COCO JSON")
    bring(person, "drop", photo.read_bytes(), "other.png")
    person.waits_for(lambda: not person.sees().any())
    assert len(asked_for) == 1


def test_a_link_that_is_dropped_does_not_lead_away(person):
    prevented = person.page.evaluate(
        "() => !document.body.dispatchEvent("
        "new DragEvent('drop', { dataTransfer: new DataTransfer(), bubbles: true, cancelable: true }))"
    )
    assert prevented


def test_what_is_no_image_is_told_so(person, tmp_path):
    bring(person, "drop", b"hello", "notes.txt", "text/plain")
    expect(person.page.get_by_role("alert")).to_contain_text("That is no image: a PNG, JPEG or WebP file is expected.")
    bring(person, "drop", b"hello", "broken.png", "image/png")
    expect(person.page.get_by_role("alert")).to_contain_text("broken.png cannot be read as an image here")


def test_an_image_that_is_too_large_is_told_so_before_it_is_sent(person):
    file = io.BytesIO()
    Image.new("1", (6000, 5000)).save(file, "PNG")
    bring(person, "drop", file.getvalue(), "large.png")
    expected = "The image has 30.0 megapixels; this service takes up to 25.0."
    expect(person.page.get_by_role("alert")).to_contain_text(expected)
    assert not any(url.endswith("/embed") for url in person.requests)
