"""Conversion of a request's image and objects to model inputs."""

import base64
import builtins
import io
import json
import tracemalloc
import warnings

import numpy as np
import pytest

from utils.api.errors import FieldError, InvalidRequest
from utils.api.inputs import MAX_TOTAL_POINTS, decode_base64, image_source, to_prompts
from utils.api.received import parse_body
from utils.api.requests import MAX_POINTS, EmbedRequest, SegmentRequest

BOX = {"box": [0, 0, 9, 9]}
LOGITS = np.random.default_rng(1).normal(size=(256, 256)).astype(np.float32)
VALUES = 4 * 256 * 256
DATA = bytes(range(256))
TEXT = base64.b64encode(DATA).decode()


def prompts_of(**fields: object):
    body = json.dumps({"input_image": "AAAA", **fields}).encode()
    return to_prompts(parse_body(body, SegmentRequest))


def rejection(**fields: object) -> FieldError:
    with pytest.raises(InvalidRequest) as caught:
        prompts_of(**fields)
    (error,) = caught.value.errors
    return error


def npy(array, **options) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def header(descr: str = "'<f4'", fortran: str = "False", shape: str = "(256, 256)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}}}"


def with_header(source: str, version: bytes = b"\x01\x00") -> bytes:
    length = len(source).to_bytes(2 if version < b"\x02" else 4, "little")
    return b"\x93NUMPY" + version + length + source.encode("latin-1") + bytes(VALUES)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT, id="plain"),
        pytest.param("data:image/png;base64," + TEXT, id="data URL"),
        pytest.param("DATA:image/png;BASE64," + TEXT, id="data URL in capitals"),
        pytest.param("data:;base64," + TEXT, id="data URL without a type"),
        pytest.param(base64.encodebytes(DATA).decode(), id="lines of 76"),
        pytest.param(base64.encodebytes(DATA).decode().replace("\n", "\r\n"), id="lines of 76 with CRLF"),
        pytest.param(f" {TEXT}\n", id="surrounding whitespace"),
    ],
)
def test_base64_is_decoded(text):
    assert decode_base64(text, "field", "something") == DATA


@pytest.mark.parametrize(
    ("text", "got"),
    [
        pytest.param("", "an empty string", id="empty"),
        pytest.param(" \n", "an empty string", id="whitespace"),
        pytest.param("data:image/png;base64,", "an empty string", id="empty data URL"),
        pytest.param("data:image/png,abc", "without ;base64", id="data URL without base64"),
        pytest.param("data:", "without ;base64", id="truncated data URL"),
        pytest.param("https://example.org/a.png", "not base64", id="URL"),
        pytest.param("ÄÖÜ", "not base64", id="not ASCII"),
        pytest.param("A" * 4000 + "\u0660", "not base64", id="not ASCII after long base64"),
        pytest.param("AAA", "not base64", id="missing padding"),
        pytest.param(TEXT[:-3], "not base64", id="truncated"),
        pytest.param(TEXT.replace("A", "-"), "not base64", id="URL alphabet"),
    ],
)
def test_invalid_base64_is_rejected_with_the_field_name(text, got):
    with pytest.raises(InvalidRequest) as caught:
        decode_base64(text, "prompts[1].mask_input", "something")
    (error,) = caught.value.errors
    assert (error.field, error.expected) == ("prompts[1].mask_input", "something")
    assert got in error.got
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        ({}, "neither"),
        ({"input_image": None, "image_id": None}, "neither"),
        ({"input_image": TEXT, "image_id": "an id"}, "both"),
        ({"input_image": "", "image_id": ""}, "both"),
    ],
)
def test_image_source_requires_exactly_one_of_file_and_id(fields, got):
    with pytest.raises(InvalidRequest) as caught:
        image_source(EmbedRequest(**fields))
    assert caught.value.errors == (FieldError("input_image", "exactly one of input_image and image_id", got),)


def test_points_are_positive_without_labels():
    prompts = prompts_of(pos_coords=[[3, 4.5]])
    assert prompts.points_xy.tolist() == [[[3, 4.5]]]
    assert prompts.points_xy.dtype == np.float32
    assert prompts.labels.tolist() == [[1]]
    assert prompts.labels.dtype == np.int32
    assert prompts.fields == (("pos_coords[0]",),)
    assert prompts.masks.shape == (0, 256, 256)
    assert prompts.mask_objects.shape == (0,)


def test_labels_negative_points_and_box_are_combined():
    prompts = prompts_of(pos_coords=[[1, 2], [3, 4]], labels=[1, 0], neg_coords=[[5, 6]], box=[0, 1, 9, 8])
    assert prompts.points_xy.tolist() == [[[1, 2], [3, 4], [5, 6], [0, 1], [9, 8]]]
    assert prompts.labels.tolist() == [[1, 0, 0, 2, 3]]
    assert prompts.fields == (("pos_coords[0]", "pos_coords[1]", "neg_coords[0]", "box", "box"),)


def test_box_equals_points_labelled_2_and_3():
    by_field = prompts_of(box=[1, 2, 3, 4])
    by_labels = prompts_of(pos_coords=[[1, 2], [3, 4]], labels=[2, 3])
    assert by_field.points_xy.tolist() == by_labels.points_xy.tolist()
    assert by_field.labels.tolist() == by_labels.labels.tolist()


def test_several_objects_are_padded():
    prompts = prompts_of(prompts=[{"pos_coords": [[1, 2]]}, {"box": [0, 1, 9, 8], "neg_coords": [[5, 6]]}])
    assert prompts.points_xy.tolist() == [[[1, 2], [0, 0], [0, 0]], [[5, 6], [0, 1], [9, 8]]]
    assert prompts.labels.tolist() == [[1, -2, -2], [0, 2, 3]]
    assert prompts.fields == (
        ("prompts[0].pos_coords[0]",),
        ("prompts[1].neg_coords[0]", "prompts[1].box", "prompts[1].box"),
    )


NO_PROMPT = "a point in pos_coords or neg_coords, or a box"
ONE_BOX = "at most one box: one point labelled 2 and one labelled 3, or the field box"
ORDERED = "a box with x0 < x1 and y0 < y1"
TWO_BOXES = "2 top-left and 2 bottom-right corners"


@pytest.mark.parametrize("prefix", ["", "prompts[1]."], ids=["top level", "second object"])
@pytest.mark.parametrize(
    ("fields", "field", "expected", "got"),
    [
        ({}, "pos_coords", NO_PROMPT, "no prompt"),
        ({"pos_coords": [], "neg_coords": []}, "pos_coords", NO_PROMPT, "no prompt"),
        ({"mask_input": text(npy(LOGITS))}, "pos_coords", NO_PROMPT, "no prompt"),
        ({"pos_coords": [[1, 2]], "labels": [1, 0]}, "labels", "1 labels, one per point of pos_coords", "2"),
        ({"labels": [1], **BOX}, "labels", "0 labels, one per point of pos_coords", "1"),
        ({"pos_coords": [[1, 2]], "labels": [2]}, "labels", ONE_BOX, "1 top-left and 0 bottom-right corners"),
        ({"pos_coords": [[0, 0], [9, 9]] * 2, "labels": [2, 3] * 2}, "labels", ONE_BOX, TWO_BOXES),
        ({"pos_coords": [[0, 0], [9, 9]], "labels": [2, 3], **BOX}, "box", ONE_BOX, TWO_BOXES),
        ({"box": [5, 0, 1, 1]}, "box", ORDERED, "[5, 0, 1, 1]"),
        ({"box": [0, 5, 1, 1]}, "box", ORDERED, "[0, 5, 1, 1]"),
        ({"box": [1, 1, 1, 1]}, "box", ORDERED, "[1, 1, 1, 1]"),
        ({"pos_coords": [[5, 0], [1, 1]], "labels": [2, 3]}, "labels", ORDERED, "[5, 0, 1, 1]"),
    ],
)
def test_invalid_object_is_rejected(fields, field, expected, got, prefix):
    error = rejection(prompts=[BOX, fields]) if prefix else rejection(**fields)
    assert error == FieldError(prefix + field, expected, got)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pos_coords", [[1, 2]]),
        ("pos_coords", []),
        ("labels", [1]),
        ("neg_coords", [[1, 2]]),
        ("box", [0, 0, 1, 1]),
        ("mask_input", "AAAA"),
    ],
)
def test_prompts_and_top_level_fields_together_are_rejected(field, value):
    assert rejection(prompts=[BOX], **{field: value}) == FieldError(field, f"either prompts or {field}", "both")


def test_total_number_of_points_is_bounded():
    full = {"pos_coords": [[1, 2]] * MAX_POINTS}
    fitting = [full] * (MAX_TOTAL_POINTS // MAX_POINTS)
    assert prompts_of(prompts=fitting).labels.shape == (len(fitting), MAX_POINTS)
    error = rejection(prompts=[*fitting, {"pos_coords": [[1, 2]]}])
    assert error == FieldError(
        "prompts", f"at most {MAX_TOTAL_POINTS} points in all objects together", str(MAX_TOTAL_POINTS + 1)
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(npy(LOGITS), id="two dimensions"),
        pytest.param(npy(LOGITS[None]), id="three dimensions"),
        pytest.param(with_header(header(), b"\x02\x00")[:-VALUES] + LOGITS.tobytes(), id="version 2"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "data:application/octet-stream;base64,"], ids=["base64", "data URL"])
def test_mask_input_is_decoded(data, prefix):
    prompts = prompts_of(mask_input=prefix + text(data), **BOX)
    assert prompts.masks.dtype == np.float32
    np.testing.assert_array_equal(prompts.masks, LOGITS[None])
    assert prompts.mask_objects.tolist() == [0]
    assert prompts.mask_objects.dtype == np.int32


def test_mask_inputs_carry_their_object_index():
    other = {**BOX, "mask_input": text(npy(-LOGITS))}
    prompts = prompts_of(prompts=[BOX, {**BOX, "mask_input": text(npy(LOGITS))}, BOX, other])
    assert prompts.mask_objects.tolist() == [1, 3]
    np.testing.assert_array_equal(prompts.masks, [LOGITS, -LOGITS])


HEADER_OF_4_GB = b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 50


class Bomb:
    """Sets a flag when it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.bomb_went_off = True",)


@pytest.mark.parametrize(
    ("data", "got"),
    [
        pytest.param(npy(LOGITS.astype(np.float64)), "float64 of shape (256, 256)", id="float64"),
        pytest.param(npy(LOGITS.astype(">f4")), ">f4 of shape (256, 256)", id="big-endian"),
        pytest.param(npy(LOGITS > 0), "bool of shape (256, 256)", id="bool"),
        pytest.param(npy(LOGITS[:128]), "float32 of shape (128, 256)", id="half of the rows"),
        pytest.param(npy(np.stack([LOGITS] * 3)), "float32 of shape (3, 256, 256)", id="three candidates"),
        pytest.param(npy(LOGITS[None, None]), "float32 of shape (1, 1, 256, 256)", id="four dimensions"),
        pytest.param(npy(LOGITS.ravel()), "float32 of shape (65536,)", id="flat"),
        pytest.param(npy(np.float32(1)), "float32 of shape ()", id="scalar"),
        pytest.param(npy(LOGITS.T), "float32 of shape (256, 256)", id="Fortran order"),
        pytest.param(npy(np.array([Bomb()] * 4, object), allow_pickle=True), "object of shape (4,)", id="pickled"),
        pytest.param(with_header(header("'|O'")), "object of shape (256, 256)", id="object dtype"),
        pytest.param(npy(LOGITS)[:-1], f"{VALUES - 1} bytes of values instead of {VALUES}", id="one byte missing"),
        pytest.param(npy(LOGITS) + b"x", f"{VALUES + 1} bytes of values instead of {VALUES}", id="one byte too many"),
        pytest.param(npy(LOGITS)[:100], "100 bytes that are not a NumPy file", id="truncated header"),
        pytest.param(npy(LOGITS)[:6], "6 bytes that are not a NumPy file", id="truncated magic"),
        pytest.param(b"PK\x03\x04 a zip", "10 bytes that are not a NumPy file", id="other file"),
        pytest.param(b"\x93NUMPY\x09\x09", "8 bytes that are not a NumPy file", id="an unknown version"),
        pytest.param(with_header("hello")[:40], "40 bytes that are not a NumPy file", id="invalid header"),
        pytest.param(
            with_header(header(shape=f"({2**40}, 256)")), f"float32 of shape ({2**40}, 256)", id="a huge shape"
        ),
        pytest.param(
            with_header(header(shape="(40000, 40000)")), "float32 of shape (40000, 40000)", id="a large shape"
        ),
        pytest.param(with_header(header(shape="(-1, 256)")), "float32 of shape (-1, 256)", id="a negative shape"),
        pytest.param(with_header(header("'V2000000000'")), "|V2000000000 of shape (256, 256)", id="dtype of 2 GB"),
        pytest.param(HEADER_OF_4_GB, "62 bytes that are not a NumPy file", id="a header of 4 GB"),
    ],
)
def test_invalid_mask_input_is_rejected_with_little_memory(data, got):
    encoded = text(data)
    tracemalloc.start()
    try:
        error = rejection(prompts=[BOX, {**BOX, "mask_input": encoded}])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.field == "prompts[1].mask_input"
    assert error.expected == "the low_res_mask of an earlier response: base64 of a NumPy file of 256 x 256 float32"
    assert error.got.startswith(got)
    assert peak < 10 * len(encoded) + 2**20
    assert not hasattr(builtins, "bomb_went_off")


HEADERS = {
    "mixed keys": "{1: 2, 'descr': 3}",
    "list as key": "{[]: 1}",
    "many signs": "-" * 9000 + "1",
    "many signs in the shape": header(shape=f"({'-' * 5000}1,)"),
    "long sum": "1" + "+1" * 4000,
    "open brackets": "(" * 5000,
    "open string": "{'descr': '''",
    "invalid indentation": "  1\n 2\n   3",
    "side of 9,000 hexadecimal digits": header(shape=f"(0x{'f' * 9000},)"),
    "no dtype": header("()"),
    "incomplete dtype": header("('<f4',)"),
    "subarray dtype": header("('<f4', (1, 2))"),
    "structured dtype": header("[('a', '<f4')]"),
    "incomplete structured dtype": header("[('a',)]"),
    "unknown dtype": header("'hello'"),
    "list as shape": header(shape="[256, 256]"),
    "number as order": header(fortran="0"),
    "header above NumPy's limit": " " * 20_000 + header(),
    "unparsable Latin-1": "\xff\xfe",
    "NUL": "\x00",
    "function call": "__import__('os').abort()",
}


@pytest.mark.parametrize("source", HEADERS.values(), ids=HEADERS.keys())
@pytest.mark.parametrize("version", [b"\x01\x00", b"\x02\x00"], ids=["version 1", "version 2"])
def test_invalid_npy_header_is_rejected(source, version):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns about headers of Python 2
        error = rejection(mask_input=text(with_header(source, version)), **BOX)
    assert error.field == "mask_input"
    assert len(error.got) < 200


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 10_001, -10_001])
def test_mask_input_values_out_of_range_are_rejected(value):
    logits = LOGITS.copy()
    logits[200, 100] = value
    assert rejection(mask_input=text(npy(logits)), **BOX) == FieldError(
        "mask_input", "values from -10000 to 10000", "other values or NaN"
    )


def test_mask_input_must_be_base64():
    error = rejection(mask_input="hello!", **BOX)
    assert (error.field, error.got) == ("mask_input", "6 characters that are not base64: 'hello!'...")
