"""Objects that people have outlined on photographs.

A folder holds the pictures, label maps in which an object has the value `label`, and
`objects.json`, a list of {"image", "mask", "label", "point" [x, y], "box" [x0, y0, x1, y1]}.
"""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Mask = NDArray[np.bool_]
Picture = NDArray[np.uint8]


@dataclass
class LabelledObject:
    """Object with its human mask: `image` (H, W, 3) uint8 RGB, `mask` (H, W) bool, `point` xy,
    `box` xyxy.
    """

    file: Path
    image: Picture
    mask: Mask
    point: tuple[float, float]
    box: Sequence[float]


def read_objects(folder: Path) -> list[LabelledObject]:
    """Read all objects of a folder, sorted by picture."""
    entries = json.loads((folder / "objects.json").read_text())
    objects = []
    for entry in sorted(entries, key=lambda entry: str(entry["image"])):
        file, mask = (
            folder / entry["image"],
            np.asarray(Image.open(folder / entry["mask"])) == entry["label"],
        )
        objects.append(
            LabelledObject(file, read_picture(file), mask, tuple(entry["point"]), entry["box"])
        )
    return objects


@cache
def read_picture(file: Path) -> Picture:
    """Return a picture, (H, W, 3) uint8 RGB."""
    return np.asarray(Image.open(file).convert("RGB"))


def read_png(data: bytes) -> Mask:
    """Return the mask in a PNG file, (H, W) bool."""
    mask: Mask = np.asarray(Image.open(io.BytesIO(data)).convert("L")) > 0
    return mask


def iou(one: Mask, other: Mask) -> float:
    """Return the intersection over union of two (H, W) bool masks."""
    return float((one & other).sum() / max(int((one | other).sum()), 1))
