"""The picture of an answer: masks drawn over the image, or the object cut out of it."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

STYLES = ("overlay", "cutout", "none")
OPACITY = 0.5
COLOURS = ((30, 144, 255), (255, 99, 71), (50, 205, 50), (255, 193, 7), (186, 85, 211), (0, 206, 209))
"""RGB, one per object, repeated where there are more objects."""

WHITE = (255, 255, 255)

RGB = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]


def draw(image: RGB, masks: list[Mask], style: str) -> bytes:
    """The body of an answer's `segmented_image` part, a PNG file; empty for `none`.

    Args:
        image: (H, W, 3) uint8 RGB.
        masks: (H, W) bool, one per object.
        style: `overlay`: the objects tinted and outlined; `cutout`: RGBA, transparent outside of the objects; `none`.
    """
    if style == "overlay":
        return _png(cv2.cvtColor(overlay(image, masks), cv2.COLOR_RGB2BGR))
    if style == "cutout":
        alpha = np.logical_or.reduce(masks).view(np.uint8) * np.uint8(255)
        return _png(cv2.merge([*cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2BGR)), alpha]))
    if style == "none":
        return b""
    raise ValueError(f"segmented_image must be one of {', '.join(STYLES)}, got {style!r}")


def overlay(image: RGB, masks: list[Mask]) -> RGB:
    """A copy of the image with each mask tinted in a colour of its own and outlined in white and that colour.

    Args:
        image: (H, W, 3) uint8 RGB.
        masks: (H, W) bool, one per object.

    Returns:
        (H, W, 3) uint8 RGB.
    """
    picture = image.copy()
    line = _line_width(image.shape[0], image.shape[1])
    for index, mask in enumerate(masks):
        x, y, width, height = cv2.boundingRect(mask.view(np.uint8))
        if not width:
            continue
        margin = 2 * line + 1
        rows = slice(max(0, y - margin), y + height + margin)
        columns = slice(max(0, x - margin), x + width + margin)
        part, inside = picture[rows, columns], np.ascontiguousarray(mask[rows, columns]).view(np.uint8)
        colour = COLOURS[index % len(COLOURS)]
        tinted = cv2.addWeighted(part, 1 - OPACITY, np.full_like(part, colour), OPACITY, 0)
        cv2.copyTo(tinted, inside, part)
        for reach, shade in ((2 * line, WHITE), (line, colour)):
            # The time of a rectangular kernel depends neither on its size nor on how long the outline is.
            kernel = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
            outline = cv2.morphologyEx(inside, cv2.MORPH_GRADIENT, kernel)
            cv2.copyTo(np.full_like(part, shade), outline, part)
    return picture


def _line_width(height: int, width: int) -> int:
    """Half the width of an outline, in pixels."""
    return max(1, min(4, round(min(height, width) / 600)))


def _png(pixels: npt.NDArray[Any]) -> bytes:
    """A PNG file of (H, W, 3) BGR or (H, W, 4) BGRA pixels, quick rather than small.

    OpenCV's defaults (one filter, run-length strategy) take about half the time of any compression level set by hand.
    """
    done, data = cv2.imencode(".png", pixels)
    if not done:
        raise ValueError(f"OpenCV could not encode a picture of shape {pixels.shape} as PNG")
    return data.tobytes()
