"""YOLO's label files for segmentation, with all masks as polygons.

Libraries write a mask that is too thin for an outline as a box, or not at all: an island of one
pixel, or of a straight line of pixels, has an outline of one or two points. Trainers misread a box
in a file of polygons, so that such an island becomes a polygon of three points, of which two are
equal.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._polygons import Ring, polygons

if TYPE_CHECKING:
    import supervision

Line = npt.NDArray[np.int64]
"""(2, 2) int64, x then y: the indices of the first and the last pixel of a straight line."""
PIXEL_CENTRE = 0.4
"""Added to the index of a pixel, so that readers that truncate and those that round find it."""


def split_thin(mask: BoolMask) -> tuple[BoolMask, list[Line]]:
    """Return a mask without its thin islands, and those as lines.

    Args:
        mask: (H, W) bool.

    Returns:
        (H, W) bool, and the lines.
    """
    thick = mask.copy()
    lines = []
    for outline, *holes in polygons(mask, 0):
        x0, y0 = outline.min(axis=0).tolist()
        x1, y1 = outline.max(axis=0).tolist()
        width, height = x1 - x0, y1 - y0
        # A diagonal line: its pixels join at corners, one in each row and column.
        is_diagonal = width == height == _area(outline) and not holes
        if not is_diagonal and 1 not in {width, height}:
            continue
        y = np.arange(y0, y1)
        x = np.arange(x0, x1)
        if is_diagonal and not mask[y0, x0]:
            x = x[::-1]
        thick[y, x] = False
        lines.append(np.array([[x[0], y[0]], [x[-1], y[-1]]], np.int64))
    return thick, lines


def write_yolo(dataset: supervision.DetectionDataset, labels: Path) -> None:
    """Write label files for segmentation.

    Args:
        dataset: images with masks; it has only their thick parts afterwards.
        labels: folder for the files.
    """
    lines: dict[str, str] = {}
    for path, detections in dataset.annotations.items():
        text = ""
        for index in range(len(detections)):
            class_id = int(detections.class_id[index])
            mask = detections.mask[index]
            thick, straight = split_thin(mask)
            detections.mask[index] = thick
            for line in straight:
                text += _label(class_id, line, mask.shape)
        lines[path] = text
        if len(detections):
            dataset.annotations[path] = detections[detections.mask.any(axis=(1, 2))]
    dataset.as_yolo(annotations_directory_path=str(labels))
    for path, text in lines.items():
        _append(labels / f"{Path(path).stem}.txt", text)


def _append(file: Path, text: str) -> None:
    """Append whole lines to a text file, whose last line may have no end."""
    written = file.read_text("utf-8")
    separator = "\n" if written and text and not written.endswith("\n") else ""
    file.write_text(f"{written}{separator}{text}", "utf-8")


def _area(ring: Ring) -> int:
    """Return how many pixels an outline without holes surrounds."""
    x, y = ring.T.astype(np.int64)
    return abs(int(x @ np.roll(y, -1) - y @ np.roll(x, -1))) // 2


def _label(class_id: int, line: Line, shape_hw: tuple[int, ...]) -> str:
    """Return a label: a polygon of three points between the centres of two pixels."""
    height, width = shape_hw
    first, last = (line + PIXEL_CENTRE) / (width, height)
    values = " ".join(f"{value:.6f}" for value in (*first, *last, *last))
    return f"{class_id} {values}\n"
