"""Roboflow's inference server: `segment_image` and `embed_image` under `/sam2` and `/sam`.

The image id of an answer is this service's: ids that callers choose are not kept, and are ignored
beside an image.
"""

import io
import itertools
import time
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pybase64
from pydantic import BeforeValidator, Field
from starlette.responses import JSONResponse, Response

from orchestrator.tensors import PADDING_POINT
from utils.api.requests import MAX_OBJECTS, MAX_POINTS, Coordinate, Point
from utils.errors import Problem, invalid
from utils.inference.request import ImageSource
from utils.integrations.adapter import Adapter, Answer, ToolCall, ToolRequest, image_of
from utils.integrations.rasters import (
    DECODE_NS,
    OUTLINE_NS,
    Record,
    decoded,
    image_size_of,
    outlines,
    outlines_of,
    rle_of,
)
from utils.integrations.service import GRID, Document, pixels_per_cell
from utils.observability.context import KEY_NAME

MODEL = {"model_id": "mobile_sam"}
"""Part of each answer: whatever model the request names, MobileSAM answers."""
KEY_ADVICE = (
    "; inference-sdk sends its api_key in this header with"
    ' InferenceConfiguration(api_key_transport="header"), and keys in a body or URL are not read'
)
MAX_ID_LENGTH = 128
ARCHIVE_NS = 40.0
"""One pixel of a mask, compressed."""


class RoboflowImage(ToolRequest):
    """An image as `{"type": "base64", "value": "..."}`."""

    type: str
    value: Any = None


def _single(image: object) -> object:
    if not isinstance(image, list):
        return image
    if len(image) != 1:
        raise invalid(
            "image",
            "one image per request (max_batch_size=1 of inference-sdk)",
            f"{len(image)} images",
        )
    return image[0]


class ImageRequest(ToolRequest):
    """Fields that all requests have."""

    image: Annotated[RoboflowImage | None, BeforeValidator(_single)] = None
    image_id: Annotated[str | None, Field(max_length=MAX_ID_LENGTH)] = None

    def source(self) -> ImageSource:
        """Return the image, or the id of one sent earlier; raise `InvalidRequest` without
        either.
        """
        if self.image is None:
            if not self.image_id:
                raise invalid(
                    "image", "an image, or the image_id that embed_image has returned", "neither"
                )
            return ImageSource(None, self.image_id, KEY_NAME.get())
        if self.image.type != "base64" or not isinstance(self.image.value, str):
            expected = "base64 with the file as value; nothing else is read or fetched"
            raise invalid("image.type", expected, self.image.type)
        return image_of(self.image.value, "image.value")


class CentredBox(ToolRequest):
    """A box by its centre and size, in pixels."""

    x: Coordinate
    y: Coordinate
    width: Coordinate
    height: Coordinate


class RoboflowPoint(ToolRequest):
    """A point in pixels."""

    x: Coordinate
    y: Coordinate
    positive: bool = True


class RoboflowPrompt(ToolRequest):
    """CentredBox, points, or both, of one object."""

    box: CentredBox | None = None
    points: Annotated[list[RoboflowPoint] | None, Field(max_length=MAX_POINTS)] = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`."""
        points, box = self.points or [], None
        if self.box is not None:
            x, y, half_width, half_height = (
                self.box.x,
                self.box.y,
                self.box.width / 2,
                self.box.height / 2,
            )
            box = [x - half_width, y - half_height, x + half_width, y + half_height]
        return {
            "pos_coords": [(point.x, point.y) for point in points if point.positive],
            "neg_coords": [(point.x, point.y) for point in points if not point.positive],
            "box": box,
        }


def _prompt_list(prompts: object) -> object:
    """Return the list of prompts of the nested form, of a list, or of a single prompt."""
    return prompts.get("prompts", [prompts]) if isinstance(prompts, dict) else prompts


class Sam2Segmentation(ImageRequest):
    """Body of `/sam2/segment_image`."""

    prompts: Annotated[
        Annotated[list[RoboflowPrompt], Field(max_length=MAX_OBJECTS)] | None,
        BeforeValidator(_prompt_list),
    ] = None
    multimask_output: bool = True
    format: Literal["json", "rle", "binary"] = "json"


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
        """Return the image, or the id of one sent earlier, which is also what `/sam/embed_image`
        has for embeddings.
        """
        if not self.embeddings:
            return super().source()
        if not isinstance(self.embeddings, str) or len(self.embeddings) > MAX_ID_LENGTH:
            expected = (
                "the text that embed_image has returned, image or image_id: embeddings stay in the"
                " service"
            )
            raise invalid("embeddings", expected, "other embeddings")
        return ImageSource(None, self.embeddings, KEY_NAME.get())

    def fields(self) -> dict[str, Any]:
        """Return the fields of `/mobile_sam`; raise `InvalidRequest` if the mask input is not
        supported.
        """
        coords, labels = self.point_coords or [], self.point_labels or []
        if len(coords) != len(labels):
            raise invalid("point_labels", f"{len(coords)} labels, one per point", f"{len(labels)}")
        points = [
            (point, int(label))
            for point, label in zip(coords, labels, strict=True)
            if label != PADDING_POINT
        ]
        fields = {
            "pos_coords": [point for point, _ in points],
            "labels": [label for _, label in points],
        }
        if not self.has_mask_input:
            return fields
        if self.mask_input_format != "binary" or not isinstance(self.mask_input, str):
            expected = (
                "base64 of a NumPy file with low_res_masks of a binary answer, and"
                " mask_input_format binary"
            )
            raise invalid("mask_input", expected, "another format, or none: masks are not kept")
        return {**fields, "mask_input": self.mask_input}


async def segment_sam2(call: ToolCall, request: Sam2Segmentation) -> Answer:
    """Answer `/sam2/segment_image`: the best mask of each prompt, or all masks of the image
    without prompts.
    """
    started = time.perf_counter()
    if request.prompts:
        fields = {
            "multimask_output": request.multimask_output,
            "low_res_mask": request.format == "binary",
        }
        prompts = [prompt.fields() for prompt in request.prompts]
        document = await call.service.segment(
            request.source(), {**fields, "prompts": prompts, "mask_format": "rle"}
        )
        objects = itertools.groupby(document["masks"], key=lambda mask: mask["object"])
        document["masks"] = [
            max(candidates, key=lambda mask: mask["score"]) for _, candidates in objects
        ]
    elif request.format == "binary":
        raise invalid("format", "json or rle without prompts", "binary")
    else:
        document = await call.service.everything(request.source(), GRID)
    if request.format == "binary":
        return await binary_response(call, document)
    if request.format == "json":
        named = "polygon"
        shapes = await call.service.converted(
            document, lambda mask: [islands(mask)], box_ns=OUTLINE_NS
        )
    else:
        named = "rle"
        image_ns = DECODE_NS * ("reduction" in document)  # others are passed on as they are
        shapes = await call.service.converted(
            document, lambda mask: [rle_of(mask)], image_ns=image_ns
        )
    predictions = [
        {"masks": shape, "confidence": mask["score"], "format": named}
        for shape, mask in zip(shapes, document["masks"], strict=True)
    ]
    return {"predictions": predictions, **_about(document, started)}


async def segment_sam(call: ToolCall, request: SamSegmentation) -> Answer:
    """Answer `/sam/segment_image`: one mask."""
    started = time.perf_counter()
    fields = {**request.fields(), "low_res_mask": True, "mask_format": "rle"}
    document = await call.service.segment(request.source(), fields)
    if request.format == "binary":
        return await binary_response(call, document)

    def shapes(mask: Record) -> list[Any]:
        low_res = outlines((_logits(mask) > 0).astype(np.uint8))
        return [max(islands(mask), key=len), max(low_res, key=len, default=[])]

    whole, low_res = await call.service.converted(document, shapes, box_ns=OUTLINE_NS)
    return {"masks": [whole], "low_res_masks": [low_res], **_about(document, started)}


async def embed_sam2(call: ToolCall, request: ImageRequest) -> dict[str, Any]:
    """Answer `/sam2/embed_image` with the service's id of the image."""
    started = time.perf_counter()
    return _about(await call.service.embed(request.source()), started)


async def embed_sam(call: ToolCall, request: ImageRequest) -> Answer:
    """Answer `/sam/embed_image` with the service's id of the image in place of its embeddings."""
    about = await embed_sam2(call, request)
    return {"embeddings": about["image_id"], **about}


def islands(mask: Record) -> list[Any]:
    """Return the outlines of a mask's islands in pixels of the image; one without points for an
    empty mask.
    """
    return [*outlines_of(mask)] or [[]]


def _logits(mask: Record) -> npt.NDArray[np.float32]:
    """Return the low-resolution logits (256, 256) float32 of a mask."""
    logits: npt.NDArray[np.float32] = np.load(
        io.BytesIO(pybase64.b64decode(mask["low_res_mask"])), allow_pickle=False
    )
    return logits


async def binary_response(call: ToolCall, document: Document) -> Response:
    """Return a NumPy archive: `masks` (K, H, W) int8, 1 inside, -1 outside; `low_res_masks` (K,
    256, 256) float32.
    """
    masks = document["masks"]
    if (size := sum(map(image_size_of, masks))) > (limit := call.service.settings.max_answer_bytes):
        raise invalid(
            "image",
            f"masks of at most {limit} bytes (use a smaller image or fewer prompts)",
            f"{size}",
        )

    def archive() -> bytes:
        file = io.BytesIO()
        pixels = np.stack([decoded(mask).view(np.int8) * np.int8(2) - np.int8(1) for mask in masks])
        np.savez_compressed(
            file, masks=pixels, low_res_masks=np.stack([_logits(mask) for mask in masks])
        )
        return file.getvalue()

    image_ns = DECODE_NS + ARCHIVE_NS * pixels_per_cell(document)
    content = await call.service.work_on(document, archive, image_ns=image_ns)
    return Response(content, media_type="application/octet-stream")


def _about(document: Document, started: float) -> dict[str, Any]:
    identity = {name: document[name] for name in ("image_id", "weights")}
    return {**identity, **MODEL, "time": round(time.perf_counter() - started, 4)}


def error_response(problem: Problem) -> Response:
    """Return an error as the server's `message`, which inference-sdk shows."""
    advice = KEY_ADVICE if problem.status == 401 else ""
    return JSONResponse({"message": problem.detail + advice}, problem.status, problem.headers)


ADAPTER = Adapter(
    "roboflow",
    pages={},
    work={
        "/sam2/segment_image": (Sam2Segmentation, segment_sam2),
        "/sam2/embed_image": (ImageRequest, embed_sam2),
        "/sam/segment_image": (SamSegmentation, segment_sam),
        "/sam/embed_image": (ImageRequest, embed_sam),
    },
    error_response=error_response,
)
