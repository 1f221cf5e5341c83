"""Batches of freshly generated scenes, cropped and jittered, with target masks and simulated prompts.

A first prompt is a point or a box for a mask; later clicks correct the prediction.
"""

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from training.scenes import MAX_LEAVES, SIDE, make_scene
from training.textures import TextureBank

Rng = np.random.Generator
SLOTS = 6  # a first click, the two corners of a box, three corrections
ABSENT = -2.0
GRID = 128  # targets and answers have this many pixels a side; the frame has 1024
STEP = 1024 // GRID
CLICKED = 0.35  # share of first prompts without a box; some of those with one have a click too


@dataclass
class Batch:
    """Images (B, 256, 256, 3) uint8 RGB, zero where not `valid` (B, 256, 256) bool, with `targets` (B, K, 128, 128)
    float32 shares of pixels, and prompts: `points` (B, K, SLOTS, 2) and `labels` (B, K, SLOTS) float32."""

    images: NDArray[np.uint8]
    valid: NDArray[np.bool_]
    targets: NDArray[np.float32]
    points: NDArray[np.float32]
    labels: NDArray[np.float32]


def _viewed(
    rng: Rng, image: NDArray[np.uint8], leaves: NDArray[np.uint8]
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return a random crop of a scene, scaled, mirrored and recoloured, at the top left of a frame of zeros."""
    height, width = SIDE, SIDE
    if rng.random() < 0.8:
        short = int(SIDE * rng.uniform(0.5, 1.0))
        height, width = (short, SIDE) if rng.random() < 0.6 else (SIDE, short)
    zoom = rng.uniform(0.6, 1.0) if rng.random() < 0.4 else 1.0
    crop_h, crop_w = int(height * zoom), int(width * zoom)
    top, left = int(rng.integers(SIDE - crop_h + 1)), int(rng.integers(SIDE - crop_w + 1))
    image = image[top : top + crop_h, left : left + crop_w]
    leaves = leaves[top : top + crop_h, left : left + crop_w]
    if zoom < 1:
        image = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.uint8)
        leaves = cv2.resize(leaves, (width, height), interpolation=cv2.INTER_NEAREST).astype(np.uint8)
    if rng.random() < 0.5:
        image, leaves = image[:, ::-1], leaves[:, ::-1]
    if rng.random() < 0.3:
        image = image[..., rng.permutation(3)]
    gain = rng.uniform(0.8, 1.2, 3) * rng.uniform(0.8, 1.2)
    image = np.clip(image * gain.astype(np.float32), 0, 255).astype(np.uint8)
    full_image, full_leaves = np.zeros((SIDE, SIDE, 3), np.uint8), np.zeros((SIDE, SIDE), np.uint8)
    full_image[:height, :width], full_leaves[:height, :width] = image, leaves
    return full_image, full_leaves


def _targets(rng: Rng, leaves: NDArray[np.uint8], nodes: NDArray[np.uint64], count: int) -> list[NDArray[np.float32]]:
    """Return up to `count` plausible targets, neither specks nor nearly the whole scene: (128, 128) float32."""
    sizes = np.bincount(leaves.ravel(), minlength=MAX_LEAVES + 1).astype(np.float64)
    valid = sizes[1:].sum()
    leaf_bits = np.uint64(1) << np.arange(MAX_LEAVES + 1, dtype=np.uint64)
    member = (nodes[:, None] & leaf_bits[None]) > 0
    share = member @ sizes / max(valid, 1)
    likely = np.minimum(share / 0.02, 1) * np.minimum(0.08 / np.maximum(share, 1e-6), 1)
    weight = np.where((share > 0.006) & (share < 0.55), likely, 0)
    if weight.sum() == 0:
        return []
    masks = []
    for node in rng.choice(len(nodes), 2 * count, p=weight / weight.sum()):
        mask = member[node][leaves]
        if rng.random() < 0.5:
            pieces, numbers, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8))
            if pieces > 2:
                areas = stats[1:, cv2.CC_STAT_AREA].astype(np.float64)
                mask = numbers == 1 + rng.choice(len(areas), p=areas**2 / (areas**2).sum())
        masks.append(cv2.resize(mask.astype(np.float32), (GRID, GRID), interpolation=cv2.INTER_AREA))
    masks = [mask for mask in masks if (mask > 0.5).sum() > 12]
    # Masks that fill little of their box are harder, and rarer among generated shapes than among real objects.
    odds = np.array([1.2 - _fill(mask > 0.5) for mask in masks])
    if not masks:
        return []
    picked = rng.choice(len(masks), min(count, len(masks)), replace=False, p=odds / odds.sum())
    return [masks[at] for at in picked]


def _fill(mask: NDArray[np.bool_]) -> float:
    """Return the share of its box that a mask (H, W) covers."""
    _, _, width, height = cv2.boundingRect(mask.view(np.uint8))
    return float(mask.sum()) / max(width * height, 1)


def draw_batch(rng: Rng, bank: TextureBank, images: int, prompts: int) -> Batch:
    """Return a batch of `images` scenes with `prompts` targets each, which depends only on the generator's state."""
    drawn: list[tuple[NDArray[Any], ...]] = []
    while len(drawn) < images:
        scene = make_scene(rng, bank)
        image, leaves = _viewed(rng, scene.image, scene.leaves)
        masks = _targets(rng, leaves, scene.nodes, prompts)
        if masks:
            masks = [masks[at % len(masks)] for at in range(prompts)]
            points, labels = zip(*(first_prompt(rng, mask > 0.5) for mask in masks), strict=True)
            drawn.append((image, leaves > 0, np.stack(masks), np.stack(points), np.stack(labels)))
    return Batch(*(np.stack(arrays) for arrays in zip(*drawn, strict=True)))


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
