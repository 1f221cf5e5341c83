"""Label Studio's labeling configurations, and masks as regions of its brush, polygon and rectangle tags."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import cv2
import numpy as np
import numpy.typing as npt

from utils.api.errors import invalid
from utils.integrations.rasters import box_of, decode, polygons_of, rle_of, score_of

Mask = npt.NDArray[np.bool_]

MAX_CONFIG_CHARS = 200_000
MAX_CONFIG_TAGS, MAX_CONFIG_DEPTH, MAX_OBJECT_TAGS = 10_000, 100, 100
"""Maximum numbers of tags in a configuration: all, nested in one another, and tags for images and masks."""
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
    targets: frozenset[str]
    labels: dict[str, None] = field(default_factory=dict)
    """Set of labels, in the order of the configuration."""

    @property
    def first_label(self) -> str:
        """The first label."""
        return next(iter(self.labels))


@dataclass
class LabelConfig:
    """A project's labeling configuration."""

    images: dict[str, str] = field(default_factory=dict)
    """Key of the image's URL in a task's data, by name of the Image tag."""
    controls: list[Control] = field(default_factory=list)
    """Tags with labels; tags for masks come first."""

    @classmethod
    def parse(cls, text: str) -> LabelConfig:
        """Parse a configuration in one pass; raise `InvalidRequest` if it is not valid XML, or has no Image tag."""
        config, open_controls, tags = cls(), list[Control | None](), 0

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal tags
            tags += 1
            if tags > MAX_CONFIG_TAGS or len(open_controls) >= MAX_CONFIG_DEPTH:
                expected = f"at most {MAX_CONFIG_TAGS} tags, {MAX_CONFIG_DEPTH} in one another"
                raise invalid("label_config", expected, "more")
            kind, name = tag.lower(), attributes.get("name", "")
            control = open_controls[-1] if open_controls else None
            if kind == "image" and (key := attributes.get("value", "").removeprefix("$")):
                config.images[name] = key
            elif kind == "label" and control:
                control.labels[attributes.get("alias") or attributes.get("value") or ""] = None
            elif kind in OUTPUT_TAGS:
                targets = frozenset(part.strip() for part in attributes.get("toName", "").split(","))
                control = Control(kind, name, targets)
                config.controls.append(control)
            if len(config.images) + len(config.controls) > MAX_OBJECT_TAGS:
                raise invalid("label_config", f"at most {MAX_OBJECT_TAGS} tags for images and masks", "more")
            open_controls.append(control)

        def refuse_document_type(*_: Any) -> None:  # without one there are no entities
            raise invalid("label_config", "a labeling configuration without a document type", "one with it")

        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.EndElementHandler = start, lambda _: open_controls.pop()
        parser.StartDoctypeDeclHandler = refuse_document_type
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            raise invalid("label_config", "a labeling configuration in XML", str(error)) from None
        if not config.images:
            raise invalid("label_config", 'an <Image name="image" value="$image"/> tag', "none")
        config.controls.sort(key=lambda control: control.kind not in MASK_TAGS)
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
            for control in self.controls
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
            "brushlabels": self._brush,
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
                "score": score_of(record),
                "readonly": False,
            }
            for value in (values[control.kind](record) if record["area"] else [])
        ]

    def percent(self, x: float, y: float) -> list[float]:
        """Return pixels as percents of the image, Label Studio's unit."""
        return [100 * x / self.width, 100 * y / self.height]

    def _brush(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"format": "rle", "rle": np.frombuffer(brush_rle(from_rle(record)), np.uint8)}]

    def _polygons(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        shapes = polygons_of(record, POLYGON_TOLERANCE_PIXELS)
        return [{"points": [self.percent(*point) for point in rings[0]], "closed": True} for rings in shapes]

    def _rectangle(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        left, top, right, bottom = box_of(record)
        (x, y), (width, height) = self.percent(left, top), self.percent(right - left, bottom - top)
        return [{"x": x, "y": y, "width": width, "height": height, "rotation": 0}]


def from_rle(record: dict[str, Any]) -> Mask:
    """Return the mask of a record, (H, W) bool."""
    rle = rle_of(record)
    assert rle is not None
    return decode(rle).view(np.bool_)


def brush_rle(mask: Mask) -> bytes:
    """Return a mask, (H, W) bool, as Label Studio's brush encodes an RGBA picture that is white where the mask is.

    The package rle-pack defines the format: 32 bits for the number of values, 5 for the bits of a value less 1, 4
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
