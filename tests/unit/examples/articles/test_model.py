"""Inputs of the model `mobile_sam` of examples/articles, without Triton."""

import runpy
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import ROOT

MODEL = ROOT / "examples/articles/model_repository/mobile_sam/1/model.py"
PIXELS = np.zeros((30, 40, 3), np.uint8)
FILLER = [[0, 0]]


@pytest.fixture(scope="module")
def model() -> Any:
    """The module of the model."""
    sys.modules.setdefault("triton_python_backend_utils", ModuleType("triton_python_backend_utils"))
    return SimpleNamespace(**runpy.run_path(str(MODEL)))


def points(model: Any, positive: Any, negative: Any, labels: Any) -> tuple[list[list[float]], list[int]]:
    """Return the points and their labels as lists."""
    arrays = [np.array(values, np.int64) for values in (positive, np.reshape(negative, (-1, 2)), labels)]
    points_xy, point_labels = model.to_points(*arrays, PIXELS)
    assert (points_xy.dtype, point_labels.dtype) == (np.float32, np.int32)
    return points_xy.tolist(), point_labels.tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(([[4, 5]], FILLER, [1]), ([[4, 5]], [1]), id="click"),
        pytest.param(([[0, 0]], FILLER, [1]), ([[0, 0]], [1]), id="click in the corner"),
        pytest.param(([[4, 5]], [], [1]), ([[4, 5]], [1]), id="no filler"),
        pytest.param(([[4, 5]], [[0, 7], [0, 0]], [1]), ([[4, 5], [0, 7]], [1, 0]), id="negative point"),
        pytest.param(([[4, 5], [9, 9]], FILLER, [1, 0]), ([[4, 5], [9, 9]], [1, 0]), id="label of a negative point"),
        pytest.param(([[1, 2], [40, 30]], FILLER, [2, 3]), ([[1, 2], [40, 30]], [2, 3]), id="box"),
    ],
)
def test_points_keep_their_labels_and_fillers_are_dropped(model, given, expected):
    assert points(model, *given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(([], FILLER, []), "labels: expected one per point, got 0 for 0", id="no point"),
        pytest.param(([[4, 5]], FILLER, [1, 1]), "labels: expected one per point, got 2 for 1", id="too many labels"),
        pytest.param(([[4, 5]], FILLER, [4]), r"labels: expected 0, 1, 2 or 3, got \[4\]", id="label"),
        pytest.param(([[4, 5]], FILLER, [2]), "labels: expected one box", id="half a box"),
        pytest.param(([[9, 9], [4, 4]], FILLER, [2, 3]), "pos_coords: expected a box from top left", id="flipped box"),
        pytest.param(([[41, 5]], FILLER, [1]), r"0 <= x <= 40, 0 <= y <= 30, got \[41, 5\]", id="point outside"),
        pytest.param(([[4, 5]], [[-1, 5]], [1]), r"neg_coords: expected .*, got \[-1, 5\]", id="negative outside"),
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
        pytest.param(np.full((2, 3, 3), 256), "values from 0 to 255, got 256 to 256", id="above 255"),
        pytest.param(np.full((2, 3, 3), -0.5), "values from 0 to 255, got -0.5", id="negative"),
        pytest.param(np.full((2, 3, 3), np.nan), "values from 0 to 255, got nan", id="not a number"),
        pytest.param(np.full((2, 3, 3), np.inf), "values from 0 to 255, got inf", id="infinite"),
        pytest.param(np.linspace(0, 1, 18).reshape(2, 3, 3), "got 0 to 1: multiply by 255", id="divided by 255"),
        pytest.param(np.zeros((0, 3, 3)), "expected 1 to 10 pixels, got 3 x 0", id="empty"),
        pytest.param(np.zeros((4, 3, 3)), "expected 1 to 10 pixels, got 3 x 4", id="too large"),
    ],
)
def test_invalid_pixels_are_rejected(model, image, message):
    with pytest.raises(model.InvalidInput, match=message):
        model.to_pixels(image.astype(np.float32), 10)
