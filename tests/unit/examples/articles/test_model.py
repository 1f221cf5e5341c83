"""Inputs of the model `mobile_sam` of examples/articles, without Triton."""

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import ROOT

MODEL = ROOT / "examples/articles/model_repository/mobile_sam/1/model.py"
DESCRIPTOR = {
    "side": 1024,
    "resize": "longest_side",
    "embedding": {"image_embeddings": []},
    "prompts": ["points", "boxes"],
}
CLICK = np.array([[50, 25]], np.float32), np.array([1], np.int32)
PIXELS = np.zeros((30, 40, 3), np.uint8)
FILLER = [[0, 0]]


class TritonModelException(Exception):
    pass


@pytest.fixture
def model(monkeypatch) -> Any:
    """The module of the model."""
    utils: Any = ModuleType("triton_python_backend_utils")
    utils.TritonModelException = TritonModelException
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utils)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the model may add to it
    return SimpleNamespace(**runpy.run_path(str(MODEL)))


def loaded(
    model: Any, repository: Path, logits: Any, **descriptor: Any
) -> tuple[Any, dict[str, Any]]:
    """Return the initialised model, with a decoder that answers the logits, and the inputs that
    the two others get.
    """
    record = repository / "mobile_sam" / "1" / "weights.json"
    record.parent.mkdir(parents=True)
    (repository / "mobile_sam_encoder").mkdir()
    record.write_text(json.dumps({"descriptor": {**DESCRIPTOR, **descriptor}}))
    sent: dict[str, Any] = {}

    def call(name: str, inputs: dict[str, Any], outputs: list[str]) -> list[Any]:
        sent[name] = inputs
        return [np.array(logits, np.float32)[None, None] for _ in outputs]

    made = model.TritonPythonModel()
    made.segment.__globals__["call"] = call
    config = json.dumps({"parameters": {"max_image_pixels": {"string_value": "100"}}})
    made.initialize(
        {"model_config": config, "model_repository": str(record.parents[1]), "model_version": "1"}
    )
    return made, sent


def points(
    model: Any, positive: Any, negative: Any, labels: Any
) -> tuple[list[list[float]], list[int]]:
    """Return the points and their labels as lists."""
    arrays = [
        np.array(values, np.int64) for values in (positive, np.reshape(negative, (-1, 2)), labels)
    ]
    points_xy, point_labels = model.to_points(*arrays, PIXELS)
    assert (points_xy.dtype, point_labels.dtype) == (np.float32, np.int32)
    return points_xy.tolist(), point_labels.tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(([[4, 5]], FILLER, [1]), ([[4, 5]], [1]), id="click"),
        pytest.param(([[0, 0]], FILLER, [1]), ([[0, 0]], [1]), id="click in the corner"),
        pytest.param(([[4, 5]], [], [1]), ([[4, 5]], [1]), id="no filler"),
        pytest.param(
            ([[4, 5]], [[0, 7], [0, 0]], [1]), ([[4, 5], [0, 7]], [1, 0]), id="negative point"
        ),
        pytest.param(
            ([[4, 5], [9, 9]], FILLER, [1, 0]),
            ([[4, 5], [9, 9]], [1, 0]),
            id="label of a negative point",
        ),
        pytest.param(([[1, 2], [40, 30]], FILLER, [2, 3]), ([[1, 2], [40, 30]], [2, 3]), id="box"),
    ],
)
def test_points_keep_their_labels_and_fillers_are_dropped(model, given, expected):
    assert points(model, *given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            ([], FILLER, []), "labels: expected one per point, got 0 for 0", id="no point"
        ),
        pytest.param(
            ([[4, 5]], FILLER, [1, 1]),
            "labels: expected one per point, got 2 for 1",
            id="too many labels",
        ),
        pytest.param(
            ([[4, 5]], FILLER, [4]), r"labels: expected 0, 1, 2 or 3, got \[4\]", id="label"
        ),
        pytest.param(([[4, 5]], FILLER, [2]), "labels: expected one box", id="half a box"),
        pytest.param(
            ([[9, 9], [4, 4]], FILLER, [2, 3]),
            "pos_coords: expected a box from top left",
            id="flipped box",
        ),
        pytest.param(
            ([[41, 5]], FILLER, [1]),
            r"0 <= x <= 40, 0 <= y <= 30, got \[41, 5\]",
            id="point outside",
        ),
        pytest.param(
            ([[4, 5]], [[-1, 5]], [1]),
            r"neg_coords: expected .*, got \[-1, 5\]",
            id="negative outside",
        ),
    ],
)
def test_invalid_points_are_rejected(model, given, message):
    with pytest.raises(model.InvalidInput, match=message):
        points(model, *given)


def test_pixels_are_rounded_copies_of_the_image(model):
    image = np.array([[[0, 127.5, 255], [1.2, 1.7, 254.6]]], np.float32)
    pixels = model.to_pixels(image, 2)
    assert pixels.dtype == np.uint8
    assert pixels.tolist() == [[[0, 128, 255], [1, 2, 255]]]


def test_black_image_and_one_of_zeros_and_ones_are_accepted(model):
    for value in (0, 1):
        assert (model.to_pixels(np.full((2, 2, 3), value, np.float32), 4) == value).all()


@pytest.mark.parametrize(
    ("image", "message"),
    [
        pytest.param(
            np.full((2, 3, 3), 256), "values from 0 to 255, got 256 to 256", id="above 255"
        ),
        pytest.param(np.full((2, 3, 3), -0.5), "values from 0 to 255, got -0.5", id="negative"),
        pytest.param(
            np.full((2, 3, 3), np.nan), "values from 0 to 255, got nan", id="not a number"
        ),
        pytest.param(np.full((2, 3, 3), np.inf), "values from 0 to 255, got inf", id="infinite"),
        pytest.param(
            np.linspace(0, 1, 18).reshape(2, 3, 3),
            "got 0 to 1: multiply by 255",
            id="divided by 255",
        ),
        pytest.param(np.zeros((0, 3, 3)), "expected 1 to 10 pixels, got 3 x 0", id="empty"),
        pytest.param(np.zeros((4, 3, 3)), "expected 1 to 10 pixels, got 3 x 4", id="too large"),
    ],
)
def test_invalid_pixels_are_rejected(model, image, message):
    with pytest.raises(model.InvalidInput, match=message):
        model.to_pixels(image.astype(np.float32), 10)


@pytest.mark.parametrize(
    ("resize", "frame_hw", "rows"),
    [
        pytest.param("longest_side", [512, 1024], 50, id="longest side"),
        pytest.param("squash", [1024, 1024], 25, id="squash"),
    ],
)
def test_image_and_points_are_scaled_as_the_weights_need_it(
    model, tmp_path, resize, frame_hw, rows
):
    top_quarter = np.where(np.arange(256) < 64, 1, -1)[:, None].repeat(256, axis=1)
    made, sent = loaded(model, tmp_path, top_quarter, resize=resize)
    mask = made.segment(np.full((100, 200, 3), 9, np.uint8), *CLICK)
    assert sent["mobile_sam_encoder"]["sizes_hw"].tolist() == [frame_hw]
    points = sent["mobile_sam_decoder"]["point_coords"][0]
    assert points.tolist() == [[50 * 1024 / 200, 25 * frame_hw[0] / 100], [0, 0]]
    assert sent["mobile_sam_decoder"]["point_labels"].tolist() == [[1, -1]]
    assert mask.shape == (100, 200)
    assert mask[:rows].all()
    assert not mask[rows:].any()


def test_logits_that_are_not_finite_are_an_error(model, tmp_path):
    made, _ = loaded(model, tmp_path, np.full((256, 256), np.nan))
    with pytest.raises(TritonModelException, match="mobile_sam_decoder: expected finite logits"):
        made.segment(PIXELS, *CLICK)


def test_weights_for_boxes_only_refuse_clicks(model, tmp_path):
    made, _ = loaded(model, tmp_path, np.ones((256, 256)), prompts=["boxes"])
    with pytest.raises(model.InvalidInput, match="labels: expected a box"):
        made.segment(PIXELS, *CLICK)
    corners = np.array([[1, 2], [40, 30]], np.float32)
    assert made.segment(PIXELS, corners, np.array([2, 3], np.int32)).all()


def test_missing_weights_name_make_weights(model, tmp_path):
    config = json.dumps({"parameters": {"max_image_pixels": {"string_value": "100"}}})
    folder = str(tmp_path / "mobile_sam")
    with pytest.raises(
        TritonModelException, match=r"weights.json: no such file; `make weights` writes it"
    ):
        model.TritonPythonModel().initialize(
            {"model_config": config, "model_repository": folder, "model_version": "1"}
        )
