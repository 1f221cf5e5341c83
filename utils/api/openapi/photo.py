"""Responses of the official weights for the sample image in `docs/http.md`; run lengths are truncated."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from utils.api.openapi import examples

SAMPLE = "utils/page/static/samples/balloons.jpg"
"""Path in the repository of the sample, 1280 x 853 pixels."""

BALLOON = [903, 310]
"""A point on the largest balloon."""
SAILS, HULL, REFLECTION = [390, 660], [400, 745], [400, 800]
"""Points on the sailing boat and below it."""

_FILE = (Path(__file__).resolve().parents[3] / SAMPLE).read_bytes()

IMAGE: dict[str, Any] = {**examples.IMAGE, "image_id": hashlib.sha256(_FILE).hexdigest(), "width": 1280, "height": 853}
RUN_LENGTHS: dict[str, Any] = {"size": [853, 1280], "counts": "iPZd0Q1]i0>E9E:I7I5K5K6J6K…"}
MASK: dict[str, Any] = {"object": 0, "score": 0.8769, "area": 55171, "box": [780, 174, 1034, 476]}
"""Mask of a click on the balloon."""
RESULT: dict[str, Any] = {**IMAGE, "masks": [MASK]}
DOCUMENT: dict[str, Any] = {**IMAGE, "masks": [{**MASK, "rle": RUN_LENGTHS}]}
BOAT: dict[str, Any] = {"object": 0, "score": 1.0013, "area": 23228, "box": [304, 531, 488, 770]}
"""Mask of positive clicks on sails and hull and a negative one on the reflection, given the mask of the sails."""
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
"""Result of a grid of 8 x 8 points: the first of fourteen records, which is the boat."""
