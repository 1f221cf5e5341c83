"""`mobile-sam everything`: segment everything in an image."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client import Everything, Record
from mobile_sam_client._commands import options
from mobile_sam_client._commands.coco import LabelledImage, coco_objects, write_coco
from mobile_sam_client._commands.coco_ids import CocoIds
from mobile_sam_client._commands.connection import connected_client
from mobile_sam_client._commands.files import check_output, read_image, write_json
from mobile_sam_client._commands.output import print_line, print_weights, progress
from mobile_sam_client._commands.overlays import SUFFIXES, write_overlay

EXAMPLES = options.examples(
    "mobile-sam everything photo.jpg --picture found.jpg",
    "mobile-sam everything photo.jpg --out photo.coco.json --format coco",
)


class Format(str, Enum):
    """File formats for the objects."""

    sam = "sam"
    coco = "coco"


def everything(
    image: options.Image,
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
    points_per_side: options.PointsPerSide = None,
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Segment everything in an image."""
    check_output(out, (".json",), "--out", image)
    check_output(picture, tuple(SUFFIXES), "--picture", image)
    file = read_image(image)
    with connected_client(url, local) as client, progress("Segmenting") as bar:

        def show_progress(done: int, total: int) -> None:
            bar.update(bar.task_ids[0], completed=done, total=total)

        found = client.everything(file, on_progress=show_progress, **options.grid_fields(points_per_side))
    _write(found, image, out, form)
    if picture:
        write_overlay(picture, file, [record.rle for record in found.masks])
    print_line(f"{image}: {found.width} x {found.height} pixels, {len(found.masks)} objects")
    print_line(f"wrote {out}" + (f" and {picture}" if picture else ""))
    print_weights(found.weights)


def _write(found: Everything, image: Path, out: Path, form: Format) -> None:
    if form is Format.sam:
        write_json(out, [_sam_record(record) for record in found.masks])
    else:
        labelled = LabelledImage(image.name, found.width, found.height, coco_objects(found.masks))
        write_coco(out, [labelled], found.weights, CocoIds())


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
