"""The command line `mobile-sam`: the group of commands, its exit statuses, and `info`."""

import io
import sys
from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Annotated, Any

import typer
from PIL import Image
from typer.core import TyperGroup

from mobile_sam_client import Engine, MobileSamError
from mobile_sam_client._commands import output
from mobile_sam_client._commands.batch import batch
from mobile_sam_client._commands.connection import (
    PROBE_TIMEOUT_S,
    probing_client,
    service_url,
    why_not_ready,
)
from mobile_sam_client._commands.convert import convert
from mobile_sam_client._commands.embed import embed
from mobile_sam_client._commands.everything import everything
from mobile_sam_client._commands.follow import follow
from mobile_sam_client._commands.masks import masks
from mobile_sam_client._commands.options import AsJson, Url, option
from mobile_sam_client._commands.output import CommandError, print_error, print_json, print_line
from mobile_sam_client._commands.segment import segment
from mobile_sam_client._errors import describe_error


def info(as_json: AsJson = False, url: Url = None) -> None:
    """Show the service's version, weights, engine, limits and readiness."""
    with probing_client(service_url(url)) as client:
        about = client.info()
        reason = why_not_ready(client.url, PROBE_TIMEOUT_S)
    if as_json:
        print_json({"url": client.url, "ready": reason is None, **asdict(about)})
        return
    print_line(f"service   {client.url}, version {about.version}")
    state = "ready" if reason is None else f"not ready: {reason}"
    print_line(f"state     {state}")
    if about.weights:
        print_line(f"weights   {about.weights.name} (sha256 {about.weights.sha256[:12]})")
        note = output.note_on(about.weights)
        if note:
            print_line(f"          {note}")
    else:
        print_line("weights   unknown")
    print_line(f"engine    {_engine_text(about.engine) if about.engine else 'unknown'}")
    if about.encode_s:
        print_line(f"          {about.encode_s:g} s for a new image")
    versions = ", ".join(map(str, about.model_versions)) or "none yet"
    if len(about.model_versions) > 1:
        versions += " (the last is the default)"
    print_line(f"versions  {versions}")
    if len(about.loaded) > 1:  # of a single version, all is said above
        for loaded in about.loaded:
            engine = _engine_text(loaded.engine)
            print_line(f"          {loaded.version}: {loaded.weights.name}, {engine}")
    print_line(f"API key   {'needed: MOBILE_SAM_API_KEY' if about.key_needed else 'not needed'}")
    print_line(f"limits    {about.max_image_pixels / 1e6:g} megapixels an image")
    max_body_mib = about.max_body_bytes / 2**20
    print_line(f"          {max_body_mib:g} MiB and {about.max_objects} objects a request")


def _engine_text(engine: Engine) -> str:
    return f"encoder {engine.encoder}, decoder {engine.decoder}"


NOTES = (
    "`--url`, before or after the command, or the variable MOBILE_SAM_URL is the address of the "
    "service.",
    "The API key is read from the variable MOBILE_SAM_API_KEY.",
    "Exit status: 0 success; 1 failure, also of one image of many; 2 wrong usage; 130 interrupted.",
)
FIRST_EXAMPLES = (
    "mobile-sam segment photo.jpg --point 903,310 --picture found.png",
    "mobile-sam batch photos --out found",
    "mobile-sam info",
)
COMMANDS: dict[Callable[..., None], tuple[str, ...]] = {
    segment: (
        "mobile-sam segment photo.jpg --point 903,310 --picture found.png",
        "mobile-sam segment photo.jpg --box 299,518,492,767 --negative 400,800 --out boat.npy "
        "--picture boat.png --style cutout",
        "mobile-sam segment photo.jpg --object 'point=903,310' "
        "--object 'box=299,518,492,767;negative=400,800'",
        "mobile-sam segment 'photos/*.jpg' --point 320,240 --multimask "
        "--out 'masks/{stem}.json' --format polygon --json",
        "mobile-sam segment - --point 903,310 --out - <photo.jpg >mask.png",
    ),
    everything: (
        "mobile-sam everything photo.jpg --points-per-side 16 --picture everything.jpg",
        "mobile-sam everything photo.jpg --points-per-side 8 --min-area 100 --format coco "
        "--out '{stem}_coco.json'",
    ),
    batch: (
        "mobile-sam batch photos --points-per-side 8 --out found",
        "mobile-sam batch photos --prompts prompts.json --out found",
    ),
    masks: (
        "mobile-sam masks boats --format yolo --out boat_masks",
        "mobile-sam masks boats --format yolo --to yolo-seg --min-score 0.9 --out boat_labels",
    ),
    follow: ("mobile-sam follow frames --from project.zip --out followed",),
    convert: ("mobile-sam convert found/annotations.json --images photos --to yolo --out yolo",),
    embed: ("mobile-sam embed 'photos/*.jpg'",),
    info: ("mobile-sam info", "mobile-sam info --json"),
}
"""The commands in the order of the help, with their examples."""


class Commands(TyperGroup):
    """Command group that prints known errors in one line."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override] # typer passes its own Context
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(output.EXIT_INTERRUPTED) from None
        except (MobileSamError, CommandError, OSError) as error:
            if isinstance(error, BrokenPipeError):  # such as `mobile-sam ... | head`
                raise
            print_error(describe_error(error, with_file=True))
            raise typer.Exit(1) from None


def _epilog(lines: tuple[str, ...], *notes: str) -> str:
    return "\n\n".join(["[bold]Examples[/]", *lines, *notes])


app = typer.Typer(
    cls=Commands,
    name="mobile-sam",
    help="Segment images with a MobileSAM service.",
    epilog=_epilog(FIRST_EXAMPLES, *NOTES),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command, lines in COMMANDS.items():
    app.command(epilog=_epilog(lines))(command)


def _print_version(value: bool) -> None:
    if value:
        print_line(f"mobile-sam {version('mobile-sam-client')}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    *,
    version: Annotated[  # noqa: ARG001 (see its callback)
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    url: Annotated[str | None, option("URL of the service, also after the command.", "URL")] = None,
) -> None:
    """Segment images with a MobileSAM service."""
    if url:
        ctx.default_map = {command.__name__: {"url": url} for command in COMMANDS}


def main() -> None:
    """Run the command line and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # for characters that it cannot encode
    Image.MAX_IMAGE_PIXELS = (
        None  # the service has its own limit, and `--max-side` is for images above it
    )
    app(prog_name="mobile-sam")
