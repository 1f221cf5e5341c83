"""Entry points of the service and the orchestrator, called in this process: they accept input or reject it.

Anything else is an error: another exception, a 5xx, a result with wrong properties, a warning.
"""

import json
import warnings

import numpy as np
import numpy.typing as npt

from orchestrator import images, pipeline
from orchestrator.problems import Rejected
from utils.api.errors import InvalidRequest, MalformedBody, ServiceError
from utils.api.inputs import ImageSource, Prompts, image_source, to_prompts
from utils.api.received import parse_body
from utils.api.requests import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest

MAX_PIXELS = 4_000_000
"""Limit below the orchestrator's own, so that no file takes long."""
MODELS: dict[str, type[ImageFields]] = {
    "mobile_sam": SegmentRequest,
    "embed": EmbedRequest,
    "everything": EverythingRequest,
}
"""Request model of each path."""


def image_or_refusal(data: bytes, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8] | Rejected:
    """Read an image file like the orchestrator; return displayed pixels, (H, W, 3) uint8 RGB, or the refusal."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the orchestrator does
        try:
            opened = images.open_image(data, max_pixels)
            stored = opened.size
            pixels = images.decode(opened)
        except Rejected as rejected:
            check_refusal(rejected)
            return rejected
    assert pixels.dtype == np.uint8
    assert pixels.shape in {(stored[1], stored[0], 3), (stored[0], stored[1], 3)}
    assert 0 < pixels.shape[0] * pixels.shape[1] <= max_pixels
    frame = images.to_frame(pixels)
    assert frame.pixels.shape == (images.FRAME, images.FRAME, 3)
    assert max(frame.size_hw) == images.FRAME
    return pixels


def check_refusal(rejected: Rejected) -> None:
    """Assert that a refusal is short and tells the caller what to correct."""
    assert rejected.status in {413, 415, 422}
    assert rejected.slug.isascii()
    assert len(json.dumps(rejected.document())) < 10_000
    for error in rejected.errors:
        assert set(error) == {"field", "expected", "got"}
        assert all(value and value.isprintable() for value in error.values()), error


def request_or_refusal(
    body: bytes, path: str, size_hw: tuple[int, int] = (480, 640)
) -> tuple[ImageFields, ImageSource, Prompts | None] | ServiceError | Rejected:
    """Parse a body like the service, and check its prompts like the orchestrator, on an image of `size_hw`."""
    try:
        request = parse_body(body, MODELS[path])
        prompts = to_prompts(request) if isinstance(request, SegmentRequest) else None
        source = image_source(request)
    except ServiceError as error:
        check_problem(error)
        return error
    assert (source.file is None) != (source.image_id is None)
    if prompts is not None:
        try:
            check_prompts(prompts, size_hw)
        except Rejected as rejected:
            check_refusal(rejected)
            return rejected
    return request, source, prompts


def check_problem(error: ServiceError) -> None:
    """Assert that an error is a short problem document with a 4xx status."""
    assert isinstance(error, (MalformedBody, InvalidRequest)), error
    problem = error.problem()
    assert problem.status in {400, 422}
    assert len(problem.encode()) < 20_000
    assert problem.errors
    for field_error in problem.errors:
        assert all(value.isprintable() and value for value in field_error.as_json().values()), field_error


def check_prompts(found: Prompts, size_hw: tuple[int, int]) -> None:
    """Assert the shapes and ranges of prompts and of the decoder's inputs.

    Raises:
        Rejected: a point is outside of the image.
    """
    count, points = found.labels.shape
    assert found.points_xy.shape == (count, points, 2)
    assert np.isfinite(found.points_xy).all()
    assert found.masks.shape == (len(found.mask_objects), 256, 256)
    assert [len(names) for names in found.fields] == (found.labels != pipeline.ABSENT).sum(1).tolist()
    pipeline.check_inside(found.points_xy, found.labels, size_hw)
    coords, labels = pipeline.points_to_frame(found.points_xy, found.labels, size_hw, images.frame_size_hw(size_hw))
    assert coords.shape[:2] == labels.shape
    assert ((coords >= 0) & (coords <= images.FRAME + 1)).all()
