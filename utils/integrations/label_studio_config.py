"""Label Studio's labeling configurations, and masks as regions of its brush, polygon and rectangle tags."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree as Xml

import cv2
import numpy as np
import numpy.typing as npt

from orchestrator.polygons import polygons
from utils.api.errors import invalid
from utils.integrations.rasters import box_of, decode

Mask = npt.NDArray[np.bool_]

MAX_CONFIG_CHARS = 200_000
POLYGON_TOLERANCE_PIXELS = 1.0
"""Rings of Label Studio are mended by hand: fewer points than `/mobile_sam` gives are better."""
MASK_TAGS = ("brushlabels", "polygonlabels")
OUTPUT_TAGS = (*MASK_TAGS, "rectanglelabels")
RUN_BITS = (3, 4, 8, 16)
"""Bits for the length of a run in Label Studio's own encoder."""
MAX_RUN = 2**16


@dataclass(frozen=True)
class Control:
    """A tag with labels."""

    kind: str
    """Name of the tag in lower case, such as `brushlabels`."""
    name: str
    targets: tuple[str, ...]
    labels: tuple[str, ...]


@dataclass
class LabelConfig:
    """A project's labeling configuration."""

    images: dict[str, str] = field(default_factory=dict)
    """Per name of an Image tag the key of its URL in the data of a task."""
    controls: list[Control] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> LabelConfig:
        """Parse a configuration; raise `InvalidRequest` if it is not valid XML, or has no Image tag."""
        config = cls()
        if len(text) > MAX_CONFIG_CHARS or "<!DOCTYPE" in text.upper():
            raise invalid("label_config", f"at most {MAX_CONFIG_CHARS} characters without a document type", "another")
        try:
            elements = list(Xml.fromstring(text).iter())  # noqa: S314 - without a document type there are no entities
        except Xml.ParseError as error:
            raise invalid("label_config", "a labeling configuration in XML", str(error)) from None
        for element in elements:
            kind, name = element.tag.lower(), element.get("name", "")
            if kind == "image" and (key := element.get("value", "").removeprefix("$")):
                config.images[name] = key
            elif kind in OUTPUT_TAGS:
                labels = [each for each in element.iter() if each.tag.lower() == "label"]
                names = tuple(each.get("alias") or each.get("value") or "" for each in labels)
                targets = tuple(part.strip() for part in element.get("toName", "").split(","))
                config.controls.append(Control(kind, name, targets, names))
        if not config.images:
            raise invalid("label_config", 'an <Image name="image" value="$image"/> tag', "none")
        return config

    @staticmethod
    def mask_format(controls: Iterable[Control]) -> dict[str, Any]:
        """Return the fields of `/mobile_sam` for the format that tags need."""
        if all(control.kind == "polygonlabels" for control in controls):
            return {"mask_format": "polygon", "polygon_tolerance": POLYGON_TOLERANCE_PIXELS}
        return {"mask_format": "rle"}

    def output(self, image: str, label: str | None) -> Control:
        """Return the tag for a mask: the first brush or polygon tag with the label, or else a rectangle tag.

        Args:
            image: name of the Image tag.
            label: the label; None: any tag that has only one label.

        Raises:
            InvalidRequest: there is no such tag; the message says what to add.
        """
        fitting = [
            control
            for control in sorted(self.controls, key=lambda control: control.kind not in MASK_TAGS)
            if image in control.targets and (label in control.labels if label is not None else len(control.labels) == 1)
        ]
        if fitting:
            return fitting[0]
        label, got = label or "Object", "neither"
        if any(control.kind in MASK_TAGS for control in self.controls):
            got = f"no such tag with the label {label}"
        wanted = f'<BrushLabels name="brush" toName="{image}"><Label value="{label}"/></BrushLabels>'
        raise invalid("label_config", f"{wanted}, or the same as PolygonLabels", got)

    def everything(self, image: str) -> Control | None:
        """Return the tag for all objects of an image: the one of that name, if it has a label."""
        tags = (tag for tag in self.controls if tag.name == "everything" and image in tag.targets and tag.labels)
        return next(tags, None)


@dataclass(frozen=True)
class Canvas:
    """The image that regions are on."""

    name: str
    """Name of the Image tag."""
    width: int
    height: int

    def regions(self, control: Control, label: str, record: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the regions of a mask: one, or for polygons one per island.

        Args:
            control: the tag of the regions.
            label: one of its labels.
            record: record of the mask in an answer of `/mobile_sam` (as `polygon` or `rle`) or `/everything`.
        """
        values: dict[str, Callable[[dict[str, Any]], list[dict[str, Any]]]] = {
            "brushlabels": lambda record: [{"format": "rle", "rle": list(brush_rle(from_rle(record)))}],
            "polygonlabels": self._polygons,
            "rectanglelabels": self._rectangle,
        }
        return [
            {
                "id": uuid.uuid4().hex[:10],
                "from_name": control.name,
                "to_name": self.name,
                "type": control.kind,
                "original_width": self.width,
                "original_height": self.height,
                "image_rotation": 0,
                "value": {**value, control.kind: [label]},
                "score": record["score"] if "score" in record else record["predicted_iou"],
                "readonly": False,
            }
            for value in (values[control.kind](record) if record["area"] else [])
        ]

    def percent(self, x: float, y: float) -> list[float]:
        """Return pixels as percents of the image, Label Studio's unit."""
        return [100 * x / self.width, 100 * y / self.height]

    def _polygons(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        shapes = record.get("polygon")
        if shapes is None:
            shapes = polygons(from_rle(record), tolerance=POLYGON_TOLERANCE_PIXELS)
        return [{"points": [self.percent(*point) for point in rings[0]], "closed": True} for rings in shapes]

    def _rectangle(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        left, top, right, bottom = box_of(record)
        (x, y), (width, height) = self.percent(left, top), self.percent(right - left, bottom - top)
        return [{"x": x, "y": y, "width": width, "height": height, "rotation": 0}]


def from_rle(record: dict[str, Any]) -> Mask:
    """Return the mask of a record, (H, W) bool."""
    return decode(record["rle"] if "rle" in record else record["segmentation"]).view(np.bool_)


def brush_rle(mask: Mask) -> bytes:
    """Return a mask, (H, W) bool, as Label Studio's brush encodes an RGBA picture that is white where the mask is.

    The format is that of the package rle-pack: 32 bits for the number of values, 5 for the bits of a value less 1, 4
    for each of four lengths less 1; then per run a 1, 2 bits for the length's size, the length less 1, and the value.
    """
    _, top, _, rows = cv2.boundingRect(mask.view(np.uint8))
    # One row above and below, so that the runs that begin and end with the mask have their edges.
    first, last = max(top - 1, 0), min(top + rows + 1, len(mask))
    flat = mask[first:last].ravel()
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1 + first * mask.shape[1]
    lengths = 4 * np.diff(edges, prepend=0, append=mask.size)
    bits = [f"{4 * mask.size:032b}{7:05b}", *(f"{size - 1:04b}" for size in RUN_BITS)]
    value = bool(mask[0, 0])
    for length in lengths.tolist():
        bits += _run(length, "11111111" if value else "00000000")
        value = not value
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def _run(length: int, value: str) -> Sequence[str]:
    pieces = [f"111{MAX_RUN - 1:016b}{value}"] * (length // MAX_RUN)
    if rest := length % MAX_RUN:
        index = next(index for index, size in enumerate(RUN_BITS) if rest <= 2**size)
        pieces.append(f"1{index:02b}{rest - 1:0{RUN_BITS[index]}b}{value}")
    return pieces
