"""Space of valid requests: its dimensions, and the request at a point."""

import base64
import functools
import hashlib
import io
import os
import random
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from PIL import Image

from harness.load import Request, json_request
from tests.chaos import tool_requests
from tests.chaos.tool_requests import TOOL_PATHS
from tests.fuzz.hostile_requests import FLOAT32, npy

Point = tuple[Any, ...]
"""One option per dimension, in the order of the space."""
Space = Mapping[str, Sequence[Any]]

SPACE: Space = {
    "path": ("/mobile_sam", "/everything", "/embed", *TOOL_PATHS),
    "multimask_output": (False, True),
    "mask_format": ("rle", "json", "npy", "png", "polygon"),
    "segmented_image": ("none", "overlay", "cutout"),
    "low_res_mask": (False, True),
    "mask_input": (False, True),
    "task": ("rectangle", "polygon", "everything"),
    "format": ("rle", "json", "binary"),
    "nested": (0, 3600),
    "points": (1, 16),
    "crop_n_layers": (0, 1, 3),
    "crop_overlap_ratio": (0.0, 1.0),
    "min_mask_region_area": (0, 1000, 10**9),
    "thresholds": (None, 0.0),
    "progress": (False, True),
    "content": ("photo", "noise", "flat", "stripes"),
    "image_source": ("known", "by id", "new"),
    "file_format": ("JPEG", "PNG", "WEBP"),
    "objects": (1, 8, 32, 256),
    "points_per_side": (1, 4, 8, 64),
    "size": ((512, 512), (2000, 1500), (4000, 3000), (5000, 5000), (16000, 1560)),
}
"""Options of each dimension, the cheapest first. The last dimensions affect the cost of all others."""
OPTIONS = {
    "/mobile_sam": ("multimask_output", "mask_format", "segmented_image", "low_res_mask"),
    "/everything": ("points_per_side", "crop_n_layers", "crop_overlap_ratio", "min_mask_region_area", "progress"),
    "/embed": (),
}
"""Dimensions of the service's own paths that are fields."""
BY_ID = (*OPTIONS, *(path for path in TOOL_PATHS if path.endswith("_image")))
"""Paths that take an image by its id; the others get the file of a known one."""


def point(path: str = "/mobile_sam", **options: Any) -> Point:
    """Return the point with these options, and the cheapest where one is left out."""
    return tuple(({"path": path} | options).get(name, cheapest) for name, (cheapest, *_) in SPACE.items())


@functools.lru_cache(maxsize=32)
def image_file(width: int, height: int, file_format: str, content: str) -> bytes:
    """Return an image file with a format and content of `SPACE`."""
    if content == "flat":
        pixels = np.full((height, width, 3), 128, np.uint8)
    elif content == "stripes":
        stripes = np.indices((height, width)).sum(axis=0) // 4 % 2 * 255
        pixels = np.repeat(stripes[..., None], 3, axis=2).astype(np.uint8)
    else:
        block, resampling = {
            "noise": (2, Image.Resampling.NEAREST),
            "photo": (64, Image.Resampling.BILINEAR),
        }[content]
        size_hw = (-(-height // block), -(-width // block))
        small = np.random.default_rng(0).integers(0, 256, (*size_hw, 3), dtype=np.uint8)
        pixels = np.asarray(Image.fromarray(small).resize((width, height), resampling))
    file = io.BytesIO()
    options = {"JPEG": {"quality": 85}, "PNG": {"compress_level": 1}, "WEBP": {"method": 0}}[file_format]
    Image.fromarray(pixels).save(file, file_format, **options)
    return file.getvalue()


def request(point: Point, objects: int | None = None, headers: Mapping[str, str] = MappingProxyType({})) -> Request:
    """Return a point's request, with a different image each time for source `new`.

    Args:
        point: a point of `SPACE`.
        objects: number of objects; the point's by default.
        headers: further headers.
    """
    chosen = dict(zip(SPACE, point, strict=True))
    path, (width, height) = chosen["path"], chosen["size"]
    file = image_file(width, height, chosen["file_format"], chosen["content"])
    file += bytes(-len(file) % 3)  # so that base64 can be appended
    by_id = chosen["image_source"] == "by id" and path in BY_ID
    image = hashlib.sha256(file).hexdigest() if by_id else base64.b64encode(file).decode()
    draw = random.Random(0)
    clicks = [
        [[draw.randrange(width), draw.randrange(height)] for _ in range(chosen["points"])]
        for _ in range(objects or chosen["objects"])
    ]
    tool = TOOL_PATHS.get(path)
    own = tool(chosen, image, clicks) if tool else _fields(chosen, image, clicks, by_id)
    renew = renew_image if chosen["image_source"] == "new" else None
    return json_request(own, path, {**tool_requests.headers(chosen), **headers}, renew)


def _fields(chosen: Mapping[str, Any], image: str, clicks: list[list[list[int]]], by_id: bool) -> dict[str, Any]:
    """Return the fields of a request to the service's own paths; the image is the last one."""
    fields: dict[str, Any] = {name: chosen[name] for name in OPTIONS[chosen["path"]]}
    if chosen["path"] == "/everything" and chosen["thresholds"] is not None:
        fields |= {"pred_iou_thresh": chosen["thresholds"], "stability_score_thresh": chosen["thresholds"]}
    if chosen["path"] == "/mobile_sam":
        mask = {"mask_input": npy(FLOAT32, bytes(4 * 256 * 256))} if chosen["mask_input"] else {}
        fields["prompts"] = [{"pos_coords": each, **mask} for each in clicks]
    return fields | {"image_id" if by_id else "input_image": image}


def renew_image(body: bytes) -> bytes:
    """Append random bytes to the image file in a body, its last string, which change only the image's id."""
    head, quote, end = body.rpartition(b'"')
    return head + base64.b64encode(os.urandom(9)) + quote + end


def describe(point: Point) -> str:
    """Return the path of a point and the options that are not the cheapest."""
    chosen = zip(SPACE.items(), point, strict=True)
    return ", ".join(f"{name} {option}" for (name, options), option in chosen if name == "path" or option != options[0])
