"""Images above the pixel limit, worked on at a half or a quarter of their width and height.

Only callers who cannot scale their images ask for it. Prompts and the encoder's frame do not depend
on the size in which an image is decoded. Masks are made on a grid with a cell for each pixel of the
smaller image. A pixel of the image belongs to the cell that its centre lies in.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg
from PIL import Image, JpegImagePlugin
from pycocotools import mask as coco

from orchestrator import depth, images
from orchestrator.arrays import BoolMask, UInt8Mask
from orchestrator.polygons import Ring
from orchestrator.problems import IMAGE_TOO_LARGE, rejected
from orchestrator.regions import Box

FACTORS = (1, 2, 4)
"""Divisors of both sides. libjpeg decodes a JPEG file at each without all pixels in memory."""
DECODING_BYTES = 24
"""Memory to decode an image, per pixel of the limit: 600 MB by default.

One process of a machine decodes at a time (`EmbeddingCache.decode_lock`).
"""
BYTES_PER_PIXEL = {"1": 1, "L": 1, "P": 1}
"""Memory of a pixel with 8 bits in Pillow by mode; 4 in others."""
GREY_16_BIT_BYTES_PER_PIXEL, DEEP_BYTES_PER_PIXEL = 6, 12
"""Memory to read a pixel of 16-bit grey, and of 16-bit grey with alpha or colours
(`depth.read_samples`)."""
WEBP_BYTES_PER_PIXEL = 16
"""Pillow's WebP decoder keeps two canvases and makes a copy of one."""
COEFFICIENT_BYTES = 2
"""libjpeg keeps all coefficients of a JPEG file of several scans, at any size of the pixels."""
GRID_RLE = "grid_rle"
"""Member of an answer's mask: COCO's RLE of the grid, by another name than the image's `rle`."""
STRIP_ROWS = 256
"""Rows that are scaled down at a time; a multiple of all factors."""

Indices = npt.NDArray[np.int64]


def factor(size_hw: tuple[int, int], max_pixels: int) -> int | None:
    """Return the least divisor of the sides that leaves at most `max_pixels`; None if none does."""
    fitting = (number for number in FACTORS if math.prod(_divided(size_hw, number)) <= max_pixels)
    return next(fitting, None)


def open_image(data: bytes, max_pixels: int) -> images.OpenedImage:
    """Read the header of an image file that may be scaled down to `max_pixels`.

    Raises:
        Rejected: as from `images.open_image`, or decoding would take too much memory.
    """
    opened = images.open_image(data, images.MAX_SIDE_PIXELS**2)
    image = opened.image
    pixels = image.width * image.height
    if pixels <= max_pixels:
        return opened
    bytes_per_pixel, kind = _decoding(opened)
    limit = max_pixels * FACTORS[-1] ** 2
    if bytes_per_pixel:
        limit = min(limit, int(max_pixels * DECODING_BYTES / bytes_per_pixel))
    if pixels > limit or factor((image.height, image.width), max_pixels) is None:
        smaller = "replace the image by a smaller one"
        if bytes_per_pixel:
            smaller += ", or by a JPEG file that is not progressive"
        expected = f"at most {limit} pixels in a {kind} file: {smaller}"
        raise rejected(
            IMAGE_TOO_LARGE, images.FIELD, expected, f"{image.width} x {image.height} = {pixels}"
        )
    return opened


@dataclass(frozen=True)
class Reduction:
    """The grid of an image that is worked on at a smaller size."""

    size_hw: tuple[int, int]
    """Height and width of the displayed image."""
    factor: int
    """Divisor of both sides; a grid of 1 is the image itself."""

    @property
    def grid_hw(self) -> tuple[int, int]:
        """Height and width of the grid, and of the decoded image."""
        return _divided(self.size_hw, self.factor)

    def load(self, opened: images.OpenedImage) -> tuple[images.RGB, depth.SampleRange | None]:
        """Return the pixels of an image file at the size of the grid, not yet turned, and the range
        of 16-bit samples.

        Returns:
            (h, w, 3) uint8 RGB; and as `images.decode`.
        """
        image, file = opened.image, opened.file
        if isinstance(image, JpegImagePlugin.JpegImageFile):
            return _load_jpeg(image, file, self.factor), None
        if depth.is_16_bit(image):
            samples = depth.read_samples(file)
            sample_range = depth.sample_range(samples)

            def strip_16_bit(top: int, bottom: int) -> Image.Image:
                return Image.fromarray(depth.to_8_bits(samples[top:bottom], sample_range))

            return self._reduced(image, strip_16_bit), sample_range
        image.load()

        def strip_8_bit(top: int, bottom: int) -> Image.Image:
            return image.crop((0, top, image.width, bottom))

        return self._reduced(image, strip_8_bit), None

    def _reduced(self, image: Image.Image, strip: Callable[[int, int], Image.Image]) -> images.RGB:
        """Return an image at the size of the grid, in strips: as a whole it would need its
        memory a second time.
        """
        pixels = np.empty((*_divided((image.height, image.width), self.factor), 3), np.uint8)
        for top in range(0, image.height, STRIP_ROWS):
            bottom = min(top + STRIP_ROWS, image.height)
            smaller = np.asarray(strip(top, bottom).convert("RGB").reduce(self.factor))
            start = top // self.factor
            pixels[start : start + len(smaller)] = smaller
        return pixels

    def scaled_box(self, box_xyxy: Box) -> tuple[float, float, float, float]:
        """Return a box of the image in the decoded pixels; it may begin within a pixel."""
        x0, y0, x1, y1 = (side / self.factor for side in box_xyxy)
        return x0, y0, x1, y1

    def cells(self, box_xyxy: Box) -> Box:
        """Return the cells that a box of the image covers, at least one: x0, y0, x1, y1,
        exclusive.
        """
        x0, x1 = self._cells(box_xyxy[0::2], self.grid_hw[1], self.size_hw[1])
        y0, y1 = self._cells(box_xyxy[1::2], self.grid_hw[0], self.size_hw[0])
        return x0, y0, x1, y1

    @staticmethod
    def _cells(ends: Sequence[int], cells: int, pixels: int) -> tuple[int, int]:
        start, end = (round(position * cells / pixels) for position in ends)
        start = min(start, cells - 1)
        return start, max(end, start + 1)

    def box(self, cells_xyxy: Sequence[int]) -> list[int]:
        """Return the image's box of a box of cells; right and bottom are exclusive."""
        rows, columns = self._firsts()
        left, top, right, bottom = cells_xyxy
        return [int(columns[left]), int(rows[top]), int(columns[right]), int(rows[bottom])]

    def area(self, mask: BoolMask, corner_xy: tuple[int, int] = (0, 0)) -> int:
        """Return the area of a mask in pixels of the image.

        Args:
            mask: (h, w) bool, cells.
            corner_xy: the mask's first cell in the grid.
        """
        rows, columns = self._firsts()
        (left, top), (height, width) = corner_xy, mask.shape
        if not mask.size:
            return 0
        heights = np.diff(rows[top : top + height + 1])
        widths = np.diff(columns[left : left + width + 1])
        cells = mask.view(np.uint8)
        # Nearly all rows have the same height, so that only few of them are added one by one.
        usual = int(np.median(heights))
        sums = usual * cv2.reduce(cells, 0, cv2.REDUCE_SUM, dtype=cv2.CV_32S)[0].astype(np.int64)
        for row in np.flatnonzero(heights != usual):
            sums += (heights[row] - usual) * cells[row].astype(np.int64)
        return int(sums @ widths)

    def polygons(self, shapes: list[list[Ring]]) -> list[list[Ring]]:
        """Return polygons of a mask of cells in pixels of the image."""
        (height, width), (rows, columns) = self.size_hw, self.grid_hw
        scale = np.array([width / columns, height / rows])
        return [[(np.array(ring) * scale).tolist() for ring in rings] for rings in shapes]

    def enlarged(self, mask: UInt8Mask, box_xyxy: Sequence[int]) -> UInt8Mask:
        """Return a box of the image from a mask (h, w) uint8 of all cells."""
        rows, columns = self._shown()
        left, top, right, bottom = box_xyxy
        return np.take(np.take(mask, columns[left:right], axis=1), rows[top:bottom], axis=0)

    def runs(self, mask: UInt8Mask) -> Indices:
        """Return the lengths of runs of equal pixels of the image, row by row.

        The first run is of zeros, and may be empty. No array has as many elements as the image has
        pixels.

        Args:
            mask: (h, w) uint8, all cells.
        """
        (height, width), (_, columns) = self.size_hw, self._firsts()
        row_of, start, end = _spans(mask)
        starts, ends = columns[start], columns[end]
        # The spans of a row of cells, once for each row of pixels that shows it.
        shown, _ = self._shown()
        first = np.searchsorted(row_of, np.arange(len(mask) + 1))
        counts = np.diff(first)[shown]
        offsets = np.repeat(first[shown] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        index = np.arange(len(offsets)) + offsets
        rows = np.repeat(np.arange(height, dtype=np.int64) * width, counts)
        edges = np.stack([rows + starts[index], rows + ends[index]], axis=1).ravel()
        # A span that ends with its row continues in the next one if that begins with a span.
        joined = np.flatnonzero(edges[1:-1:2] == edges[2::2])
        edges = np.delete(edges, np.concatenate([2 * joined + 1, 2 * joined + 2]))
        lengths: Indices = np.diff(edges, prepend=0, append=height * width)
        return lengths if lengths[-1] or len(lengths) == 1 else lengths[:-1]

    def rle(self, mask: UInt8Mask) -> dict[str, object]:
        """Return a mask (h, w) uint8 of all cells as COCO's compressed RLE of the image."""
        height, width = self.size_hw
        columns = np.asarray(cv2.transpose(mask), np.uint8)  # COCO counts along them
        counts = Reduction((width, height), self.factor).runs(columns)
        compressed = coco.frPyObjects({"size": [height, width], "counts": counts}, height, width)
        return {"size": [height, width], "counts": compressed["counts"].decode("ascii")}

    def _firsts(self) -> tuple[Indices, Indices]:
        """Return the first pixel of each row and of each column of cells, both with the end."""
        (height, width), (rows, columns) = self.size_hw, self.grid_hw
        return _nearest(rows, height)[1], _nearest(columns, width)[1]

    def _shown(self) -> tuple[Indices, Indices]:
        """Return the row of cells that each row of pixels shows, and the same of columns."""
        (height, width), (rows, columns) = self.size_hw, self.grid_hw
        return _nearest(rows, height)[0], _nearest(columns, width)[0]


def _divided(size_hw: tuple[int, int], number: int) -> tuple[int, int]:
    """Return a size divided by a number, rounded up."""
    height, width = (-(-side // number) for side in size_hw)
    return height, width


@functools.lru_cache(maxsize=8)
def _nearest(cells: int, pixels: int) -> tuple[Indices, Indices]:
    """Return the cell of each pixel's centre, and the first pixel of each cell with the end."""
    cell_of = (2 * np.arange(pixels, dtype=np.int64) + 1) * cells // (2 * pixels)
    return cell_of, np.searchsorted(cell_of, np.arange(cells + 1))


def _spans(mask: UInt8Mask) -> tuple[Indices, Indices, Indices]:
    """Return row, first column and end of each span of ones, row by row."""
    height, width = mask.shape
    framed = np.zeros((height, width + 1), np.uint8)
    framed[:, :width] = mask
    flat = framed.ravel()
    starts = np.flatnonzero(flat[1:] > flat[:-1]) + 1
    ends = np.flatnonzero(flat[1:] < flat[:-1]) + 1
    if flat[0]:
        starts = np.concatenate([[0], starts])
    rows, first = np.divmod(starts, width + 1)
    return rows, first, ends - rows * (width + 1)


def _load_jpeg(image: JpegImagePlugin.JpegImageFile, file: bytes, divisor: int) -> images.RGB:
    height, width = _divided((image.height, image.width), divisor)
    if image.mode == "RGB":
        # The buffer bounds the decoded size if the file has two headers that disagree.
        pixels = np.empty((height, width, 3), np.uint8)
        try:
            decoded: images.RGB = simplejpeg.decode_jpeg(
                file, min_height=height, min_width=width, min_factor=divisor, buffer=pixels
            )
        except ValueError:  # a flaw that Pillow tolerates
            decoded = pixels[:0]
        if decoded.shape == pixels.shape:
            return decoded
    image.draft(image.mode, (image.width // divisor, image.height // divisor))
    image.load()
    if (image.height, image.width) != (height, width):
        raise ValueError(f"decoded to {image.width} x {image.height}")
    return np.asarray(image.convert("RGB"))


def _decoding(opened: images.OpenedImage) -> tuple[float, str]:
    """Return the memory to decode an image, in bytes per pixel, and what its file is."""
    image = opened.image
    if isinstance(image, JpegImagePlugin.JpegImageFile):
        if not _has_several_scans(image, opened.file):
            return 0.0, "JPEG"
        most = max(across * down for _, across, down, _ in image.layer)
        samples = sum(across * down for _, across, down, _ in image.layer) / most
        return COEFFICIENT_BYTES * samples, "progressive JPEG"
    if image.format == "WEBP":
        return WEBP_BYTES_PER_PIXEL, "WebP"
    if depth.is_16_bit(image):
        is_grey = image.mode.startswith("I")
        return GREY_16_BIT_BYTES_PER_PIXEL if is_grey else DEEP_BYTES_PER_PIXEL, "16-bit PNG"
    return BYTES_PER_PIXEL.get(image.mode, 4), "PNG"


def _has_several_scans(image: JpegImagePlugin.JpegImageFile, data: bytes) -> bool:
    """Return whether a JPEG file is progressive, or its first scan has not all components."""
    if image.info.get("progressive"):
        return True
    segment = images.SEGMENT.search(data, 2)
    while segment:
        start = segment.start()
        if data[start + 1] == images.START_OF_SCAN:
            components = data[start + 4 : start + 5]
            return components != bytes([len(image.layer)])
        length = int.from_bytes(data[start + 2 : start + 4], "big")
        segment = images.SEGMENT.search(data, start + 2 + length)
    return True
