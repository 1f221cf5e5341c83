"""Images that are sent smaller than they are: their prompts and results in the frame of the displayed image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._images import displayed_pixels, displayed_wh
from mobile_sam_client._orientation import read_orientation
from mobile_sam_client._pictures import Rle, encode
from mobile_sam_client._results import Embedding, Everything, ImageResult, MaskResult, Record, Segmentation


@dataclass(frozen=True)
class Scaling:
    """The sizes of an image that is sent smaller than it is."""

    size_wh: tuple[int, int]
    """Width and height of the displayed image."""
    sent_wh: tuple[int, int]
    """Width and height in which it is sent."""
    orientation: int | None = None
    """EXIF orientation of the image, which is sent turned."""

    @classmethod
    def of_file(cls, file: bytes, max_side: int) -> Scaling | None:
        """Return the scaling to a longest side of `max_side` pixels; None if the image is not larger.

        Raises:
            ValueError: Pillow cannot read the file.
        """
        size_wh = displayed_wh(file)
        width, height = (max(1, round(side * max_side / max(size_wh))) for side in size_wh)
        return cls(size_wh, (width, height), read_orientation(file)) if max(size_wh) > max_side else None

    def scaled_file(self, file: bytes) -> bytes:
        """Return the displayed image as a smaller file."""
        smaller = Image.fromarray(displayed_pixels(file)).resize(self.sent_wh, Image.Resampling.BILINEAR)
        return encode(smaller, ".jpg")

    def fields_to_send(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return request fields with points, boxes and areas in the frame of the image that is sent.

        Raises:
            ValueError: a coordinate lies outside the image, and the service does not clip it, or nothing would be left
                of a box.
        """
        return self._to_send(fields, "", bool(fields.get("clip")))

    def _to_send(self, fields: Mapping[str, Any], name: str, clips: bool) -> dict[str, Any]:
        """Return the fields at a path, which is in errors; what is outside stays outside if the service clips it."""
        sent = dict(fields)
        for field in fields.keys() & {"pos_coords", "neg_coords", "box", "region"}:
            if fields[field] == "auto":
                continue
            xy = np.reshape(fields[field], (-1, 2))
            width, height = self.size_wh
            inside = xy.clip(0, self.size_wh)
            if not (clips or (inside == xy).all()):
                expected = f"expected x of 0 to {width} and y of 0 to {height}, or clip=True"
                raise ValueError(f"{name}{field}: {expected}, got {xy.tolist()}")
            is_box = field in ("box", "region") and (xy[0] < xy[1]).all()
            if is_box and not (inside[0] < inside[1]).all():  # the service's error would have the smaller image's size
                expected = f"expected a part inside the image of {width} x {height} pixels"
                raise ValueError(f"{name}{field}: {expected}, got {xy.ravel().tolist()}")
            scaled = np.reshape(xy * self.sent_wh / self.size_wh, np.shape(fields[field]))
            # Fractions of a pixel would make the region of an earlier answer larger.
            sent[field] = (np.round(scaled) if field == "region" else scaled).tolist()
        if area := fields.get("min_mask_region_area"):
            sent["min_mask_region_area"] = round(area * float(np.prod(np.divide(self.sent_wh, self.size_wh))))
        if "prompts" in fields:
            numbered = enumerate(fields["prompts"])
            sent["prompts"] = [self._to_send(prompt, f"prompts[{i}].", clips) for i, prompt in numbered]
        return sent

    def displayed(self, result: Any) -> Any:
        """Return a result in the frame of the displayed image."""
        size: dict[str, Any] = dict(zip(("width", "height"), self.size_wh, strict=True))
        if isinstance(result, ImageResult):
            size["orientation"] = self.orientation
        if isinstance(result, ImageResult) and result.region:
            size["region"] = self._box(result.region)
        if isinstance(result, Embedding):
            return replace(result, **size, sent_wh=self.sent_wh)
        if isinstance(result, Everything):
            return replace(result, **size, masks=[self.displayed(record) for record in result.masks])
        if isinstance(result, Segmentation):
            return replace(
                result, **size, **self._mask(result), candidates=tuple(map(self.displayed, result.candidates))
            )
        assert isinstance(result, Record)
        points = np.multiply(result.point_coords, self.size_wh) / self.sent_wh
        point_coords = tuple(map(tuple, points.tolist()))
        return replace(result, **self._mask(result), point_coords=point_coords, crop_box=self._box(result.crop_box))

    def _box(self, box: tuple[int, int, int, int]) -> Any:
        return tuple(np.round(np.reshape(box, (2, 2)) * self.size_wh / self.sent_wh).astype(int).ravel().tolist())

    def _mask(self, result: MaskResult) -> dict[str, Any]:
        """Return RLE, area and box of a mask: each pixel is that of the smaller mask at its centre."""
        (width, height), (columns, rows) = self.size_wh, self.sent_wh
        (x_shown, x_first), (y_shown, y_first) = _nearest(columns, width), _nearest(rows, height)
        x, y, w, h = (int(number) for number in coco.toBbox(result.rle))
        left, right = x_first[x], x_first[x + w]
        # Only the columns of its box are scaled; column by column, as they lie in an RLE.
        scaled = result._decode_mask().T[x_shown[left:right]][:, y_shown]
        edges = np.flatnonzero(np.diff(scaled.ravel(), prepend=0, append=0)) + left * height
        counts = np.trim_zeros(np.diff(edges, prepend=0, append=width * height), "b").tolist()
        encoded = coco.frPyObjects({"size": [height, width], "counts": counts}, height, width)
        return {
            "rle": Rle(size=[height, width], counts=encoded["counts"].decode()),
            "area": int((edges[1::2] - edges[::2]).sum()),
            "box_xyxy": tuple(map(int, (left, y_first[y], right, y_first[y + h]))),
        }


def _nearest(small: int, large: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return which of `small` positions each of `large` ones shows, and the first of those that show each."""
    shown = (2 * np.arange(large) + 1) * small // (2 * large)
    return shown, np.searchsorted(shown, np.arange(small + 1))
