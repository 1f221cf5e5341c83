"""Request fields of prompts, and JSON bodies."""

import base64
import json

import numpy as np
import pytest

from mobile_sam_client import Prompt
from mobile_sam_client._prompts import request_body, request_fields
from tests.unit.client.mobile_sam_client.fake_service import low_res_mask


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({}, {}),
        ({"pos_coords": (320, 240.5)}, {"pos_coords": [[320, 240.5]]}),
        ({"neg_coords": np.array([3, 4], np.int16)}, {"neg_coords": [[3, 4]]}),
        ({"neg_coords": ((1, 2), (3, 4))}, {"neg_coords": [[1, 2], [3, 4]]}),
        ({"neg_coords": np.empty((0, 2), np.float32)}, {"neg_coords": []}),
        ({"labels": (2.0, 3.0)}, {"labels": [2, 3]}),
        ({"box": np.array([1, 2, 3, 4], np.uint8)}, {"box": [1, 2, 3, 4]}),
        ({"mask_input": np.full((256, 256), 2, ">f8").T}, {"mask_input": low_res_mask(2)}),
    ],
)
def test_only_given_fields_are_sent(given, sent):
    assert request_fields(Prompt(**given)) == sent


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"pos_coords": 320},
            "pos_coords: expected one point (x, y) or (N, 2) numbers, x then y, got shape ()",
        ),
        (
            {"pos_coords": [[1, 2], [3]]},
            "one point (x, y) or (N, 2) numbers, x then y, got lists of different",
        ),
        ({"neg_coords": [["1", "2"]]}, "one point (x, y) or (N, 2) numbers, x then y, got strings"),
        (
            {"neg_coords": [[1, float("nan")]]},
            "neg_coords: expected finite numbers, got NaN or infinity",
        ),
        (
            {"labels": [0.5]},
            "labels: expected integers from 0 to 3, one per point of pos_coords, got [0.5]",
        ),
        ({"box": [[1, 2], [3, 4]]}, "box: expected four numbers, x0, y0, x1, y1, got shape (2, 2)"),
        (
            {"mask_input": np.ones((4, 4))},
            "mask_input: expected the low_res_mask of an earlier result, (256, 256)",
        ),
        (
            {"mask_input": np.full((256, 256), 1e39)},
            "mask_input: expected finite float32 numbers, got NaN",
        ),
    ],
)
def test_invalid_field_is_rejected_with_expected_and_actual_value(given, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the message is checked below)
        request_fields(Prompt(**given))
    assert message in str(raised.value)


FIELDS = {
    "a": [[1.5, 2]],
    "b": "ü",
    "c": np.int64(3),
    "d": np.float32(0.5),
    "e": np.bool_(True),
    "f": None,
}
SENT = {"a": [[1.5, 2]], "b": "ü", "c": 3, "d": 0.5, "e": True, "f": None}


@pytest.mark.parametrize(
    ("fields", "sent"), [(FIELDS, SENT), ({}, {})], ids=["fields", "image only"]
)
def test_body_contains_image_and_fields(fields, sent):
    file = bytes(range(256))
    assert json.loads(request_body("the id", fields)) == {"image_id": "the id", **sent}
    assert json.loads(request_body(file, fields)) == {
        "input_image": base64.b64encode(file).decode(),
        **sent,
    }


@pytest.mark.parametrize(
    "value", [float("nan"), np.float64("inf"), {1, 2}], ids=["NaN", "infinity", "set"]
)
def test_value_without_json_form_is_rejected(value):
    with pytest.raises(
        ValueError,
        match=r"^crop_n_layers: expected finite numbers, bools, strings or lists of these",
    ):
        request_body(b"file", {"points_per_side": 3, "crop_n_layers": value})
