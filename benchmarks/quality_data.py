"""Objects with human masks, and what to do with a mask of one: compare it, and click where it is wrong."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Mask = NDArray[np.bool_]
Picture = NDArray[np.uint8]


@dataclass
class Thing:
    """One object: `image` (H, W, 3) uint8 RGB, `mask` (H, W) bool, `point` x, y, `box` x0, y0, x1, y1."""

    name: str
    image: Picture
    mask: Mask
    point: tuple[float, float]
    box: tuple[float, float, float, float]


def read_things(folder: Path) -> list[Thing]:
    """All objects of the benchmark, in the order of their pictures."""
    things = []
    pictures: dict[str, Picture] = {}
    for entry in sorted(json.loads((folder / "objects.json").read_text()), key=lambda e: str(e["image"])):
        name = entry["image"]
        if name not in pictures:
            pictures[name] = np.asarray(Image.open(folder / name).convert("RGB"))
        labels = np.asarray(Image.open(folder / entry["mask"]))
        mask = labels == entry["label"]
        things.append(
            Thing(f"{name} {entry['label']}", pictures[name], mask, tuple(entry["point"]), tuple(entry["box"]))
        )
    return things


def iou(one: Mask, other: Mask) -> float:
    """Intersection over union of two (H, W) bool masks."""
    return float((one & other).sum() / max(int((one | other).sum()), 1))


def next_click(answer: Mask, wanted: Mask) -> tuple[tuple[float, float], float] | None:
    """Centre of the largest error region and the label it needs; None where nothing is wrong."""
    best: tuple[int, Mask, float] | None = None
    for wrong, label in ((wanted & ~answer, 1.0), (answer & ~wanted, 0.0)):
        count, pieces, stats, _ = cv2.connectedComponentsWithStats(wrong.astype(np.uint8), connectivity=4)
        if count > 1:
            piece = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
            area = int(stats[piece, cv2.CC_STAT_AREA])
            if best is None or area > best[0]:
                best = (area, pieces == piece, label)
    if best is None:
        return None
    depth = cv2.distanceTransform(np.pad(best[1].astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return (float(column), float(row)), best[2]
