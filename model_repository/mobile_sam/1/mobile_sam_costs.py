"""What an answer takes, known before the work: seconds of one core, and bytes.

The seconds are an estimate for masks as hard as they get. Its numbers are nanoseconds for each pixel of the image,
measured on one core of a Xeon of 2023 (`make bench-estimates` prints them for this machine).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

from mobile_sam_problems import Rejected

PROMPT_S, POINT_S = 0.012, 0.0005
"""One prompt in the decoder, and each of its points."""
UPSAMPLE_NS = 2.5
"""A mask at the image's size, its area and its box."""
FORMAT_NS = {"json": 1.6, "npy": 0.5, "png": 0.5, "rle": 2.0, "polygon": 20.0}
"""A mask in its format; the rings of polygons have a limit of their own."""
DRAW_NS = {"none": 0.0, "overlay": 9.0, "cutout": 0.2}
"""An object in the picture."""
PICTURE_NS = {"none": 0.0, "overlay": 35.0, "cutout": 35.0}
"""The picture: the image decoded from its file, the PNG file written."""
DECODE_NS = 9.0
"""The image decoded and scaled for the encoder; of PNG files more."""

FORMAT_BYTES = {"json": 2.001, "npy": 1.0, "png": 0.126, "rle": 0.0, "polygon": 0.0}
"""Bytes of a mask for each pixel, at most; those of the last two depend on the mask and are counted as they come."""
PICTURE_BYTES = {"none": 0, "overlay": 3, "cutout": 4}
LOW_RES_BYTES = 350_000
"""Of a `low_res_mask` in the result: 256 x 256 float32 in base64."""

MAX_WORK_S = 25.0
"""Of one answer; half of the time that a request has unless set otherwise, for the cores may have more to do."""
LIGHT_WORK_S = 0.15
LIGHT_PIXELS = 12_500_000
"""What is above one of the two is done by processes of its own, so that no click waits for it."""


@dataclass(frozen=True)
class Wish:
    """What a request asks of an image."""

    objects: int = 0
    """0: only to encode it."""
    masks: int = 0
    """Of all objects together."""
    mask_format: str = "rle"
    style: str = "none"
    low_res: bool = False
    points: int = 0
    """Of all objects together."""

    def __post_init__(self) -> None:
        """Refuse what no service sends; who asks Triton directly reads it in Triton's log."""
        for name, value, known in (
            ("mask_format", self.mask_format, FORMAT_NS),
            ("segmented_image", self.style, DRAW_NS),
        ):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")

    def work_s(self, pixels: int, *, new: bool = True) -> float:
        """Estimated seconds of one core.

        Args:
            pixels: of the image.
            new: whether it is to be encoded.
        """
        once = (DECODE_NS if new else 0) + PICTURE_NS[self.style]
        each = self.masks * (UPSAMPLE_NS + FORMAT_NS[self.mask_format]) + self.objects * DRAW_NS[self.style]
        return self.objects * PROMPT_S + self.points * POINT_S + 1e-9 * pixels * (once + each)

    def answer_bytes(self, pixels: int) -> int:
        """Most bytes of the answer, without what depends on the masks."""
        low_res = self.masks * LOW_RES_BYTES if self.low_res else 0
        masks = self.masks * FORMAT_BYTES[self.mask_format] * pixels
        return int(low_res + masks + PICTURE_BYTES[self.style] * pixels)

    def is_light(self, pixels: int, *, new: bool = True) -> bool:
        """Whether a click of somebody else may wait for it; arguments as of `work_s`."""
        return pixels <= LIGHT_PIXELS and self.work_s(pixels, new=new) <= LIGHT_WORK_S

    def check(self, size_hw: tuple[int, int], max_bytes: int) -> None:
        """Refuse what would take too long, or too many bytes.

        Args:
            size_hw: height and width of the image.
            max_bytes: of an answer.

        Raises:
            Rejected: it says how many masks would do.
        """
        pixels = size_hw[0] * size_hw[1]
        of = f"as {self.mask_format} with the picture {self.style} on an image of {size_hw[1]} x {size_hw[0]}"
        if (size := self.answer_bytes(pixels)) > max_bytes:
            fits = self._most(lambda wish: wish.answer_bytes(pixels) <= max_bytes)
            error = _error(f"at most {fits} {of}: {max_bytes} bytes", f"{self.objects}: {size} bytes")
            raise Rejected(422, "answer-too-large", "The answer would be too large", [error])
        if (seconds := self.work_s(pixels)) > MAX_WORK_S:
            fits = self._most(lambda wish: wish.work_s(pixels) <= MAX_WORK_S)
            error = _error(f"at most {fits} {of}: {MAX_WORK_S:g} s of work", f"{self.objects}: {seconds:.0f} s")
            raise Rejected(422, "too-much-work", "The answer would take too long", [error])

    def _most(self, affordable: Callable[[Wish], bool]) -> int:
        """How many objects would do, with as many masks each; the more, the more it takes."""
        each = self.masks // self.objects if self.objects else 0
        counts = range(1, self.objects + 1)
        return bisect_left(counts, True, key=lambda n: not affordable(replace(self, objects=n, masks=n * each)))


def _error(expected: str, got: str) -> dict[str, str]:
    return {"field": "prompts", "expected": expected, "got": got}
