"""`mobile-sam everything`: segment everything in images."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mobile_sam_client import Client, EverythingOptions
from mobile_sam_client._commands import files
from mobile_sam_client._commands.connection import Found, ImageOptions
from mobile_sam_client._commands.options import Force, Images, Region, option
from mobile_sam_client._commands.output import progress
from mobile_sam_client._commands.prompts import errors_in_options
from mobile_sam_client._pictures import FORMATS


def everything(
    ctx: typer.Context,
    images: Images,
    *,
    out: Annotated[
        Path | None,
        option(
            "JSON file for the objects, by default '{stem}_records.json', or none with --picture; {stem} and {parent} "
            "are the image's name and folder, and - is standard output.",
            "FILE",
        ),
    ] = None,
    form: Annotated[
        Literal["sam", "coco"] | None,
        option("sam (default): Segment Anything's automatic-mask records; coco: COCO annotations.", None, "--format"),
    ] = None,
    picture: Annotated[
        Path | None, option("File for a picture of all objects in colours: .png, .jpg, .webp or -.", "FILE")
    ] = None,
    region: Region = None,
    parameters: EverythingOptions,
    force: Force = False,
    service: ImageOptions,
) -> None:
    """Segment everything in images.

    The options from --points-per-side to --min-area work as in Segment Anything's automatic mask generator.
    """
    files.check_suffix(out, (".json",), "--out")
    files.check_suffix(picture, tuple(FORMATS), "--picture")
    if out is None and (form or not picture):
        out = Path("{stem}_records.json")

    def work(client: Client, file: bytes, image: Path, outputs: list[Path]) -> Found:
        records = outputs[0] if out else None
        shown = outputs[-1] if picture else None
        with progress("Segmenting") as update, errors_in_options(ctx):
            found = client.everything(
                file,
                region=region,
                on_progress=lambda done, total: update(completed=done, total=total),
                **parameters,
            )
        if records and form == "coco":
            entry = {"id": 1, "file_name": image.name, "width": found.width, "height": found.height}
            files.write_coco(records, files.ONE_CATEGORY, [(entry, found.to_coco())], found.weights)
        elif records:
            files.write_json(records, [record.as_sam() for record in found])
        if shown:
            files.write_overlay(shown, file, [record.rle for record in found])
        lines = [
            f"{image}: {found.width} x {found.height} pixels, {len(found)} objects",
            f"wrote {' and '.join(map(str, outputs))}",
        ]
        return found, {"picture": shown and str(shown), "objects": len(found), "file": records and str(records)}, lines

    service.for_each(images, [(template, ()) for template in (out, picture) if template], work, force=force)
