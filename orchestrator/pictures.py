"""The picture of an answer: masks drawn over the image, or objects cut out of it."""

import cv2
import numpy as np
import numpy.typing as npt

from orchestrator.png import Strip, encode_png

OPACITY = 0.5
COLOURS = ((30, 144, 255), (255, 99, 71), (50, 205, 50), (255, 193, 7), (186, 85, 211), (0, 206, 209))
"""RGB, one per object, used in turn."""

WHITE = (255, 255, 255)
MAX_KEPT_PIXELS = 12_500_000
"""Largest image of which compressed strips are kept; they need up to as much memory as its pixels."""

Pixels = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Colour = tuple[int, int, int]


class Picture:
    """The `segmented_image` part, drawn object by object."""

    def __init__(self, image: Pixels, style: str, strips: dict[int, Strip] | None = None) -> None:
        """Start from the image.

        Args:
            image: (H, W, 3) uint8 RGB; not changed.
            style: `overlay`: objects tinted and outlined; `cutout`: RGBA, transparent outside the objects.
            strips: strips kept from an earlier overlay of this image, as `encode_png` takes them; None to keep none.
        """
        height, width = image.shape[:2]
        self._drawn = image.copy() if style == "overlay" else image
        self._inside = np.zeros((height, width), bool) if style == "cutout" else None
        self._strips = strips if height * width <= MAX_KEPT_PIXELS else None
        self._changed = np.zeros(height, bool)
        self._objects = 0

    def add(self, mask: Mask) -> None:
        """Draw the next object's mask, (H, W) bool."""
        if self._inside is None:
            self._changed[overlay(self._drawn, mask, COLOURS[self._objects % len(COLOURS)])] = True
        else:
            self._inside |= mask
        self._objects += 1

    def encode(self) -> bytes:
        """Return the picture as a PNG file."""
        if self._inside is None:
            return encode_png(self._drawn, self._changed, self._strips)
        return encode_png(np.asarray(cv2.merge([self._drawn, self._inside.view(np.uint8) * np.uint8(255)]), np.uint8))


def overlay(picture: Pixels, mask: Mask, colour: Colour) -> slice:
    """Tint a mask and outline it in white and its colour, in place; return the range of rows that may have changed.

    Args:
        picture: (H, W, 3) uint8 RGB.
        mask: (H, W) bool.
        colour: RGB.
    """
    line = _line_width(picture.shape[0], picture.shape[1])
    x, y, width, height = cv2.boundingRect(mask.view(np.uint8))
    if not width:
        return slice(0)
    margin = 2 * line + 1
    rows = slice(max(0, y - margin), y + height + margin)
    columns = slice(max(0, x - margin), x + width + margin)
    part, inside = picture[rows, columns], np.ascontiguousarray(mask[rows, columns]).view(np.uint8)
    tinted = cv2.addWeighted(part, 1 - OPACITY, _solid_like(part, colour), OPACITY, 0)
    cv2.copyTo(tinted, inside, part)
    for reach, shade in ((2 * line, WHITE), (line, colour)):
        # With a rectangular kernel, the time depends neither on its size nor on the length of the outline.
        kernel = np.ones((2 * reach + 1, 2 * reach + 1), np.uint8)
        outline = cv2.morphologyEx(inside, cv2.MORPH_GRADIENT, kernel)
        cv2.copyTo(_solid_like(part, shade), outline, part)
    return rows


def _solid_like(picture: Pixels, colour: Colour) -> Pixels:
    """Return a picture of one colour in the shape of another, thirty times as fast as assigning `solid[:] = colour`."""
    solid = np.empty_like(picture)
    solid.reshape(len(picture), -1)[:] = np.tile(np.array(colour, np.uint8), picture.shape[1])
    return solid


def _line_width(height: int, width: int) -> int:
    """Return half the width of an outline, in pixels."""
    return max(1, min(4, round(min(height, width) / 600)))
