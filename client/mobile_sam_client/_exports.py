"""Results in the forms of other libraries and tools: supervision, COCO, GeoJSON, Label Studio."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from PIL import Image

from mobile_sam_client._arrays import BoolMask, Pixels, Rle
from mobile_sam_client._brush_rle import brush_rle
from mobile_sam_client._pictures import draw
from mobile_sam_client._polygons import Ring

if TYPE_CHECKING:
    import supervision

Photo = Callable[[], Pixels]
"""Returns the pixels of a result's image, (H, W, 3) uint8 RGB."""

LABEL_STUDIO_KINDS = ("brushlabels", "polygonlabels")


class Exportable(Protocol):
    """A mask with its numbers, as `MaskResult` has them."""

    @property
    def rle(self) -> Rle:
        """The mask in COCO's compressed RLE."""

    @property
    def area(self) -> int:
        """Number of pixels in the mask."""

    @property
    def score(self) -> float:
        """The model's estimate of the mask's IoU."""

    @property
    def box_xyxy(self) -> tuple[int, int, int, int]:
        """Box around the mask; x1 and y1 are exclusive."""

    @property
    def bbox_xywh(self) -> tuple[int, int, int, int]:
        """Left, top, width and height of the mask in pixels."""

    def polygons(self, tolerance: float = 0.5) -> list[list[Ring]]:
        """Return the mask as polygons, each a list of rings."""

    def _decode_mask(self) -> BoolMask: ...

    def _scores(self) -> dict[str, float]: ...


class Exports:
    """Pictures and conversions that a mask and a sequence of masks have in common."""

    photo: Photo

    def overlay(self) -> Image.Image:
        """Return the image with each mask tinted and outlined in its own colour, RGB.

        Smaller masks are on top.

        Raises:
            OSError: the image was passed as a path and is no longer there.
            ValueError: the image has another size than the masks.
        """
        return Image.fromarray(draw(self.photo(), [result.rle for result in self._results()]))

    def to_supervision(self, class_id: int | None = None) -> supervision.Detections:
        """Return `supervision.Detections` with boxes, masks and scores.

        Args:
            class_id: class of all masks, or None.

        Raises:
            ImportError: the package supervision is not installed.
        """
        try:
            import supervision  # noqa: PLC0415 (optional, and slow to import)
        except ImportError:
            extra = "./client[supervision]"
            command = f"pip install '{extra}'"
            raise ImportError(f"to_supervision needs another package: {command}") from None
        results = self._results()
        boxes_xyxy = np.array([result.box_xyxy for result in results], np.float32)
        masks = np.zeros((len(results), *self._size_hw()), bool)
        for plane, result in zip(masks, results, strict=True):
            plane[:] = result._decode_mask()
        return supervision.Detections(
            xyxy=boxes_xyxy.reshape(-1, 4),  # also without results
            mask=masks,
            confidence=np.array([result.score for result in results], np.float32),
            class_id=None if class_id is None else np.full(len(results), class_id),
        )

    def to_coco(
        self, *, image_id: int = 1, category_id: int = 1, first_id: int = 1
    ) -> list[dict[str, Any]]:
        """Return COCO annotations, with masks as RLE.

        Args:
            image_id: id of the image.
            category_id: category of all masks.
            first_id: id of the first annotation; the others follow consecutively.
        """
        return [
            coco_annotation(coco_fields(result), annotation_id, image_id, category_id)
            for annotation_id, result in enumerate(self._results(), first_id)
        ]

    def to_geojson(self, tolerance: float = 0.5) -> dict[str, Any]:
        """Return a GeoJSON FeatureCollection with a feature per mask.

        Geometries are Polygon or MultiPolygon with holes, or null for an empty mask, in pixels of
        the displayed image, with whole numbers at pixel edges.

        Args:
            tolerance: largest distance of a ring from the mask's edge, in pixels; 0 for the exact
                edge.
        """
        features = [_feature(result, tolerance) for result in self._results()]
        return {"type": "FeatureCollection", "features": features}

    def to_label_studio(
        self,
        label: str,
        *,
        kind: Literal["brushlabels", "polygonlabels"] = "brushlabels",
        from_name: str = "tag",
        to_name: str = "image",
        tolerance: float = 0.5,
    ) -> list[dict[str, Any]]:
        """Return results of a Label Studio prediction or annotation.

        Args:
            label: label of all masks.
            kind: `brushlabels` for one result per mask; `polygonlabels` for one per island of a
                mask, without its holes, which Label Studio's polygons cannot have.
            from_name: name of the control tag in the labelling configuration, such as
                <BrushLabels>.
            to_name: name of the <Image> tag.
            tolerance: for polygons, the largest distance from the mask's edge, in pixels.

        Raises:
            ValueError: the kind is unknown.
        """
        if kind not in LABEL_STUDIO_KINDS:
            raise ValueError(f"kind: expected {' or '.join(LABEL_STUDIO_KINDS)}, got {kind!r}")
        height, width = self._size_hw()
        entries: list[dict[str, Any]] = []
        for result in self._results():
            for value in _label_studio_values(result, kind, tolerance):
                entries.append(
                    {
                        "id": secrets.token_hex(5),
                        "type": kind,
                        "from_name": from_name,
                        "to_name": to_name,
                        "original_width": width,
                        "original_height": height,
                        "image_rotation": 0,
                        "value": {**value, kind: [label]},
                        "score": result.score,
                    }
                )
        return entries

    def _results(self) -> Sequence[Exportable]:
        raise NotImplementedError

    def _size_hw(self) -> tuple[int, int]:
        raise NotImplementedError


def coco_fields(result: Exportable) -> dict[str, Any]:
    """Return the members of a COCO annotation: `segmentation`, `area`, `bbox` and scores."""
    return {
        "segmentation": result.rle,
        "area": result.area,
        "bbox": list(result.bbox_xywh),
        **result._scores(),
    }


def coco_annotation(
    fields: dict[str, Any], annotation_id: int, image_id: int, category_id: int
) -> dict[str, Any]:
    """Return a COCO annotation with its ids."""
    return {
        "id": annotation_id,
        "image_id": image_id,
        "category_id": category_id,
        "iscrowd": 0,
        **fields,
    }


def _feature(result: Exportable, tolerance: float) -> dict[str, Any]:
    """Return a GeoJSON feature, whose rings have the orientation that RFC 7946 asks for."""
    polygons = []
    for rings in result.polygons(tolerance):
        polygons.append([_closed(ring) for ring in rings])
    geometry: dict[str, Any] | None = None
    if len(polygons) == 1:
        geometry = {"type": "Polygon", "coordinates": polygons[0]}
    elif polygons:
        geometry = {"type": "MultiPolygon", "coordinates": polygons}
    properties = {**result._scores(), "area": result.area}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def _closed(ring: Ring) -> list[list[int]]:
    """Return the corners of a ring, the first one again at the end."""
    corners: list[list[int]] = ring.tolist()
    return [*corners, corners[0]]


def _label_studio_values(result: Exportable, kind: str, tolerance: float) -> list[dict[str, Any]]:
    """Return a mask as values of Label Studio's results; polygons are in percent of the image."""
    if kind == "brushlabels":
        return [{"format": "rle", "rle": brush_rle(result._decode_mask())}]
    height, width = result.rle["size"]
    percent_xy = (100 / width, 100 / height)
    values = []
    for outline, *_ in result.polygons(tolerance):
        values.append({"points": (outline * percent_xy).tolist(), "closed": True})
    return values
