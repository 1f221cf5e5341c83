"""Roboflow's inference server: `segment_image` and `embed_image` under `/sam2` and `/sam`.

The image id of an answer is this service's: ids that callers choose are not kept, and are ignored beside an image.
"""

import io
import time
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pybase64
from starlette.responses import JSONResponse, Response

from utils.api.errors import Problem, invalid
from utils.integrations.adapter import Adapter, Call
from utils.integrations.rasters import DECODE_NS, OUTLINE_NS, Mask, box_of, decode, outlines, size_of
from utils.integrations.roboflow_requests import ImageRequest, Sam2Segmentation, SamSegmentation
from utils.integrations.service import GRID

MODEL = {"model_id": "mobile_sam"}
"""Part of each answer: whatever model the request names, MobileSAM answers."""
KEY_ADVICE = (
    '; inference-sdk sends its api_key in this header with InferenceConfiguration(api_key_transport="header"), '
    "and keys in a body or URL are not read"
)


ARCHIVE_NS = 40.0
"""One pixel of a mask, compressed."""


async def segment_sam2(call: Call, request: Sam2Segmentation) -> Response | dict[str, Any]:
    """Answer `/sam2/segment_image`: the best mask of each prompt, or all masks of the image without prompts."""
    started = time.perf_counter()
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
    work_s = document.get("work_s", 0)
    if request.format == "binary":
        return await binary_response(call, masks, work_s)
    shapes = [mask["rle"] for mask in masks]
    if request.format == "json":
        shapes = await call.service.converted(masks, lambda mask: [islands(mask)], box_ns=OUTLINE_NS, work_s=work_s)
    named = "rle" if request.format == "rle" else "polygon"
    predictions = [
        {"masks": shape, "confidence": mask["score"], "format": named}
        for shape, mask in zip(shapes, masks, strict=True)
    ]
    return {"predictions": predictions, **_about(document, started)}


async def segment_sam(call: Call, request: SamSegmentation) -> Response | dict[str, Any]:
    """Answer `/sam/segment_image`: one mask."""
    started = time.perf_counter()
    fields = {**request.fields(), "low_res_mask": True, "mask_format": "rle"}
    document = await call.service.segment(request.source(), fields)
    (mask,) = document["masks"]
    work_s = document["work_s"]
    if request.format == "binary":
        return await binary_response(call, [mask], work_s)

    def shapes(mask: dict[str, Any]) -> list[Any]:
        low_res = (_logits(mask) > 0).astype(np.uint8)
        return [max(islands(mask), key=len), max(_points(low_res), key=len)]

    whole, low_res = await call.service.converted([mask], shapes, box_ns=OUTLINE_NS, work_s=work_s)
    return {"masks": [whole], "low_res_masks": [low_res], **_about(document, started)}


async def embed_sam2(call: Call, request: ImageRequest) -> dict[str, Any]:
    """Answer `/sam2/embed_image` with the service's id of the image."""
    started = time.perf_counter()
    return _about(await call.service.embed(request.source()), started)


async def embed_sam(call: Call, request: ImageRequest) -> dict[str, Any]:
    """Answer `/sam/embed_image` with the service's id of the image in place of its embeddings."""
    about = await embed_sam2(call, request)
    return {"embeddings": about["image_id"], **about}


def best_masks(masks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the mask with the highest score of each object."""
    best: dict[int, dict[str, Any]] = {}
    for mask in masks:
        if mask["object"] not in best or mask["score"] > best[mask["object"]]["score"]:
            best[mask["object"]] = mask
    return list(best.values())


def islands(mask: dict[str, Any]) -> list[Any]:
    """Return the outlines of a mask's islands in pixels of the image."""
    box = box_of(mask)
    return _points(decode(mask["rle"], box), (box[0], box[1]))


def _points(mask: Mask, corner_xy: tuple[int, int] = (0, 0)) -> list[Any]:
    """Return the outlines, each (N, 2) int32; a list of an empty one without any."""
    return [outline[:, 0] for outline in outlines(mask, corner_xy)] or [[]]


def _logits(mask: dict[str, Any]) -> npt.NDArray[np.float32]:
    """Return the low-resolution logits (256, 256) float32 of a mask."""
    file = io.BytesIO(pybase64.b64decode(mask["low_res_mask"]))
    logits: npt.NDArray[np.float32] = np.load(file, allow_pickle=False)
    return logits


async def binary_response(call: Call, masks: list[dict[str, Any]], work_s: float) -> Response:
    """Return a NumPy archive: `masks` (K, H, W) int8, 1 inside and -1 outside, `low_res_masks` (K, 256, 256) float32.

    Raises:
        InvalidRequest: the masks are too large, or take too long.
    """
    if (size := sum(map(size_of, masks))) > (limit := call.service.settings.max_answer_bytes):
        raise invalid("image", f"masks of at most {limit} bytes (use a smaller image or fewer prompts)", f"{size}")

    def archive() -> bytes:
        file = io.BytesIO()
        pixels = np.stack([decode(mask["rle"]).view(np.int8) * np.int8(2) - np.int8(1) for mask in masks])
        np.savez_compressed(file, masks=pixels, low_res_masks=np.stack([_logits(mask) for mask in masks]))
        return file.getvalue()

    content = await call.service.work_on(masks, archive, image_ns=DECODE_NS + ARCHIVE_NS, work_s=work_s)
    return Response(content, media_type="application/octet-stream")


def _about(document: dict[str, Any], started: float) -> dict[str, Any]:
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
