"""Masks of one and of several objects: the same in every format, alone and together."""

import io
import json
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.e2e.answers import NPY_ONLY, parts, segmentation
from tests.e2e.pictures import as_base64, filled, scene

pytestmark = pytest.mark.e2e

OBJECTS: list[dict[str, Any]] = [
    {"pos_coords": [[100, 100]]},
    {"box": [50, 60, 300, 280]},
    {"pos_coords": [[240, 160], [300, 200]], "neg_coords": [[20, 20]]},
    {"pos_coords": [[200, 150]], "box": [150, 100, 400, 300]},
]


@pytest.fixture(scope="module")
def image(server) -> dict[str, str]:
    """Return the id of an encoded image as a request field."""
    answer = server.post("/embed", input_image=as_base64(scene(1)))
    assert answer.status_code == 200
    return {"image_id": answer.json()["image_id"]}


def test_one_object_has_an_unnested_mask_that_the_result_describes(server, image):
    as_json, _, result_part = parts(server.post(**image, **OBJECTS[1]))
    mask, result = np.array(json.loads(as_json), bool), json.loads(result_part)
    assert mask.shape == (320, 480)
    assert (result["image_id"], result["width"], result["height"]) == (image["image_id"], 480, 320)
    assert result["masks"][0]["area"] == mask.sum() > 0
    assert set(result["weights"]) == {"name", "sha256", "trained", "note"}
    assert set(result["engine"]) == {"encoder", "decoder"}
    _, cutout, _ = parts(server.post(**image, **OBJECTS[1], segmented_image="cutout"))
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(cutout)))[..., 3] > 0, mask)


def test_objects_have_the_same_masks_together_and_alone(server, image):
    alone = [segmentation(server.post(**image, **NPY_ONLY, **prompt)) for prompt in OBJECTS]
    together = segmentation(server.post(**image, **NPY_ONLY, prompts=OBJECTS))
    assert together.masks.shape == (4, 320, 480)
    for index, one in enumerate(alone):
        described = together.result["masks"][index]
        assert described["object"] == index
        assert described["score"] == pytest.approx(one.result["masks"][0]["score"], abs=1e-3)
        assert (together.masks[index] != one.masks).mean() < 1e-3


def test_one_of_several_objects_can_refine_an_earlier_mask(server, image):
    first = segmentation(server.post(**image, **NPY_ONLY, **OBJECTS[0], low_res_mask=True))
    refine = {
        **OBJECTS[0],
        "neg_coords": [[10, 10]],
        "mask_input": first.result["masks"][0]["low_res_mask"],
    }
    alone = segmentation(server.post(**image, **NPY_ONLY, **refine))
    together = segmentation(server.post(**image, **NPY_ONLY, prompts=[OBJECTS[1], refine]))
    assert (together.masks[1] != alone.masks).mean() < 1e-3


def test_every_format_and_the_overlay_show_the_same_masks(server, image):
    masks = segmentation(server.post(**image, **NPY_ONLY, prompts=OBJECTS)).masks
    ask = {**image, "prompts": OBJECTS, "segmented_image": "none"}

    as_json, _ = parts(server.post(**ask, mask_format="json"))
    assert np.array_equal(np.array(json.loads(as_json), bool), masks)

    as_png, _ = parts(server.post(**ask, mask_format="png"))
    picture = Image.open(io.BytesIO(as_png))
    assert picture.mode == "1"
    assert np.array_equal(np.asarray(picture).reshape(masks.shape), masks)

    as_rle, overlay, result = parts(server.post(**image, prompts=OBJECTS, mask_format="rle"))
    lengths = json.loads(as_rle)
    assert np.array_equal(np.stack([coco.decode(one) for one in lengths]).astype(bool), masks)
    assert len(json.loads(result)["masks"]) == 4
    before, after = (np.asarray(Image.open(io.BytesIO(file))) for file in (scene(1), overlay))
    assert masks.any(axis=(1, 2)).all()
    assert all((after[mask] != before[mask]).any() for mask in masks)

    as_polygon, _ = parts(server.post(**ask, mask_format="polygon"))
    for polygons, mask in zip(json.loads(as_polygon), masks, strict=True):
        # Outlines may be half a pixel off the edge.
        redrawn = filled([ring for rings in polygons for ring in rings], mask.shape)
        assert (redrawn & mask).sum() / (redrawn | mask).sum() > 0.95


def test_mask_options_change_the_mask(server, image):
    def area(**options: float) -> int:
        return int(
            segmentation(server.post(**image, **NPY_ONLY, **OBJECTS[1], **options)).masks.sum()
        )

    assert area(mask_threshold=-2) > area() > area(mask_threshold=2)
    mask = segmentation(
        server.post(**image, **NPY_ONLY, **OBJECTS[1], min_mask_region_area=10**9)
    ).masks
    # Background and one island.
    assert cv2.connectedComponents(mask.astype(np.uint8), connectivity=8)[0] == 2
    ask = {**image, **OBJECTS[1], "mask_format": "polygon", "segmented_image": "none"}
    exact, rough = (
        json.loads(parts(server.post(**ask, polygon_tolerance=tolerance))[0])
        for tolerance in (0, 5)
    )
    assert sum(len(ring) for rings in exact for ring in rings) > 3 * sum(
        len(ring) for rings in rough for ring in rings
    )
