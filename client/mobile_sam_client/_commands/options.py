"""Options that several commands share."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client._client import URL, checked_url

DEFAULT_URL = URL
IMAGES_HELP = "PNG, JPEG and WebP files; a quoted pattern such as `'photos/*.jpg'` is expanded."


def _not_both(ctx: typer.Context, value: Any) -> Any:
    """Reject `--url` together with `--local`."""
    sources = [ctx.get_parameter_source(name) for name in ("url", "local")]
    if all(source is not None and source.name == "COMMANDLINE" for source in sources):
        raise typer.BadParameter("--url and --local cannot be combined")
    return value


def _url(ctx: typer.Context, value: str) -> str:
    """Complete an address without `http://`."""
    _not_both(ctx, value)
    try:
        return checked_url(value if "://" in value else f"http://{value}")
    except ValueError as error:
        raise typer.BadParameter(str(error).removeprefix("url: ")) from None


Images = Annotated[list[Path], typer.Argument(metavar="IMAGE", help=IMAGES_HELP, show_default=False)]
Url = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="MOBILE_SAM_URL", callback=_url, help="URL of the service.")
]
Local = Annotated[
    bool,
    typer.Option(
        "--local",
        callback=_not_both,
        help="Start a service for this run only. Needs the project's checkout as the current folder, or a client "
        "installed from it.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON to standard output, and all else to standard error.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n\n".join(["[bold]Examples[/]", *lines])


def _number(kind: Any, text: str, *names: str, **limits: Any) -> Any:
    return Annotated[kind | None, typer.Option(*names, metavar="N", help=text, show_default=False, **limits)]


GENERATOR_OPTIONS = {
    "points_per_side": _number(
        int,
        "Prompt with a grid of N x N points, by default 32: fewer are faster, more find smaller objects.",
        min=1,
        max=64,
    ),
    "pred_iou_thresh": _number(
        float, "Drop masks with a lower predicted IoU, by default 0.88 with the official weights.", min=0, max=1
    ),
    "stability_score_thresh": _number(
        float, "Drop masks with a lower stability score, by default 0.95 with the official weights.", min=0, max=1
    ),
    "stability_score_offset": _number(float, "Shift of the threshold for the stability score, by default 1."),
    "box_nms_thresh": _number(
        float, "Drop the lower-scored of two masks if their boxes' IoU exceeds this, by default 0.7.", min=0, max=1
    ),
    "crop_n_layers": _number(
        int, "Segment enlarged crops too, 4^i of them in layer i, by default no layers.", min=0, max=3
    ),
    "crop_nms_thresh": _number(float, "The same as --box-nms-thresh between crops, by default 0.7.", min=0, max=1),
    "crop_overlap_ratio": _number(
        float, "Overlap of crops as a part of the image's shorter side, by default 0.34.", min=0, max=1
    ),
    "crop_n_points_downscale_factor": _number(
        int, "Divide the points per side by this factor in each layer of crops, by default 1.", min=1
    ),
    "min_mask_region_area": _number(int, "Fill holes and remove islands of fewer pixels.", "--min-area", min=0),
}
"""Annotations of the options by field of the request."""


def generator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the generator's options to a command, which receives those that were given as `parameters`."""

    @functools.wraps(command)
    def wrapper(*arguments: Any, **named: Any) -> None:
        given = {name: named.pop(name) for name in GENERATOR_OPTIONS}
        parameters = {name: value for name, value in given.items() if value is not None}
        command(*arguments, **named, parameters=parameters)

    signature = inspect.signature(command, eval_str=True)
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in GENERATOR_OPTIONS.items()
    ]
    parameters = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.name == "parameters" else [parameter]
    wrapper.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return wrapper
