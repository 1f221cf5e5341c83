"""Images: rejected if unusable, encoded once, and then addressed by their id."""

import concurrent.futures
import hashlib
import io

import pytest
import requests
from PIL import Image

from tests.e2e.answers import NPY_ONLY, parts, problem, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK = {"pos_coords": [[240, 160]]}


def encoded(size: tuple[int, int], file_format: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, file_format)
    return file.getvalue()


def test_bad_image_is_rejected_with_the_expectation_and_no_traceback_in_the_log(server):
    data, expected = (
        encoded((6000, 6000), "PNG", "1"),
        "at most 25000000 pixels (the client's max_side,",
    )
    in_json = server.post(input_image=as_base64(data), pos_coords=[[1, 1]])
    raw = requests.post(
        f"{server.url}/embed", data, headers={"Content-Type": "image/png"}, timeout=60
    )
    for answer, field in ((in_json, "input_image"), (raw, "image")):
        assert answer.status_code == 413
        (error,) = problem(answer)["errors"]
        assert error["field"] == field
        assert error["expected"].startswith(expected)
    log = server.log.read_text()
    assert "413 image-too-large" in log
    assert "Traceback" not in log


def test_points_outside_the_image_are_named_by_their_request_fields(server):
    image = as_base64(encoded((40, 30), "PNG"))
    answer = server.post(input_image=image, pos_coords=[[5, 5], [41, 5]], neg_coords=[[0, 31]])
    assert answer.status_code == 422
    assert [error["field"] for error in problem(answer)["errors"]] == [
        "pos_coords[1]",
        "neg_coords[0]",
    ]


@pytest.mark.parametrize("size", [(1, 1), (1, 3000), (3000, 1)], ids=str)
def test_smallest_and_narrowest_images_are_segmented(server, size):
    image = as_base64(encoded(size, "PNG"))
    assert server.post(input_image=image, pos_coords=[[0, 0]], mask_format="png").status_code == 200


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
        answers = list(
            pool.map(lambda _: server.post(input_image=file, **CLICK, **NPY_ONLY), range(6))
        )
    masks = [segmentation(answer).masks for answer in answers]
    assert all((mask == masks[0]).all() for mask in masks)
    assert server.embeddings()["encoded"] - before == 1


def test_unknown_id_gets_a_404_with_advice(server):
    for path, fields in (
        ("/mobile_sam", CLICK),
        ("/embed", {}),
        ("/everything", {"progress": True}),
    ):
        answer = server.post(path, image_id="../../etc/passwd", **fields)
        assert answer.status_code == 404
        document = problem(answer)
        assert document["type"] == "urn:mobile-sam:image-not-cached"
        assert "send the image again" in document["detail"]
