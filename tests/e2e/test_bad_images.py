"""Images that cannot be used are told so by the real service, which then goes on working."""

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


def png_with_a_hole() -> bytes:
    """Noise, some of whose compressed pixels are zeroed."""
    file = io.BytesIO()
    Image.effect_noise((300, 300), 90).save(file, "PNG")
    png = file.getvalue()
    middle = len(png) // 2
    return png[:middle] + bytes(40) + png[middle + 40 :]


BAD = {
    "text": (b"this is no image", 422, "a PNG, JPEG or WebP file"),
    "an unsupported format": (encoded((9, 9), "GIF"), 415, "a PNG, JPEG or WebP file"),
    "a truncated JPEG": (encoded((900, 900), "JPEG")[:2000], 422, "a complete image file"),
    "a truncated PNG": (encoded((900, 900), "PNG")[:-40], 422, "a complete image file"),
    "a PNG with a hole in its pixels": (png_with_a_hole(), 422, "a complete image file"),
    "a side too long": (encoded((70_000, 1), "PNG", "1"), 413, "sides of at most 65535 pixels"),
    "too many pixels": (encoded((6000, 6000), "PNG", "1"), 413, "at most 20000000 pixels"),
}


@pytest.mark.parametrize(("data", "status", "expected"), BAD.values(), ids=BAD.keys())
def test_a_bad_image_is_a_4xx_that_says_what_was_expected(server, data, status, expected):
    answer = server.post(input_image=base64.b64encode(data).decode(), pos_coords=[[1, 1]])
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    (error,) = answer.json()["errors"]
    assert error["field"] == "input_image"
    assert error["expected"] == expected


def test_points_outside_of_the_image_are_named_as_they_were_sent(server):
    image = base64.b64encode(encoded((40, 30), "PNG")).decode()
    answer = server.post(input_image=image, pos_coords=[[5, 5], [41, 5]], neg_coords=[[0, 31]])
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == ["pos_coords[1]", "neg_coords[0]"]


def test_the_smallest_and_the_narrowest_images_are_answered(server):
    for size in ((1, 1), (1, 3000), (3000, 1), (2, 2)):
        image = base64.b64encode(encoded(size, "PNG")).decode()
        assert server.post(input_image=image, pos_coords=[[0, 0]], mask_format="png").status_code == 200, size


def test_a_content_type_that_is_no_ascii_is_refused_in_full(server):
    answer = requests.post(f"{server.url}/mobile_sam", data=b"{}", headers={"content-type": b"\xff"}, timeout=10)
    assert answer.status_code == 415
    assert answer.json()["status"] == 415


def test_refusals_left_no_traceback_in_the_log(server):
    assert server.post(input_image="!", pos_coords=[[1, 1]]).status_code == 422
    log = server.log.read_text()
    assert "422 invalid-request" in log
    assert "Traceback" not in log
