"""Images that are sent smaller: prompts and results in the frame of the displayed image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from pycocotools import mask as coco

from mobile_sam_client._arrays import Rle
from mobile_sam_client._images import displayed_pixels, displayed_wh
from mobile_sam_client._orientation import read_orientation
from mobile_sam_client._pictures import encode
from mobile_sam_client._results import (
    Embedding,
    Everything,
    ImageResult,
    MaskResult,
    Record,
    Segmentation,
)


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
        """Return the scaling to a longest side of `max_side` pixels; None if there is none.

        Raises:
            ValueError: Pillow cannot read the file.
        """
        size_wh = displayed_wh(file)
        longest = max(size_wh)
        if longest <= max_side:
            return None
        width, height = (max(1, round(side * max_side / longest)) for side in size_wh)
        return cls(size_wh, (width, height), read_orientation(file))

    def scaled_file(self, file: bytes) -> bytes:
        """Return the displayed image as a smaller file."""
        picture = Image.fromarray(displayed_pixels(file))
        smaller = picture.resize(self.sent_wh, Image.Resampling.BILINEAR)
        return encode(smaller, ".jpg")

    def fields_to_send(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return request fields in the frame of the image that is sent.

        Raises:
            ValueError: a coordinate lies outside the image, and the service does not clip it, or
                nothing would be left of a box.
        """
        return self._to_send(fields, "", bool(fields.get("clip")))

    def _to_send(self, fields: Mapping[str, Any], prefix: str, clips: bool) -> dict[str, Any]:
        """Return fields as `fields_to_send`.

        Args:
            fields: fields of a request, or of a prompt in it.
            prefix: path of the prompt in errors, such as `prompts[1].`.
            clips: True if the service clips what is outside the image, so that it stays outside.
        """
        sent = dict(fields)
        for field in fields.keys() & {"pos_coords", "neg_coords", "box", "region"}:
            if fields[field] == "auto":
                continue
            xy = np.reshape(fields[field], (-1, 2))
            self._check_inside(f"{prefix}{field}", xy, clips, is_box=field in ("box", "region"))
            scaled = np.reshape(xy * self.sent_wh / self.size_wh, np.shape(fields[field]))
            if field == "region":
                # Fractions of a pixel would make the region of an earlier answer larger.
                scaled = np.round(scaled)
            sent[field] = scaled.tolist()
        min_area = fields.get("min_mask_region_area")
        if min_area:
            area_scale = float(np.prod(np.divide(self.sent_wh, self.size_wh)))
            sent["min_mask_region_area"] = round(min_area * area_scale)
        if "prompts" in fields:
            sent["prompts"] = [
                self._to_send(prompt, f"prompts[{index}].", clips)
                for index, prompt in enumerate(fields["prompts"])
            ]
        return sent

    def _check_inside(self, path: str, xy: npt.NDArray[Any], clips: bool, *, is_box: bool) -> None:
        """Raise the error of `fields_to_send` for points (N, 2), x then y, or a box (2, 2)."""
        width, height = self.size_wh
        inside = xy.clip(0, self.size_wh)
        if not clips and (inside != xy).any():
            expected = f"expected x of 0 to {width} and y of 0 to {height}, or clip=True"
            raise ValueError(f"{path}: {expected}, got {xy.tolist()}")
        is_valid_box = is_box and (xy[0] < xy[1]).all()
        if is_valid_box and not (inside[0] < inside[1]).all():
            # Not left to the service, whose error would name the size of the smaller image.
            expected = f"expected a part inside the image of {width} x {height} pixels"
            raise ValueError(f"{path}: {expected}, got {xy.ravel().tolist()}")

    def displayed(self, result: Any) -> Any:
        """Return a result in the frame of the displayed image."""
        if isinstance(result, Record):
            points = np.multiply(result.point_coords, self.size_wh) / self.sent_wh
            return replace(
                result,
                **self._mask(result),
                point_coords=tuple(map(tuple, points.tolist())),
                crop_box=self._box(result.crop_box),
            )
        assert isinstance(result, ImageResult)
        width, height = self.size_wh
        fields: dict[str, Any] = {
            "width": width,
            "height": height,
            "orientation": self.orientation,
        }
        if result.region:
            fields["region"] = self._box(result.region)
        if isinstance(result, Embedding):
            fields["sent_wh"] = self.sent_wh
        elif isinstance(result, Everything):
            fields["masks"] = [self.displayed(record) for record in result.masks]
        elif isinstance(result, Segmentation):
            fields |= self._mask(result)
            fields["candidates"] = tuple(map(self.displayed, result.candidates))
        return replace(result, **fields)

    def _box(self, box: tuple[int, int, int, int]) -> Any:
        corners = np.round(np.reshape(box, (2, 2)) * self.size_wh / self.sent_wh)
        return tuple(corners.astype(int).ravel().tolist())

    def _mask(self, result: MaskResult) -> dict[str, Any]:
        """Return RLE, area and box of a mask: a pixel is that of the smaller mask at its centre."""
        width, height = self.size_wh
        columns, rows = self.sent_wh
        x_shown, x_first = _nearest(columns, width)
        y_shown, y_first = _nearest(rows, height)
        x, y, w, h = (int(number) for number in coco.toBbox(result.rle))
        left, right = x_first[x], x_first[x + w]
        # Only the columns of its box are scaled; column by column, as they lie in an RLE.
        scaled = result._decode_mask().T[x_shown[left:right]][:, y_shown]
        edges = np.flatnonzero(np.diff(scaled.ravel(), prepend=0, append=0)) + left * height
        lengths = np.diff(edges, prepend=0, append=width * height)
        counts = np.trim_zeros(lengths, "b").tolist()
        encoded = coco.frPyObjects({"size": [height, width], "counts": counts}, height, width)
        return {
            "rle": Rle(size=[height, width], counts=encoded["counts"].decode()),
            "area": int((edges[1::2] - edges[::2]).sum()),
            "box_xyxy": tuple(map(int, (left, y_first[y], right, y_first[y + h]))),
        }


def _nearest(small: int, large: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return how a line of `small` positions is scaled to `large` ones.

    Returns:
        (large,) the small position that each large one shows, and (small + 1,) the first large
        position that shows each small one.
    """
    shown = (2 * np.arange(large) + 1) * small // (2 * large)
    return shown, np.searchsorted(shown, np.arange(small + 1))
