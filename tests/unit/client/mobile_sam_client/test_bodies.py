"""JSON request bodies."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from mobile_sam_client._bodies import body_with_image_file, body_with_image_id

FIELDS = {"a": [[1.5, 2]], "b": "ü", "c": np.int64(3), "d": np.float32(0.5), "e": np.bool_(True), "f": None}
SENT = {"a": [[1.5, 2]], "b": "ü", "c": 3, "d": 0.5, "e": True, "f": None}


@pytest.mark.parametrize(("fields", "sent"), [(FIELDS, SENT), ({}, {})], ids=["fields", "image only"])
def test_body_contains_image_and_fields(fields, sent):
    file = bytes(range(256))
    assert json.loads(body_with_image_id("the id", fields)) == {"image_id": "the id", **sent}
    assert json.loads(body_with_image_file(file, fields)) == {"input_image": base64.b64encode(file).decode(), **sent}


@pytest.mark.parametrize("value", [float("nan"), np.float64("inf"), {1, 2}], ids=["NaN", "infinity", "set"])
def test_value_without_json_form_is_rejected(value):
    with pytest.raises(ValueError, match=r"^crop_n_layers: expected finite numbers, bools, strings or lists of these"):
        body_with_image_file(b"file", {"points_per_side": 3, "crop_n_layers": value})
