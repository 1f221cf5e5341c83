"""Requests of the page name their image in the header `X-Image-Id`."""

from __future__ import annotations

import hashlib
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.browser.page_driver import DISC, PageDriver
from tests.browser.test_local import needs_runtime

OVER_PLAIN_HTTP = "Object.defineProperty(crypto, 'subtle', { value: undefined });"


def id_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def headers_of(driver: PageDriver) -> list[tuple[str, str | None]]:
    """Return a list to which the first part of the path of each request and its header are
    added.
    """
    sent: list[tuple[str, str | None]] = []

    def add(request) -> None:
        sent.append((urlsplit(request.url).path.split("/")[1], request.headers.get("x-image-id")))

    driver.page.on("request", add)
    return sent


def about_images(sent: list[tuple[str, str | None]]) -> list[tuple[str, str | None]]:
    return [each for each in sent if each[0] in {"embed", "mobile_sam", "everything", "embeddings"}]


def test_all_requests_about_an_image_and_its_job_name_it(driver, photo, tmp_path):
    second = tmp_path / "second.png"
    Image.new("RGB", (480, 320), (7, 8, 9)).save(second)
    sent = headers_of(driver)
    driver.page.set_input_files("#file", [photo, second])
    driver.wait_encoded(photo)
    driver.click(*DISC)
    driver.segment_everything()
    # The second image's job, and its state.
    driver.wait_for(lambda: sent.count(("embed", id_of(second))) >= 2)
    named = about_images(sent)
    assert {path for path, _ in named} == {"embed", "mobile_sam", "everything"}
    assert {image_id for _, image_id in named} == {id_of(photo), id_of(second)}


@pytest.mark.parametrize("script", ["", OVER_PLAIN_HTTP], ids=["hashed", "over plain http"])
def test_first_upload_goes_without_where_the_browser_does_not_hash(open_page, photo, script):
    with open_page(script=script) as driver:
        sent = headers_of(driver)
        driver.open(photo)
        driver.click(*DISC)
        (first, *others) = about_images(sent)
        assert first == ("embed", None if script else id_of(photo))
        assert others
        assert {image_id for _, image_id in others} == {id_of(photo)}


@needs_runtime
def test_fetched_embedding_is_named(open_page, photo):
    with open_page(decodes=True) as driver:
        sent = headers_of(driver)
        driver.open(photo)
        driver.wait_for(lambda: ("embeddings", id_of(photo)) in sent)
