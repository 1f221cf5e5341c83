"""Images: rejected if unusable, encoded once, and then addressed by their id."""

import concurrent.futures
import hashlib
import io

import pytest
import requests
from PIL import Image

from tests.e2e.answers import NPY_ONLY, parts, problem, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

CLICK = {"pos_coords": [[240, 160]]}


def encoded(size: tuple[int, int], file_format: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, file_format)
    return file.getvalue()


BAD_IMAGES = {
    "text": (b"this is not an image", 422, "a PNG, JPEG or WebP file"),
    "an unsupported format": (encoded((9, 9), "GIF"), 415, "a PNG, JPEG or WebP file"),
    "a truncated PNG": (encoded((900, 900), "PNG")[:-40], 422, "a complete image file"),
    "too long a side": (encoded((70_000, 1), "PNG", "1"), 413, "sides of at most 65535 pixels"),
    "too many pixels": (encoded((6000, 6000), "PNG", "1"), 413, "at most 25000000 pixels"),
}


@pytest.mark.parametrize(("data", "status", "expected"), BAD_IMAGES.values(), ids=BAD_IMAGES.keys())
def test_bad_image_is_rejected_with_the_expectation(server, data, status, expected):
    answer = server.post(input_image=as_base64(data), pos_coords=[[1, 1]])
    assert answer.status_code == status
    (error,) = problem(answer)["errors"]
    assert (error["field"], error["expected"]) == ("input_image", expected)
    answer = requests.post(f"{server.url}/embed", data, headers={"Content-Type": "image/png"}, timeout=60)
    assert answer.status_code == status
    (error,) = problem(answer)["errors"]
    assert (error["field"], error["expected"]) == ("image", expected)


def test_points_outside_the_image_are_named_by_their_request_fields(server):
    image = as_base64(encoded((40, 30), "PNG"))
    answer = server.post(input_image=image, pos_coords=[[5, 5], [41, 5]], neg_coords=[[0, 31]])
    assert answer.status_code == 422
    assert [error["field"] for error in problem(answer)["errors"]] == ["pos_coords[1]", "neg_coords[0]"]
    answer = server.post(input_image=image, prompts=[{"pos_coords": [[1, 1]]}, {"pos_coords": [[9999, 1]]}])
    assert [error["field"] for error in problem(answer)["errors"]] == ["prompts[1].pos_coords[0]"]


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)], ids=str)
def test_smallest_and_narrowest_images_are_segmented(server, size):
    image = as_base64(encoded(size, "PNG"))
    assert server.post(input_image=image, pos_coords=[[0, 0]], mask_format="png").status_code == 200


def test_rejected_requests_leave_no_traceback_in_the_log(server):
    assert server.post(input_image="!", pos_coords=[[1, 1]]).status_code == 422
    log = server.log.read_text()
    assert "422 invalid-request" in log
    assert "Traceback" not in log


def test_image_is_encoded_once_and_then_addressed_by_its_id(server):
    file = scene(10)
    before = server.embeddings()
    image = server.post("/embed", input_image=as_base64(file)).json()
    assert image["image_id"] == hashlib.sha256(file).hexdigest()
    assert (image["width"], image["height"]) == (480, 320)
    by_id = parts(server.post(image_id=image["image_id"], **CLICK, mask_format="rle"))
    by_file = parts(server.post(input_image=as_base64(file), **CLICK, mask_format="rle"))
    assert len(by_id) == 3
    assert by_id == by_file
    after = server.embeddings()
    assert after["encoded"] - before["encoded"] == 1
    assert after["found"] - before["found"] == 2


def test_concurrent_requests_for_a_new_image_encode_it_once(server):
    file = as_base64(scene(12, (1600, 1200)))
    before = server.embeddings()["encoded"]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: server.post(input_image=file, **CLICK, **NPY_ONLY), range(6)))
    masks = [segmentation(answer).masks for answer in answers]
    assert all((mask == masks[0]).all() for mask in masks)
    assert server.embeddings()["encoded"] - before == 1


@pytest.mark.parametrize("image_id", ["0" * 64, "../../etc/passwd", "\N{SNOWMAN}"])
def test_unknown_id_gets_a_404_with_advice(server, image_id):
    for path, fields in (("/mobile_sam", CLICK), ("/embed", {}), ("/everything", {"progress": True})):
        answer = server.post(path, image_id=image_id, **fields)
        assert answer.status_code == 404
        document = problem(answer)
        assert document["type"] == "urn:mobile-sam:image-not-cached"
        assert "send the image again" in document["detail"]
