"""Conversion of a request's image and objects to model inputs."""

import base64
import builtins
import io
import json
import tracemalloc

import numpy as np
import pytest

from utils.api.inputs import MAX_TOTAL_POINTS, decode_base64, image_source, to_inference_request
from utils.api.request_body import parse_body
from utils.api.requests import MAX_POINTS, EmbedRequest, SegmentRequest
from utils.errors import FieldError, InvalidRequest
from utils.observability.context import KEY_NAME

BOX = {"box": [0, 0, 9, 9]}
LOGITS = np.random.default_rng(1).normal(size=(256, 256)).astype(np.float32)
VALUES = 4 * 256 * 256
DATA = bytes(range(256))
TEXT = base64.b64encode(DATA).decode()


def request_of(**fields: object):
    body = json.dumps({"input_image": "AAAA", **fields}).encode()
    return to_inference_request(parse_body(body, SegmentRequest))


def rejection(**fields: object) -> FieldError:
    with pytest.raises(InvalidRequest) as caught:
        request_of(**fields)
    (error,) = caught.value.errors
    return error


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def npy(array, **options) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def with_header(source: str, version: bytes = b"\x01\x00") -> bytes:
    length = len(source).to_bytes(2 if version < b"\x02" else 4, "little")
    return b"\x93NUMPY" + version + length + source.encode("latin-1") + bytes(VALUES)


def described(
    descr: str = "'<f4'", shape: str = "(256, 256)", version: bytes = b"\x01\x00"
) -> bytes:
    return with_header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}", version)


LINES = base64.encodebytes(DATA).decode()


@pytest.mark.parametrize(
    "sent",
    [
        TEXT,
        *(
            f"{prefix},{TEXT}"
            for prefix in ("data:image/png;base64", "DATA:image/png;BASE64", "data:;base64")
        ),
        *(LINES, LINES.replace("\n", "\r\n"), f" {TEXT}\n"),
    ],
)
def test_base64_is_decoded(sent):
    assert decode_base64(sent, "field", "something") == DATA


@pytest.mark.parametrize(
    ("sent", "got"),
    [
        ("", "an empty string"),
        (" \n", "an empty string"),
        ("data:image/png,abc", "without ;base64"),
        ("data:", "without ;base64"),
        ("A" * 4000 + "\u0660", "not base64"),
        (TEXT[:-3], "not base64"),
        (TEXT.replace("A", "-"), "not base64"),
    ],
    ids=[
        "empty",
        "whitespace",
        "data URL",
        "cut data URL",
        "not ASCII",
        "truncated",
        "URL alphabet",
    ],
)
def test_invalid_base64_is_rejected_with_the_field_name(sent, got):
    with pytest.raises(InvalidRequest) as caught:
        decode_base64(sent, "prompts[1].mask_input", "something")
    (error,) = caught.value.errors
    assert (error.field, error.expected) == ("prompts[1].mask_input", "something")
    assert got in error.got
    assert len(caught.value.detail) < 300


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        ({}, "neither"),
        ({"input_image": TEXT, "image_id": "an id"}, "both"),
        ({"input_image": "", "image_id": ""}, "both"),
    ],
)
def test_image_source_requires_exactly_one_of_file_and_id(fields, got):
    with pytest.raises(InvalidRequest) as caught:
        image_source(EmbedRequest(**fields))
    assert caught.value.errors == (
        FieldError("input_image", "exactly one of input_image and image_id", got),
    )


@pytest.mark.parametrize(
    ("fields", "file"),
    [({"input_image": TEXT}, None), ({"image_id": "an id"}, None), ({}, DATA)],
    ids=["base64", "id", "upload"],
)
async def test_image_is_owned_by_its_caller(fields, file):
    KEY_NAME.set("me")
    source = image_source(EmbedRequest(**fields), file)
    assert source.owner == "me"
    assert (source.file, source.image_id) == (
        (None, "an id") if "image_id" in fields else (DATA, None)
    )


@pytest.mark.parametrize("region", [None, (1.0, 2.0, 30.5, 40.0)])
@pytest.mark.parametrize(
    ("fields", "file"), [({"input_image": TEXT}, None), ({"image_id": "an id"}, None), ({}, DATA)]
)
def test_image_has_the_region_of_the_request(fields, file, region):
    assert image_source(EmbedRequest(**fields, region=region), file).region == region


def test_earlier_mask_needs_the_region_that_it_comes_from():
    earlier = text(npy(np.zeros((256, 256), np.float32)))
    error = rejection(box=[0, 0, 9, 9], mask_input=earlier, region="auto")
    assert error == FieldError(
        "region", "the region of the answer that the mask_input comes from", '"auto"'
    )
    request = request_of(box=[0, 0, 9, 9], mask_input=earlier, region=(0, 0, 64, 64))
    assert not request.inputs["mask_input"].any()


def points_of(**fields: object) -> tuple[list, list, tuple[tuple[str, ...], ...]]:
    """Return points, labels and request paths of a valid request."""
    request = request_of(**fields)
    assert (request.inputs["point_coords"].dtype, request.inputs["point_labels"].dtype) == (
        np.float32,
        np.int32,
    )
    assert "mask_input" not in request.inputs
    return (
        request.inputs["point_coords"].tolist(),
        request.inputs["point_labels"].tolist(),
        request.point_paths,
    )


def test_points_and_box_become_labelled_points():
    assert points_of(pos_coords=[[3, 4.5]]) == ([[[3, 4.5]]], [[1]], (("pos_coords[0]",),))
    corners = [[0, 1], [9, 8]]
    assert points_of(pos_coords=corners, labels=[2, 3])[:2] == ([corners], [[2, 3]])
    assert points_of(
        pos_coords=[[1, 2], [3, 4]], labels=[1, 0], neg_coords=[[5, 6]], box=[0, 1, 9, 8]
    ) == (
        [[[1, 2], [3, 4], [5, 6], *corners]],
        [[1, 0, 0, 2, 3]],
        (("pos_coords[0]", "pos_coords[1]", "neg_coords[0]", "box", "box"),),
    )


def test_several_objects_are_padded():
    assert points_of(
        prompts=[{"pos_coords": [[1, 2]]}, {"box": [0, 1, 9, 8], "neg_coords": [[5, 6]]}]
    ) == (
        [[[1, 2], [0, 0], [0, 0]], [[5, 6], [0, 1], [9, 8]]],
        [[1, -2, -2], [0, 2, 3]],
        (
            ("prompts[0].pos_coords[0]",),
            ("prompts[1].neg_coords[0]", "prompts[1].box", "prompts[1].box"),
        ),
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
        (
            {"pos_coords": [[1, 2]], "labels": [1, 0]},
            "labels",
            "1 labels, one per point of pos_coords",
            "2",
        ),
        ({"labels": [1], **BOX}, "labels", "0 labels, one per point of pos_coords", "1"),
        (
            {"pos_coords": [[1, 2]], "labels": [2]},
            "labels",
            ONE_BOX,
            "1 top-left and 0 bottom-right corners",
        ),
        ({"pos_coords": [[0, 0], [9, 9]] * 2, "labels": [2, 3] * 2}, "labels", ONE_BOX, TWO_BOXES),
        ({"pos_coords": [[0, 0], [9, 9]], "labels": [2, 3], **BOX}, "box", ONE_BOX, TWO_BOXES),
        ({"box": [5, 0, 1, 1]}, "box", ORDERED, "[5, 0, 1, 1]"),
        ({"box": [0, 5, 1, 1]}, "box", ORDERED, "[0, 5, 1, 1]"),
        ({"box": [1, 1, 1, 5]}, "box", ORDERED, "[1, 1, 1, 5]"),
        ({"box": [1, 1, 5, 1]}, "box", ORDERED, "[1, 1, 5, 1]"),
        ({"pos_coords": [[5, 0], [1, 1]], "labels": [2, 3]}, "labels", ORDERED, "[5, 0, 1, 1]"),
    ],
)
def test_invalid_object_is_rejected(fields, field, expected, got, prefix):
    error = rejection(prompts=[BOX, fields]) if prefix else rejection(**fields)
    assert error == FieldError(prefix + field, expected, got)


@pytest.mark.parametrize(
    "fields", [{"pos_coords": []}, {"labels": [1]}, BOX, {"mask_input": "AAAA"}], ids=str
)
def test_prompts_and_top_level_fields_together_are_rejected(fields):
    (field,) = fields
    assert rejection(prompts=[BOX], **fields) == FieldError(
        field, f"either prompts or {field}", "both"
    )


def test_total_number_of_points_is_bounded():
    full = {"pos_coords": [[1, 2]] * MAX_POINTS}
    fitting = [full] * (MAX_TOTAL_POINTS // MAX_POINTS)
    assert request_of(prompts=fitting).inputs["point_labels"].shape == (len(fitting), MAX_POINTS)
    error = rejection(prompts=[*fitting, {"pos_coords": [[1, 2]]}])
    assert error == FieldError(
        "prompts",
        f"at most {MAX_TOTAL_POINTS} points in all objects together",
        str(MAX_TOTAL_POINTS + 1),
    )


@pytest.mark.parametrize(
    "data",
    [npy(LOGITS), npy(LOGITS[None]), described(version=b"\x02\x00")[:-VALUES] + LOGITS.tobytes()],
    ids=["two dimensions", "three dimensions", "version 2"],
)
@pytest.mark.parametrize(
    "prefix", ["", "data:application/octet-stream;base64,"], ids=["base64", "data URL"]
)
def test_mask_input_is_decoded(data, prefix):
    mask = {**BOX, "mask_input": prefix + text(data)}
    inputs = request_of(prompts=[BOX, mask, BOX, {**BOX, "mask_input": text(npy(-LOGITS))}]).inputs
    np.testing.assert_array_equal(inputs["mask_input"], [LOGITS, -LOGITS])
    assert inputs["mask_input_object"].tolist() == [1, 3]
    assert (inputs["mask_input"].dtype, inputs["mask_input_object"].dtype) == (np.float32, np.int32)


HEADER_OF_4_GB = b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 50


class Bomb:
    """Sets a flag when it is unpickled."""

    def __reduce__(self):
        return exec, ("import builtins; builtins.bomb_went_off = True",)


LONG_HEADER = with_header(
    "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256)}" + " " * 200
)


@pytest.mark.parametrize(
    ("data", "got"),
    [
        pytest.param(npy(LOGITS.astype(np.float64)), "float64 of shape (256, 256)", id="float64"),
        pytest.param(npy(LOGITS.astype(">f4")), ">f4 of shape (256, 256)", id="big-endian"),
        pytest.param(
            npy(np.stack([LOGITS] * 3)), "float32 of shape (3, 256, 256)", id="three candidates"
        ),
        pytest.param(npy(LOGITS.T), "float32 of shape (256, 256)", id="Fortran order"),
        pytest.param(
            npy(np.array([Bomb()] * 4, object), allow_pickle=True),
            "object of shape (4,)",
            id="pickled",
        ),
        pytest.param(
            npy(LOGITS)[:-1],
            f"{VALUES - 1} bytes of values instead of {VALUES}",
            id="one byte missing",
        ),
        pytest.param(
            npy(LOGITS) + b"x",
            f"{VALUES + 1} bytes of values instead of {VALUES}",
            id="one byte too many",
        ),
        pytest.param(
            npy(LOGITS)[:100], "100 bytes that are not a NumPy file", id="truncated header"
        ),
        pytest.param(b"PK\x03\x04 a zip", "10 bytes that are not a NumPy file", id="other file"),
        pytest.param(
            b"\x93NUMPY\x09\x09", "8 bytes that are not a NumPy file", id="an unknown version"
        ),
        pytest.param(
            described(shape=f"({2**40}, 256)"), f"float32 of shape ({2**40}, 256)", id="huge shape"
        ),
        pytest.param(
            described("'V2000000000'"), "|V2000000000 of shape (256, 256)", id="dtype of 2 GB"
        ),
        pytest.param(
            LONG_HEADER, f"{len(LONG_HEADER)} bytes that are not a NumPy file", id="long header"
        ),
        pytest.param(HEADER_OF_4_GB, "62 bytes that are not a NumPy file", id="a header of 4 GB"),
        pytest.param(described(shape=f"(0x{'f' * 9000},)"), "", id="a long number"),
        pytest.param(described("('<f4',)"), "", id="a tuple as dtype"),
        pytest.param(described("[('a', '<f4')]"), "", id="fields"),
        pytest.param(with_header("-" * 9000 + "1"), "", id="deep header"),
        pytest.param(with_header("__import__('os').abort()"), "", id="a program"),
    ],
)
@pytest.mark.filterwarnings("ignore:Reading `.npy`")  # of headers of Python 2
def test_invalid_mask_input_is_rejected_with_little_memory(data, got):
    encoded = text(data)
    tracemalloc.start()
    try:
        error = rejection(prompts=[BOX, {**BOX, "mask_input": encoded}])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert error.field == "prompts[1].mask_input"
    assert (
        error.expected
        == "the low_res_mask of an earlier response: base64 of a NumPy file of 256 x 256 float32"
    )
    assert error.got.startswith(got)
    assert len(error.got) < 200
    assert peak < 10 * len(encoded) + 2**20
    assert not hasattr(builtins, "bomb_went_off")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 10_001, -10_001])
def test_mask_input_values_out_of_range_are_rejected(value):
    logits = LOGITS.copy()
    logits[200, 100] = value
    assert rejection(mask_input=text(npy(logits)), **BOX) == FieldError(
        "mask_input", "values from -10000 to 10000", "other values or NaN"
    )


def test_clip_is_an_option_with_the_fields_that_an_answer_may_name():
    prompts = [{"box": [0, 0, 5, 5]}, {"pos_coords": [[1, 2]]}]
    off, on = (request_of(prompts=prompts, clip=clip) for clip in (False, True))
    assert (off.options["clip"], "point_paths" in off.options) == (False, False)
    assert on.options["clip"] is True
    assert (
        on.options["point_paths"]
        == on.point_paths
        == (("prompts[0].box",) * 2, ("prompts[1].pos_coords[0]",))
    )


def test_clip_is_not_offered_to_tools():
    request = parse_body(b'{"image_id": "a", "pos_coords": [[1, 2]]}', SegmentRequest)
    assert to_inference_request(request).options["offer_clip"] is True
    assert to_inference_request(request, offer_clip=False).options["offer_clip"] is False
