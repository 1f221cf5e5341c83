"""The model inputs in a request's fields: the image, points, boxes, and low-resolution masks.

The image is a file or an image id; its pixels are decoded in Triton's models, not here.
"""

import binascii
import io
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pybase64

from utils.api.errors import invalid
from utils.api.requests import ImageFields, ObjectFields, SegmentRequest
from utils.observability.context import CALLER
from utils.observability.logs import quoted

WHITESPACE = b" \t\r\n"
FILE_PART = "image"
"""Name in errors of an image that is a part of a form or the whole body."""
IMAGE_FILE = "base64 of a PNG, JPEG or WebP file"
URLS = ("http://", "https://")
MASK_INPUT = "the low_res_mask of an earlier response: base64 of a NumPy file of 256 x 256 float32"
"""Expected content of `mask_input`, for errors."""
NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT, PADDING = 0, 1, 2, 3, -2
BOX_CORNERS = (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT)
MAX_TOTAL_POINTS = 4096
PathPoint = tuple[float, float, int, str]
"""x, y, label and request path of a point."""
MASK_SIDE = 256
MAX_LOGIT = 10_000.0
"""Limit for the logits of `mask_input`. The model returns a few tens; a float16 decoder overflows above 65,504."""


@dataclass(frozen=True)
class ImageSource:
    """An image file, an image id, or both if the id of the file is known."""

    file: bytes | None
    """A PNG, JPEG or WebP file."""
    image_id: str | None
    owner: str = ""
    """Name of the request's API key; cached embeddings are separate per owner."""
    field: str = field(default="input_image", compare=False)
    """Field or part of the request with the image, for error messages."""


def image_source(request: ImageFields, file: bytes | None = None) -> ImageSource:
    """Return the image of a request, owned by the caller: `file`, or the one in the fields.

    The request's `input_image` is set to None.

    Raises:
        InvalidRequest: not exactly one image, no base64, or an empty file.
    """
    if file is not None:
        if request.input_image is not None or request.image_id is not None:
            name = "image_id" if request.input_image is None else "input_image"
            raise invalid(name, "exactly one image", "one in the body as well")
        if not file:
            raise invalid(FILE_PART, "a PNG, JPEG or WebP file", "an empty file")
        return ImageSource(file, None, CALLER.get(), FILE_PART)
    if (request.input_image is None) == (request.image_id is None):
        got = "neither" if request.image_id is None else "both"
        raise invalid("input_image", "exactly one of input_image and image_id", got)
    if request.input_image is None:
        return ImageSource(None, request.image_id, CALLER.get())
    text, request.input_image = request.input_image, None  # frees the text while the request is processed
    if text[:8].lower().startswith(URLS):
        raise invalid("input_image", f"{IMAGE_FILE}; URLs are not fetched", f"the URL {quoted(text, 200)}")
    return ImageSource(decode_base64(text, "input_image", IMAGE_FILE), None, CALLER.get())


def decode_base64(text: str, field: str, expected: str) -> bytes:
    """Decode base64 text with padding, or a URL of the form `data:[<media type>];base64,<base64>`.

    Line breaks and other whitespace, as written by `base64 FILE` and MIME encoders, are accepted. Errors name the field
    and its expected content.

    Raises:
        InvalidRequest: not base64, or empty.
    """
    payload = text
    if text[:5].lower() == "data:":
        header, comma, payload = text.partition(",")
        if not comma or not header.lower().endswith(";base64"):
            raise invalid(field, expected, f"a data URL without ;base64: {quoted(header, 60)}")
    try:
        data = pybase64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        try:
            # Bytes, because `str.translate` takes 0.1 microseconds per character on the event loop.
            data = pybase64.b64decode(payload.encode("ascii").translate(None, WHITESPACE), validate=True)
        except (binascii.Error, ValueError):
            raise invalid(
                field, expected, f"{len(payload)} characters that are not base64: {payload[:24]!r}..."
            ) from None
    if not data:
        raise invalid(field, expected, "an empty string")
    return data


@dataclass(frozen=True)
class Prompts:
    """The objects of a request as model inputs."""

    points_xy: npt.NDArray[np.float32]
    """(N, P, 2) float32, x then y, pixels of the displayed image."""
    labels: npt.NDArray[np.int32]
    """(N, P) int32: 0 negative, 1 positive, 2 box top-left, 3 box bottom-right, -2 padding."""
    fields: tuple[tuple[str, ...], ...]
    """Request path of each point of each object, for error messages."""
    masks: npt.NDArray[np.float32]
    """(M, 256, 256) float32 logits of earlier responses."""
    mask_objects: npt.NDArray[np.int32]
    """(M,) int32: object index of each mask."""


def to_prompts(request: SegmentRequest) -> Prompts:
    """Return the request's objects, padded to the same number of points.

    Raises:
        InvalidRequest: no prompt, prompts in both places, too many points, a wrong number of labels, an incomplete,
            second or inverted box, or an invalid `mask_input`.
    """
    if request.prompts is None:
        objects = [_object(request, "")]
    else:
        top_level = [name for name in ObjectFields.model_fields if getattr(request, name) is not None]
        if top_level:
            raise invalid(top_level[0], f"either prompts or {top_level[0]}", "both")
        objects = [_object(fields, f"prompts[{index}].") for index, fields in enumerate(request.prompts)]
    if (total := sum(len(points) for points, _ in objects)) > MAX_TOTAL_POINTS:
        raise invalid("prompts", f"at most {MAX_TOTAL_POINTS} points in all objects together", f"{total}")
    longest = max(len(points) for points, _ in objects)
    points_xy = np.zeros((len(objects), longest, 2), np.float32)
    labels = np.full((len(objects), longest), PADDING, np.int32)
    for index, (points, _) in enumerate(objects):
        points_xy[index, : len(points)] = [point[:2] for point in points]
        labels[index, : len(points)] = [point[2] for point in points]
    masks = [(index, mask) for index, (_, mask) in enumerate(objects) if mask is not None]
    return Prompts(
        points_xy,
        labels,
        tuple(tuple(point[3] for point in points) for points, _ in objects),
        np.array([mask for _, mask in masks], np.float32).reshape(-1, MASK_SIDE, MASK_SIDE),
        np.array([index for index, _ in masks], np.int32),
    )


def _object(fields: ObjectFields, prefix: str) -> tuple[list[PathPoint], npt.NDArray[np.float32] | None]:
    """Return points and mask of one object; `prefix` is the request path of its fields, such as `prompts[1].`."""
    positive = fields.pos_coords or []
    labels = fields.labels if fields.labels is not None else [POSITIVE] * len(positive)
    if len(labels) != len(positive):
        raise invalid(f"{prefix}labels", f"{len(positive)} labels, one per point of pos_coords", f"{len(labels)}")
    points = [
        (x, y, label, f"{prefix}pos_coords[{i}]")
        for i, ((x, y), label) in enumerate(zip(positive, labels, strict=True))
    ]
    points += [(x, y, NEGATIVE, f"{prefix}neg_coords[{i}]") for i, (x, y) in enumerate(fields.neg_coords or [])]
    if fields.box is not None:
        x0, y0, x1, y1 = fields.box
        points += [(x0, y0, BOX_TOP_LEFT, f"{prefix}box"), (x1, y1, BOX_BOTTOM_RIGHT, f"{prefix}box")]
    if not points:
        raise invalid(f"{prefix}pos_coords", "a point in pos_coords or neg_coords, or a box", "no prompt")
    top_left, bottom_right = ([point[:2] for point in points if point[2] == label] for label in BOX_CORNERS)
    _check_box(top_left, bottom_right, prefix + ("box" if fields.box is not None else "labels"))
    mask = None if fields.mask_input is None else _mask_input(fields.mask_input, f"{prefix}mask_input")
    return points, mask


def _check_box(top_left: list[tuple[float, float]], bottom_right: list[tuple[float, float]], field: str) -> None:
    if len(top_left) != len(bottom_right) or len(top_left) > 1:
        raise invalid(
            field,
            "at most one box: one point labelled 2 and one labelled 3, or the field box",
            f"{len(top_left)} top-left and {len(bottom_right)} bottom-right corners",
        )
    if top_left:
        (x0, y0), (x1, y1) = top_left[0], bottom_right[0]
        if not (x0 < x1 and y0 < y1):
            raise invalid(field, "a box with x0 < x1 and y0 < y1", f"[{x0:g}, {y0:g}, {x1:g}, {y1:g}]")


def _mask_input(text: str, field: str) -> npt.NDArray[np.float32]:
    """Decode (256, 256) float32 logits.

    Raises:
        InvalidRequest: not base64, not a NumPy file, a wrong shape or type, or values out of range.
    """
    data = decode_base64(text, field, MASK_INPUT)
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        # Check the header before the array it announces is allocated.
        shape, fortran, dtype = header(file)  # type: ignore[no-untyped-call]
        got = f"{dtype} of shape {shape}{' in Fortran order' if fortran else ''}"[:120]
    except Exception:  # NumPy parses the header as Python source, which can raise anything
        raise invalid(field, MASK_INPUT, f"{len(data)} bytes that are not a NumPy file") from None
    rest = data[file.tell() :]
    if dtype != np.dtype("<f4") or shape not in {(MASK_SIDE, MASK_SIDE), (1, MASK_SIDE, MASK_SIDE)} or fortran:
        raise invalid(field, MASK_INPUT, got)
    if len(rest) != 4 * MASK_SIDE * MASK_SIDE:
        raise invalid(field, MASK_INPUT, f"{len(rest)} bytes of values instead of {4 * MASK_SIDE * MASK_SIDE}")
    mask = np.frombuffer(rest, "<f4").reshape(MASK_SIDE, MASK_SIDE)
    if not (np.abs(mask) <= MAX_LOGIT).all():
        raise invalid(field, f"values from {-MAX_LOGIT:g} to {MAX_LOGIT:g}", "other values or NaN")
    return mask
