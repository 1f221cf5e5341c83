"""The look-alikes of Segment Anything's classes: signatures, arrays and records."""

import inspect
from typing import Any

import numpy as np
import pytest
from pycocotools import mask as coco

from mobile_sam_client import Client
from mobile_sam_client._frames import upsampled
from mobile_sam_client.compat import (
    ResizeLongestSide,
    Sam,
    SamAutomaticMaskGenerator,
    SamPredictor,
    sam_model_registry,
)
from orchestrator.images import LONGEST_SIDE
from orchestrator.masks import upsample
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.fake_service import mask_with_area

GENERATOR = (
    "model, points_per_side=32, points_per_batch=64, pred_iou_thresh=0.88,"
    " stability_score_thresh=0.95, stability_score_offset=1.0, box_nms_thresh=0.7,"
    f" crop_n_layers=0, crop_nms_thresh=0.7, crop_overlap_ratio={512 / 1500},"
    " crop_n_points_downscale_factor=1, point_grids=None, min_mask_region_area=0,"
    " output_mode='binary_mask'"
)
SIGNATURES: dict[Any, str] = {
    SamPredictor.__init__: "sam_model",
    SamPredictor.set_image: "image, image_format='RGB'",
    SamPredictor.set_torch_image: "transformed_image, original_image_size",
    SamPredictor.predict: (
        "point_coords=None, point_labels=None, box=None, mask_input=None, multimask_output=True, "
        "return_logits=False"
    ),
    SamPredictor.predict_torch: (
        "point_coords, point_labels, boxes=None, mask_input=None, multimask_output=True, "
        "return_logits=False"
    ),
    SamPredictor.get_image_embedding: "",
    SamPredictor.reset_image: "",
    SamAutomaticMaskGenerator.__init__: GENERATOR,
    SamAutomaticMaskGenerator.generate: "image",
}
"""Parameters and defaults of the methods in the packages segment_anything 1.0 and
mobilesam-mirror 1.0.0."""
RGB = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)


@pytest.fixture
def model(service):
    with fake.make_client(Client, service) as client:
        yield client


@pytest.fixture
def predictor(service, model) -> SamPredictor:
    """Return a predictor whose image is set; its service answers with three candidates, the
    second being the best.
    """
    made = SamPredictor(model)
    made.set_image(RGB)
    service.replies = [fake.segment_reply(fake.three_candidates())]
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


def test_prompt_is_sent_with_the_id_of_the_image(predictor, service):
    mask_input = np.full((1, 256, 256), 0.25, np.float32)
    predictor.predict(
        np.array([[1, 2], [3, 1]]), np.array([1, 0]), np.array([[0, 0, 5, 3]]), mask_input
    )
    assert service.fields[-1] == {
        "image_id": "the id",
        "prompts": [
            {
                "pos_coords": [[1, 2], [3, 1]],
                "labels": [1, 0],
                "box": [0, 0, 5, 3],
                "mask_input": fake.low_res_mask(0.25),
            }
        ],
        "multimask_output": True,
        "segmented_image": "none",
        "low_res_mask": True,
        "mask_format": "rle",
    }


def test_predictor_clips_if_it_is_told_to(predictor, service):
    predictor.clip = True
    predictor.predict(np.array([[-1, 2]]), np.array([1]))
    assert service.fields[-1]["clip"] is True


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
    ],
    ids=["format", "grey"],
)
def test_invalid_image_is_rejected(model, service, image, image_format, message):
    with pytest.raises(ValueError, match=message):
        SamPredictor(model).set_image(image, image_format)
    with pytest.raises(
        TypeError, match=r"such as numpy.asarray\(PIL.Image.open\(path\).* got 'photo.jpg'"
    ):
        SamPredictor(model).set_image("photo.jpg")  # type: ignore[arg-type]
    assert not service.requests


def test_points_without_labels_are_rejected(predictor):
    with pytest.raises(ValueError, match="point_labels: expected one label per point, got None"):
        predictor.predict(np.ones((1, 2)))


def test_batches_of_boxes_and_points_are_one_request_in_pixels_of_the_image(predictor, service):
    service.replies = [
        fake.segment_reply(
            [fake.three_candidates()[0], {**fake.three_candidates()[1], "object": 1}]
        )
    ]
    boxes = np.array([[0, 0, 6, 4], [1, 2, 5, 3]])
    points = predictor.transform.apply_coords(np.array([[[1, 2]], [[3.5, 1]]]), (4, 6))
    masks, scores, low_res = predictor.predict_torch(
        points,
        np.ones((2, 1)),
        predictor.transform.apply_boxes_torch(boxes, (4, 6)),
        multimask_output=False,
    )
    assert service.fields[-1]["prompts"] == [
        {"pos_coords": [[1, 2]], "labels": [1], "box": [0, 0, 6, 4]},
        {"pos_coords": [[3.5, 1]], "labels": [1], "box": [1, 2, 5, 3]},
    ]
    assert (masks.shape, scores.shape, low_res.shape) == ((2, 1, 4, 6), (2, 1), (2, 1, 256, 256))
    assert [int(mask.cpu().numpy().sum()) for mask in masks] == [3, 5]
    with pytest.raises(ValueError, match=r"same number of objects, got \[1, 2\]"):
        predictor.predict_torch(None, None, boxes[:1], np.zeros((2, 1, 256, 256)))


def test_batch_of_images_has_masks_in_their_original_sizes(service, monkeypatch):
    monkeypatch.setattr(
        "mobile_sam_client.compat.Sam", lambda local: fake.make_client(Sam, service)
    )
    with pytest.warns(
        UserWarning, match="sam_vit_h.pth is not loaded: the service answers with its own weights"
    ):
        sam = sam_model_registry["vit_h"](checkpoint="sam_vit_h.pth")
    service.replies = [fake.json_reply({**fake.IMAGE, "width": 1024, "height": 683})]
    service.replies += [fake.segment_reply(fake.three_candidates()[:1]), fake.json_reply(fake.INFO)]
    image = ResizeLongestSide(sam.image_encoder.img_size).apply_image(RGB).transpose(2, 0, 1)
    given = {"image": image, "original_size": (4, 6), "boxes": np.array([[0, 0, 1024, 683]])}
    (answer,) = sam.to(device="cuda").eval()([given], multimask_output=False)
    assert service.fields[1]["prompts"] == [{"box": [0, 0, 1024, 683]}]
    assert answer["masks"].shape == (1, 1, 4, 6)
    assert answer["masks"].all()  # all logits are 0.5
    assert answer["low_res_logits"].shape == (1, 1, 256, 256)


@pytest.mark.parametrize("call", ["features", "get_image_embedding()", "set_torch_image(0, 0)"])
def test_embeddings_are_not_available(predictor, call):
    with pytest.raises(NotImplementedError, match="use set_image with predict"):
        eval(f"predictor.{call}")


@pytest.mark.parametrize("size_hw", [(853, 1280), (480, 320), (7, 5), (1, 300)], ids=str)
def test_logits_are_scaled_as_by_the_service(size_hw):
    low_res = np.random.default_rng(0).normal(0, 10, (256, 256)).astype(np.float32)
    for squashed, frame_hw in ((False, LONGEST_SIDE.size_in_frame(size_hw)), (True, None)):
        expected = upsample(low_res, frame_hw, size_hw)
        np.testing.assert_allclose(
            upsampled(low_res, size_hw, squashed=squashed), expected, atol=1e-4
        )


@pytest.mark.parametrize(
    ("version", "resize", "squashes"),
    [
        (None, "longest_side", False),
        (None, "squash", True),
        (1, "longest_side", True),
        (3, "longest_side", False),
    ],
)
def test_predictor_asks_the_service_once_how_its_version_scales_images(
    service, model, version, resize, squashes
):
    model.model_version, predictor = version, SamPredictor(model)
    first, newest = fake.INFO["loaded"]
    descriptors = ({**fake.DESCRIPTOR, "resize": each} for each in ("squash", resize))
    versions = [{**each, "descriptor": next(descriptors)} for each in (first, newest)]
    service.reply_with(fake.json_reply({**fake.INFO, "loaded": versions}))
    plane = np.arange(256 * 256, dtype=np.float32).reshape(256, 256)
    for _ in range(2):
        assert np.array_equal(
            predictor.upsampled(plane, (4, 6)), upsampled(plane, (4, 6), squashed=squashes)
        )
    assert len(service.requests) == 1


def test_generator_sends_its_parameters_and_returns_official_records(service, model):
    first, second = SamAutomaticMaskGenerator(
        model, points_per_side=4, pred_iou_thresh=0.5
    ).generate(RGB)
    official = {
        each.name: each.default
        for each in inspect.signature(SamAutomaticMaskGenerator).parameters.values()
    }
    for name in ("model", "points_per_batch", "point_grids", "output_mode"):
        del official[name]
    expected = {**official, "points_per_side": 4, "pred_iou_thresh": 0.5}
    assert service.fields[0].items() >= expected.items()
    assert (first["segmentation"] == mask_with_area(2)).all()
    second["segmentation"] = fake.rle(second["segmentation"])
    assert second == {**fake.record(5), "bbox": [0, 0, 5, 1]}


@pytest.mark.parametrize(
    "mask", [mask_with_area(5), ~mask_with_area(5), mask_with_area(0), mask_with_area(24)]
)
def test_uncompressed_rle_has_the_official_form(service, model, mask):
    result = {**fake.IMAGE, "masks": [fake.record_of(mask, (0, 0, 6, 4))]}
    service.reply_with(fake.lines_reply({"done": 1, "total": 1, "result": result}))
    (found,) = SamAutomaticMaskGenerator(model, output_mode="uncompressed_rle").generate(RGB)
    assert (coco.decode(coco.frPyObjects(found["segmentation"], 4, 6)) == mask).all()
    assert all(isinstance(count, int) for count in found["segmentation"]["counts"])


def test_unavailable_options_are_rejected(model):
    for options in ({"point_grids": [np.ones((1, 2))]}, {"points_per_side": None}):
        with pytest.raises(NotImplementedError, match="takes no point_grids"):
            SamAutomaticMaskGenerator(model, **options)
    with pytest.raises(
        ValueError, match="output_mode: expected binary_mask, uncompressed_rle, coco_rle, got 'png'"
    ):
        SamAutomaticMaskGenerator(model, output_mode="png")
