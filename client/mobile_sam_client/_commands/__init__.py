"""The command line `mobile-sam`: the command group, with error handling and exit statuses, and its small commands."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mobile_sam_client import BodyTooLarge, Info, InvalidImage, MobileSamError
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.batch import BATCH_EXAMPLES, batch
from mobile_sam_client._commands.connection import DEFAULT_URL, Json, Local, Url, examples
from mobile_sam_client._commands.files import read_image
from mobile_sam_client._commands.local_service import why_not_ready
from mobile_sam_client._commands.output import (
    EXIT_INTERRUPTED,
    CommandError,
    describe,
    describe_with_file,
    escape_unencodable_output,
    print_error,
    print_json,
    print_line,
)
from mobile_sam_client._commands.segment import EVERYTHING_EXAMPLES, SEGMENT_EXAMPLES, everything, segment

EPILOG = """[bold]Examples[/]

mobile-sam segment photo.jpg --point 320,240 --picture found.png

mobile-sam batch photos --out found

mobile-sam info

[bold]--url[/] (or MOBILE_SAM_URL) is the address of the service; [bold]--local[/] starts a service for this run only.
The API key is read from the environment variable MOBILE_SAM_API_KEY: command lines are visible to all users.

Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted."""


class Commands(TyperGroup):
    """Command group that prints known errors in one line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # typer passes its own Context
        """Run a command.

        Raises:
            typer.Exit: after an error was printed.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (MobileSamError, CommandError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
                raise
            print_error(describe_with_file(error))
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=Commands,
    name="mobile-sam",
    help="Segment images with a MobileSAM service.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(epilog=SEGMENT_EXAMPLES)(segment)
app.command(epilog=EVERYTHING_EXAMPLES)(everything)
app.command(epilog=BATCH_EXAMPLES)(batch)


@app.command(epilog=examples("mobile-sam embed photos/*.jpg"))
def embed(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="PNG, JPEG or WebP files.", show_default=False)],
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Encode images, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service keeps the embeddings across restarts.
    """
    failed = 0
    with connection.connected_client(url, local) as client:
        for image in images:
            try:
                print_line(f"{client.embed(read_image(image)).image_id}  {image}")
            except (InvalidImage, BodyTooLarge, OSError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                failed += 1
                print_error(f"{image}: {describe(error)}")
    if failed:
        raise typer.Exit(1)


@app.command(epilog=examples("mobile-sam info", "mobile-sam info --url https://sam.example.org --json"))
def info(as_json: Json = False, url: Url = DEFAULT_URL, local: Local = False) -> None:
    """Show the service's version, weights, engine, limits and readiness."""
    with connection.service_url(url, local) as address, connection.probing_client(address) as client:
        service_info = client.info()
        reason = why_not_ready(client.url, connection.PROBE_TIMEOUT_S)
        if as_json:
            print_json({"url": client.url, "ready": reason is None, **asdict(service_info)})
        else:
            _print_info(service_info, client.url, "ready" if reason is None else f"not ready: {reason}")


def _print_info(info: Info, url: str, state: str) -> None:
    weights = info.weights.name if info.weights else "unknown"
    print_line(f"service   {url}, version {info.version}")
    print_line(f"state     {state}")
    print_line(f"weights   {weights}" + (f" (sha256 {info.weights.sha256[:12]})" if info.weights else ""))
    if info.weights and info.weights.note:
        print_line(f"          {info.weights.note}")
    engine = f"encoder {info.engine.encoder}, decoder {info.engine.decoder}" if info.engine else "unknown"
    print_line(f"engine    {engine}")
    versions = ", ".join(map(str, info.model_versions)) or "none yet"
    print_line(f"versions  {versions}" + (" (the last is the default)" if len(info.model_versions) > 1 else ""))
    print_line(f"API key   {'needed: MOBILE_SAM_API_KEY' if info.key_needed else 'not needed'}")
    print_line(f"limits    {info.max_image_pixels / 1e6:g} megapixels an image")
    print_line(f"          {info.max_body_bytes / 2**20:g} MiB and {info.max_objects} objects a request")


def main() -> None:
    """Run the command line and exit."""
    escape_unencodable_output()
    app(prog_name="mobile-sam")
