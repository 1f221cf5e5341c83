"""The request models: their bounds, and the errors for invalid requests."""

import json

import pytest

from utils.api import request_body
from utils.api.inputs import MAX_TOTAL_POINTS, to_inference_request
from utils.api.request_body import MAX_DETAILED_ERRORS, MAX_ERRORS, MAX_VALUES, parse_body
from utils.api.requests import (
    MAX_OBJECTS,
    MAX_POINTS,
    EmbedRequest,
    EverythingRequest,
    ImageFields,
    ObjectFields,
    SegmentRequest,
)
from utils.errors import FieldError, InvalidRequest, MalformedBody

OBJECT_FIELDS = "one of the fields pos_coords, labels, neg_coords, box, mask_input"


def parse(model: type[ImageFields] = SegmentRequest, /, **fields: object):
    return parse_body(json.dumps({"input_image": "AAAA", **fields}).encode(), model)


def rejection(body: bytes, model: type[ImageFields] = SegmentRequest) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        parse_body(body, model)
    return caught.value


def first_error(model: type[ImageFields] = SegmentRequest, /, **fields: object) -> FieldError:
    return rejection(json.dumps({"input_image": "AAAA", **fields}).encode(), model).errors[0]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="truncated"),
        pytest.param(b"\xff\xfe", id="not UTF-8"),
        pytest.param(b'{"input_image": "\xff"}', id="not UTF-8 in a string"),
        pytest.param(b'{"input_image": "\\ud800"}', id="lone surrogate"),
        pytest.param(b'{"\\ud800": 1}', id="lone surrogate in a key"),
        pytest.param(b"[" * 19_000, id="19,000 deep"),
        pytest.param(b'{"input_image":' + b'{"a":' * 19_000, id="19,000 deep in a field"),
        pytest.param(b'{"labels": [1' + b"0" * 10_000 + b"]}", id="an integer of 10,000 digits"),
        pytest.param(b"\xef\xbb\xbf\xef\xbb\xbf{}", id="two byte order marks"),
    ],
)
def test_body_that_is_not_json_is_malformed(body):
    with pytest.raises(MalformedBody, match="expected a JSON object in UTF-8, got"):
        parse_body(body, SegmentRequest)


@pytest.mark.parametrize("body", [b"[1, 2]", b"null", b"1", b'"text"'])
def test_body_that_is_not_an_object_is_rejected(body):
    error = rejection(body).errors[0]
    assert (error.field, error.expected) == ("body", "a JSON object")


def test_byte_order_mark_is_accepted():
    assert parse_body(b'\xef\xbb\xbf{"image_id": "an id"}', EmbedRequest).image_id == "an id"


@pytest.mark.parametrize("size", [0, 1_000_000], ids=["short", "long"])
@pytest.mark.parametrize("value", ["7,", "[],", '{"a":{}}', "[[", "[{}]"])
def test_body_with_too_many_values_is_rejected_without_parsing(value, size):
    body = b'{"labels": [' + value.encode() * MAX_VALUES + b" " * size + b"not JSON"
    error = rejection(body).errors[0]
    assert error == FieldError("body", f"at most {MAX_VALUES} values (split the request)", "more")


def test_largest_valid_request_is_parsed():
    """Every object has all fields, the empty ones included; the image does not count as values."""
    points = MAX_TOTAL_POINTS // MAX_OBJECTS
    full = {
        "pos_coords": [[1, 2]] * points,
        "labels": [1] * points,
        "neg_coords": [],
        "box": None,
        "mask_input": None,
    }
    request = parse(prompts=[full] * MAX_OBJECTS, input_image="A" * 2 * MAX_VALUES)
    assert len(to_inference_request(request).point_paths) == MAX_OBJECTS
    assert (
        rejection(b'{"labels": [' + b"7," * (MAX_VALUES - 2) + b"7]}").errors[0].field == "labels"
    )


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999"])
def test_numbers_must_be_finite(number):
    error = rejection(b'{"input_image": "A", "pos_coords": [[%s, 1]]}' % number).errors[0]
    assert (error.field, error.expected) == ("pos_coords[0][0]", "a finite number")
    error = rejection(
        b'{"input_image": "A", "crop_overlap_ratio": %s}' % number, EverythingRequest
    ).errors[0]
    assert (error.field, error.expected) == ("crop_overlap_ratio", "a finite number")


REGION = '[x0, y0, x1, y1], or "auto" with prompts'
MANY = [[1, 2]] * (MAX_POINTS + 1)


@pytest.mark.parametrize("prefix", ["", "prompts[1]."], ids=["top level", "second object"])
@pytest.mark.parametrize(
    ("fields", "field", "expected", "got"),
    [
        ({"pos_coords": [[1, 2, 3]]}, "pos_coords[0]", "[x, y]", "a list of 3"),
        ({"pos_coords": [1, 2]}, "pos_coords[0]", "[x, y]", "1"),
        ({"neg_coords": [[1, 2], []]}, "neg_coords[1]", "[x, y]", "a list of 0"),
        ({"pos_coords": [["1", 2]]}, "pos_coords[0][0]", "a valid number", "'1'"),
        (
            {"pos_coords": [[1e7, 2]]},
            "pos_coords[0][0]",
            "less than or equal to 1000000",
            "10000000.0",
        ),
        ({"neg_coords": MANY}, "neg_coords", "at most 256 items", "a list of 257"),
        ({"box": [-1e7, 0, 1, 1]}, "box[0]", "greater than or equal to -1000000", "-10000000.0"),
        ({"labels": [1, 4]}, "labels[1]", "0, 1, 2 or 3", "4"),
        ({"labels": [-1]}, "labels[0]", "0, 1, 2 or 3", "-1"),
        ({"labels": [True]}, "labels[0]", "0, 1, 2 or 3", "true"),
        ({"labels": 1}, "labels", "a valid array", "1"),
        ({"box": [0, 0, 1]}, "box", "[x0, y0, x1, y1]", "a list of 3"),
        ({"box": {"x": 1}}, "box", "[x0, y0, x1, y1]", "an object of 1"),
        ({"box": [0, 0, 1, "1"]}, "box[3]", "a valid number", "'1'"),
        ({"mask_input": [[0.5]]}, "mask_input", "a valid string", "a list of 1"),
        ({"colour": "x"}, "colour", OBJECT_FIELDS, "an unknown field"),
        ({"": 1}, '""', OBJECT_FIELDS, "an unknown field"),
    ],
)
def test_invalid_field_is_reported_with_expected_and_got(fields, field, expected, got, prefix):
    error = (
        first_error(prompts=[{"box": [0, 0, 1, 1]}, fields]) if prefix else first_error(**fields)
    )
    assert error.field == prefix + field
    assert error.expected.startswith(expected if prefix else expected.removesuffix(OBJECT_FIELDS))
    assert error.got.startswith(got)


@pytest.mark.parametrize(
    ("model", "value", "field", "expected", "got"),
    [
        (SegmentRequest, {}, "prompts", "a valid array", "an object of 0"),
        (SegmentRequest, [{}, 5], "prompts[1]", "an object", "5"),
        (SegmentRequest, [{}] * (MAX_OBJECTS + 1), "prompts", "at most 256 items", "a list of 257"),
        (SegmentRequest, [], "prompts", "at least 1 item", "a list of 0"),
        (SegmentRequest, "bmp", "mask_format", "'json', 'npy', 'png', 'rle' or 'polygon'", "'bmp'"),
        (SegmentRequest, "yes", "multimask_output", "a valid boolean", "'yes'"),
        (SegmentRequest, "Auto", "region", REGION, "'Auto'"),
        (SegmentRequest, [1, 2, 3], "region", REGION, "a list of 3"),
        (EmbedRequest, "auto", "region", REGION, "'auto'"),
        (EverythingRequest, [0, 0, 1, 1, 1], "region", REGION, "a list of 5"),
        (EmbedRequest, 5, "image_id", "a valid string", "5"),
        (EverythingRequest, 3.0, "points_per_side", "a valid integer", "3.0"),
        (EverythingRequest, None, "crop_n_layers", "a valid integer", "null"),
        (EverythingRequest, 0, "stability_score_offset", "greater than 0", "0"),
        (EverythingRequest, 65, "points_per_side", "less than or equal to 64", "65"),
    ],
)
def test_invalid_top_level_field_is_reported_with_expected_and_got(
    model, value, field, expected, got
):
    assert first_error(model, **{field.partition("[")[0]: value}) == FieldError(
        field, expected, got
    )


@pytest.mark.parametrize("model", [SegmentRequest, EmbedRequest, EverythingRequest])
def test_unknown_field_lists_the_known_ones(model):
    error = first_error(model, colour=[1, 2])
    assert (error.field, error.got) == ("colour", "an unknown field")
    known = error.expected.removeprefix("one of the fields ").split(", ")
    assert sorted(known) == sorted(model.model_fields)


@pytest.mark.parametrize(
    "field", [*ObjectFields.model_fields, "input_image", "image_id", "prompts"]
)
def test_null_equals_an_absent_field(field):
    assert parse(**{field: None}) == parse(
        **({"input_image": None} if field == "input_image" else {})
    )


def test_error_lists_a_bounded_number_of_fields_and_characters():
    fields = {f"{index}{'x' * 500}": 0 for index in range(1000)}
    error = rejection(json.dumps(fields).encode())
    assert len(error.errors) == MAX_ERRORS
    assert len(error.problem().encode()) < 10_000


def test_field_name_with_line_breaks_is_escaped():
    assert first_error(**{"a\nb\x1b[31m": 1}).field == "a\\nb\\x1b[31m"


def test_long_value_is_truncated_with_its_length():
    assert first_error(mask_format="x" * 500).got.endswith("... (500 characters)")


@pytest.mark.parametrize("good", [0, MAX_OBJECTS - 70])
def test_details_are_made_of_few_errors(monkeypatch, good):
    counts: list[int] = []
    refusal = request_body._refusal

    def counting(error, model):
        counts.append(error.error_count())
        return refusal(error, model)

    monkeypatch.setattr(request_body, "_refusal", counting)
    bad = [{"labels": [9] * 70}] * 70
    prompts = [{"labels": [1]}] * good + bad
    errors = rejection(json.dumps({"image_id": "a", "prompts": prompts}).encode()).errors
    if good:
        assert errors == (FieldError("body", "a valid request", "4900 invalid values"),)
        assert not counts
    else:
        assert errors[0] == FieldError("prompts[0].labels[0]", "0, 1, 2 or 3", "9")
        assert (len(errors), len(counts)) == (MAX_ERRORS, 1)
        assert counts[0] <= MAX_DETAILED_ERRORS
