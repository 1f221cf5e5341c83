"""Valid requests to every path that works: cheap ones by default, and the costliest ones."""

import base64
import functools
import hashlib
import io
import os
import random
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import requests
from PIL import Image

from harness import Server
from harness.load import Request, json_request
from tests.chaos import tool_requests
from tests.chaos.tool_requests import TOOL_PATHS
from tests.fuzz.hostile_requests import FLOAT32, npy

Options = Mapping[str, Any]

DEFAULTS: Options = {
    "multimask_output": False,
    "mask_format": "rle",
    "segmented_image": "none",
    "low_res_mask": False,
    "mask_input": False,
    "task": "rectangle",  # or polygon, everything: of annotation tools
    "format": "rle",  # or json, binary: of Roboflow's paths
    "nested": 0,  # tags of a labeling configuration inside one another
    "points": 1,  # of each object
    "crop_n_layers": 0,
    "crop_overlap_ratio": 0.0,
    "min_mask_region_area": 0,
    "thresholds": None,
    "progress": False,
    "content": "photo",  # or noise, flat
    "image_source": "known",  # or by id, new
    "file_format": "JPEG",  # or PNG
    "objects": 1,
    "points_per_side": 1,
    "size": (512, 512),  # width and height
}
"""The cheapest choices."""
FIELDS: Mapping[str, Sequence[str]] = {
    "/mobile_sam": ("multimask_output", "mask_format", "segmented_image", "low_res_mask"),
    "/everything": (
        "points_per_side",
        "crop_n_layers",
        "crop_overlap_ratio",
        "min_mask_region_area",
        "progress",
    ),
    "/embed": (),
}
"""Options that are fields of the service's own paths."""
BY_ID = (*FIELDS, *(path for path in TOOL_PATHS if path.endswith("_image")))
"""Paths that take an image by its id; the others get the file of a known one."""

NOISE: Options = {"content": "noise", "size": (4000, 3000), "objects": 32, "points": 16}
"""12 megapixels of noise with 512 points: searches found nothing that costs more."""
EVERYTHING: Options = {
    "content": "noise",
    "size": (5000, 5000),
    "points_per_side": 4,
    "min_mask_region_area": 10**9,
    "thresholds": 0.0,
}
"""All masks of 25 megapixels of noise, whose small regions are removed."""
COSTLIEST: Sequence[tuple[str, Options]] = (
    ("/mobile_sam", {**NOISE, "segmented_image": "overlay", "image_source": "new"}),
    ("/mobile_sam", {**NOISE, "mask_format": "polygon", "mask_input": True}),
    ("/mobile_sam", {"objects": 8, "points": 16, "image_source": "by id"}),
    ("/everything", EVERYTHING),
    ("/embed", {"content": "noise", "size": (5000, 5000), "image_source": "new"}),
    *((path, NOISE) for path in TOOL_PATHS),
    ("/sam/automask/", EVERYTHING),
    ("/label-studio/setup", {"nested": 3600}),
)
"""The costliest requests by path and options."""
FITS = re.compile(rb"at most (\d+) (?:objects|masks) ")
"""Number of objects that a refusal allows; some tools get it with status 200."""
LIMIT_S = 120
"""Limit of an answer, above that of the service."""


def valid_request(
    path: str = "/mobile_sam",
    headers: Mapping[str, str] = MappingProxyType({}),
    **options: Any,
) -> Request:
    """Return a request, with a different image each time for the source `new`.

    Args:
        path: a path of the service or of a tool.
        headers: further headers.
        options: changes of `DEFAULTS`.
    """
    assert options.keys() <= DEFAULTS.keys(), options
    chosen = {**DEFAULTS, **options}
    width, height = chosen["size"]
    file = image_file(width, height, chosen["file_format"], chosen["content"])
    by_id = chosen["image_source"] == "by id" and path in BY_ID
    image = hashlib.sha256(file).hexdigest() if by_id else base64.b64encode(file).decode()
    draw = random.Random(0)
    clicks = [
        [[draw.randrange(width), draw.randrange(height)] for _ in range(chosen["points"])]
        for _ in range(chosen["objects"])
    ]
    if path in TOOL_PATHS:
        fields = TOOL_PATHS[path](chosen, image, clicks)
    else:
        fields = _fields(path, chosen, image, clicks, by_id=by_id)
    renew = renew_image if chosen["image_source"] == "new" else None
    return json_request(fields, path, {**tool_requests.headers(chosen), **headers}, renew)


def fitting(server: Server, path: str, **options: Any) -> tuple[Request, requests.Response]:
    """Return a request with as many objects as the service allows, and its answer.

    A known image is encoded before.
    """
    chosen = {**DEFAULTS, **options}
    if chosen["image_source"] != "new":
        image = {name: chosen[name] for name in ("content", "size", "file_format")}
        server.send(valid_request("/embed", **image)).raise_for_status()
    request = valid_request(path, **options)
    answer = _sent(server, request)
    refused = FITS.search(answer.content[:2000])
    if refused and 0 < int(refused[1]) < chosen["objects"]:
        request = valid_request(path, **{**options, "objects": int(refused[1])})
        answer = _sent(server, request)
    return request, answer


def _sent(server: Server, request: Request) -> requests.Response:
    # Without compression: a large answer is counted as it is.
    headers = {**request.headers, "Accept-Encoding": "identity"}
    url = server.url + request.path
    return requests.post(url, request.content(), headers=headers, timeout=LIMIT_S)


@functools.lru_cache(maxsize=32)
def image_file(width: int, height: int, file_format: str, content: str) -> bytes:
    """Return an image file of a format and content as in `DEFAULTS`, of a length divisible by 3."""
    if content == "flat":
        pixels = np.full((height, width, 3), 128, np.uint8)
    else:
        block, resampling = {
            "noise": (2, Image.Resampling.NEAREST),
            "photo": (64, Image.Resampling.BILINEAR),
        }[content]
        size_hw = (-(-height // block), -(-width // block))
        small = np.random.default_rng(0).integers(0, 256, (*size_hw, 3), dtype=np.uint8)
        pixels = np.asarray(Image.fromarray(small).resize((width, height), resampling))
    file = io.BytesIO()
    settings = {"JPEG": {"quality": 85}, "PNG": {"compress_level": 1}}
    Image.fromarray(pixels).save(file, file_format, **settings[file_format])
    data = file.getvalue()
    return data + bytes(-len(data) % 3)  # so that base64 can be appended


def _fields(
    path: str,
    chosen: Options,
    image: str,
    clicks: list[list[list[int]]],
    *,
    by_id: bool,
) -> dict[str, Any]:
    """Return the fields of a request to the service's own paths; the image is the last one."""
    fields: dict[str, Any] = {name: chosen[name] for name in FIELDS[path]}
    thresholds = chosen["thresholds"]
    if path == "/everything" and thresholds is not None:
        fields |= {"pred_iou_thresh": thresholds, "stability_score_thresh": thresholds}
    if path == "/mobile_sam":
        mask = {"mask_input": npy(FLOAT32, bytes(4 * 256 * 256))} if chosen["mask_input"] else {}
        fields["prompts"] = [{"pos_coords": points_xy, **mask} for points_xy in clicks]
    return fields | {"image_id" if by_id else "input_image": image}


def renew_image(body: bytes) -> bytes:
    """Append random bytes to the image file in a body, its last string: they only change its id."""
    head, quote, end = body.rpartition(b'"')
    return head + base64.b64encode(os.urandom(9)) + quote + end
