"""Cost of an answer, estimated before the work: seconds of one core, and bytes.

The times are upper estimates: they assume difficult masks. They are given in nanoseconds per pixel
of the image, measured on one core of a Xeon of 2023.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.problems import ANSWER_TOO_LARGE, TOO_MUCH_WORK, rejected
from orchestrator.tensors import CANDIDATES, INPUT_IMAGE, POINTS_XY

PROMPT_S, POINT_S = 0.012, 0.0005
"""One prompt in the decoder, and each of its points."""
UPSAMPLE_NS = 2.5
"""One mask scaled to the image's size, its area and its box."""
FORMAT_NS = {"json": 1.6, "npy": 0.5, "png": 0.5, "rle": 2.0, "polygon": 20.0}
"""One mask encoded; rings of polygons have a separate limit."""
SMALL_REGIONS_NS = 20.0
"""Small regions of one mask removed."""
STABILITY_NS = 1.0
"""The stability score of one mask."""
DRAW_NS = {"none": 0.0, "overlay": 9.0, "cutout": 0.2}
"""One object drawn in the picture."""
PICTURE_NS = {"none": 0.0, "overlay": 35.0, "cutout": 35.0}
"""The picture: image decoded, PNG encoded."""
DECODE_NS = 9.0
"""The image decoded and scaled for the encoder; PNG files take longer."""

FORMAT_BYTES = {"json": 2.001, "npy": 1.0, "png": 0.126, "rle": 0.0, "polygon": 0.0}
"""Largest number of bytes of a mask per pixel. The last two depend on the mask and are counted when
it is encoded."""
PICTURE_BYTES = {"none": 0, "overlay": 3, "cutout": 4}
BASE64_GROWTH = 4 / 3
LOW_RES_BYTES = 350_000
"""One `low_res_mask` in the result: 256 x 256 float32 in base64."""

MAX_WORK_S = 25.0
"""Longest work of one answer: half of the default time limit of a request, as the cores may be
shared."""
COSTLY_WORK_S = 0.15
COSTLY_PIXELS = 12_500_000
"""Requests above one of these two limits are costly: separate processes run them, so that no click
waits for them."""

MAX_BATCH_S = 2.5
"""Longest work of a batch of `/everything`: other callers' batches wait until it ends."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The work that a request asks for."""

    objects: int = 0
    """0: only encode the image."""
    masks: int = 0
    """Masks of all objects together."""
    mask_format: str = "rle"
    style: str = "none"
    low_res: bool = False
    points: int = 0
    """Points of all objects together."""
    document: bool = False
    """True if the answer is one JSON document, with binary contents as base64."""
    remove_small_regions: bool = False
    """True if small regions are removed."""
    auto: bool = False
    """True if masks in the whole image tell the region to encode."""
    reduced_pixels: int = 0
    """Pixels of an image that is decoded at a smaller size, 0 for others."""

    def __post_init__(self) -> None:
        """Reject values that the service never sends.

        A caller who asks Triton directly finds the error in its log.
        """
        for name, value, allowed in (
            ("mask_format", self.mask_format, FORMAT_NS),
            ("segmented_image", self.style, DRAW_NS),
        ):
            if value not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")

    def work_s(self, pixels: int, *, new: bool = True) -> float:
        """Return the estimated seconds of one core.

        Args:
            pixels: pixels of the image, or of the smaller one of an image that is decoded so.
            new: whether the image must be encoded.
        """
        image_ns = (DECODE_NS if new else 0) + PICTURE_NS[self.style]
        mask_ns = UPSAMPLE_NS + FORMAT_NS[self.mask_format]
        mask_ns += SMALL_REGIONS_NS * self.remove_small_regions
        masks_ns = self.masks * mask_ns + self.objects * DRAW_NS[self.style]
        reduced_ns = DECODE_NS * self.reduced_pixels if new else 0
        prompts_s = self.objects * PROMPT_S * (1 + self.auto) + self.points * POINT_S
        return prompts_s + 1e-9 * (pixels * (image_ns + masks_ns) + reduced_ns)

    def answer_bytes(self, pixels: int) -> int:
        """Return the largest size of the answer, excluding formats with a mask-dependent size."""
        low_res = self.masks * LOW_RES_BYTES if self.low_res else 0
        masks = self.masks * FORMAT_BYTES[self.mask_format] * pixels
        binary = masks + PICTURE_BYTES[self.style] * pixels
        return int(low_res + binary * (BASE64_GROWTH if self.document else 1))

    def is_costly(self, pixels: int, *, new: bool = True) -> bool:
        """Return whether clicks must not wait for this request; arguments as in `work_s`."""
        return pixels > COSTLY_PIXELS or self.work_s(pixels, new=new) > COSTLY_WORK_S

    def check(self, size_hw: tuple[int, int], max_bytes: int) -> None:
        """Check that the answer takes neither too long nor too many bytes.

        Args:
            size_hw: height and width of the image.
            max_bytes: largest size of an answer.

        Raises:
            Rejected: it does; the error says how many objects would fit.
        """
        pixels = size_hw[0] * size_hw[1]
        kind = (
            f"objects as {self.mask_format} with picture {self.style} on a {size_hw[1]} x"
            f" {size_hw[0]} image"
        )
        size = self.answer_bytes(pixels)
        if size > max_bytes:
            fits = self._max_objects(lambda load: load.answer_bytes(pixels) <= max_bytes)
            expected = f"at most {fits} {kind}: {max_bytes} bytes"
            raise rejected(ANSWER_TOO_LARGE, "prompts", expected, f"{self.objects}: {size} bytes")
        seconds = self.work_s(pixels)
        if seconds > MAX_WORK_S:
            fits = self._max_objects(lambda load: load.work_s(pixels) <= MAX_WORK_S)
            expected = f"at most {fits} {kind}: {MAX_WORK_S:g} s of work"
            raise rejected(TOO_MUCH_WORK, "prompts", expected, f"{self.objects}: {seconds:.0f} s")

    def _max_objects(self, affordable: "Callable[[Workload], bool]") -> int:
        """Return the largest affordable number of objects, with the same number of masks each."""
        masks_per_object = self.masks // self.objects if self.objects else 0

        def is_too_much(count: int) -> bool:
            return not affordable(replace(self, objects=count, masks=count * masks_per_object))

        return bisect_left(range(1, self.objects + 1), True, key=is_too_much)


def _min_costly_objects() -> int:
    count = 1
    while not Workload(objects=count).is_costly(0, new=False):
        count += 1
    return count


MIN_COSTLY_OBJECTS = _min_costly_objects()
"""A request with this many objects is costly on any image: 13."""


def batch_s(points: int, pixels: int, crop_pixels: int, *, remove_small_regions: bool) -> float:
    """Return the estimated seconds of one core for a batch of `/everything`, without the encoder.

    Args:
        points: grid points.
        pixels: pixels of the image.
        crop_pixels: pixels of the crop with the points.
        remove_small_regions: whether small regions are removed.
    """
    mask = crop_pixels * (UPSAMPLE_NS + STABILITY_NS) + pixels * (
        FORMAT_NS["rle"] + SMALL_REGIONS_NS * remove_small_regions
    )
    crop = DECODE_NS * pixels if crop_pixels < pixels else 0
    return points * PROMPT_S + 1e-9 * (crop + points * CANDIDATES * mask)


def max_batch_points(pixels: int, crop_pixels: int, *, remove_small_regions: bool) -> int:
    """Return the largest number of points in a batch of `/everything`.

    Arguments as in `batch_s`.
    """
    none, one = (
        batch_s(points, pixels, crop_pixels, remove_small_regions=remove_small_regions)
        for points in (0, 1)
    )
    return max(0, int((MAX_BATCH_S - none) / (one - none)))


def check_batch(
    points: int, size_hw: tuple[int, int], crop_hw: tuple[int, int], *, remove_small_regions: bool
) -> None:
    """Check that a batch of `/everything` does not take too long.

    Arguments as in `batch_s`, sizes as height and width.

    Raises:
        Rejected: it does; the error says how many points would fit, or how many pixels if no point
            does.
    """
    pixels, crop_pixels = size_hw[0] * size_hw[1], crop_hw[0] * crop_hw[1]
    fits = max_batch_points(pixels, crop_pixels, remove_small_regions=remove_small_regions)
    if points <= fits:
        return
    image, limit = f"{size_hw[1]} x {size_hw[0]}", f"{MAX_BATCH_S:g} s of work"
    if fits:
        expected = f"at most {fits} points on this crop of a {image} image: {limit}"
        raise rejected(TOO_MUCH_WORK, POINTS_XY.name, expected, f"{points}")
    point_s = batch_s(1, pixels, crop_pixels, remove_small_regions=remove_small_regions)
    pixel_s = (point_s - PROMPT_S) / pixels
    fitting_pixels = int((MAX_BATCH_S - PROMPT_S) / pixel_s)
    regions = " with min_mask_region_area" if remove_small_regions else ""
    expected = f"at most {fitting_pixels} pixels{regions} for one point: {limit}"
    raise rejected(TOO_MUCH_WORK, INPUT_IMAGE.name, expected, f"{image} = {pixels}")
