"""The request model and its parsing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from utils.errors import InvalidRequest, MalformedBody
from utils.prompts import MAX_ERRORS, MAX_POINTS, SegmentRequest, parse_body, to_prompt


def parse(**fields: object) -> SegmentRequest:
    return parse_body(json.dumps({"input_image": "AAAA", **fields}).encode())


def refusal(body: bytes) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        to_prompt(parse_body(body))
    return caught.value


def test_a_click_is_positive_unless_labels_say_otherwise():
    prompt = to_prompt(parse(pos_coords=[[3, 4.5]]))
    assert prompt.points_xy.tolist() == [[3, 4.5]]
    assert prompt.points_xy.dtype == np.float32
    assert prompt.labels.tolist() == [1]
    assert prompt.fields == ("pos_coords[0]",)


def test_labels_negative_points_and_box_become_one_list():
    prompt = to_prompt(parse(pos_coords=[[1, 2], [3, 4]], labels=[1, 0], neg_coords=[[5, 6]], box=[0, 1, 9, 8]))
    assert prompt.points_xy.tolist() == [[1, 2], [3, 4], [5, 6], [0, 1], [9, 8]]
    assert prompt.labels.tolist() == [1, 0, 0, 2, 3]
    assert prompt.fields == ("pos_coords[0]", "pos_coords[1]", "neg_coords[0]", "box", "box")


def test_a_box_and_points_labelled_2_and_3_are_the_same():
    by_field = to_prompt(parse(box=[1, 2, 3, 4]))
    by_labels = to_prompt(parse(pos_coords=[[1, 2], [3, 4]], labels=[2, 3]))
    assert by_field.points_xy.tolist() == by_labels.points_xy.tolist()
    assert by_field.labels.tolist() == by_labels.labels.tolist()


def test_null_means_left_out():
    assert to_prompt(parse(pos_coords=None, labels=None, neg_coords=None, box=[0, 0, 1, 1])).labels.tolist() == [2, 3]


def test_defaults_are_one_mask_as_json_and_an_overlay():
    request = parse(box=[0, 0, 1, 1])
    assert (request.multimask_output, request.mask_format, request.segmented_image) == (False, "json", "overlay")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="cut off"),
        pytest.param(b"{'a': 1}", id="single quotes"),
        pytest.param(b"\xff\xfe", id="no UTF-8"),
        pytest.param(b'{"input_image": "\xff"}', id="no UTF-8 in a string"),
        pytest.param(b'{"input_image": "\\ud800"}', id="half a surrogate pair"),
        pytest.param(b"[" * 200_000, id="200,000 deep"),
        pytest.param(b'{"input_image":' + b'{"a":' * 200_000, id="200,000 deep in a field"),
        pytest.param(b'{"labels": [1' + b"0" * 10_000 + b"]}", id="an integer of 10,000 digits"),
    ],
)
def test_what_is_no_json_is_malformed(body):
    with pytest.raises(MalformedBody, match="expected a JSON object in UTF-8, got"):
        parse_body(body)


@pytest.mark.parametrize(
    ("fields", "field", "expected", "got"),
    [
        pytest.param({}, "pos_coords", "a point in pos_coords or neg_coords, or a box", "no prompt", id="no prompt"),
        pytest.param({"pos_coords": []}, "pos_coords", "a point in", "no prompt", id="no points"),
        pytest.param({"point": [1, 2]}, "point", "one of the fields input_image, pos_coords", "unknown", id="unknown"),
        pytest.param({"pos_coords": [[1, 2, 3]]}, "pos_coords[0]", "[x, y]", "a list of 3", id="three numbers"),
        pytest.param({"pos_coords": [[1]]}, "pos_coords[0]", "[x, y]", "a list of 1", id="one number"),
        pytest.param({"pos_coords": [1, 2]}, "pos_coords[0]", "[x, y]", "1", id="a flat list"),
        pytest.param({"pos_coords": [["1", 2]]}, "pos_coords[0][0]", "number", "'1'", id="a number as text"),
        pytest.param({"pos_coords": [[True, 2]]}, "pos_coords[0][0]", "number", "true", id="a bool as number"),
        pytest.param({"pos_coords": "all"}, "pos_coords", "array", "'all'", id="text for a list"),
        pytest.param({"pos_coords": [[1e7, 2]]}, "pos_coords[0][0]", "1000000", "10000000.0", id="far outside"),
        pytest.param({"pos_coords": [[1, 2]], "labels": [1, 0]}, "labels", "1 labels", "2", id="lengths differ"),
        pytest.param({"labels": [1], "box": [0, 0, 1, 1]}, "labels", "0 labels", "1", id="labels without points"),
        pytest.param({"pos_coords": [[1, 2]], "labels": [4]}, "labels[0]", "3", "4", id="unknown label"),
        pytest.param({"pos_coords": [[1, 2]], "labels": [1.5]}, "labels[0]", "0, 1, 2 or 3", "1.5", id="half a label"),
        pytest.param({"pos_coords": [[1, 2]], "labels": [True]}, "labels[0]", "0, 1", "true", id="a bool as label"),
        pytest.param(
            {"pos_coords": [[1, 2]], "labels": [2]}, "labels", "at most one box", "1 top-left", id="half a box"
        ),
        pytest.param({"box": [0, 0, 1]}, "box", "[x0, y0, x1, y1]", "a list of 3", id="a box of three"),
        pytest.param({"box": [5, 0, 1, 1]}, "box", "x0 < x1 and y0 < y1", "[5, 0, 1, 1]", id="a box inside out"),
        pytest.param({"box": [1, 1, 1, 1]}, "box", "x0 < x1 and y0 < y1", "[1, 1, 1, 1]", id="an empty box"),
        pytest.param({"mask_format": "bmp"}, "mask_format", "'json'", "'bmp'", id="unknown format"),
        pytest.param({"segmented_image": 1}, "segmented_image", "'overlay'", "1", id="a number for a word"),
        pytest.param({"multimask_output": "yes"}, "multimask_output", "boolean", "'yes'", id="text for a bool"),
        pytest.param({"input_image": 5}, "input_image", "string", "5", id="a number for the image"),
    ],
)
def test_a_wrong_field_is_named_with_expected_and_got(fields, field, expected, got):
    error = refusal(json.dumps({"input_image": "AAAA", **fields}).encode()).errors[0]
    assert error.field == field
    assert expected in error.expected
    assert got in error.got


def test_two_boxes_for_one_object_are_refused():
    error = refusal(b'{"input_image": "A", "box": [0,0,1,1], "pos_coords": [[0,0],[1,1]], "labels": [2,3]}').errors[0]
    assert (error.field, error.got) == ("box", "2 top-left and 2 bottom-right corners")


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_numbers_must_be_finite(number):
    error = refusal(b'{"input_image": "A", "pos_coords": [[%s, 1]]}' % number).errors[0]
    assert (error.field, error.expected) == ("pos_coords[0][0]", "a finite number")


def test_a_body_that_is_no_object_is_refused():
    assert refusal(b"[1, 2]").errors[0].expected == "a JSON object"


def test_the_image_is_required():
    error = refusal(b'{"pos_coords": [[1, 2]]}').errors[0]
    assert (error.field, error.got) == ("input_image", "nothing")


def test_points_are_bounded():
    assert len(to_prompt(parse(pos_coords=[[1, 2]] * MAX_POINTS)).labels) == MAX_POINTS
    assert refusal(json.dumps({"input_image": "A", "pos_coords": [[1, 2]] * 100_000}).encode()).errors


def test_an_error_lists_no_more_than_a_few_fields_and_short_ones():
    fields = {f"{'x' * 500}{index}": 0 for index in range(1000)}
    error = refusal(json.dumps(fields).encode())
    assert len(error.errors) == MAX_ERRORS
    assert len(error.problem().encode()) < 10_000


def test_the_schema_describes_every_field():
    for name, field in SegmentRequest.model_json_schema()["properties"].items():
        assert field["description"], name
