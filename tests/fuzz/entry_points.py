"""Entry points of the service and the orchestrator, called in this process: they accept input or
reject it.

Anything else is an error: another exception, a 5xx, a result with wrong properties, a warning.
"""

import json
import warnings
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from orchestrator import images, networks, pipeline, regions, tensors
from orchestrator.problems import Rejected
from utils.api.inputs import image_source, to_inference_request
from utils.api.request_body import parse_body
from utils.api.requests import EmbedRequest, EverythingRequest, ImageFields, SegmentRequest
from utils.errors import ServiceError
from utils.inference.request import InferenceRequest

Refusal = ServiceError | Rejected
AnyRefusal = TypeVar("AnyRefusal", bound=Refusal)
MAX_PIXELS = 4_000_000
"""Limit below the orchestrator's own, so that no file takes long."""
MODELS: dict[str, type[ImageFields]] = {
    "mobile_sam": SegmentRequest,
    "embed": EmbedRequest,
    "everything": EverythingRequest,
}
"""Request model of each path."""


def image_or_refusal(data: bytes, max_pixels: int = MAX_PIXELS) -> npt.NDArray[np.uint8] | Rejected:
    """Read an image file like the orchestrator; return displayed pixels, (H, W, 3) uint8 RGB, or
    the refusal.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # as the orchestrator does
        try:
            opened = images.open_image(data, max_pixels)
            stored = opened.image.size
            pixels, _ = images.decode(opened)
        except Rejected as rejected:
            return checked(rejected)
    assert pixels.dtype == np.uint8
    assert pixels.shape in {(stored[1], stored[0], 3), (stored[0], stored[1], 3)}
    assert 0 < pixels.shape[0] * pixels.shape[1] <= max_pixels
    frame = images.LONGEST_SIDE.frame(pixels)
    assert frame.pixels.shape == (tensors.FRAME_SIDE, tensors.FRAME_SIDE, 3)
    assert max(frame.size_hw) == tensors.FRAME_SIDE
    return pixels


def request_or_refusal(
    body: bytes, path: str, size_hw: tuple[int, int] = (480, 640)
) -> InferenceRequest | Refusal | None:
    """Parse a body like the service, and check its prompts like the orchestrator, on an image of
    `size_hw`.

    Return the request of a segmentation, None for other requests, or the refusal.
    """
    try:
        request = parse_body(body, MODELS[path])
        prompts = to_inference_request(request) if isinstance(request, SegmentRequest) else None
        source = image_source(request)
        if prompts is not None:
            check_prompts(prompts, size_hw)
        if isinstance(source.region, tuple):
            region = regions.rounded(source.region, size_hw)
            assert regions.rounded(region, size_hw) == region
    except (ServiceError, Rejected) as refusal:
        return checked(refusal)
    assert (source.file is None) != (source.image_id is None)
    return prompts


def checked(refusal: AnyRefusal) -> AnyRefusal:
    """Return a refusal; assert that it is short and tells the caller what to correct."""
    fields = [each if isinstance(each, dict) else vars(each) for each in refusal.errors]
    assert refusal.status in {400, 413, 415, 422}
    assert fields
    assert len(json.dumps(fields)) < 10_000
    for each in fields:
        assert set(each) == {"field", "expected", "got"}
        assert all(value and value.isprintable() for value in each.values()), each
    return refusal


def check_prompts(request: InferenceRequest, size_hw: tuple[int, int]) -> None:
    """Assert the shapes and ranges of prompts and of the decoder's inputs.

    Raises:
        Rejected: a point is outside of the image.
    """
    points_xy, labels = request.inputs["point_coords"], request.inputs["point_labels"]
    assert points_xy.shape == (*labels.shape, 2)
    assert np.isfinite(points_xy).all()
    if "mask_input" in request.inputs:
        assert request.inputs["mask_input"].shape == (
            *request.inputs["mask_input_object"].shape,
            256,
            256,
        )
    counts = (labels != tensors.NO_POINT).sum(axis=1)
    assert [len(paths) for paths in request.point_paths] == counts.tolist()
    pipeline.check_inside(points_xy, labels, size_hw)
    frame_hw = images.LONGEST_SIDE.size_in_frame(size_hw)
    point_coords, labels = networks.points_to_frame(points_xy, labels, size_hw, frame_hw)
    assert point_coords.shape[:2] == labels.shape
    assert ((point_coords >= 0) & (point_coords <= tensors.FRAME_SIDE + 1)).all()
