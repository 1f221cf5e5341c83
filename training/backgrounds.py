"""Backgrounds: one to six regions (sky, ground, walls, woods), each of one material, with clutter."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from training import camera, shapes
from training.studio import SIDE, Rng, Studio


def _skyline(rng: Rng, height: float, wobble: float) -> NDArray[np.float32]:
    """Return y of a rough line across the picture, at about `height` of the side: (SIDE,) float32."""
    x = np.linspace(0, 1, SIDE)
    line = np.full(SIDE, height) + rng.normal(0, 0.12) * (x - 0.5)
    for octave in range(6):
        knots = rng.normal(0, wobble * 0.6**octave, 2 ** (octave + 1) + 2)
        line += np.interp(x, np.linspace(0, 1, len(knots)), knots)
    return (line * SIDE).astype(np.float32)


def _regions(rng: Rng) -> NDArray[np.uint8]:
    """Return the region of each pixel, separated by skylines or warped cells: (SIDE, SIDE) uint8 from 1."""
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
    labels = np.ones((SIDE, SIDE), np.uint8)
    kind = rng.random()
    if kind < 0.15:
        return labels
    if kind < 0.7:
        heights = np.sort(rng.uniform(0.08, 0.92, int(rng.integers(1, 4))))
        for number, height in enumerate(heights):
            labels[y > _skyline(rng, height, rng.choice([0.0, 0.01, 0.05, 0.12]))[None]] = number + 2
        return labels if rng.random() < 0.92 else np.ascontiguousarray(labels.T)
    count = int(rng.integers(2, 7))
    seeds = rng.uniform(0, SIDE, (count, 2)).astype(np.float32)
    strength = rng.uniform(0, 25)
    x = x + camera.smooth_field(rng, SIDE, 6) * strength + camera.smooth_field(rng, SIDE, 30) * strength * 0.15
    y = y + camera.smooth_field(rng, SIDE, 6) * strength + camera.smooth_field(rng, SIDE, 30) * strength * 0.15
    distance = np.stack([(x - sx) ** 2 + (y - sy) ** 2 for sx, sy in seeds])
    labels[:] = distance.argmin(0) + 1
    return labels


def paint_background(studio: Studio) -> None:
    """Paint the background."""
    rng = studio.rng
    leaves = studio.leaves = _regions(rng)
    count = int(leaves.max())
    for leaf in range(1, count + 1):
        if studio.around and rng.random() < 0.25:
            material = studio.around[-1].akin(rng, rng.uniform(15, 50))
        else:
            material = studio.material()
            if leaf == 1 and rng.random() < 0.5:  # low contrast for sky or wall
                material.contrast *= 0.3
                material.recolour(rng, material.colour)
        studio.around.append(material)
        painted = studio.lit(material.painted(rng, SIDE).astype(np.float32), rng.choice([0.08, 0.25, 0.5]))
        alpha = cv2.GaussianBlur((leaves == leaf).astype(np.float32), (0, 0), 0.6)[..., None] if count > 1 else 1
        studio.picture += painted * alpha
    studio.nodes += [1 << leaf for leaf in range(1, count + 1)] * 2
    if rng.random() < 0.4:
        _clutter(studio)
    if rng.random() < 0.4:  # out of focus
        studio.picture = cv2.GaussianBlur(studio.picture, (0, 0), rng.uniform(0.5, 5)).astype(np.float32)


def _clutter(studio: Studio) -> None:
    """Paint stones, leaves and distant things on the background, in place, too small to be clicked."""
    rng = studio.rng
    drawn = shapes.DRAWERS[int(rng.integers(len(shapes.DRAWERS)))](rng)
    surfaces = [studio.material().painted(rng, SIDE) for _ in range(2)]
    low, high = sorted(rng.uniform(0.2, 1.1, 2))
    size = rng.uniform(0.03, 0.12)
    for _ in range(int(rng.integers(5, 60))):
        span = max(int(size * SIDE * rng.uniform(0.5, 1.5)), 4)
        stamp = cv2.resize(drawn, (span, span), interpolation=cv2.INTER_AREA) > 0
        top, left = int(rng.uniform(low, high) * SIDE), int(rng.integers(0, SIDE))
        window = studio.picture[top : top + span, left : left + span]
        stamp = stamp[: window.shape[0], : window.shape[1], None]
        if stamp.size:
            colour = surfaces[int(rng.integers(2))][top : top + span, left : left + span]
            np.copyto(window, colour, where=stamp, casting="unsafe")
