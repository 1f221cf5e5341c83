"""The look-alikes of Segment Anything's classes: signatures, arrays and records."""

import inspect
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco

from mobile_sam_client import Client
from mobile_sam_client.compat import SamAutomaticMaskGenerator, SamPredictor, _upsampled
from orchestrator.images import frame_size_hw
from orchestrator.masks import upsample
from tests.unit.client.mobile_sam_client.fake_service import (
    IMAGE,
    FakeService,
    lines_reply,
    low_res_mask,
    make_client,
    mask_result,
    mask_with_area,
    record,
    record_of,
    rle,
    segment_reply,
)

GENERATOR = (
    "model, points_per_side=32, points_per_batch=64, pred_iou_thresh=0.88, stability_score_thresh=0.95, "
    "stability_score_offset=1.0, box_nms_thresh=0.7, crop_n_layers=0, crop_nms_thresh=0.7, "
    f"crop_overlap_ratio={512 / 1500}, crop_n_points_downscale_factor=1, point_grids=None, min_mask_region_area=0, "
    "output_mode='binary_mask'"
)
SIGNATURES: dict[Any, str] = {
    SamPredictor.__init__: "sam_model",
    SamPredictor.set_image: "image, image_format='RGB'",
    SamPredictor.set_torch_image: "transformed_image, original_image_size",
    SamPredictor.predict: "point_coords=None, point_labels=None, box=None, mask_input=None, multimask_output=True, "
    "return_logits=False",
    SamPredictor.predict_torch: "point_coords, point_labels, boxes=None, mask_input=None, multimask_output=True, "
    "return_logits=False",
    SamPredictor.get_image_embedding: "",
    SamPredictor.reset_image: "",
    SamAutomaticMaskGenerator.__init__: GENERATOR,
    SamAutomaticMaskGenerator.generate: "image",
}
"""Parameters and defaults of the methods in the packages segment_anything 1.0 and mobilesam-mirror 1.0.0."""
RGB = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)


@pytest.fixture
def model(service):
    with make_client(Client, service) as client:
        yield client


@pytest.fixture
def predictor(service, model) -> SamPredictor:
    """Return a predictor whose image is set; its service answers with three candidates, the second being the best."""
    made = SamPredictor(model)
    made.set_image(RGB)
    masks = [
        {**mask_result(0, score, area), "low_res_mask": low_res_mask(score)}
        for score, area in ((0.5, 3), (0.9, 5), (0.7, 4))
    ]
    service.replies = [segment_reply(masks, [rle(mask_with_area(mask["area"])) for mask in masks])]
    return made


@pytest.mark.parametrize("method", SIGNATURES, ids=lambda method: method.__qualname__)
def test_signature_is_the_official_one(method):
    _, *parameters = inspect.signature(method).parameters.values()
    assert {each.kind for each in parameters} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    assert ", ".join(map(str, plain)) == SIGNATURES[method]


def test_predict_returns_the_candidates_in_the_order_of_the_model(predictor):
    masks, scores, low_res = predictor.predict(np.array([[1, 2]]), np.array([1]))
    assert (masks.shape, masks.dtype) == ((3, 4, 6), bool)
    assert [int(mask.sum()) for mask in masks] == [3, 5, 4]
    assert (scores.dtype, scores.tolist()) == (np.float32, pytest.approx([0.5, 0.9, 0.7]))
    assert (low_res.shape, low_res.dtype) == ((3, 256, 256), np.float32)
    assert low_res[:, 0, 0].tolist() == pytest.approx([0.5, 0.9, 0.7])


def test_single_mask_has_the_same_axes(predictor, service):
    service.replies = [segment_reply([{**mask_result(0), "low_res_mask": low_res_mask()}])]
    masks, scores, low_res = predictor.predict(
        point_labels=np.array([1]), box=np.array([0, 0, 5, 3]), multimask_output=False
    )
    assert "labels" not in service.requests[-1].fields  # ignored without points
    assert (masks.shape, scores.shape, low_res.shape) == ((1, 4, 6), (1,), (1, 256, 256))


def test_prompt_is_sent_with_the_id_of_the_image(predictor, service):
    predictor.predict(
        np.array([[1, 2], [3, 1]]),
        np.array([1, 0]),
        np.array([[0, 0, 5, 3]]),
        np.full((1, 256, 256), 0.25, np.float32),
    )
    assert service.requests[-1].fields == {
        "image_id": "the id",
        "pos_coords": [[1, 2], [3, 1]],
        "labels": [1, 0],
        "box": [0, 0, 5, 3],
        "mask_input": low_res_mask(0.25),
        "multimask_output": True,
        "segmented_image": "none",
        "low_res_mask": True,
        "mask_format": "rle",
    }


def test_channels_of_bgr_images_are_swapped(model, service):
    predictor = SamPredictor(model)
    predictor.set_image(RGB)
    predictor.set_image(np.ascontiguousarray(RGB[..., ::-1]), image_format="BGR")
    assert len(service.requests) == 2
    assert service.requests[1].fields == {"image_id": "the id"}  # the same file


def test_image_is_set_until_it_is_reset(predictor):
    assert predictor.is_image_set
    assert (predictor.original_size, predictor.input_size) == ((4, 6), (683, 1024))
    predictor.reset_image()
    assert not predictor.is_image_set
    with pytest.raises(RuntimeError, match=r"^no image is set; call set_image before$"):
        predictor.predict(np.array([[1, 2]]), np.array([1]))


@pytest.mark.parametrize(
    ("image", "image_format", "message"),
    [
        (RGB, "HSV", "image_format: expected RGB or BGR, got 'HSV'"),
        (RGB[..., 0], "RGB", r"image: expected \(H, W, 3\) uint8, got shape \(4, 6\)"),
        (RGB.astype(float), "BGR", "image: .* got float64"),
    ],
    ids=["format", "grey", "float"],
)
def test_invalid_image_is_rejected(model, service, image, image_format, message):
    with pytest.raises(ValueError, match=message):
        SamPredictor(model).set_image(image, image_format)
    assert not service.requests


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ({"point_coords": np.ones((1, 2))}, "point_labels: expected one label per point, got None"),
        ({"box": np.ones((2, 4))}, "cannot reshape"),
        ({"mask_input": np.ones((4, 4))}, "cannot reshape"),
    ],
    ids=["no labels", "two boxes", "small mask"],
)
def test_invalid_prompt_is_rejected(predictor, service, prompt, message):
    with pytest.raises(ValueError, match=message):
        predictor.predict(**prompt)
    assert len(service.requests) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda predictor: predictor.features,
        lambda predictor: predictor.get_image_embedding(),
        lambda predictor: predictor.set_torch_image(None, (4, 6)),
        lambda predictor: predictor.predict_torch(None, None),
    ],
    ids=["features", "get_image_embedding", "set_torch_image", "predict_torch"],
)
def test_tensors_are_not_available(predictor, call):
    with pytest.raises(NotImplementedError, match="use set_image and predict"):
        call(predictor)


@pytest.mark.parametrize("size_hw", [(853, 1280), (480, 320), (7, 5), (1, 300)], ids=str)
def test_logits_are_scaled_as_by_the_service(size_hw):
    low_res = np.random.default_rng(0).normal(0, 10, (256, 256)).astype(np.float32)
    expected = upsample(low_res, frame_size_hw(size_hw), size_hw)
    np.testing.assert_allclose(_upsampled(low_res, size_hw), expected, atol=1e-4)


def test_logits_are_returned_in_place_of_masks(predictor):
    logits, _, low_res = predictor.predict(np.array([[1, 2]]), np.array([1]), return_logits=True)
    assert (logits.shape, logits.dtype) == ((3, 4, 6), np.float32)
    np.testing.assert_allclose(logits, np.broadcast_to(low_res[:, :1, :1], (3, 4, 6)))


def generate(service: FakeService, model: Client, **parameters: Any) -> list[dict[str, Any]]:
    return SamAutomaticMaskGenerator(model, **parameters).generate(RGB)


def test_generator_sends_its_parameters_and_returns_official_records(service, model):
    first, second = generate(service, model, points_per_side=4, pred_iou_thresh=0.5)
    fields = service.requests[0].fields
    official = {each.name: each.default for each in inspect.signature(SamAutomaticMaskGenerator).parameters.values()}
    for name in ("model", "points_per_batch", "point_grids", "output_mode"):
        del official[name]
    expected = {**official, "points_per_side": 4, "pred_iou_thresh": 0.5}
    assert {name: fields[name] for name in expected} == expected
    assert (first["segmentation"] == mask_with_area(2)).all()
    second["segmentation"] = rle(second["segmentation"])
    assert second == {**record(5), "bbox": [0, 0, 5, 1]}


@pytest.mark.parametrize("mask", [mask_with_area(5), ~mask_with_area(5), mask_with_area(0), mask_with_area(24)])
def test_uncompressed_rle_has_the_official_form(service, model, mask):
    service.reply_with(
        lines_reply({"done": 1, "total": 1, "result": {**IMAGE, "masks": [record_of(mask, (0, 0, 6, 4))]}})
    )
    (found,) = SamAutomaticMaskGenerator(model, output_mode="uncompressed_rle").generate(RGB)
    compressed = coco.frPyObjects(found["segmentation"], 4, 6)
    assert (coco.decode(compressed) == mask).all()
    assert all(isinstance(count, int) for count in found["segmentation"]["counts"])


def test_coco_rle_is_the_one_of_the_service(service, model):
    records = generate(service, model, output_mode="coco_rle")
    assert [each["segmentation"] for each in records] == [rle(mask_with_area(area)) for area in (2, 5)]


def test_unavailable_options_are_rejected(model):
    for options in ({"point_grids": [np.ones((1, 2))]}, {"points_per_side": None}):
        with pytest.raises(NotImplementedError, match="takes no point_grids"):
            SamAutomaticMaskGenerator(model, **options)
    with pytest.raises(ValueError, match="output_mode: expected binary_mask, uncompressed_rle, coco_rle, got 'png'"):
        SamAutomaticMaskGenerator(model, output_mode="png")
