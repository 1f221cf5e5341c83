"""`mobile-sam segment`: one object of one image."""

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
from mobile_sam_client._commands.coco import described
from mobile_sam_client._commands.connection import connected
from mobile_sam_client._commands.files import check_output, read_image, write_bytes
from mobile_sam_client._commands.output import tell, tell_json, tell_weights
from mobile_sam_client._commands.overlays import SUFFIXES, encoded
from mobile_sam_client._commands.points import Box, Point, box, point

MASKS = (".png", ".npy", ".json")
TRANSPARENT = (".png", ".webp")
EXAMPLES = options.examples(
    "mobile-sam segment photo.jpg --point 320,240 --picture found.png",
    "mobile-sam segment photo.jpg --box 40,30,560,410 --negative 80,90 --out cat.npy",
    "mobile-sam segment photo.jpg --point 320,240 --picture cat.png --style cutout",
)


class Style(str, Enum):
    """What a picture of the object shows."""

    overlay = "overlay"
    cutout = "cutout"


def segment(
    image: options.Image,
    *,
    points: Annotated[
        list[Point] | None,
        typer.Option("--point", parser=point, metavar="X,Y", help="A point on the object; may be given several times."),
    ] = None,
    negatives: Annotated[
        list[Point] | None,
        typer.Option("--negative", parser=point, metavar="X,Y", help="A point that is not on it; likewise."),
    ] = None,
    around: Annotated[
        Box | None, typer.Option("--box", parser=box, metavar="X0,Y0,X1,Y1", help="A box around the object.")
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="Where the mask goes, as its name ends: .png black and white, .npy a bool array of height x width, "
            ".json COCO's run lengths, bbox, area and score.",
        ),
    ] = Path("mask.png"),
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a picture of the object, too: .png, .jpg or .webp.", show_default=False
        ),
    ] = None,
    style: Annotated[
        Style, typer.Option(help="What it shows: the object tinted, or nothing but the object.")
    ] = Style.overlay,
    as_json: options.Json = False,
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Find the object at a point or in a box.

    Points are in pixels of the image as it is displayed, from its top-left corner.
    """
    if not points and around is None:
        raise typer.BadParameter("expected at least one --point or a --box", param_hint="--point / --box")
    check_output(out, MASKS, "--out", image)
    check_output(picture, TRANSPARENT if style is Style.cutout else tuple(SUFFIXES), "--picture", image, out)
    file = read_image(image)
    with connected(url, local) as client:
        found = client.segment(
            file,
            pos_coords=points,
            neg_coords=negatives,
            box=around,
            segmented_image=style.value if picture else "none",
        )
    write_bytes(out, _mask_file(found, out.suffix.lower()))
    if picture and found.image:
        write_bytes(picture, encoded(found.image, picture.suffix))
    _tell_json(found, image, out, picture) if as_json else _tell(found, image, out, picture)


def _mask_file(found: Segmentation, suffix: str) -> bytes:
    file = io.BytesIO()
    if suffix == ".json":
        return json.dumps(described(found.rle, found.score)).encode() + b"\n"
    if suffix == ".npy":
        np.save(file, found.mask)
    else:
        Pillow.fromarray(found.mask.astype(np.uint8) * 255).save(file, "PNG")
    return file.getvalue()


def _tell(found: Segmentation, image: Path, out: Path, picture: Path | None) -> None:
    tell(f"{image}: {found.width} x {found.height} pixels")
    tell(f"mask: score {found.score:.3f}, {found.area} pixels in box {','.join(map(str, found.box_xyxy))}")
    tell(f"wrote {out}" + (f" and {picture}" if picture else ""))
    tell_weights(found.weights)


def _tell_json(found: Segmentation, image: Path, out: Path, picture: Path | None) -> None:
    tell_json(
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
