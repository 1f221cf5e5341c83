"""Results of the calls. Masks and pictures are decoded on first access."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._arrays import BoolMask, Rle
from mobile_sam_client._errors import NotThisService
from mobile_sam_client._exports import Exports, Photo, coco_fields
from mobile_sam_client._pictures import encode
from mobile_sam_client._polygons import Ring, polygons
from mobile_sam_client._service_info import Engine, Weights


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageResult:
    """Fields common to all results for an image."""

    image_id: str
    """Id of the image at the service."""
    width: int
    """Width of the displayed image in pixels."""
    height: int
    """Height of the displayed image in pixels."""
    orientation: int | None = field(default=None, repr=False)
    """EXIF orientation that turned the stored image into the displayed one, 1 to 8; None from an
    older service."""
    sample_range: tuple[int, int] | None = field(default=None, repr=False)
    """Values of 16-bit samples that became 0 and 255; None for 8 bits, and for images that
    `max_side` made smaller."""
    weights: Weights = field(repr=False)
    engine: Engine = field(repr=False)
    model_version: int = field(repr=False)
    """Version of the model that computed the result."""
    region: tuple[int, int, int, int] | None = field(default=None, repr=False)
    """x0, y0, x1, y1 of the part of the image that was encoded; None if the call named no
    region."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class MaskResult(Exports):
    """A mask, decoded on first access."""

    rle: Rle
    """The mask in COCO's compressed RLE."""
    area: int
    """Number of pixels in the mask."""
    score: float
    """The model's estimate of the mask's IoU; official weights also give scores a little above
    1."""
    box_xyxy: tuple[int, int, int, int]
    """x0, y0, x1, y1 around the mask in pixels; x1 and y1 are exclusive. All 0 for an empty
    mask."""
    photo: Photo

    @property
    def bbox_xywh(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the mask in pixels."""
        x0, y0, x1, y1 = self.box_xyxy
        return x0, y0, x1 - x0, y1 - y0

    @cached_property
    def mask(self) -> BoolMask:
        """The mask, (H, W) bool, in the frame of the displayed image.

        Raises:
            NotThisService: the RLE is malformed.
        """
        return self._decode_mask()

    def _decode_mask(self) -> BoolMask:
        """Return a new array equal to `mask`, which unlike that is not kept. Raises as `mask`."""
        try:
            decoded = coco.decode(self.rle)
        except (ValueError, TypeError) as error:
            raise NotThisService(
                f"expected a mask in COCO's RLE, but decoding failed: {error}"
            ) from error
        # The decoder leaves pixels uninitialized if the RLE is too short.
        area = np.count_nonzero(decoded)
        if area != self.area:
            raise NotThisService(f"expected a mask of {self.area} pixels, got an RLE of {area}")
        return np.ascontiguousarray(decoded, bool)

    def polygons(self, tolerance: float = 0.5) -> list[list[Ring]]:
        """Return the mask as polygons, each a list of rings: the outer one first, then its holes.

        A ring has (N, 2) int32 corners, x then y, in pixels of the displayed image with whole
        numbers at pixel edges: a pixel at column 3 and row 5 is the square from (3, 5) to (4, 6).
        The last corner is joined to the first.

        Args:
            tolerance: largest distance of a ring from the mask's edge, in pixels; 0 for the exact
                edge.
        """
        return polygons(self._decode_mask(), tolerance)

    def cutout(self) -> Image.Image:
        """Return the image, transparent outside the mask, RGBA. Raises as `overlay`."""
        picture = Image.fromarray(self.photo())
        picture.putalpha(Image.fromarray(self.mask).convert("L"))
        return picture

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mask to a file.

        Args:
            path: a name that ends with `.png` for a black and white picture, `.npy` for (H, W)
                bool, or `.json` for the fields of a COCO annotation: `segmentation` (RLE), `area`,
                `bbox` (x, y, width, height) and scores.

        Raises:
            ValueError: the name has another suffix.
        """
        encoders = {".png": self._mask_png, ".npy": self._npy, ".json": self._coco_json}
        _write(Path(path), encoders)

    def _coco_json(self) -> bytes:
        return json.dumps(coco_fields(self)).encode()

    def _mask_png(self) -> bytes:
        return encode(Image.fromarray(self.mask))

    def _repr_png_(self) -> bytes:
        return self._mask_png()

    def _npy(self) -> bytes:
        file = io.BytesIO()
        np.save(file, self.mask)
        return file.getvalue()

    def _scores(self) -> dict[str, float]:
        return {"score": self.score}

    def _results(self) -> Sequence[MaskResult]:
        return [self]

    def _size_hw(self) -> tuple[int, int]:
        height, width = self.rle["size"]
        return height, width


@dataclass(frozen=True, kw_only=True, eq=False)
class Embedding(ImageResult):
    """An image already encoded by the service.

    It keeps the image file, to upload it again if the service no longer has it.
    """

    file: bytes = field(repr=False)
    """A PNG, JPEG or WebP file."""
    sent_wh: tuple[int, int] | None = field(default=None, repr=False)
    """Width and height in which the image was sent, if `max_side` of the client made it smaller."""


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Segmentation(ImageResult, MaskResult):
    """A segmented object. Notebooks display its picture, or else its mask."""

    candidate_index: int = 0
    """Position among the masks that the model returns for the object."""
    low_res_mask: npt.NDArray[np.float32] | None = None
    """(256, 256) float32 logits if requested: pass them as `mask_input` to refine the mask."""
    clipped: tuple[str, ...] = ()
    """Fields that `clip` has changed, of this object's prompt and the region: such as `box` or
    `pos_coords[0]`."""
    candidates: tuple[Segmentation, ...] = ()
    """The three masks of the object, best first, if `multimask_output` was set."""
    picture_png: bytes | None = None
    """The picture as a PNG file."""

    @cached_property
    def image(self) -> Image.Image | None:
        """Overlay (RGB) or cutout (RGBA) in the displayed image's size, or None if not requested.

        It shows the best mask of every object of the request. `max_side` of the client also limits
        its size.
        """
        if self.picture_png is None:
            return None
        picture = Image.open(io.BytesIO(self.picture_png))
        picture.load()
        return picture

    def __repr__(self) -> str:
        more = f", candidates={len(self.candidates)}" if self.candidates else ""
        return (
            f"Segmentation(score={self.score:.3f}, area={self.area}, box_xyxy={self.box_xyxy}, "
            f"width={self.width}, height={self.height}{more})"
        )

    def _repr_png_(self) -> bytes:
        return self._mask_png() if self.picture_png is None else self.picture_png


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Record(MaskResult):
    """One mask of `Everything`, with the fields of Segment Anything's automatic-mask records."""

    stability_score: float
    """IoU of the mask at a higher and at a lower threshold, 0 to 1."""
    point_coords: tuple[tuple[float, float], ...]
    """Point prompt that produced the mask: one point, x then y, in pixels of the displayed
    image."""
    crop_box: tuple[int, int, int, int]
    """Left, top, width and height of the crop that the mask was found in, in pixels."""

    @property
    def predicted_iou(self) -> float:
        """The score, under Segment Anything's name."""
        return self.score

    def _scores(self) -> dict[str, float]:
        return {**super()._scores(), "stability_score": self.stability_score}

    def as_sam(self) -> dict[str, Any]:
        """Return the record with the keys of Segment Anything's mask generator.

        `segmentation` is COCO's RLE.
        """
        return {
            "segmentation": self.rle,
            "area": self.area,
            "bbox": list(self.bbox_xywh),
            "predicted_iou": self.predicted_iou,
            "point_coords": [list(point) for point in self.point_coords],
            "stability_score": self.stability_score,
            "crop_box": list(self.crop_box),
        }

    def __repr__(self) -> str:
        return (
            f"Record(area={self.area}, bbox_xywh={self.bbox_xywh}, "
            f"predicted_iou={self.predicted_iou:.3f}, stability_score={self.stability_score:.3f})"
        )


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Everything(ImageResult, Exports):
    """All objects found in an image, a sequence of `Record`s."""

    masks: list[Record]
    """Masks in the service's order; with a single crop, best first."""
    photo: Photo

    def __len__(self) -> int:
        return len(self.masks)

    def __iter__(self) -> Iterator[Record]:
        return iter(self.masks)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        return self.masks[index]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the records, with Segment Anything's keys, to a `.json` file."""
        _write(Path(path), {".json": self._sam_json})

    def _sam_json(self) -> bytes:
        return json.dumps([record.as_sam() for record in self.masks]).encode()

    def _results(self) -> Sequence[MaskResult]:
        return self.masks

    def _size_hw(self) -> tuple[int, int]:
        return self.height, self.width

    def __repr__(self) -> str:
        return f"Everything({len(self.masks)} masks, width={self.width}, height={self.height})"


def _write(path: Path, encoders: dict[str, Callable[[], bytes]]) -> None:
    """Write a file in the format of its suffix, with the function for it."""
    encoder = encoders.get(path.suffix.lower())
    if encoder is None:
        expected = f"a name that ends with {', '.join(encoders)}"
        raise ValueError(f"path: expected {expected}, got {str(path)!r}")
    path.write_bytes(encoder())
