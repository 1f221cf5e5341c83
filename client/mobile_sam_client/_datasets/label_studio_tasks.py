"""Label Studio's tasks with brush masks, and the labelling configuration of their project.

The images are those of a local files storage: their folder lies in the one that
LOCAL_FILES_DOCUMENT_ROOT names. Label Studio keeps `meta` of regions: its text is the object's
name.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

from mobile_sam_client._arrays import BoolMask
from mobile_sam_client._brush_rle import brush_rle

BRUSH = "brush"
IMAGE = "image"
LOCAL_FILES = "/data/local-files/?d="
UNQUOTED = "/!'()*~"
"""Characters of paths that need no escape in an address."""


class Region(NamedTuple):
    """A mask with its class."""

    mask: BoolMask
    label: str
    name: str | None
    score: float | None


def task(path: str, size_wh: tuple[int, int], regions: Iterable[Region]) -> dict[str, Any]:
    """Return the task of an image.

    Args:
        path: path of the image from the folder that LOCAL_FILES_DOCUMENT_ROOT names.
        size_wh: width and height of the displayed image.
        regions: its objects.
    """
    width, height = size_wh
    results = []
    for number, region in enumerate(regions, 1):
        meta: dict[str, Any] = {"text": [region.name if region.name else region.label]}
        if region.score is not None:
            meta["score"] = region.score
        results.append(
            {
                "id": f"object{number}",
                "type": "brushlabels",
                "from_name": BRUSH,
                "to_name": IMAGE,
                "original_width": width,
                "original_height": height,
                "image_rotation": 0,
                "value": {
                    "format": "rle",
                    "rle": brush_rle(region.mask),
                    "brushlabels": [region.label],
                },
                "meta": meta,
            }
        )
    return {"data": {IMAGE: address_of(path)}, "annotations": [{"result": results}]}


def address_of(path: str) -> str:
    """Return the address of an image, by its path from the folder of LOCAL_FILES_DOCUMENT_ROOT."""
    return LOCAL_FILES + quote(path, safe=UNQUOTED)


def label_config(categories: Iterable[Mapping[str, Any]]) -> str:
    """Return the labelling configuration. A label's `category` is the id in Label Studio's exports.

    Args:
        categories: members of COCO categories; `color` may be missing.
    """
    lines = [
        "<View>",
        f'  <Image name="{IMAGE}" value="${IMAGE}" zoom="true"/>',
        f'  <BrushLabels name="{BRUSH}" toName="{IMAGE}">',
    ]
    for category in categories:
        color = category.get("color")
        background = f" background={quoteattr(color)}" if isinstance(color, str) else ""
        value = quoteattr(str(category["name"]))
        lines.append(f'    <Label value={value}{background} category="{category["id"]}"/>')
    return "\n".join([*lines, "  </BrushLabels>", "</View>", ""])
