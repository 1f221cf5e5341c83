"""The space of valid requests: its dimensions, and the request at a point."""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import json
import os
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from tests.fuzz.body_parts import FLOAT32, npy

Point = tuple[Any, ...]
"""An option of each dimension, in the order of the space."""
Space = Mapping[str, Sequence[Any]]

SPACE: Space = {
    "path": ("/mobile_sam", "/everything", "/embed"),
    "multimask_output": (False, True),
    "mask_format": ("rle", "json", "npy", "png", "polygon"),
    "segmented_image": ("none", "overlay", "cutout"),
    "low_res_mask": (False, True),
    "mask_input": (False, True),
    "points": (1, 16),
    "crop_n_layers": (0, 1, 3),
    "min_mask_region_area": (0, 1000),
    "thresholds": (None, 0.0),
    "progress": (False, True),
    "content": ("photo", "noise", "flat", "stripes"),
    "way": ("known", "by id", "new"),
    "file_format": ("JPEG", "PNG", "WEBP"),
    "objects": (1, 8, 32, 256),
    "points_per_side": (1, 8, 64),
    "size": ((512, 512), (2000, 1500), (4000, 3000), (5000, 5000), (16000, 1560)),
}
"""Each dimension begins with its cheapest option; those that make everything dearer come last."""
OPTIONS = {
    "/mobile_sam": ("multimask_output", "mask_format", "segmented_image", "low_res_mask"),
    "/everything": ("points_per_side", "crop_n_layers", "min_mask_region_area", "progress"),
    "/embed": (),
}
OF_SEGMENT = ("mask_input", "points", "objects")
OF_ALL = ("content", "way", "file_format", "size")


def point(**options: Any) -> Point:
    """The point of these options, the others the cheapest."""
    return tuple(options.get(name, cheapest) for name, (cheapest, *_) in SPACE.items())


@functools.lru_cache(maxsize=32)
def image_file(width: int, height: int, file_format: str, content: str) -> bytes:
    """A file of one of the formats and contents of `SPACE`."""
    draw = np.random.default_rng(0)
    if content == "flat":
        pixels = np.full((height, width, 3), 128, np.uint8)
    elif content == "stripes":
        pixels = np.repeat(np.indices((height, width)).sum(axis=0)[..., None] // 4 % 2 * 255, 3, axis=2).astype(
            np.uint8
        )
    else:
        block = 2 if content == "noise" else 64
        small = draw.integers(0, 256, (-(-height // block), -(-width // block), 3), dtype=np.uint8)
        how = Image.Resampling.NEAREST if content == "noise" else Image.Resampling.BILINEAR
        pixels = np.asarray(Image.fromarray(small).resize((width, height), how))
    file = io.BytesIO()
    options = {"JPEG": {"quality": 85}, "PNG": {"compress_level": 1}, "WEBP": {"method": 0}}[file_format]
    Image.fromarray(pixels).save(file, file_format, **options)
    return file.getvalue()


def dimensions(path: str) -> list[str]:
    """The names of the dimensions that change something about requests to a path, in the order of the space."""
    used = {*OF_ALL, *OPTIONS[path]}
    used |= set(OF_SEGMENT) if path == "/mobile_sam" else {"thresholds"} if path == "/everything" else set()
    return [name for name in SPACE if name in used]


def relevant(point: Point) -> Point:
    """The point with the cheapest options where they change nothing about the request."""
    used = dimensions(point[0])
    return tuple(
        option if name in {*used, "path"} else options[0]
        for (name, options), option in zip(SPACE.items(), point, strict=True)
    )


def request(point: Point, objects: int | None = None) -> tuple[str, bytes]:
    """The path and body of a point's request; each time with another image where the point says `new`.

    Args:
        point: of `SPACE`.
        objects: in place of the point's.
    """
    chosen = dict(zip(SPACE, point, strict=True))
    path, (width, height) = chosen["path"], chosen["size"]
    file = image_file(width, height, chosen["file_format"], chosen["content"])
    file += bytes(-len(file) % 3)  # so that more can follow in base64
    fields: dict[str, Any] = {name: chosen[name] for name in OPTIONS[path]}
    if chosen["way"] == "by id":
        fields["image_id"] = hashlib.sha256(file).hexdigest()
    else:
        fields["input_image"] = base64.b64encode(file).decode()
    if path == "/everything" and chosen["thresholds"] is not None:
        fields |= {"pred_iou_thresh": chosen["thresholds"], "stability_score_thresh": chosen["thresholds"]}
    if path == "/mobile_sam":
        draw = random.Random(0)
        mask = npy(FLOAT32, bytes(4 * 256 * 256)) if chosen["mask_input"] else None
        fields["prompts"] = [
            {
                "pos_coords": [[draw.randrange(width), draw.randrange(height)] for _ in range(chosen["points"])],
                **({"mask_input": mask} if mask else {}),
            }
            for _ in range(objects or chosen["objects"])
        ]
    # The image last, where `renewed` finds its end.
    body = json.dumps(dict(sorted(fields.items(), key=lambda field: field[0] == "input_image"))).encode()
    return path, renewed(body) if chosen["way"] == "new" else body


def renewed(body: bytes) -> bytes:
    """The body with other bytes behind the end of its image file, which change nothing but the image's id."""
    return body.removesuffix(b'"}') + base64.b64encode(os.urandom(9)) + b'"}'


def described(point: Point) -> str:
    """The options of a point that are not the cheapest."""
    chosen = zip(SPACE.items(), relevant(point), strict=True)
    return ", ".join(f"{name} {option}" for (name, options), option in chosen if name == "path" or option != options[0])
