"""What the built-in weights answer about the sample that the reference's calls send; run lengths are cut short."""

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
RUN_LENGTHS: dict[str, Any] = {"size": [853, 1280], "counts": "cVYd08Sj0b0B;F9H;D9H7J5L3M…"}
RESULT: dict[str, Any] = {
    **IMAGE,
    "masks": [{"object": 0, "score": 0.7614, "area": 55669, "box": [779, 172, 1036, 483]}],
}
"""Of a click on the balloon."""
BOAT: list[dict[str, Any]] = [{"object": 0, "score": 0.7811, "area": 22126, "box": [309, 555, 488, 767]}]
"""Masks of clicks on sails and hull and one beside, on the reflection, that refine the mask of a click on the sails."""
EVERYTHING: dict[str, Any] = {
    **IMAGE,
    "masks": [
        {
            "segmentation": {"size": [853, 1280], "counts": "_VYd0`0ni0<F9H7I9G:F7I6L4K…"},
            "area": 56064,
            "bbox": [779, 171, 258, 312],
            "predicted_iou": 0.7896,
            "point_coords": [[880.0, 266.5625]],
            "stability_score": 0.9537,
            "crop_box": [0, 0, 1280, 853],
        }
    ],
}
"""Of a grid of 8 x 8 clicks: the first of eight records, the balloon again."""
