"""Options that several commands have, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from mobile_sam_client._client import URL

DEFAULT_URL = URL
EXCLUSIVE = {"url": "local", "local": "url"}


def _not_both(ctx: typer.Context, parameter: typer.CallbackParam, value: Any) -> Any:
    """Whichever of the two comes second finds that the first was given, too."""
    here, other = (ctx.get_parameter_source(name) for name in (parameter.name or "", EXCLUSIVE[parameter.name or ""]))
    if here is not None and other is not None and here.name == other.name == "COMMANDLINE":
        raise typer.BadParameter("expected --url or --local, got both")
    return value


Image = Annotated[Path, typer.Argument(metavar="IMAGE", help="A PNG, JPEG or WebP file.", show_default=False)]
Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar="MOBILE_SAM_URL", callback=_not_both, help="Where the service is."),
]
Local = Annotated[
    bool,
    typer.Option(
        "--local",
        callback=_not_both,
        help="Start a service for this run alone. It takes the project's checkout: this folder, or the one that this "
        "command is installed from.",
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
        help="Click on a grid of N x N points, 32 unless told: fewer are quicker, more find smaller things.",
        show_default=False,
    ),
]


def grid(points_per_side: int | None) -> dict[str, int]:
    """The request's fields for a grid of clicks; none for the service's own."""
    return {} if points_per_side is None else {"points_per_side": points_per_side}


def examples(*lines: str) -> str:
    """The end of a command's help, which shows how it is used."""
    return "\n\n".join(["[bold]Examples[/]", *lines])
