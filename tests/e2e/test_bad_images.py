"""Unusable images are rejected with a 4xx, and the service keeps working."""

from __future__ import annotations

import base64
import io

import pytest
import requests
from PIL import Image

pytestmark = pytest.mark.e2e


def encoded(size: tuple[int, int], file_format: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, file_format)
    return file.getvalue()


def corrupt_png() -> bytes:
    """Return a PNG file of noise with zeroed bytes in its compressed pixels."""
    file = io.BytesIO()
    Image.effect_noise((300, 300), 90).save(file, "PNG")
    png = file.getvalue()
    middle = len(png) // 2
    return png[:middle] + bytes(40) + png[middle + 40 :]


BAD_IMAGES = {
    "text": (b"this is not an image", 422, "a PNG, JPEG or WebP file"),
    "an unsupported format": (encoded((9, 9), "GIF"), 415, "a PNG, JPEG or WebP file"),
    "a truncated JPEG": (encoded((900, 900), "JPEG")[:2000], 422, "a complete image file"),
    "a truncated PNG": (encoded((900, 900), "PNG")[:-40], 422, "a complete image file"),
    "a PNG with corrupt pixels": (corrupt_png(), 422, "a complete image file"),
    "too long a side": (encoded((70_000, 1), "PNG", "1"), 413, "sides of at most 65535 pixels"),
    "too many pixels": (encoded((6000, 6000), "PNG", "1"), 413, "at most 20000000 pixels"),
}


@pytest.mark.parametrize(("data", "status", "expected"), BAD_IMAGES.values(), ids=BAD_IMAGES.keys())
def test_bad_image_is_rejected_with_the_expectation(server, data, status, expected):
    answer = server.post(input_image=base64.b64encode(data).decode(), pos_coords=[[1, 1]])
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    (error,) = answer.json()["errors"]
    assert error["field"] == "input_image"
    assert error["expected"] == expected


def test_points_outside_the_image_are_named_by_their_request_fields(server):
    image = base64.b64encode(encoded((40, 30), "PNG")).decode()
    answer = server.post(input_image=image, pos_coords=[[5, 5], [41, 5]], neg_coords=[[0, 31]])
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["pos_coords[1]", "neg_coords[0]"]


def test_smallest_and_narrowest_images_are_segmented(server):
    for size in ((1, 1), (1, 3000), (3000, 1), (2, 2)):
        image = base64.b64encode(encoded(size, "PNG")).decode()
        assert server.post(input_image=image, pos_coords=[[0, 0]], mask_format="png").status_code == 200, size


def test_non_ascii_content_type_gets_a_complete_415(server):
    answer = requests.post(f"{server.url}/mobile_sam", data=b"{}", headers={"content-type": b"\xff"}, timeout=10)
    assert answer.status_code == 415
    assert answer.json()["status"] == 415


def test_rejected_requests_leave_no_traceback_in_the_log(server):
    assert server.post(input_image="!", pos_coords=[[1, 1]]).status_code == 422
    log = server.log.read_text()
    assert "422 invalid-request" in log
    assert "Traceback" not in log
