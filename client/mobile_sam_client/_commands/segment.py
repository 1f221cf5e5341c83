"""`mobile-sam segment` and `mobile-sam everything`: segment one object, or everything, in an image."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from enum import Enum
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from PIL import Image as Pillow

from mobile_sam_client import Record, Segmentation
from mobile_sam_client._commands.coco import CocoIds, LabelledImage, coco_object, coco_objects, write_coco
from mobile_sam_client._commands.connection import (
    DEFAULT_URL,
    Image,
    Json,
    Local,
    PointsPerSide,
    Url,
    connected_client,
    examples,
    grid_fields,
)
from mobile_sam_client._commands.files import check_output, read_image, write_bytes, write_json
from mobile_sam_client._commands.output import print_json, print_line, print_weights, progress
from mobile_sam_client._commands.overlays import SUFFIXES, encode, write_overlay

MASK_SUFFIXES = (".png", ".npy", ".json")
CUTOUT_SUFFIXES = (".png", ".webp")
SEGMENT_EXAMPLES = examples(
    "mobile-sam segment photo.jpg --point 320,240 --picture found.png",
    "mobile-sam segment photo.jpg --box 40,30,560,410 --negative 80,90 --out cat.npy",
    "mobile-sam segment photo.jpg --point 320,240 --picture cat.png --style cutout",
)
EVERYTHING_EXAMPLES = examples(
    "mobile-sam everything photo.jpg --picture found.jpg",
    "mobile-sam everything photo.jpg --out photo.coco.json --format coco",
)


class Style(str, Enum):
    """Styles of the picture."""

    overlay = "overlay"
    cutout = "cutout"


class Format(str, Enum):
    """File formats for the objects."""

    sam = "sam"
    coco = "coco"


def point(text: str) -> list[float]:
    """Parse `X,Y`, in pixels of the displayed image."""
    return _numbers(text, "X,Y", 2)


def box(text: str) -> list[float]:
    """Parse `X0,Y0,X1,Y1`, the top-left and bottom-right corner in pixels of the displayed image."""
    return _numbers(text, "X0,Y0,X1,Y1", 4)


def _numbers(text: str, form: str, count: int) -> list[float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != count or not all(map(isfinite, values)):
        raise typer.BadParameter(f"expected {form}, {count} comma-separated numbers, got {text!r}")
    return values


def segment(
    image: Image,
    *,
    points: Annotated[
        list[Any] | None,
        typer.Option("--point", parser=point, metavar="X,Y", help="Point on the object; repeatable."),
    ] = None,
    negatives: Annotated[
        list[Any] | None,
        typer.Option("--negative", parser=point, metavar="X,Y", help="Point outside the object; repeatable."),
    ] = None,
    around: Annotated[
        Any | None, typer.Option("--box", parser=box, metavar="X0,Y0,X1,Y1", help="Box around the object.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="File for the mask: .png black and white, .npy bool array of height x width, .json COCO RLE, bbox, "
            "area and score.",
        ),
    ] = Path("mask.png"),
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write a picture of the object: .png, .jpg or .webp.", show_default=False
        ),
    ] = None,
    style: Annotated[Style, typer.Option(help="Style of the picture: the object tinted, or cut out.")] = Style.overlay,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Segment the object at a point or in a box.

    Coordinates are pixels of the displayed image, from its top-left corner.
    """
    if not points and around is None:
        raise typer.BadParameter("expected at least one --point or a --box", param_hint="--point / --box")
    check_output(out, MASK_SUFFIXES, "--out", image)
    check_output(picture, CUTOUT_SUFFIXES if style is Style.cutout else tuple(SUFFIXES), "--picture", image, out)
    file = read_image(image)
    with connected_client(url, local) as client:
        found = client.segment(
            file,
            pos_coords=points,
            neg_coords=negatives,
            box=around,
            segmented_image=style.value if picture else "none",
        )
    write_bytes(out, _mask_file(found, out.suffix.lower()))
    if picture and found.image:
        write_bytes(picture, encode(found.image, picture.suffix))
    if as_json:
        result = {name: getattr(found, name) for name in ("image_id", "width", "height", "score", "area")}
        more = {"box": found.box_xyxy, "weights": asdict(found.weights), "mask": str(out)}
        print_json({"image": str(image), **result, **more, "picture": str(picture) if picture else None})
        return
    print_line(f"{image}: {found.width} x {found.height} pixels")
    print_line(f"mask: score {found.score:.3f}, {found.area} pixels in box {','.join(map(str, found.box_xyxy))}")
    print_line(f"wrote {out}" + (f" and {picture}" if picture else ""))
    print_weights(found.weights)


def _mask_file(found: Segmentation, suffix: str) -> bytes:
    file = io.BytesIO()
    if suffix == ".json":
        return json.dumps(coco_object(found.rle, found.score)).encode() + b"\n"
    if suffix == ".npy":
        np.save(file, found.mask)
    else:
        Pillow.fromarray(found.mask.astype(np.uint8) * 255).save(file, "PNG")
    return file.getvalue()


def everything(
    image: Image,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="JSON file for the objects.")] = Path("records.json"),
    form: Annotated[
        Format,
        typer.Option("--format", help="sam: Segment Anything's automatic-mask records; coco: COCO annotations."),
    ] = Format.sam,
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write a picture of all objects in colours: .png, .jpg or .webp.",
            show_default=False,
        ),
    ] = None,
    points_per_side: PointsPerSide = None,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Segment everything in an image."""
    check_output(out, (".json",), "--out", image)
    check_output(picture, tuple(SUFFIXES), "--picture", image)
    file = read_image(image)
    with connected_client(url, local) as client, progress("Segmenting") as bar:

        def show_progress(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        found = client.everything(file, on_progress=show_progress, **grid_fields(points_per_side))
    if form is Format.sam:
        write_json(out, [_sam_record(record) for record in found.masks])
    else:
        labelled = LabelledImage(image.name, found.width, found.height, coco_objects(found.masks))
        write_coco(out, [labelled], found.weights, CocoIds())
    if picture:
        write_overlay(picture, file, [record.rle for record in found.masks])
    print_line(f"{image}: {found.width} x {found.height} pixels, {len(found.masks)} objects")
    print_line(f"wrote {out}" + (f" and {picture}" if picture else ""))
    print_weights(found.weights)


def _sam_record(record: Record) -> dict[str, Any]:
    """Return a record with the field names of Segment Anything's mask generator."""
    return {
        "segmentation": record.rle,
        "area": record.area,
        "bbox": record.bbox_xywh,
        "predicted_iou": record.predicted_iou,
        "point_coords": record.point_coords,
        "stability_score": record.stability_score,
        "crop_box": record.crop_box,
    }
