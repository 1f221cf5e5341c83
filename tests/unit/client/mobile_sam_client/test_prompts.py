"""Prompts as they stand in a request."""

from __future__ import annotations

import numpy as np
import pytest

from mobile_sam_client import Prompt
from mobile_sam_client._prompts import fields_of
from tests.unit.client.mobile_sam_client.fake_service import low_res_mask


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"pos_coords": [[1, 2.5]]}, {"pos_coords": [[1.0, 2.5]]}),
        ({"pos_coords": []}, {"pos_coords": []}),
        ({"neg_coords": ((1, 2), (3, 4))}, {"neg_coords": [[1, 2], [3, 4]]}),
        ({"neg_coords": np.empty((0, 2), np.float32)}, {"neg_coords": []}),
        ({"labels": (2.0, 3.0)}, {"labels": [2, 3]}),
        ({"labels": []}, {"labels": []}),
        ({"box": np.array([1, 2, 3, 4], np.uint8)}, {"box": [1, 2, 3, 4]}),
        ({"mask_input": np.full((256, 256), 2, ">f8").T}, {"mask_input": low_res_mask(2)}),
    ],
    ids=["none", "lists", "no points", "tuples", "an empty array", "labels", "no labels", "an array", "a mask"],
)
def test_what_is_given_is_sent_and_nothing_else(given, sent):
    assert fields_of(Prompt(**given)) == sent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"pos_coords": [320, 240]}, r"pos_coords: expected (N, 2) numbers, x then y, got shape (2,)"),
        ({"pos_coords": np.ones((2, 3))}, r"pos_coords: expected (N, 2) numbers, x then y, got shape (2, 3)"),
        ({"pos_coords": [[1, 2], [3]]}, "pos_coords: expected (N, 2) numbers, x then y, got lists of different"),
        ({"neg_coords": [["1", "2"]]}, "neg_coords: expected (N, 2) numbers, x then y, got texts"),
        ({"neg_coords": [[None, 2]]}, "neg_coords: expected (N, 2) numbers, x then y, got what is no number"),
        ({"neg_coords": [[1, float("nan")]]}, "neg_coords: expected finite numbers, got NaN or infinity"),
        ({"labels": [[1]]}, "labels: expected whole numbers of 0, 1, 2 or 3, one per point of pos_coords, got [[1]]"),
        ({"labels": [0.5]}, "labels: expected whole numbers of 0, 1, 2 or 3, one per point of pos_coords, got [0.5]"),
        ({"labels": [float("inf")]}, "labels: expected whole numbers of 0, 1, 2 or 3, one per point of pos_coords"),
        ({"labels": [True]}, "labels: expected whole numbers of 0, 1, 2 or 3, one per point of pos_coords, got bool"),
        ({"box": [[1, 2], [3, 4]]}, "box: expected four numbers, x0, y0, x1, y1, got shape (2, 2)"),
        ({"box": "1,2,3,4"}, "box: expected four numbers, x0, y0, x1, y1, got texts"),
        ({"box": []}, "box: expected four numbers, x0, y0, x1, y1, got shape (0,)"),
        ({"mask_input": np.ones((4, 4))}, "mask_input: expected a low_res_mask of an earlier answer, (256, 256)"),
        ({"mask_input": np.ones((256, 256), bool)}, "logits, got bool of shape (256, 256)"),
        ({"mask_input": np.full((256, 256), np.nan)}, "mask_input: expected finite float32 numbers, got NaN"),
        ({"mask_input": np.full((256, 256), 1e39)}, "mask_input: expected finite float32 numbers, got NaN"),
        ({"mask_input": "base64"}, "logits, got <U6 of shape ()"),
    ],
    ids=[
        "a point alone", "points of three", "ragged", "texts", "null", "NaN", "labels in lists", "half a label",
        "an infinite label", "a truth value", "two corners", "a text", "an empty box", "a small mask", "a mask of bool",
        "a mask of NaN", "a mask beyond float32", "a mask as text",
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_what_was_expected_and_what_came(given, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is held below)
        fields_of(Prompt(**given))
    assert message in str(raised.value)
