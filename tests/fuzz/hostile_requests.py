"""Hypothesis strategies for nearly valid requests: valid ones to all three paths, with one part
made wrong.
"""

import base64
import copy
import io
import json
from typing import Any

import numpy as np
from hypothesis import strategies as st
from PIL import Image

Fields = dict[str, Any]
FLOAT32 = "{'descr': '<f4', 'fortran_order': False, 'shape': (256, 256), }"
TOKENS = (
    *(
        b"\0",
        b"\xff",
        b"\0" * 16,
        b"\xff" * 16,
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\x7f",
        b"\x80\0\0\0",
        b"\0\0\0\x80",
    ),
    *(
        b"\xff\xd8\xff",
        b"\xff\xd9",
        b"\xff\xda",
        b"\xff\xe1",
        b"Exif\0\0II*\0\x08\0\0\0",
        b"RIFF",
        b"VP8X",
        b"ANMF",
    ),
    *(
        b"IHDR",
        b"IDAT",
        b"IEND",
        b"acTL",
        b"fcTL",
        b"iCCP",
        b"eXIf",
        b"tRNS",
        b"\\u0000",
        b"\\ud800",
        b"\xc3\x28",
    ),
    *(
        b"\xef\xbb\xbf",
        b"NaN",
        b"Infinity",
        b"1e999",
        b"9" * 25,
        b"null",
        b"[",
        b"]",
        b"{",
        b"}",
        b",",
        b'"',
        b"\\",
    ),
)
"""Byte strings with a meaning in images or JSON."""


def npy(header: str, values: bytes = b"") -> str:
    """Return a NumPy file in base64."""
    data = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode("latin-1") + values
    return base64.b64encode(data).decode()


def image_file(size: tuple[int, int], file_format: str) -> bytes:
    """Return a picture of noise; `size` is width and height in pixels."""
    noise = np.random.default_rng(size).integers(
        0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8
    )
    file = io.BytesIO()
    Image.fromarray(noise).resize(size).save(file, file_format)
    return file.getvalue()


SIZES = ((64, 64), (200, 90), (80, 160))
IMAGES = tuple(
    image_file(size, file_format) for size in SIZES for file_format in ("PNG", "JPEG", "WEBP")
)
"""Small valid files of all formats."""

ODD_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -0.0,
        5e-324,
        1e300,
        2**31,
        2**63,
        -(2**63) - 1,
        10**400,
        float("nan"),
        float("inf"),
    ),
    *(
        "",
        " ",
        "0",
        "null",
        "NaN",
        "é",
        "\ud800",
        "\0",
        "\u202e",
        "A" * 10_000,
        "data:image/png;base64,",
        "====",
    ),
    *(
        [],
        {},
        [[]],
        [{}],
        [None],
        [[None]],
        {"": 0},
        {"x": 1, "y": 2},
        [[1, 2]] * 300,
        [1] * 300,
        [[[[[1]]]]],
    ),
    *(
        "overlay",
        "png",
        npy(FLOAT32),
        npy(FLOAT32, bytes(4 * 256 * 256)),
        npy("{}"),
        "../../etc/passwd",
    ),
)
"""Values that are invalid for all or most fields."""
ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)
VALUES = st.sampled_from(ODD_VALUES) | ANY_JSON
NAMES = (
    *(
        "input_image",
        "image_id",
        "model_version",
        "pos_coords",
        "labels",
        "neg_coords",
        "box",
        "mask_input",
        "prompts",
    ),
    *(
        "low_res_mask",
        "crop_overlap_ratio",
        "box_nms_thresh",
        "min_mask_region_area",
        "progress",
        "region",
        "unknown",
        "",
        "\0",
    ),
)
"""Fields to add."""

POINTS = st.lists(st.tuples(st.integers(0, 63), st.floats(0, 63)).map(list), min_size=1, max_size=4)
CLICKS = POINTS.map(
    lambda points: {"pos_coords": points, "labels": [int(x) % 2 for x, _ in points]}
)
BOXES = st.tuples(st.integers(0, 30), st.integers(0, 30), st.integers(1, 30)).map(
    lambda box: {
        "box": [box[0], box[1], box[0] + box[2], box[1] + 9.5],
        "neg_coords": [[box[0], box[1]]],
    }
)
PROMPTS = (
    CLICKS
    | BOXES
    | st.fixed_dictionaries({"prompts": st.lists(CLICKS | BOXES, min_size=1, max_size=5)})
)
OPTIONS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "mobile_sam": {
        "mask_format": st.sampled_from(("json", "npy", "png", "rle", "polygon")),
        "segmented_image": st.sampled_from(("overlay", "cutout", "none")),
        "multimask_output": st.booleans(),
    },
    "everything": {"points_per_side": st.integers(1, 64), "progress": st.booleans()},
    "embed": {},
}
"""Fields of each path besides the image and prompts."""


@st.composite
def valid_fields(draw: st.DrawFn, path: str) -> Fields:
    """Return the fields of a valid request. The image comes last, so that damage mostly meets
    the others.
    """
    fields: Fields = draw(st.fixed_dictionaries({}, optional=OPTIONS[path]))
    prompts = copy.deepcopy(draw(PROMPTS)) if path == "mobile_sam" else {}
    image = st.sampled_from(IMAGES).map(
        lambda file: {"input_image": base64.b64encode(file).decode()}
    )
    return {**fields, **prompts, **draw(image | st.just({"image_id": "0" * 64}))}


@st.composite
def damaged(draw: st.DrawFn, data: bytes, other: bytes = b"") -> bytes:
    """Replace, insert, remove and repeat bytes, mostly near the beginning, or go on with the
    rest of another file.
    """
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, min(len(data), draw(st.sampled_from((100, 1000, len(data)))))))
        end = start + draw(st.sampled_from((0, 1, 1, 2, 4, 4, 30, len(data))))
        repeated = data[start : start + 16] * 3
        new = draw(
            st.sampled_from((repeated, other[start:]))
            | st.sampled_from(TOKENS)
            | st.binary(max_size=4)
        )
        data = data[:start] + new + data[end:]
    return data


DAMAGED_IMAGES = st.tuples(*[st.sampled_from(IMAGES)] * 2).flatmap(lambda files: damaged(*files))
PREFIXES = ("", "data:", "data:;base64", "data:,", "DATA:x;base64,", "data:a/b;base64,")


@st.composite
def changed(draw: st.DrawFn, fields: Fields) -> Fields:
    """Remove, add and wrap fields at any depth, and replace values; or damage the image."""
    if not draw(st.integers(0, 4)):
        text = base64.b64encode(draw(DAMAGED_IMAGES)).decode()
        return {**fields, "input_image": draw(st.sampled_from(PREFIXES)) + text}
    for _ in range(draw(st.integers(1, 3))):
        holder, name = draw(st.sampled_from(_places(fields)))
        change = draw(st.sampled_from(("replace", "replace", "remove", "add", "wrap")))
        if change == "remove":
            holder.pop(name)
        elif change == "add":
            fields[draw(st.sampled_from(NAMES))] = copy.deepcopy(draw(VALUES))
        else:
            holder[name] = [holder[name]] if change == "wrap" else copy.deepcopy(draw(VALUES))
    return fields


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Return every list and object of a request with each of its keys, at any depth."""
    keys = (
        list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    )
    return [(node, key) for key in keys] + [
        place for key in keys for place in _places(node[key])
    ] or [({"": 0}, "")]


def hostile_bodies(path: str) -> st.SearchStrategy[bytes]:
    """Return bodies with changed fields, damaged text, any JSON, or any bytes."""
    valid = valid_fields(path)
    as_json = (valid.flatmap(changed) | ANY_JSON).map(lambda value: json.dumps(value).encode())
    return (
        as_json
        | valid.flatmap(lambda fields: damaged(json.dumps(fields).encode()))
        | st.binary(max_size=200)
    )
