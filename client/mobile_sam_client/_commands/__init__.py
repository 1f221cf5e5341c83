"""The command line `mobile-sam`: the command group, with error handling and exit statuses, and its small commands."""

import asyncio
import os
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from mobile_sam_client import Client, Info, MobileSamError
from mobile_sam_client._commands import connection
from mobile_sam_client._commands.batch import BATCH_EXAMPLES, batch
from mobile_sam_client._commands.convert import CONVERT_EXAMPLES, convert
from mobile_sam_client._commands.everything import EVERYTHING_EXAMPLES, everything
from mobile_sam_client._commands.files import find_images
from mobile_sam_client._commands.label_studio import embed_project
from mobile_sam_client._commands.local_service import HOST, serve_command, serve_environment, why_not_ready
from mobile_sam_client._commands.options import DEFAULT_URL, IMAGES_HELP, Json, Local, Url, examples
from mobile_sam_client._commands.output import (
    EXIT_INTERRUPTED,
    CommandError,
    describe_with_file,
    escape_unencodable_output,
    note_on,
    print_error,
    print_json,
    print_line,
)
from mobile_sam_client._commands.segment import SEGMENT_EXAMPLES, segment

NOTES = (
    "`--url` or the variable MOBILE_SAM_URL is the address of the service; `--local` starts one for this run only.",
    "The API key is read from the variable MOBILE_SAM_API_KEY.",
    "Exit status: 0 success; 1 failure, also of one image of many; 2 wrong usage; 130 interrupted.",
)
EPILOG = "\n\n".join(
    [
        examples(
            "mobile-sam segment photo.jpg --point 903,310 --picture found.png",
            "mobile-sam batch photos --out found",
            "mobile-sam info",
        ),
        *NOTES,
    ]
)


class Commands(TyperGroup):
    """Command group that prints known errors in one line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # typer passes its own Context
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
app.command(epilog=CONVERT_EXAMPLES)(convert)


def _print_version(value: bool) -> None:
    if value:
        print_line(f"mobile-sam {version('mobile-sam-client')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Segment images with a MobileSAM service."""


@app.command(epilog=examples("mobile-sam embed 'photos/*.jpg'"))
def embed(
    images: Annotated[
        list[Path] | None,
        typer.Argument(metavar="IMAGE", help=f"{IMAGES_HELP} Or `--label-studio`.", show_default=False),
    ] = None,
    *,
    label_studio: Annotated[
        str | None,
        typer.Option("--label-studio", metavar="URL", help="Address of Label Studio, in place of images."),
    ] = None,
    project: Annotated[int | None, typer.Option("--project", metavar="N", help="Project in Label Studio.")] = None,
    as_json: Json = False,
    url: Url = DEFAULT_URL,
    local: Local = False,
) -> None:
    """Encode images, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service keeps the embeddings across restarts, for each API key's name.

    With `--label-studio` it encodes all images of a project, read with the access token in LABEL_STUDIO_API_KEY. Run it
    again after an interruption: images that are encoded already are not encoded again.
    """

    def show(image: str, image_id: str) -> None:
        print_json({"image": image, "image_id": image_id}) if as_json else print_line(f"{image_id}  {image}")

    if (label_studio is None) != (project is None) or (label_studio is None) == (not images):
        raise typer.BadParameter("expected images, or --label-studio with --project")
    if label_studio is not None and project is not None:
        with connection.service_url(url, local) as address:
            failures = asyncio.run(embed_project(address, label_studio, project, show))
        for image, reason in failures.items():
            print_error(f"{image}: {reason}")
        if failures:
            raise typer.Exit(1)
        return

    def work(client: Client, image: Path, file: bytes) -> None:
        show(str(image), client.embed(file).image_id)

    connection.for_each(dict.fromkeys(find_images(images or ()), ()), work, url=url, local=local, as_json=as_json)


@app.command(epilog=examples("mobile-sam serve", "mobile-sam serve --port 3001"))
def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = HOST,
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="PORT", help="Port to listen on.")] = 3000,
) -> None:
    """Start the service by `make serve` in the project's checkout, and run it until Ctrl-C.

    The checkout is the current folder, or the one that this command is installed from.
    The command exits with make's status.
    """
    command = serve_command(host, port)
    os.execve(command[0], command, serve_environment())  # noqa: S606 (no shell is needed)


@app.command(epilog=examples("mobile-sam info", "mobile-sam info --json"))
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
    if info.weights and (note := note_on(info.weights)):
        print_line(f"          {note}")
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
