"""Simulated prompts: a first point or box for a mask, then clicks that correct the prediction."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
SLOTS = 6  # a first click, the two corners of a box, three corrections
ABSENT = -2.0
GRID = 128  # targets and answers have this many pixels a side; the frame has 1024
STEP = 1024 // GRID
CLICKED = 0.35  # share of first prompts without a box; some of those with one have a click too


def depth(mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return the distance of each mask pixel to the outside, which includes the picture's border: (H, W) float32."""
    padded = np.pad(mask.astype(np.uint8), 1)
    return cv2.distanceTransform(padded, cv2.DIST_L2, 3)[1:-1, 1:-1].astype(np.float32)


def _frame(rng: Rng, row: int, column: int) -> tuple[float, float]:
    """Return a random point of a grid pixel as x, y in the frame."""
    return float((column + rng.random()) * STEP - 0.5), float((row + rng.random()) * STEP - 0.5)


def click_in(rng: Rng, mask: NDArray[np.bool_], central: float) -> tuple[float, float]:
    """Return a click in `mask` (128, 128) as x, y in the frame, in its middle with probability `central`."""
    inner = depth(mask)
    if rng.random() < central:
        row, column = np.unravel_index(int(inner.argmax()), inner.shape)
    else:
        least = inner.max() * (0.4 if rng.random() < 0.6 else 0.0)
        rows, columns = np.nonzero(inner > least)
        pick = int(rng.integers(len(rows)))
        row, column = rows[pick], columns[pick]
    return _frame(rng, int(row), int(column))


def first_prompt(rng: Rng, mask: NDArray[np.bool_]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return a click, a box, or both for `mask` (128, 128): points (SLOTS, 2) in the frame, and labels (SLOTS,)."""
    points, labels = np.zeros((SLOTS, 2), np.float32), np.full(SLOTS, ABSENT, np.float32)
    kind = rng.random()
    if kind < CLICKED + 0.08:
        points[0], labels[0] = click_in(rng, mask, 0.55), 1
    if kind >= CLICKED:
        rows, columns = np.nonzero(mask)
        corners = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], np.float32) * STEP - 0.5
        if rng.random() < 0.5:
            size = np.array([corners[2] - corners[0], corners[3] - corners[1]])
            corners = corners + rng.normal(0, 0.03, 4) * np.tile(size, 2)
        corners = np.clip(corners, 0, 1023)
        points[1], points[2] = corners[:2], corners[2:]
        labels[1:3] = 2, 3
    return points, labels


def correct(
    rng: Rng,
    points: NDArray[np.float32],
    labels: NDArray[np.float32],
    answer: NDArray[np.bool_],
    target: NDArray[np.bool_],
) -> None:
    """Add one to three clicks on the largest errors of `answer` (128, 128) to `points` and `labels`, in place."""
    wrong = answer ^ target
    wanted = 1 if rng.random() < 0.5 else int(rng.integers(2, 4))
    for slot in range(3, 3 + wanted):
        count, pieces, stats, _ = cv2.connectedComponentsWithStats(wrong.astype(np.uint8), connectivity=4)
        if count < 2:
            break
        piece = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
        where = pieces == piece
        if int(where.sum()) < 4:
            break
        points[slot] = click_in(rng, where, 0.7)
        at = np.minimum((points[slot] + 0.5) / STEP, GRID - 1).astype(int)
        labels[slot] = float(target[at[1], at[0]])
        wrong = wrong & ~where
