"""Masks: from the decoder's logits to the image's size, and to the bytes of an answer."""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import orjson
from mobile_sam_png import bilevel_png, packed
from mobile_sam_polygons import MAX_RINGS, polygons
from mobile_sam_problems import Rejected
from pycocotools import mask as coco

FRAME = 1024
FORMATS = ("json", "npy", "png", "rle", "polygon")
MAX_PNG_ROWS = 1_000_000
"""The tallest picture that PNG libraries read without being told otherwise."""
MAX_KEPT_PIXELS = 16_000_000
"""The largest image whose logits are written where the last ones were, 64 MB. Of memory of this size a process gets new
pages each time, which takes longer than the scaling."""

Logits = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def upsample(logits: Logits, frame_hw: tuple[int, int], size_hw: tuple[int, int]) -> Logits:
    """A low-resolution answer at the size of the image; above 0 is the mask.

    As the official predictor: bilinear to the 1024-frame, crop to the valid area, bilinear to the image.

    Args:
        logits: (256, 256) float32.
        frame_hw: height and width of the image's valid area in the frame.
        size_hw: height and width of the displayed image.

    Returns:
        (H, W) float32 logits, until the next call: it may write to the same memory.
    """
    in_frame = cv2.resize(logits, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)
    valid = in_frame[: frame_hw[0], : frame_hw[1]]
    height, width = size_hw
    room = _room(size_hw) if height * width <= MAX_KEPT_PIXELS else None
    scaled = cv2.resize(valid, (width, height), dst=room, interpolation=cv2.INTER_LINEAR)
    return scaled.astype(np.float32, copy=False)


@functools.lru_cache(maxsize=1)
def _room(size_hw: tuple[int, int]) -> Logits:
    return np.empty(size_hw, np.float32)


def forget_logits() -> None:
    """Let go of the memory of the last `upsample`."""
    _room.cache_clear()


def rle(mask: Mask) -> dict[str, Any]:
    """A mask (H, W) bool as COCO's compressed run lengths: `size` [H, W] and `counts`, as pycocotools reads them."""
    # In Fortran's order, of which OpenCV makes a tenth of NumPy's work.
    encoded = coco.encode(np.asarray(cv2.transpose(mask.view(np.uint8)), np.uint8).T)
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")}


def area_and_box(mask: Mask) -> tuple[int, list[int]]:
    """Pixels of the mask, and its box_xyxy with exclusive right and bottom ([0, 0, 0, 0] where it is empty).

    Args:
        mask: (H, W) bool.
    """
    top, bottom = _ends(mask.any(axis=1))
    left, right = _ends(mask[top:bottom].any(axis=0))
    return cv2.countNonZero(mask[top:bottom].view(np.uint8)), [left, top, right, bottom]


def _ends(found: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The first place where something was found, and one past the last; (0, 0) for nothing."""
    first, past = int(found.argmax()), len(found) - int(found[::-1].argmax())
    return (first, past) if found.any() else (0, 0)


class MaskPart:
    """The body of an answer's `mask` part, made mask by mask, so that large ones need not all be held.

    - `json`: nested lists of 0 and 1, `[H, W]`, or `[K, H, W]` for several;
    - `npy`: a NumPy file of the same as bool;
    - `png`: a 1-bit picture, in which several masks stand one below the other, (K * H, W);
    - `rle`: see `rle`, or a list of such;
    - `polygon`: see `mobile_sam_polygons`, or a list of such.
    """

    def __init__(self, mask_format: str, size_hw: tuple[int, int], count: int | None) -> None:
        """Begin a part.

        Args:
            mask_format: one of `FORMATS`.
            size_hw: height and width of each mask.
            count: how many masks will be added; None: a single one, which is not wrapped in a list.

        Raises:
            Rejected: so many rows that readers of PNG files would refuse them.
        """
        if mask_format not in FORMATS:
            raise ValueError(f"mask_format must be one of {', '.join(FORMATS)}, got {mask_format!r}")
        self._format, self._size_hw, self._count = mask_format, size_hw, count
        self._pieces: list[Any] = []
        self._rings = MAX_RINGS
        if mask_format == "png":
            _check_rows((count or 1) * size_hw[0])

    def add(self, mask: Mask) -> int:
        """Add the next mask, (H, W) bool; the bytes that it takes.

        Raises:
            Rejected: as polygons the masks have too many rings together.
        """
        if self._format == "json":
            piece: Any = _nested_lists(mask)
        elif self._format == "rle":
            piece = orjson.dumps(rle(mask))
        elif self._format == "polygon":
            found = polygons(mask, self._rings)
            self._rings -= sum(map(len, found))
            piece = orjson.dumps(found)
        elif self._format == "png":
            piece = packed(mask)
        else:
            piece = np.ascontiguousarray(mask)
        self._pieces.append(piece)
        return memoryview(piece).nbytes

    def encode(self) -> list[Any]:
        """The whole part, in pieces."""
        several = self._count is not None
        if self._format == "png":
            return [bilevel_png(self._pieces, self._size_hw[1])]
        if self._format == "npy":
            file = io.BytesIO()
            shape = (len(self._pieces), *self._size_hw) if several else self._size_hw
            header = {"descr": "|b1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
            return [file.getvalue(), *self._pieces]
        return json_list(self._pieces) if several else self._pieces


def json_list(items: Sequence[Any]) -> list[Any]:
    """A JSON list, in pieces, of items that are JSON already."""
    between = [piece for item in items for piece in (b",", item)]
    return [b"[", *between[1:], b"]"]


def _nested_lists(mask: Mask) -> npt.NDArray[np.uint8]:
    """The text `[[0,1,...],...]` of a mask (H, W) bool, in a tenth of the time of orjson.

    It is made of pairs of characters: a digit and what follows it, and what stands between two rows.
    """
    height, width = mask.shape
    text = np.empty(1 + height * (width + 1), "<u2")
    rows = text[1:].reshape(height, width + 1)
    rows[:, :width] = mask
    rows[:, :width] += _pair("0,")
    rows[:, width - 1] += _pair("0]") - _pair("0,")
    rows[:, width] = _pair(",[")
    text[0], text[-1] = _pair("[["), _pair("]]")
    return text.view(np.uint8)[:-1]


def _pair(characters: str) -> int:
    return int.from_bytes(characters.encode(), "little")


def _check_rows(rows: int) -> None:
    if rows > MAX_PNG_ROWS:
        expected = f"masks of together at most {MAX_PNG_ROWS} rows, or another format than png"
        error = {"field": "mask_format", "expected": expected, "got": f"{rows} rows"}
        raise Rejected(422, "answer-too-large", "The answer would be too large", [error])
