"""JSON bodies."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from mobile_sam_client._bodies import body_by_file, body_by_id

FIELDS = {"a": [[1.5, 2]], "b": "ü", "c": np.int64(3), "d": np.float32(0.5), "e": np.bool_(True), "f": None}
SENT = {"a": [[1.5, 2]], "b": "ü", "c": 3, "d": 0.5, "e": True, "f": None}


@pytest.mark.parametrize(("fields", "sent"), [(FIELDS, SENT), ({}, {})], ids=["fields", "the image alone"])
def test_a_body_holds_the_image_and_the_fields(fields, sent):
    file = bytes(range(256))
    assert json.loads(body_by_id("the id", fields)) == {"image_id": "the id", **sent}
    assert json.loads(body_by_file(file, fields)) == {"input_image": base64.b64encode(file).decode(), **sent}


@pytest.mark.parametrize("value", [float("nan"), np.float64("inf"), {1, 2}], ids=["NaN", "infinity", "a set"])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ValueError, match=r"^crop_n_layers: expected finite numbers, truth values, texts or lists of s"):
        body_by_file(b"file", {"points_per_side": 3, "crop_n_layers": value})
