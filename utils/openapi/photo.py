"""What the official weights answer about the sample that the reference's calls send; run lengths are cut short."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from utils.openapi import examples

SAMPLE = "utils/page/static/samples/balloons.jpg"
"""From the repository's root; 1280 x 853 pixels."""

BALLOON = [903, 310]
"""On the largest balloon."""
SAILS, HULL, REFLECTION = [390, 660], [400, 745], [400, 800]
"""Of the sailing boat."""

_FILE = (Path(__file__).resolve().parents[2] / SAMPLE).read_bytes()

IMAGE: dict[str, Any] = {**examples.IMAGE, "image_id": hashlib.sha256(_FILE).hexdigest(), "width": 1280, "height": 853}
RUN_LENGTHS: dict[str, Any] = {"size": [853, 1280], "counts": "iPZd0Q1]i0>E9E:I7I5K5K6J6K…"}
RESULT: dict[str, Any] = {
    **IMAGE,
    "masks": [{"object": 0, "score": 0.8769, "area": 55171, "box": [780, 174, 1034, 476]}],
}
"""Of a click on the balloon."""
BOAT: list[dict[str, Any]] = [{"object": 0, "score": 1.0013, "area": 23228, "box": [304, 531, 488, 770]}]
"""Masks of clicks on sails and hull and one beside, on the reflection, that refine the mask of a click on the sails."""
EVERYTHING: dict[str, Any] = {
    **IMAGE,
    "masks": [
        {
            "segmentation": {"size": [853, 1280], "counts": "Znm7k0fi0;H4L2O1O0O101O0000…"},
            "area": 23300,
            "bbox": [304, 532, 184, 238],
            "predicted_iou": 1.022,
            "point_coords": [[400.0, 693.0625]],
            "stability_score": 0.9808,
            "crop_box": [0, 0, 1280, 853],
        }
    ],
}
"""Of a grid of 8 x 8 clicks: the first of fourteen records, the boat again."""
