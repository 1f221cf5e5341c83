"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client import MAX_CONNECTIONS
from mobile_sam_client._commands.prompts import region


def option(text: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option that has no default, or whose text explains it."""
    return typer.Option(*names, metavar=metavar, help=text, show_default=False, **more)


def number(text: str, *names: str, **limits: Any) -> Any:
    """Return an option for a number."""
    return option(text, "N", *names, **limits)


IMAGES_HELP = (
    "PNG, JPEG and WebP files; a quoted pattern such as `'photos/*.jpg'` is expanded; "
    "- is standard input."
)
Images = Annotated[
    list[Path], typer.Argument(metavar="IMAGE", help=IMAGES_HELP, show_default=False)
]
Region = Annotated[
    Any | None,
    typer.Option(
        metavar="X0,Y0,X1,Y1",
        help="Part to encode at full resolution, for small objects; auto: around points and boxes.",
        parser=region,
    ),
]
Clip = Annotated[
    bool,
    typer.Option(
        "--clip",
        help="Cut boxes to the image and move points outside of it to its edge; "
        "otherwise they are an error.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]
Concurrency = Annotated[
    int,
    typer.Option(min=1, max=MAX_CONNECTIONS, metavar="N", help="Number of concurrent requests."),
]

# The service.

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON to standard output, and all else to standard error."),
]
Url = Annotated[
    str | None,
    option(
        "URL of the service, by default that in MOBILE_SAM_URL, or http://127.0.0.1:3000.", "URL"
    ),
]
MaxSide = Annotated[
    int | None,
    number(
        "Send larger images scaled down to a longest side of N pixels; "
        "coordinates and masks are those of the whole image.",
        "--max-side",
        min=1,
    ),
]

# Segment Anything's mask generator: named as the fields of `EverythingOptions`.

PointsPerSide = Annotated[
    int | None,
    number(
        "Prompt with a grid of N x N points, by default 32: "
        "fewer are faster, more find smaller objects.",
        min=1,
        max=64,
    ),
]
PredIouThresh = Annotated[
    float | None,
    number(
        "Drop masks with a lower predicted IoU, by default 0.88 with the official weights.",
        min=0,
        max=1,
    ),
]
StabilityScoreThresh = Annotated[
    float | None,
    number(
        "Drop masks with a lower stability score, by default 0.95 with the official weights.",
        min=0,
        max=1,
    ),
]
StabilityScoreOffset = Annotated[
    float | None, number("Shift of the threshold for the stability score, by default 1.")
]
BoxNmsThresh = Annotated[
    float | None,
    number(
        "Drop the lower-scored of two masks if their boxes' IoU exceeds this, by default 0.7.",
        min=0,
        max=1,
    ),
]
CropNLayers = Annotated[
    int | None,
    number(
        "Segment enlarged crops too, 4^i of them in layer i, by default no layers.", min=0, max=3
    ),
]
CropNmsThresh = Annotated[
    float | None,
    number("The same as --box-nms-thresh between crops, by default 0.7.", min=0, max=1),
]
CropOverlapRatio = Annotated[
    float | None,
    number(
        "Overlap of crops as a part of the image's shorter side, by default 0.34.", min=0, max=1
    ),
]
CropNPointsDownscaleFactor = Annotated[
    int | None,
    number(
        "Divide the points per side by this factor in each layer of crops, by default 1.", min=1
    ),
]
MinArea = Annotated[
    int | None, number("Fill holes and remove islands of fewer pixels.", "--min-area", min=0)
]
