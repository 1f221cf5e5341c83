"""Regions of images: encoded by themselves, with coordinates and masks of the whole image."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.e2e.answers import NPY_ONLY, problem, segmentation
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e

REGION = [64, 32, 320, 288]
CLICK = [200, 150]
LENIENT = {"points_per_side": 8, "pred_iou_thresh": 0, "stability_score_thresh": 0}


def cropped(file: bytes) -> bytes:
    crop = io.BytesIO()
    Image.open(io.BytesIO(file)).crop((64, 32, 320, 288)).save(crop, "PNG")
    return crop.getvalue()


def test_mask_of_a_region_is_that_of_the_cropped_picture(server):
    file = scene(21)
    whole = {
        "input_image": as_base64(file),
        "pos_coords": [CLICK],
        "region": [66, 33, 319.5, 287],
        **NPY_ONLY,
    }
    found = segmentation(server.post(**whole, low_res_mask=True))
    assert (found.result["region"], found.masks.shape) == (REGION, (320, 480))
    x0, y0, x1, y1 = REGION
    click = [CLICK[0] - x0, CLICK[1] - y0]
    crop = segmentation(
        server.post(input_image=as_base64(cropped(file)), pos_coords=[click], **NPY_ONLY)
    )
    expected = np.zeros_like(found.masks)
    expected[y0:y1, x0:x1] = crop.masks
    assert np.array_equal(found.masks, expected)
    assert found.masks.any()

    earlier = {"mask_input": found.result["masks"][0]["low_res_mask"], "neg_coords": [[70, 40]]}
    by_id: dict[str, Any] = {
        "image_id": found.result["image_id"],
        "pos_coords": [CLICK],
        **NPY_ONLY,
        **earlier,
    }
    refined = segmentation(server.post(**by_id, region=found.result["region"]))
    assert refined.encode_s is None
    crop_again = {"neg_coords": [[70 - x0, 40 - y0]], "mask_input": earlier["mask_input"]}
    crop = segmentation(
        server.post(image_id=crop.result["image_id"], pos_coords=[click], **NPY_ONLY, **crop_again)
    )
    assert np.array_equal(refined.masks[y0:y1, x0:x1], crop.masks)


def test_whole_image_is_not_encoded_for_a_region_and_works_by_its_id_later(server):
    body = {"input_image": as_base64(scene(22)), "region": REGION}
    first = server.post("/embed", **body).json()
    assert first["region"] == REGION
    assert first["encode_s"] > 0
    image = {"image_id": first["image_id"]}
    assert "encode_s" not in server.post("/embed", **image, region=REGION).json()
    assert "encode_s" in server.post("/embed", **image).json()
    assert "region" not in server.post("/embed", **image).json()


def test_automatic_region_is_around_small_objects_only(server):
    file = as_base64(scene(23, (1600, 1200)))
    image = {"image_id": server.post("/embed", input_image=file).json()["image_id"], **NPY_ONLY}
    small = segmentation(server.post(**image, box=[100, 900, 120, 930], region="auto"))
    assert small.result["region"] == [0, 768, 256, 1056]
    again = segmentation(server.post(**image, box=[100, 900, 120, 930], region=[0, 768, 256, 1056]))
    assert np.array_equal(small.masks, again.masks)
    large = {**image, "box": [10, 10, 1500, 1100]}
    answer = segmentation(server.post(**large, region="auto"))
    assert answer.result["region"] == [0, 0, 1600, 1200]
    assert np.array_equal(answer.masks, segmentation(server.post(**large)).masks)


def test_everything_of_a_region_lies_in_it(server):
    answer = server.post("/everything", input_image=as_base64(scene(24)), region=REGION, **LENIENT)
    x0, y0, x1, y1 = answer.json()["region"]
    masks = answer.json()["masks"]
    assert masks
    for x, y, width, height in (mask["bbox"] for mask in masks):
        assert x0 <= x < x + width <= x1
        assert y0 <= y < y + height <= y1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        pytest.param({"region": [0, 0, 481, 320]}, "region", id="outside"),
        pytest.param({"region": [100, 200, 200, 100]}, "region", id="inverted"),
        pytest.param({"region": [100, 100, 100, 100]}, "region", id="empty"),
        pytest.param({"region": [0, 0, 31, 300]}, "region", id="too small"),
        pytest.param({"region": "all"}, "region", id="another word"),
        pytest.param(
            {"region": REGION, "pos_coords": [[400, 300]]},
            "pos_coords[0]",
            id="click outside of the region",
        ),
        pytest.param(
            {"region": REGION, "box": [60, 40, 400, 200]},
            "box",
            id="box partly outside of the region",
        ),
    ],
)
def test_unusable_region_is_a_422(server, fields, field):
    answer = server.post(**{"input_image": as_base64(scene(25)), "pos_coords": [CLICK], **fields})
    assert answer.status_code == 422
    assert {error["field"] for error in problem(answer)["errors"]} == {field}
