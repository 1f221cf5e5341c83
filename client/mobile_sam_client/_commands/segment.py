"""`mobile-sam segment`: segment one object."""

from __future__ import annotations

import io
import json
from dataclasses import asdict
from enum import Enum
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from PIL import Image as Pillow

from mobile_sam_client import Segmentation
from mobile_sam_client._commands import options
from mobile_sam_client._commands.coco import coco_object
from mobile_sam_client._commands.connection import connected_client
from mobile_sam_client._commands.files import check_output, read_image, write_bytes
from mobile_sam_client._commands.output import print_json, print_line, print_weights
from mobile_sam_client._commands.overlays import SUFFIXES, encode
from mobile_sam_client._commands.points import Box, Point, box, point

MASK_SUFFIXES = (".png", ".npy", ".json")
CUTOUT_SUFFIXES = (".png", ".webp")
EXAMPLES = options.examples(
    "mobile-sam segment photo.jpg --point 320,240 --picture found.png",
    "mobile-sam segment photo.jpg --box 40,30,560,410 --negative 80,90 --out cat.npy",
    "mobile-sam segment photo.jpg --point 320,240 --picture cat.png --style cutout",
)


class Style(str, Enum):
    """Styles of the picture."""

    overlay = "overlay"
    cutout = "cutout"


def segment(
    image: options.Image,
    *,
    points: Annotated[
        list[Point] | None,
        typer.Option("--point", parser=point, metavar="X,Y", help="Point on the object; repeatable."),
    ] = None,
    negatives: Annotated[
        list[Point] | None,
        typer.Option("--negative", parser=point, metavar="X,Y", help="Point outside the object; repeatable."),
    ] = None,
    around: Annotated[
        Box | None, typer.Option("--box", parser=box, metavar="X0,Y0,X1,Y1", help="Box around the object.")
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
    as_json: options.Json = False,
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
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
    (_print_json if as_json else _print_text)(found, image, out, picture)


def _mask_file(found: Segmentation, suffix: str) -> bytes:
    file = io.BytesIO()
    if suffix == ".json":
        return json.dumps(coco_object(found.rle, found.score)).encode() + b"\n"
    if suffix == ".npy":
        np.save(file, found.mask)
    else:
        Pillow.fromarray(found.mask.astype(np.uint8) * 255).save(file, "PNG")
    return file.getvalue()


def _print_text(found: Segmentation, image: Path, out: Path, picture: Path | None) -> None:
    print_line(f"{image}: {found.width} x {found.height} pixels")
    print_line(f"mask: score {found.score:.3f}, {found.area} pixels in box {','.join(map(str, found.box_xyxy))}")
    print_line(f"wrote {out}" + (f" and {picture}" if picture else ""))
    print_weights(found.weights)


def _print_json(found: Segmentation, image: Path, out: Path, picture: Path | None) -> None:
    print_json(
        {
            "image": str(image),
            "image_id": found.image_id,
            "width": found.width,
            "height": found.height,
            "score": found.score,
            "area": found.area,
            "box": found.box_xyxy,
            "weights": asdict(found.weights),
            "mask": str(out),
            "picture": str(picture) if picture else None,
        }
    )
