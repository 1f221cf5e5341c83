"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client._client import URL

DEFAULT_URL = URL
EXCLUSIVE = {"url": "local", "local": "url"}


def _not_both(ctx: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Reject `--url` together with `--local`."""
    here, other = (ctx.get_parameter_source(name) for name in (parameter.name or "", EXCLUSIVE[parameter.name or ""]))
    if here is not None and other is not None and here.name == other.name == "COMMANDLINE":
        raise typer.BadParameter("--url and --local cannot be combined")
    return value


Image = Annotated[Path, typer.Argument(metavar="IMAGE", help="PNG, JPEG or WebP file.", show_default=False)]
Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar="MOBILE_SAM_URL", callback=_not_both, help="URL of the service."),
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
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PointsPerSide = Annotated[
    int | None,
    typer.Option(
        "--points-per-side",
        min=1,
        max=64,
        metavar="N",
        help="Prompt with a grid of N x N points, by default 32: fewer are faster, more find smaller objects.",
        show_default=False,
    ),
]


def grid_fields(points_per_side: int | None) -> dict[str, int]:
    """Return the request fields for the point grid; empty for the service's default."""
    return {} if points_per_side is None else {"points_per_side": points_per_side}


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n\n".join(["[bold]Examples[/]", *lines])
