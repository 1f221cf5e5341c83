"""Label Studio's labeling configurations, and masks as regions of its brush, polygon and
rectangle tags.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

import numpy as np

from utils.errors import invalid
from utils.integrations.rasters import Record, polygons_of, runs_of
from utils.integrations.service import Document

MAX_CONFIG_CHARS = 200_000
MAX_CONFIG_TAGS, MAX_CONFIG_DEPTH, MAX_OBJECT_TAGS = 10_000, 100, 100
"""Maximum numbers of tags in a configuration: all, nested in one another, and tags for images
and masks."""
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
        """Parse a configuration in one pass; raise `InvalidRequest` if it is not valid XML, or
        has no Image tag.
        """
        config, open_controls, tags = cls(), list[Control | None]([None]), itertools.count(1)

        def start(tag: str, attributes: dict[str, str]) -> None:
            if next(tags) > MAX_CONFIG_TAGS or len(open_controls) > MAX_CONFIG_DEPTH:
                expected = f"at most {MAX_CONFIG_TAGS} tags, {MAX_CONFIG_DEPTH} in one another"
                raise invalid("label_config", expected, "more")
            kind, name, control = tag.lower(), attributes.get("name", ""), open_controls[-1]
            if kind == "image" and (key := attributes.get("value", "").removeprefix("$")):
                config.images[name] = key
            elif kind == "label" and control:
                control.labels[attributes.get("alias") or attributes.get("value") or ""] = None
            elif kind in OUTPUT_TAGS:
                targets = frozenset(
                    part.strip() for part in attributes.get("toName", "").split(",")
                )
                control = Control(kind, name, targets)
                config.controls.append(control)
            if len(config.images) + len(config.controls) > MAX_OBJECT_TAGS:
                raise invalid(
                    "label_config", f"at most {MAX_OBJECT_TAGS} tags for images and masks", "more"
                )
            open_controls.append(control)

        def refuse_document_type(*_: Any) -> None:  # without one there are no entities
            raise invalid(
                "label_config", "a labeling configuration without a document type", "one with it"
            )

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
        """Return the tag for a mask: the first brush or polygon tag with the label, or else a
        rectangle tag.

        Args:
            image: name of the Image tag.
            label: the label; None: any tag that has only one label.

        Raises:
            InvalidRequest: there is no such tag; the message says what to add.
        """
        for control in self.controls:
            fits = len(control.labels) == 1 if label is None else label in control.labels
            if fits and image in control.targets:
                return control
        label, got = label or "Object", "neither"
        if any(control.kind in MASK_TAGS for control in self.controls):
            got = f"no such tag with the label {label}"
        wanted = (
            f'<BrushLabels name="brush" toName="{image}"><Label value="{label}"/></BrushLabels>'
        )
        raise invalid("label_config", f"{wanted}, or the same as PolygonLabels", got)

    def everything(self, image: str) -> Control | None:
        """Return the tag for all objects of an image: the one of that name, if it has a label."""
        tags = (
            tag
            for tag in self.controls
            if tag.name == "everything" and image in tag.targets and tag.labels
        )
        return next(tags, None)


def regions(
    record: Record, image: str, control: Control, label: str, document: Document
) -> list[dict[str, Any]]:
    """Return the regions of a mask: one, or for polygons one per island.

    Args:
        record: a mask of the document.
        image: name of the Image tag that the regions are on.
        control: the tag of the regions.
        label: one of its labels.
        document: answer of `/mobile_sam` (with masks as `polygon` or `rle`) or `/everything`.
    """
    width, height = document["width"], document["height"]
    values = _values(control.kind, record, width, height) if record["area"] else []
    return [
        {
            "id": uuid.uuid4().hex[:10],
            "from_name": control.name,
            "to_name": image,
            "type": control.kind,
            "original_width": width,
            "original_height": height,
            "image_rotation": 0,
            "value": {**value, control.kind: [label]},
            "score": record["score"],
            "readonly": False,
        }
        for value in values
    ]


def _values(kind: str, record: Record, width: int, height: int) -> list[dict[str, Any]]:
    """Return what the regions of a mask have of their own, in percent of the image's width and
    height.
    """

    def percent(x: float, y: float) -> list[float]:
        return [100 * x / width, 100 * y / height]

    match kind:
        case "brushlabels":
            return [{"format": "rle", "rle": np.frombuffer(brush_rle(runs_of(record)), np.uint8)}]
        case "polygonlabels":
            shapes = polygons_of(record, POLYGON_TOLERANCE_PIXELS)
            return [
                {"points": [percent(*point) for point in rings[0]], "closed": True}
                for rings in shapes
            ]
    left, top, right, bottom = record["box"]
    (x, y), (wide, high) = percent(left, top), percent(right - left, bottom - top)
    return [{"x": x, "y": y, "width": wide, "height": high, "rotation": 0}]


def brush_rle(runs: Sequence[int]) -> bytes:
    """Return a mask, as run lengths, as Label Studio's brush encodes an RGBA picture that is white
    where the mask is.

    The package rle-pack defines the format: 32 bits for the number of values, 5 for the bits of a
    value less 1, 4 for each of four lengths less 1; then per run a 1, 2 bits for the length's size,
    the length less 1, and the value.
    """
    bits = [f"{4 * sum(runs):032b}{7:05b}", *(f"{size - 1:04b}" for size in RUN_BITS)]
    for length, value in zip(runs, itertools.cycle((0, 255)), strict=False):
        for start in range(0, 4 * length, MAX_RUN):
            run = min(4 * length - start, MAX_RUN)
            index = next(index for index, size in enumerate(RUN_BITS) if run <= 2**size)
            bits.append(f"1{index:02b}{run - 1:0{RUN_BITS[index]}b}{value:08b}")
    text = "".join(bits)
    count = len(text) // 8 + 1  # Label Studio's encoder pads even whole bytes
    return int(text.ljust(8 * count, "0"), 2).to_bytes(count, "big")
