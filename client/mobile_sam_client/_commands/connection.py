"""Options that several commands share, and clients for `--url` and `--local`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from mobile_sam_client import Client, Problem
from mobile_sam_client._commands.local_service import local_service
from mobile_sam_client._commands.output import CommandError, describe, log_to_stderr
from mobile_sam_client._settings import URL, checked_url

ClientType = TypeVar("ClientType")

DEFAULT_URL = URL
IMAGES_HELP = "PNG, JPEG and WebP files; a quoted pattern such as `'photos/*.jpg'` is expanded."
PROBE_TIMEOUT_S = 10


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


Images = Annotated[
    list[Path],
    typer.Argument(
        metavar="IMAGE",
        help=IMAGES_HELP,
        show_default=False,
    ),
]
Url = Annotated[
    str,
    typer.Option("--url", metavar="URL", envvar="MOBILE_SAM_URL", callback=_url, help="URL of the service."),
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
Json = Annotated[
    bool,
    typer.Option("--json", help="Print JSON to standard output, and all else to standard error."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite existing files.")]


def examples(*lines: str) -> str:
    """Return the examples at the end of a command's help."""
    return "\n\n".join(["[bold]Examples[/]", *lines])


@contextmanager
def service_url(url: str, local: bool) -> Iterator[str]:
    """Yield the URL of the service: `url`, or that of a local service that runs for the duration of the block."""
    if local:
        with local_service() as local_url:
            yield local_url
    else:
        yield url


@contextmanager
def connected_client(url: str, local: bool) -> Iterator[Client]:
    """Yield a client for an interactive command.

    It fails at once if the service is unreachable, and prints retries to standard error.
    """
    with service_url(url, local) as address:
        with probing_client(address) as client, suppress(Problem):  # a Problem shows that it is reachable
            client.info()
        with make_client(Client, address) as client, log_to_stderr():
            yield client


def probing_client(url: str) -> Client:
    """Create a client without retries, to find out quickly whether the service is reachable."""
    return make_client(partial(Client, timeout=PROBE_TIMEOUT_S, retries=0), url)


def make_client(client_type: Callable[[str], ClientType], url: str) -> ClientType:
    """Create a client.

    Raises:
        CommandError: the API key from the environment is invalid.
    """
    try:
        return client_type(url)
    except ValueError as error:
        raise CommandError(describe(error)) from None
