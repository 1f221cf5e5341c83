"""Segment an object in an image that comes as pixels: preprocessing, encoder, decoder, mask and
picture.
"""

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import triton_python_backend_utils as pb_utils  # exists inside Triton only

# Set by this repository's Triton; elsewhere, install it.
if path := os.environ.get("MOBILE_SAM_ORCHESTRATOR_PATH"):
    sys.path.append(path)
from orchestrator.images import Preprocessing
from orchestrator.masks import upsample
from orchestrator.networks import DecoderError, decode, encoder_inputs
from orchestrator.pictures import COLOURS, overlay
from orchestrator.pipeline import check_inside
from orchestrator.problems import Rejected
from orchestrator.tensors import (
    BOX_BOTTOM_RIGHT,
    BOX_TOP_LEFT,
    DECODER,
    ENCODER,
    NEGATIVE,
    POSITIVE,
)

LABELS = (NEGATIVE, POSITIVE, BOX_TOP_LEFT, BOX_BOTTOM_RIGHT)

Array = npt.NDArray[Any]


class InvalidInput(Exception):
    """An input that the caller must change; the message names it."""


class TritonPythonModel:
    """Model without weights: it calls two other models of the same Triton."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the limit, and how the weights are used.

        Raises:
            TritonModelException: the weights are missing.
        """
        parameters = json.loads(args["model_config"])["parameters"]
        self.max_pixels = int(parameters["max_image_pixels"]["string_value"])
        # The encoder is a link into the repository that `make weights` writes: its mobile_sam has
        # the record.
        written = (Path(args["model_repository"]).parent / ENCODER).resolve().parent
        record = written / "mobile_sam" / args["model_version"] / "weights.json"
        if not record.is_file():
            raise pb_utils.TritonModelException(f"{record}: no such file; `make weights` writes it")
        descriptor = json.loads(record.read_text())["descriptor"]
        self.preprocessing = Preprocessing(descriptor["side"], descriptor["resize"])
        self.embedding = list(descriptor["embedding"])
        self.prompts = descriptor["prompts"]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return one response per request, in order. An error of one does not affect the others."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Any) -> Any:
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        try:
            pixels = to_pixels(inputs["input_image"], self.max_pixels)
            points_xy, labels = to_points(
                inputs["pos_coords"], inputs["neg_coords"], inputs["labels"], pixels
            )
            mask = self.segment(pixels, points_xy, labels)
        except InvalidInput as error:
            # INVALID_ARG is HTTP 400.
            failure = pb_utils.TritonError(str(error), pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=failure)
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))
        overlay(pixels, mask, COLOURS[0])
        outputs = {"mask": mask.astype(np.uint8), "segmented_image": pixels}
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor(name, array) for name, array in outputs.items()]
        )

    def segment(
        self, pixels: npt.NDArray[np.uint8], points_xy: Array, labels: Array
    ) -> npt.NDArray[np.bool_]:
        """Return the mask (H, W) bool of the object at the points; arguments as `to_points` returns
        them.

        Raises:
            InvalidInput: the weights take no points, only boxes.
            TritonModelException: the encoder or the decoder failed.
        """
        if "points" not in self.prompts and np.isin(labels, (NEGATIVE, POSITIVE)).any():
            raise InvalidInput(
                "labels: expected a box, 2 and 3, as these weights were trained for nothing else"
            )
        size_hw = pixels.shape[0], pixels.shape[1]
        frame = self.preprocessing.frame(pixels)
        images = encoder_inputs(frame.pixels, frame.size_hw)
        embedding = call(ENCODER, images, self.embedding)
        try:
            masks, _ = decode(
                partial(call, DECODER),
                dict(zip(self.embedding, embedding, strict=True)),
                points_xy[None],
                labels[None],
                size_hw=size_hw,
                frame_hw=self.preprocessing.size_in_frame(size_hw),
            )
        except DecoderError as error:
            raise pb_utils.TritonModelException(str(error)) from None
        return upsample(masks[0, 0], self.preprocessing.valid_hw(size_hw), size_hw) > 0


def to_pixels(image: Array, max_pixels: int) -> npt.NDArray[np.uint8]:
    """Return a copy of an image (H, W, 3) float32 of values from 0 to 255 as uint8.

    Raises:
        InvalidInput: it is empty or too large, or has other values.
    """
    height, width, _ = image.shape
    if not 1 <= height * width <= max_pixels:
        raise InvalidInput(
            f"input_image: expected 1 to {max_pixels} pixels, got {width} x {height}"
        )
    low, high = float(image.min()), float(image.max())
    if not (low >= 0 and high <= 255):  # not `low < 0 or high > 255`, which is false for NaN
        raise InvalidInput(f"input_image: expected values from 0 to 255, got {low:g} to {high:g}")
    if 0 < high <= 1 and (image % 1).any():
        raise InvalidInput(
            f"input_image: expected values from 0 to 255, got {low:g} to {high:g}: multiply by 255"
        )
    return np.rint(image).astype(np.uint8)


def to_points(
    positive_xy: Array, negative_xy: Array, labels: Array, pixels: Array
) -> tuple[Array, Array]:
    """Return all points of the object (P, 2) float32, x then y in pixels of the image, and their
    labels (P,) int32.

    Args:
        positive_xy: (N, 2) int64, with `labels`.
        negative_xy: (M, 2) int64; rows (0, 0) are no points.
        labels: (N,) int64: 0 outside the object, 1 on it, 2 and 3 the corners of a box.
        pixels: the image, (H, W, 3).

    Raises:
        InvalidInput: there is no point, or the labels do not fit, or a point is outside the image.
    """
    if len(labels) != len(positive_xy) or not len(labels):
        raise InvalidInput(
            f"labels: expected one per point, got {len(labels)} for {len(positive_xy)} pos_coords"
        )
    if not np.isin(labels, LABELS).all():
        raise InvalidInput(f"labels: expected 0, 1, 2 or 3, got {labels.tolist()}")
    corners = [int((labels == corner).sum()) for corner in (BOX_TOP_LEFT, BOX_BOTTOM_RIGHT)]
    if corners not in ([0, 0], [1, 1]):
        raise InvalidInput(f"labels: expected one box, a 2 and a 3, or none, got {labels.tolist()}")
    if corners == [1, 1]:
        (x0, y0), (x1, y1) = (
            positive_xy[labels == BOX_TOP_LEFT][0],
            positive_xy[labels == BOX_BOTTOM_RIGHT][0],
        )
        if not (x0 < x1 and y0 < y1):
            raise InvalidInput(
                f"pos_coords: expected a box from top left to bottom right, got {x0, y0, x1, y1}"
            )
    negative_xy = negative_xy[negative_xy.any(axis=1)]
    points_xy = np.concatenate([positive_xy, negative_xy]).astype(np.float32)
    all_labels = np.concatenate([labels, np.full(len(negative_xy), NEGATIVE)]).astype(np.int32)
    try:
        check_inside(points_xy[None], all_labels[None], (pixels.shape[0], pixels.shape[1]))
    except Rejected as rejected:
        (error, *_) = rejected.errors
        raise InvalidInput(
            f"pos_coords, neg_coords: expected {error['expected']}, got {error['got']}"
        ) from None
    return points_xy, all_labels


def call(model: str, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    """Run another model of this Triton, and return the outputs with these names.

    Raises:
        TritonModelException: it failed, or it is not loaded.
    """
    response = pb_utils.InferenceRequest(
        model_name=model,
        requested_output_names=outputs,
        inputs=[
            pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in inputs.items()
        ],
        preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
    ).exec()
    if response.has_error():
        raise pb_utils.TritonModelException(f"{model}: {response.error().message()}")
    return [pb_utils.get_output_tensor_by_name(response, name).as_numpy() for name in outputs]
