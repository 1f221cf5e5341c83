"""`mobile-sam everything`: segment everything in images."""

from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client import Client, Weights
from mobile_sam_client._commands.coco import CocoIds, LabelledImage, write_coco
from mobile_sam_client._commands.connection import for_each
from mobile_sam_client._commands.files import check_suffix, find_images, output_file, write_json, write_overlay
from mobile_sam_client._commands.options import (
    DEFAULT_URL,
    Force,
    Images,
    Json,
    Local,
    Url,
    examples,
    generator_options,
)
from mobile_sam_client._commands.output import image_summary, print_json, print_line, progress
from mobile_sam_client._commands.prompts import errors_in_options
from mobile_sam_client._exports import coco_fields
from mobile_sam_client._pictures import FORMATS

EVERYTHING_EXAMPLES = examples(
    "mobile-sam everything photo.jpg --points-per-side 16 --picture everything.jpg",
    "mobile-sam everything photo.jpg --points-per-side 8 --min-area 100 --format coco --out '{stem}_coco.json'",
)


class Format(str, Enum):
    """File formats for the objects."""

    sam = "sam"
    coco = "coco"


@generator_options
def everything(
    ctx: typer.Context,
    images: Images,
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="JSON file for the objects: {stem} and {parent} are the image's name and folder."
        ),
    ] = Path("{stem}_records.json"),
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
    parameters: dict[str, Any],
    force: Force = False,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Segment everything in images.

    The options from --points-per-side to --min-area work as in Segment Anything's automatic mask generator.
    """
    check_suffix(out, (".json",), "--out")
    check_suffix(picture, tuple(FORMATS), "--picture")
    files = {
        image: [output_file(template, image) for template in (out, picture) if template]
        for image in find_images(images)
    }

    def work(client: Client, image: Path, file: bytes) -> Weights:
        records, *pictures = files[image]
        with progress("Segmenting") as update, errors_in_options(ctx):
            found = client.everything(
                file, on_progress=lambda done, total: update(completed=done, total=total), **parameters
            )
        if form is Format.sam:
            write_json(records, [record.as_sam() for record in found])
        else:
            labelled = LabelledImage(image.name, found.width, found.height, [coco_fields(record) for record in found])
            write_coco(records, [labelled], found.weights, CocoIds())
        for drawn in pictures:
            write_overlay(drawn, file, [record.rle for record in found])
        if as_json:
            summary = image_summary(image, found, next(iter(pictures), None))
            print_json({**summary, "objects": len(found), "file": str(records)})
        else:
            print_line(f"{image}: {found.width} x {found.height} pixels, {len(found)} objects")
            print_line(f"wrote {' and '.join(map(str, files[image]))}")
        return found.weights

    for_each(files, work, url=url, local=local, as_json=as_json, force=force)
