"""The model inputs in a request's fields: the image, points, boxes, and low-resolution masks.

The image is a file or an image id; its pixels are decoded in Triton's models, not here.
"""

import binascii
import io
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pybase64

from orchestrator import tensors
from orchestrator.regions import AUTO
from utils.api.requests import (
    MAX_IMAGES,
    EmbedRequest,
    ImageFields,
    ObjectFields,
    SegmentOptions,
    SegmentRequest,
)
from utils.errors import invalid
from utils.inference.request import ImageSource, InferenceRequest
from utils.observability.context import KEY_NAME
from utils.observability.logs import quoted

WHITESPACE = b" \t\r\n"
SPACES = WHITESPACE.decode()
FILE_PART = "image"
"""Name in errors of an image that is a part of a form or the whole body."""
IMAGE_FILE = "base64 of a PNG, JPEG or WebP file"
URLS = ("http://", "https://")
MASK_INPUT = "the low_res_mask of an earlier response: base64 of a NumPy file of 256 x 256 float32"
"""Expected content of `mask_input`, for errors."""
MAX_TOTAL_POINTS = 4096
MAX_HEADER_BYTES = 256
"""Longest header of the NumPy file in `mask_input`, which is parsed as Python source; NumPy's own
has 118 bytes."""
MAX_LOGIT = 10_000.0
"""Limit for the logits of `mask_input`. The model returns a few tens; a float16 decoder overflows
above 65,504."""


class LabelledPoint(NamedTuple):
    """A point of an object."""

    xy: tuple[float, float]
    """In pixels of the displayed image."""
    label: int
    field: str
    """Path in the request."""


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
        return ImageSource(file, None, KEY_NAME.get(), FILE_PART, request.region)
    if (request.input_image is None) == (request.image_id is None):
        got = "neither" if request.image_id is None else "both"
        raise invalid("input_image", "exactly one of input_image and image_id", got)
    if request.input_image is None:
        return ImageSource(None, request.image_id, KEY_NAME.get(), region=request.region)
    text = request.input_image
    request.input_image = None  # frees the text while the request is processed
    if text[:8].lower().startswith(URLS):
        raise invalid(
            "input_image", f"{IMAGE_FILE}; URLs are not fetched", f"the URL {quoted(text, 200)}"
        )
    file = decode_base64(text, "input_image", IMAGE_FILE)
    return ImageSource(file, None, KEY_NAME.get(), region=request.region)


def list_of_images(request: EmbedRequest, files: Sequence[bytes]) -> list[ImageSource]:
    """Return the images of a request for several, owned by the caller; none for one image.

    Raises:
        InvalidRequest: images in several places, too many files, no base64, or a region.
    """
    texts = request.images or []
    image_ids = request.image_ids or []
    if not (texts or image_ids or len(files) > 1):
        return []
    has_one_image = request.input_image is not None, request.image_id is not None
    if sum(map(bool, (texts, image_ids, files, *has_one_image))) > 1:
        places = "images in one of images, image_ids, files, input_image and image_id"
        raise invalid("images", places, "several")
    if request.region is not None:
        raise invalid("region", "one image", "several")
    if len(files) > MAX_IMAGES:
        raise invalid(FILE_PART, f"at most {MAX_IMAGES} files", f"{len(files)}")
    owner = KEY_NAME.get()
    images = [ImageSource(None, image_id, owner) for image_id in image_ids]
    for number, text in enumerate(texts):
        field = f"images[{number}]"
        images.append(ImageSource(decode_base64(text, field, IMAGE_FILE), None, owner, field))
    for number, file in enumerate(files):
        images.append(ImageSource(file, None, owner, f"{FILE_PART}[{number}]"))
    return images


def decode_base64(text: str, field: str, expected: str) -> bytes:
    """Decode base64 text with padding, or a URL of the form `data:[<media type>];base64,<base64>`.

    Line breaks and other whitespace, as written by `base64 FILE` and MIME encoders, are accepted.
    Errors name the field and its expected content.

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
            if not any(space in payload for space in SPACES):
                raise ValueError("no white space to remove")
            # Bytes, because `str.translate` takes 0.1 microseconds per character on the event loop.
            data = pybase64.b64decode(
                payload.encode("ascii").translate(None, WHITESPACE), validate=True
            )
        except (binascii.Error, ValueError):
            raise invalid(
                field,
                expected,
                f"{len(payload)} characters that are not base64: {payload[:24]!r}...",
            ) from None
    if not data:
        raise invalid(field, expected, "an empty string")
    return data


def to_inference_request(
    request: SegmentRequest, *, document: bool = False, offer_clip: bool = True
) -> InferenceRequest:
    """Return what the model does: a request's objects as tensors, and its options.

    Objects are padded to the same number of points.

    Args:
        request: the request.
        document: whether the result has masks and picture in it.
        offer_clip: whether errors may name the field `clip`: requests of annotation tools do not
            have it.

    Raises:
        InvalidRequest: no prompt, prompts in both places, too many points, a wrong number of
            labels, an incomplete, second or inverted box, an invalid `mask_input`, or one without
            its region.
    """
    objects: list[list[LabelledPoint]] = []
    masks: dict[int, npt.NDArray[np.float32]] = {}
    for index, (prefix, fields) in enumerate(_object_fields(request)):
        objects.append(_labelled_points(fields, prefix))
        if fields.mask_input is not None:
            masks[index] = _mask_input(fields.mask_input, f"{prefix}mask_input")
    total = sum(map(len, objects))
    if total > MAX_TOTAL_POINTS:
        expected = f"at most {MAX_TOTAL_POINTS} points in all objects together"
        raise invalid("prompts", expected, f"{total}")
    points_xy, labels = _padded(objects)
    inputs: dict[str, npt.NDArray[Any]] = {
        tensors.POINTS_XY.name: points_xy,
        tensors.LABELS.name: labels,
    }
    if masks:
        if request.region == AUTO:
            expected = "the region of the answer that the mask_input comes from"
            raise invalid("region", expected, f'"{AUTO}"')
        inputs[tensors.MASK_INPUT.name] = np.stack([*masks.values()])
        inputs[tensors.MASK_INPUT_OBJECT.name] = np.array([*masks], np.int32)
    point_paths = tuple(tuple(point.field for point in points) for points in objects)
    options = {
        **request.model_dump(include=set(SegmentOptions.model_fields)),
        "document": document,
        "offer_clip": offer_clip,
    }
    if request.clip:
        options["point_paths"] = point_paths
    return InferenceRequest(inputs, options, request.model_version, point_paths)


def _object_fields(request: SegmentRequest) -> list[tuple[str, ObjectFields]]:
    """Return the fields of each object and the path in front of them, such as `prompts[1].`."""
    if request.prompts is None:
        return [("", request)]
    for name in ObjectFields.model_fields:
        if getattr(request, name) is not None:
            raise invalid(name, f"either prompts or {name}", "both")
    return [(f"prompts[{index}].", fields) for index, fields in enumerate(request.prompts)]


def _padded(
    objects: Sequence[Sequence[LabelledPoint]],
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Return the points of all objects, (N, P, 2) float32, and their labels, (N, P) int32."""
    shape = len(objects), max(map(len, objects))
    points_xy = np.zeros((*shape, 2), np.float32)
    labels = np.full(shape, tensors.NO_POINT, np.int32)
    for index, points in enumerate(objects):
        points_xy[index, : len(points)] = [point.xy for point in points]
        labels[index, : len(points)] = [point.label for point in points]
    return points_xy, labels


def _labelled_points(fields: ObjectFields, prefix: str) -> list[LabelledPoint]:
    """Return the points of an object, at least one; `prefix` is the path of its fields."""
    pos_coords = fields.pos_coords or []
    labels = fields.labels
    if labels is None:
        labels = [tensors.POSITIVE] * len(pos_coords)
    if len(labels) != len(pos_coords):
        expected = f"{len(pos_coords)} labels, one per point of pos_coords"
        raise invalid(f"{prefix}labels", expected, f"{len(labels)}")
    points: list[LabelledPoint] = []
    for index, (xy, label) in enumerate(zip(pos_coords, labels, strict=True)):
        points.append(LabelledPoint(xy, label, f"{prefix}pos_coords[{index}]"))
    for index, xy in enumerate(fields.neg_coords or []):
        points.append(LabelledPoint(xy, tensors.NEGATIVE, f"{prefix}neg_coords[{index}]"))
    if fields.box is not None:
        x0, y0, x1, y1 = fields.box
        points.append(LabelledPoint((x0, y0), tensors.BOX_TOP_LEFT, f"{prefix}box"))
        points.append(LabelledPoint((x1, y1), tensors.BOX_BOTTOM_RIGHT, f"{prefix}box"))
    if not points:
        expected = "a point in pos_coords or neg_coords, or a box"
        raise invalid(f"{prefix}pos_coords", expected, "no prompt")
    _check_box(points, prefix + ("labels" if fields.box is None else "box"))
    return points


def _check_box(points: Sequence[LabelledPoint], field: str) -> None:
    """Check that an object has at most one box, and that its corners are in order."""
    top_left = [point.xy for point in points if point.label == tensors.BOX_TOP_LEFT]
    bottom_right = [point.xy for point in points if point.label == tensors.BOX_BOTTOM_RIGHT]
    if len(top_left) != len(bottom_right) or len(top_left) > 1:
        expected = "at most one box: one point labelled 2 and one labelled 3, or the field box"
        got = f"{len(top_left)} top-left and {len(bottom_right)} bottom-right corners"
        raise invalid(field, expected, got)
    for (x0, y0), (x1, y1) in zip(top_left, bottom_right, strict=True):
        if not (x0 < x1 and y0 < y1):
            got = f"[{x0:g}, {y0:g}, {x1:g}, {y1:g}]"
            raise invalid(field, "a box with x0 < x1 and y0 < y1", got)


def _mask_input(text: str, field: str) -> npt.NDArray[np.float32]:
    """Decode (256, 256) float32 logits.

    Raises:
        InvalidRequest: not base64, not a NumPy file, a wrong shape or type, or values out of range.
    """
    data = decode_base64(text, field, MASK_INPUT)
    file = io.BytesIO(data)
    try:
        version = np.lib.format.read_magic(file)  # type: ignore[no-untyped-call]
        header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        # Check the header before the array it announces is allocated.
        shape, fortran, dtype = header(file, MAX_HEADER_BYTES)  # type: ignore[no-untyped-call, call-arg]
        got = f"{dtype} of shape {shape}{' in Fortran order' if fortran else ''}"[:120]
    except Exception:  # NumPy parses the header as Python source, which can raise anything
        raise invalid(field, MASK_INPUT, f"{len(data)} bytes that are not a NumPy file") from None
    rest = memoryview(data)[file.tell() :]
    mask_hw = tensors.MASK_SIDE, tensors.MASK_SIDE
    if dtype != np.dtype("<f4") or shape not in {mask_hw, (1, *mask_hw)} or fortran:
        raise invalid(field, MASK_INPUT, got)
    expected_bytes = dtype.itemsize * math.prod(mask_hw)
    if len(rest) != expected_bytes:
        raise invalid(field, MASK_INPUT, f"{len(rest)} bytes of values instead of {expected_bytes}")
    mask = np.frombuffer(rest, "<f4").reshape(mask_hw)
    if not (mask.min() >= -MAX_LOGIT and mask.max() <= MAX_LOGIT):  # not with NaN either
        raise invalid(field, f"values from {-MAX_LOGIT:g} to {MAX_LOGIT:g}", "other values or NaN")
    return mask
