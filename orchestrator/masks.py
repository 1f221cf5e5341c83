"""Masks: up-sampling of the decoder's logits and encoding in the answer's format."""

import base64
import functools
import io
from dataclasses import dataclass
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt
import orjson
from pycocotools import mask as coco

from orchestrator.arrays import BoolMask, Logits
from orchestrator.pictures import bilevel_rows, encode_bilevel_png
from orchestrator.polygons import MAX_RINGS, TOLERANCE_PIXELS, polygons
from orchestrator.problems import ANSWER_TOO_LARGE, rejected
from orchestrator.reduced import Reduction
from orchestrator.tensors import FRAME_SIDE

MAX_PNG_ROWS = 1_000_000
"""Tallest picture that PNG libraries read with their default settings."""
MAX_REUSED_PIXELS = 16_000_000
"""Largest image whose logits (64 MB) go into a reused buffer: that avoids page faults, which cost
more than scaling."""
PIXELS_PER_WINDOW = 3000
"""Time to label a window, as the number of pixels of the whole mask that are labelled meanwhile."""
PIXELS_PER_EDGE = 64
"""Time to find and measure contours for each edge between two pixels, in the same unit."""

PixelBox = tuple[int, int, int, int]
"""x0, y0, x1, y1 in pixels, right and bottom exclusive; zeros around an empty mask."""
Change = tuple[slice, slice, BoolMask]
"""Rows and columns of a mask, and the pixels in them that are to change."""


def upsample(logits: Logits, valid_hw: tuple[int, int] | None, size_hw: tuple[int, int]) -> Logits:
    """Scale low-resolution logits to the size of the image.

    The mask is where they are above a threshold, by default 0.

    The steps follow the official predictor: bilinear to the 1024-frame, crop to the valid area,
    bilinear to the image.

    Args:
        logits: (256, 256) float32.
        valid_hw: height and width of the area of the frame that shows the image, as
            `Preprocessing.valid_hw` returns it; None if the image was squashed to fill the frame:
            then there is a single step, as in SAM 2's and MedSAM's predictors.
        size_hw: height and width of the displayed image.

    Returns:
        (H, W) float32 logits, valid until the next call, which may reuse the memory.
    """
    valid: Any = logits
    if valid_hw:
        frame_wh = FRAME_SIDE, FRAME_SIDE
        in_frame = cv2.resize(logits, frame_wh, interpolation=cv2.INTER_LINEAR)
        valid = in_frame[: valid_hw[0], : valid_hw[1]]
    height, width = size_hw
    buffer = _reused_buffer(size_hw) if height * width <= MAX_REUSED_PIXELS else None
    # Not only the part that can be positive: OpenCV rounds differently at the edges of its vectors,
    # so that the last bits of the logits depend on where a picture begins and ends.
    scaled = cv2.resize(valid, (width, height), dst=buffer, interpolation=cv2.INTER_LINEAR)
    return scaled.astype(np.float32, copy=False)


@functools.lru_cache(maxsize=1)
def _reused_buffer(size_hw: tuple[int, int]) -> Logits:
    return np.empty(size_hw, np.float32)


def release_logits() -> None:
    """Release the buffer of `upsample`."""
    _reused_buffer.cache_clear()


def rle(
    mask: BoolMask, corner_xy: tuple[int, int] = (0, 0), size_hw: tuple[int, int] | None = None
) -> dict[str, Any]:
    """Return a mask as COCO's compressed RLE, which pycocotools reads.

    Args:
        mask: (h, w) bool.
        corner_xy: the mask's first pixel in a picture, in which no pixel is set beside the mask.
        size_hw: height and width of the picture, by default those of the mask.

    Returns:
        `size` [H, W] and `counts`, of the whole picture.
    """
    (x, y), (height, width) = corner_xy, size_hw or mask.shape
    # COCO counts along the columns. OpenCV transposes in a tenth of NumPy's time.
    padded = np.zeros(mask.shape[1] * height + 2, np.uint8)
    if mask.size:
        padded[1:-1].reshape(-1, height)[:, y : y + len(mask)] = cv2.transpose(mask.view(np.uint8))
    changes = np.flatnonzero(padded[1:] != padded[:-1]) + x * height
    return _rle_of_changes(changes, (height, width))


def _rle_of_columns(
    columns: npt.NDArray[np.uint8], corner_xy: tuple[int, int], size_hw: tuple[int, int]
) -> dict[str, Any]:
    """Return a mask as `rle` does, from its bits by columns: only bytes in which it begins or ends
    are unpacked.

    Args:
        columns: (w, h / 8 rounded up) uint8, the first pixel in the highest bit, 0 after the last.
        corner_xy: the mask's first pixel in the picture.
        size_hw: height and width of the picture.
    """
    (x, y), (height, _) = corner_xy, size_hw
    # A byte more, for a mask that ends with its column.
    padded = np.pad(columns, ((0, 0), (0, 1)))
    before = np.right_shift(padded, np.uint8(1))
    before[:, 1:] |= np.left_shift(padded[:, :-1], np.uint8(7))
    differs = np.bitwise_xor(
        padded, before
    )  # from the pixel before; before the first there is none
    places = np.flatnonzero(differs.ravel() != 0)
    rows, bits = np.unpackbits(differs.ravel()[places, None], axis=1).nonzero()
    column, byte = np.divmod(places[rows], padded.shape[1])
    changes = (x + column) * height + y + 8 * byte + bits

    # Where a column ends inside and the next one begins inside, nothing changes.
    is_twice = np.zeros(len(changes), bool)
    is_twice[1:] = changes[1:] == changes[:-1]
    is_twice[:-1] |= is_twice[1:]
    return _rle_of_changes(changes[~is_twice], size_hw)


def _rle_of_changes(changes: npt.NDArray[np.int64], size_hw: tuple[int, int]) -> dict[str, Any]:
    """Return COCO's compressed RLE by the indices, along the columns, at which a mask begins or
    ends.
    """
    height, width = size_hw
    counts = np.diff(changes, prepend=0, append=height * width)
    if not counts[-1]:
        counts = counts[:-1]
    compressed = coco.frPyObjects({"size": [height, width], "counts": counts}, height, width)
    return {"size": [height, width], "counts": compressed["counts"].decode("ascii")}


def area_and_box(mask: BoolMask) -> tuple[int, list[int]]:
    """Return the area of a mask (H, W) bool in pixels, and its box_xyxy: right and bottom
    exclusive, zeros if empty.
    """
    top, bottom = _extent(mask.any(axis=1))
    left, right = _extent(mask[top:bottom].any(axis=0))
    return cv2.countNonZero(mask[top:bottom].view(np.uint8)), [left, top, right, bottom]


def _extent(values: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return the index of the first true value and one past the last; (0, 0) if there is none."""
    first, past = int(values.argmax()), len(values) - int(values[::-1].argmax())
    return (first, past) if values.any() else (0, 0)


def remove_small_regions(mask: BoolMask, min_area: int) -> tuple[BoolMask, bool]:
    """Fill holes and remove islands smaller than `min_area`; the largest island stays.

    Args:
        mask: (H, W) bool.
        min_area: area in pixels.

    Returns:
        The new mask, and whether there were such regions, even if the largest of them stays.
    """
    changed = False
    for holes in (True, False):
        small = _small_regions(mask ^ holes, min_area, keep_largest=not holes)
        if small is None:
            continue
        mask, changed = mask.copy(), True
        for rows, columns, pixels in small:
            mask[rows, columns] ^= pixels
    return mask, changed


def _small_regions(mask: BoolMask, min_area: int, *, keep_largest: bool) -> list[Change] | None:
    """Return windows of the mask and the pixels in each that are to change.

    None if there are no small regions.

    Regions are 8-connected. Contours are found in a quarter of the time that labelling the whole
    mask takes, so only the windows around regions that may be small are labelled, unless they are
    many. The time of contours grows with their number and length, so a mask with many edges is
    labelled as a whole at once.
    """
    edges = sum(
        np.count_nonzero(low != high)
        for low, high in ((mask[1:], mask[:-1]), (mask[:, 1:], mask[:, :-1]))
    )
    if edges * PIXELS_PER_EDGE > mask.size:
        return _small_regions_of_all(mask, min_area, keep_largest=keep_largest)
    contours, hierarchy = cv2.findContours(
        mask.view(np.uint8), cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE
    )
    outer = [contour for number, contour in enumerate(contours) if hierarchy[0, number, 3] < 0]
    boxes = [cv2.boundingRect(contour) for contour in outer]
    # A region has at least as many pixels as the longer side of its box.
    candidates = [
        (contour, box) for contour, box in zip(outer, boxes, strict=True) if max(box[2:]) < min_area
    ]
    if keep_largest and len(candidates) == len(outer):
        return _small_regions_of_all(mask, min_area, keep_largest=True)
    if sum(PIXELS_PER_WINDOW + w * h for _, (_, _, w, h) in candidates) > mask.size:
        return _small_regions_of_all(mask, min_area, keep_largest=keep_largest)
    changes = []
    for contour, (x, y, w, h) in candidates:
        window = slice(y, y + h), slice(x, x + w)
        _, regions, stats, _ = cv2.connectedComponentsWithStats(
            mask[window].view(np.uint8), connectivity=8
        )
        column, row = contour[0, 0]
        region = regions[row - y, column - x]
        if stats[region, cv2.CC_STAT_AREA] < min_area:
            changes.append((*window, regions == region))
    return changes or None


def _small_regions_of_all(
    mask: BoolMask, min_area: int, *, keep_largest: bool
) -> list[Change] | None:
    _, regions, stats, _ = cv2.connectedComponentsWithStats(mask.view(np.uint8), connectivity=8)
    areas = stats[:, cv2.CC_STAT_AREA]
    small = areas < min_area
    small[0] = False  # the pixels that are not in the mask
    if not small.any():
        return None
    if keep_largest and small[1:].all():
        small[1 + int(areas[1:].argmax())] = False
    pixels = np.take(small, np.asarray(regions, np.int32))  # in half the time of small[regions]
    return [(slice(None), slice(None), pixels)]


class Mask(Protocol):
    """A mask of a whole image."""

    @property
    def inside(self) -> BoolMask:
        """The mask as pixels, (H, W) bool."""

    @property
    def area(self) -> int:
        """Number of pixels inside."""

    @property
    def box_xyxy(self) -> PixelBox:
        """Smallest box around the mask."""

    def in_box(self) -> BoolMask:
        """Return the pixels in that box."""

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return 8 pixels in a byte, (H, W / 8 rounded up): the first in the highest bit."""

    def rle(self, corner_xy: tuple[int, int], size_hw: tuple[int, int]) -> dict[str, Any]:
        """Return the mask as `rle` does, in a picture in which its first pixel is at the
        corner.
        """


@dataclass
class PixelMask:
    """A mask that is known by its pixels."""

    inside: BoolMask

    @functools.cached_property
    def _area_and_box(self) -> tuple[int, PixelBox]:
        area, (x0, y0, x1, y1) = area_and_box(self.inside)
        return area, (x0, y0, x1, y1)

    @property
    def area(self) -> int:
        """Number of pixels inside."""
        return self._area_and_box[0]

    @property
    def box_xyxy(self) -> PixelBox:
        """Smallest box around the mask."""
        return self._area_and_box[1]

    def in_box(self) -> BoolMask:
        """Return the pixels in that box."""
        x0, y0, x1, y1 = self.box_xyxy
        return self.inside[y0:y1, x0:x1]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return 8 pixels in a byte."""
        return np.packbits(self.inside, axis=1)

    def rle(self, corner_xy: tuple[int, int], size_hw: tuple[int, int]) -> dict[str, Any]:
        """Return the mask as COCO's compressed RLE."""
        return _rle_in_box(self, corner_xy, size_hw)


@dataclass
class ColumnMask:
    """A mask that is known by its bits by columns, the order of RLE."""

    columns: npt.NDArray[np.uint8]
    """(W, H / 8 rounded up) uint8; the first pixel is in the highest bit, and 0 after the last."""
    height: int
    area: int
    """Number of pixels inside."""
    box_xyxy: PixelBox
    """Smallest box around the mask."""

    @functools.cached_property
    def inside(self) -> BoolMask:
        """The mask as pixels, (H, W) bool."""
        pixels = np.unpackbits(self.columns, axis=1, count=self.height)
        return np.asarray(cv2.transpose(pixels), np.uint8).view(bool)

    def in_box(self) -> BoolMask:
        """Return the pixels in the box."""
        x0, y0, x1, y1 = self.box_xyxy
        return self.inside[y0:y1, x0:x1]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return 8 pixels in a byte."""
        return np.packbits(self.inside, axis=1)

    def rle(self, corner_xy: tuple[int, int], size_hw: tuple[int, int]) -> dict[str, Any]:
        """Return the mask as COCO's compressed RLE."""
        x0, y0, x1, y1 = self.box_xyxy
        first = y0 // 8
        corner_xy = corner_xy[0] + x0, corner_xy[1] + 8 * first
        columns = self.columns[x0:x1, first : (y1 + 7) // 8]
        return _rle_of_columns(columns, corner_xy, size_hw)


@dataclass
class BitMask:
    """A mask that is known by its bits, and is unpacked where pixels are needed."""

    bits: npt.NDArray[np.uint8]
    """(H, W / 8 rounded up) uint8; the first pixel is in the highest bit."""
    width: int
    area: int
    """Number of pixels inside."""
    box_xyxy: PixelBox
    """Smallest box around the mask."""

    @functools.cached_property
    def inside(self) -> BoolMask:
        """The mask as pixels, (H, W) bool."""
        return np.unpackbits(self.bits, axis=1, count=self.width).view(bool)

    def in_box(self) -> BoolMask:
        """Return the pixels in the box."""
        x0, y0, x1, y1 = self.box_xyxy
        first = x0 // 8
        bits = np.ascontiguousarray(self.bits[y0:y1, first : (x1 + 7) // 8])
        pixels: BoolMask = np.unpackbits(bits, axis=1).view(bool)
        return pixels[:, x0 - 8 * first : x1 - 8 * first]

    def packed(self) -> npt.NDArray[np.uint8]:
        """Return 8 pixels in a byte."""
        return self.bits

    def rle(self, corner_xy: tuple[int, int], size_hw: tuple[int, int]) -> dict[str, Any]:
        """Return the mask as COCO's compressed RLE."""
        return _rle_in_box(self, corner_xy, size_hw)


def _rle_in_box(mask: Mask, corner_xy: tuple[int, int], size_hw: tuple[int, int]) -> dict[str, Any]:
    x0, y0, _, _ = mask.box_xyxy
    return rle(mask.in_box(), (corner_xy[0] + x0, corner_xy[1] + y0), size_hw)


@dataclass(eq=False)
class MaskPart:
    """The `mask` part of an answer, encoded mask by mask, so that the masks need not be in memory
    together.

    - `json`: nested lists of 0 and 1, `[H, W]`, or `[K, H, W]` for several masks;
    - `npy`: a NumPy file of the same shape, bool;
    - `png`: a 1-bit picture, several masks stacked top to bottom, (K * H, W);
    - `rle`: as `rle` returns it, or a list of those;
    - `polygon`: as `polygons.polygons` returns it, or a list of those.
    """

    mask_format: str
    """`json`, `npy`, `png`, `rle` or `polygon`."""
    size_hw: tuple[int, int]
    """Height and width of each mask."""
    count: int | None
    """Number of masks that will be added; None: a single one, not wrapped in a list."""
    polygon_tolerance: float = TOLERANCE_PIXELS
    """Largest distance of a ring from the edge of the mask, in pixels."""
    reduction: Reduction | None = None
    """Grid of the masks of an image that is worked on at a smaller size, for the formats `rle` and
    `polygon`. RLE is of the grid, polygons are in pixels of the image."""

    def __post_init__(self) -> None:
        """Make an empty part.

        Raise `Rejected` if the PNG file would have more rows than PNG libraries read.
        """
        self._pieces: list[Any] = []
        self._rings_left = MAX_RINGS
        rows = (self.count or 1) * self.size_hw[0]
        if self.mask_format == "png" and rows > MAX_PNG_ROWS:
            expected = (
                f"at most {MAX_PNG_ROWS} rows in all masks together; ask for a format other"
                " than png"
            )
            raise rejected(ANSWER_TOO_LARGE, "mask_format", expected, f"{rows} rows")

    def add(self, mask: Mask) -> int:
        """Add the next mask and return its size in bytes.

        Raises:
            Rejected: the polygons of all masks have too many rings.
        """
        piece = self._piece(mask)
        self._pieces.append(piece)
        return memoryview(piece).nbytes

    def as_json(self, mask: Mask) -> str | orjson.Fragment:
        """Return a mask as a JSON value, for answers that carry masks in `result`; PNG as base64.

        Raises:
            Rejected: as `add`.
        """
        piece = self._piece(mask)
        if self.mask_format == "png":
            return base64.b64encode(encode_bilevel_png([piece], self.size_hw[1])).decode("ascii")
        return orjson.Fragment(bytes(piece))

    def _piece(self, mask: Mask) -> Any:
        if self.mask_format == "json":
            return _nested_lists(mask.inside)
        if self.mask_format == "rle":
            return orjson.dumps(mask.rle((0, 0), self.size_hw))
        if self.mask_format == "polygon":
            shapes = polygons(mask.inside, self._rings_left, self.polygon_tolerance)
            self._rings_left -= sum(map(len, shapes))
            return orjson.dumps(self.reduction.polygons(shapes) if self.reduction else shapes)
        if self.mask_format == "png":
            return bilevel_rows(mask.packed())
        return np.ascontiguousarray(mask.inside)

    def encode(self) -> list[Any]:
        """Return the whole part, in pieces."""
        several = self.count is not None
        if self.mask_format == "png":
            return [encode_bilevel_png(self._pieces, self.size_hw[1])]
        if self.mask_format == "npy":
            file = io.BytesIO()
            shape = (len(self._pieces), *self.size_hw) if several else self.size_hw
            header = {"descr": "|b1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)  # type: ignore[no-untyped-call]
            return [file.getvalue(), *self._pieces]
        if not several:
            return self._pieces
        pieces: list[Any] = [b"["]
        for number, piece in enumerate(self._pieces):
            if number:
                pieces.append(b",")
            pieces.append(piece)
        return [*pieces, b"]"]


def _nested_lists(mask: BoolMask) -> npt.NDArray[np.uint8]:
    """Return the text `[[0,1,...],...]` of a mask (H, W) bool, in a tenth of orjson's time.

    It is written in pairs of characters: a digit and its comma or bracket, and `,[` between two
    rows.
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
