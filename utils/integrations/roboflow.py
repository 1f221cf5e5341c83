"""Roboflow's inference server: `segment_image` and `embed_image` under `/sam2` and `/sam`.

The image id of an answer is this service's: ids that callers choose are not kept, and are ignored beside an image.
"""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import cv2
import numpy as np
import numpy.typing as npt
import pybase64
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from utils.api.errors import Problem
from utils.api.images import ImageSource
from utils.api.requests import MAX_OBJECTS, MAX_POINTS, Coordinate, Point, invalid
from utils.integrations.adapter import Adapter, Call, image_of
from utils.integrations.rasters import MAX_PIXELS, Mask, box_of, check_pixels, decode
from utils.observability.context import CALLER

MODEL = {"model_id": "mobile_sam"}
"""Part of each answer: whatever model the request names, MobileSAM answers."""
KEY_ADVICE = (
    '; inference-sdk sends its api_key in this header with InferenceConfiguration(api_key_transport="header"), '
    "and keys in a body or URL are not read"
)
GRID = {"points_per_side": 16}
"""A quarter of the points of `/everything`, so that an answer takes seconds on a CPU."""
MAX_ID_LENGTH = 128
PADDING = -1
"""Label of points that SAM ignores."""

Format = Literal["json", "rle", "binary"]


class RoboflowImage(BaseModel):
    """An image as `{"type": "base64", "value": "..."}`."""

    type: str
    value: Any = None

    def source(self) -> ImageSource:
        """Return the image.

        Raises:
            InvalidRequest: it is not base64.
        """
        if self.type != "base64" or not isinstance(self.value, str):
            raise invalid("image.type", "base64 with the file as value; nothing else is read or fetched", self.type)
        return image_of(self.value, "image.value")


def _single(image: object) -> object:
    if isinstance(image, list):
        if len(image) != 1:
            raise invalid("image", "one image per request (max_batch_size=1 of inference-sdk)", f"{len(image)} images")
        return image[0]
    return image


class ImageRequest(BaseModel):
    """Fields that all requests have."""

    model_config = ConfigDict(protected_namespaces=())

    image: Annotated[RoboflowImage | None, BeforeValidator(_single)] = None
    image_id: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None

    def source(self) -> ImageSource:
        """Return the image, or the id of one sent earlier.

        Raises:
            InvalidRequest: there is neither, or the image is not base64.
        """
        if self.image is not None:
            return self.image.source()
        return known_image(self.image_id)


def known_image(image_id: str | None) -> ImageSource:
    """Return an image sent earlier.

    Raises:
        InvalidRequest: there is no id.
    """
    if not image_id:
        raise invalid("image", "an image, or the image_id that embed_image has returned", "neither")
    return ImageSource(None, image_id, CALLER.get())


class Box(BaseModel):
    """A box by its centre and size, in pixels."""

    x: Coordinate
    y: Coordinate
    width: Coordinate
    height: Coordinate

    def corners(self) -> list[float]:
        """Return x0, y0, x1, y1."""
        half_width, half_height = self.width / 2, self.height / 2
        return [self.x - half_width, self.y - half_height, self.x + half_width, self.y + half_height]


class PointPrompt(BaseModel):
    """A point in pixels."""

    x: Coordinate
    y: Coordinate
    positive: bool = True


class Prompt(BaseModel):
    """Box, points, or both, of one object."""

    box: Box | None = None
    points: Annotated[list[PointPrompt] | None, Field(max_length=MAX_POINTS)] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`."""
        points = self.points or []
        return {
            "pos_coords": [(point.x, point.y) for point in points if point.positive],
            "neg_coords": [(point.x, point.y) for point in points if not point.positive],
            "box": None if self.box is None else self.box.corners(),
        }


def _prompt_list(prompts: object) -> object:
    """Return the list of prompts of the nested form, of a list, or of a single prompt."""
    if isinstance(prompts, dict):
        return prompts.get("prompts", [prompts])
    return prompts


class Sam2Segmentation(ImageRequest):
    """Body of `/sam2/segment_image`."""

    prompts: Annotated[Annotated[list[Prompt], Field(max_length=MAX_OBJECTS)] | None, BeforeValidator(_prompt_list)] = (
        None
    )
    multimask_output: bool = True
    format: Format = "json"


class SamSegmentation(ImageRequest):
    """Body of `/sam/segment_image`."""

    embeddings: Any = None
    point_coords: Annotated[list[Point] | None, Field(max_length=MAX_POINTS)] = None
    point_labels: Annotated[list[Coordinate] | None, Field(max_length=MAX_POINTS)] = None
    has_mask_input: bool | None = False
    mask_input: Any = None
    mask_input_format: str | None = "json"
    format: Literal["json", "binary"] = "json"

    def source(self) -> ImageSource:
        """Return the image, or the id of one sent earlier, which is also what `/sam/embed_image` has for embeddings.

        Raises:
            InvalidRequest: there is neither, the image is not base64, or the embeddings are numbers.
        """
        if not self.embeddings:
            return super().source()
        if not isinstance(self.embeddings, str) or len(self.embeddings) > MAX_ID_LENGTH:
            expected = "the text that embed_image has returned, image or image_id: embeddings stay in the service"
            raise invalid("embeddings", expected, "other embeddings")
        return known_image(self.embeddings)

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`.

        Raises:
            InvalidRequest: the mask input is not supported.
        """
        coords, labels = self.point_coords or [], self.point_labels or []
        if len(coords) != len(labels):
            raise invalid("point_labels", f"{len(coords)} labels, one per point", f"{len(labels)}")
        points = [(point, int(label)) for point, label in zip(coords, labels, strict=True) if label != PADDING]
        fields: dict[str, Any] = {
            "pos_coords": [point for point, _ in points],
            "labels": [label for _, label in points],
        }
        if self.has_mask_input:
            if self.mask_input_format != "binary" or not isinstance(self.mask_input, str):
                expected = "base64 of a NumPy file with low_res_masks of a binary answer, and mask_input_format binary"
                raise invalid("mask_input", expected, "another format, or none: masks are not kept")
            fields["mask_input"] = self.mask_input
        return fields


async def segment_sam2(call: Call) -> Response | dict[str, Any]:
    """Answer `/sam2/segment_image`: the best mask of each prompt, or all masks of the image without prompts."""
    started = time.perf_counter()
    request = call.parse(Sam2Segmentation)
    if not request.prompts:
        if request.format == "binary":
            raise invalid("format", "json or rle without prompts", "binary")
        document = await call.service.everything(request.source(), GRID)
        masks = [{**mask, "rle": mask["segmentation"], "score": mask["predicted_iou"]} for mask in document["masks"]]
    else:
        fields = {"multimask_output": request.multimask_output, "low_res_mask": request.format == "binary"}
        prompts = [prompt.fields() for prompt in request.prompts]
        document = await call.service.segment(request.source(), {**fields, "prompts": prompts, "mask_format": "rle"})
        masks = best_masks(document["masks"])
    if request.format == "binary":
        return await binary_response(call, masks)
    shapes = [mask["rle"] for mask in masks]
    if request.format == "json":
        check_pixels(shapes, MAX_PIXELS)
        shapes = await asyncio.to_thread(lambda: [islands(mask) for mask in masks])
    named = "rle" if request.format == "rle" else "polygon"
    predictions = [
        {"masks": shape, "confidence": mask["score"], "format": named}
        for shape, mask in zip(shapes, masks, strict=True)
    ]
    return {"predictions": predictions, **_about(document, started)}


async def segment_sam(call: Call) -> Response | dict[str, Any]:
    """Answer `/sam/segment_image`: one mask."""
    started = time.perf_counter()
    request = call.parse(SamSegmentation)
    fields = {**request.fields(), "low_res_mask": True, "mask_format": "rle"}
    document = await call.service.segment(request.source(), fields)
    (mask,) = document["masks"]
    if request.format == "binary":
        return await binary_response(call, [mask])

    def outlines() -> dict[str, Any]:
        low_res = (_logits(mask) > 0).astype(np.uint8)
        return {"masks": [max(islands(mask), key=len)], "low_res_masks": [max(outer_outlines(low_res), key=len)]}

    return {**await asyncio.to_thread(outlines), **_about(document, started)}


async def embed_sam2(call: Call) -> dict[str, Any]:
    """Answer `/sam2/embed_image` with the service's id of the image."""
    started = time.perf_counter()
    return _about(await call.service.embed(call.parse(ImageRequest).source()), started)


async def embed_sam(call: Call) -> dict[str, Any]:
    """Answer `/sam/embed_image` with the service's id of the image in place of its embeddings."""
    about = await embed_sam2(call)
    return {"embeddings": about["image_id"], **about}


def best_masks(masks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mask with the highest score of each object."""
    best: dict[int, dict[str, Any]] = {}
    for mask in masks:
        if mask["object"] not in best or mask["score"] > best[mask["object"]]["score"]:
            best[mask["object"]] = mask
    return list(best.values())


def islands(mask: dict[str, Any]) -> list[list[list[int]]]:
    """Return the outlines of a mask's islands in pixels of the image."""
    box = box_of(mask)
    return outer_outlines(decode(mask["rle"], box), (box[0], box[1]))


def outer_outlines(mask: Mask, corner: tuple[int, int] = (0, 0)) -> list[list[list[int]]]:
    """Return the outlines of a mask's islands, without holes, through the centres of their outermost pixels.

    Args:
        mask: (H, W) uint8.
        corner: x and y of its first pixel.
    """
    contours, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE, offset=corner)
    return [contour[:, 0].tolist() for contour in contours] or [[]]


def _logits(mask: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Return the low-resolution logits (256, 256) float32 of a mask."""
    file = io.BytesIO(pybase64.b64decode(mask["low_res_mask"]))
    logits: npt.NDArray[np.float32] = np.load(file, allow_pickle=False)
    return logits


async def binary_response(call: Call, masks: list[dict[str, Any]]) -> Response:
    """Return a NumPy archive: `masks` (K, H, W) int8, 1 inside and -1 outside, `low_res_masks` (K, 256, 256) float32.

    Raises:
        InvalidRequest: the masks are too large.
    """
    check_pixels([mask["rle"] for mask in masks], call.service.settings.max_answer_bytes)

    def archive() -> bytes:
        file = io.BytesIO()
        pixels = np.stack([decode(mask["rle"]).view(np.int8) * np.int8(2) - np.int8(1) for mask in masks])
        np.savez_compressed(file, masks=pixels, low_res_masks=np.stack([_logits(mask) for mask in masks]))
        return file.getvalue()

    return Response(await asyncio.to_thread(archive), media_type="application/octet-stream")


def _about(document: dict[str, Any], started: float) -> dict[str, Any]:
    identity = {name: document[name] for name in ("image_id", "weights")}
    return {**identity, **MODEL, "time": round(time.perf_counter() - started, 4)}


def error_response(problem: Problem) -> Response:
    """Return an error as the server's `message`, which inference-sdk shows."""
    advice = KEY_ADVICE if problem.status == 401 else ""
    return JSONResponse({"message": problem.detail + advice}, problem.status, problem.headers)


ROBOFLOW = Adapter(
    "roboflow",
    pages={},
    work={
        "/sam2/segment_image": segment_sam2,
        "/sam2/embed_image": embed_sam2,
        "/sam/segment_image": segment_sam,
        "/sam/embed_image": embed_sam,
    },
    error_response=error_response,
)
