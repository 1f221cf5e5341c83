"""`mobile-sam embed`: encode images, or those of a Label Studio project, before anybody clicks."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from mobile_sam_client import Problem
from mobile_sam_client._commands import connection, output
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.files import find_images, list_images, read_image
from mobile_sam_client._commands.label_studio import TIMEOUT_S, LabelStudioProjects, read_token
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import print_error, print_json, print_line
from mobile_sam_client._errors import describe_error


def embed(
    images: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGE", help=f"{shared.IMAGES_HELP} Or `--label-studio`.", show_default=False
        ),
    ] = None,
    *,
    label_studio: Annotated[
        str | None, option("Address of Label Studio, in place of images.", "URL")
    ] = None,
    project: Annotated[int | None, option("Project in Label Studio.", "N")] = None,
    as_json: shared.AsJson = False,
    url: shared.Url = None,
    max_side: shared.MaxSide = None,
) -> None:
    """Encode images, or all images of folders, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service encodes them one at a time, while no caller waits, and keeps the
    embeddings across restarts, for each API key's name.

    With `--label-studio` it encodes all images of a project, read with the access token in LABEL_STUDIO_API_KEY. Run it
    again after an interruption: images that are encoded already are not encoded again.
    """  # noqa: E501 (lines of the help)
    has_server = label_studio is not None
    has_project = project is not None
    if has_server != has_project or has_server == bool(images):
        raise typer.BadParameter("expected images, or --label-studio with --project")
    if label_studio and max_side:
        raise typer.BadParameter("cannot be combined with --label-studio", param_hint="--max-side")
    files = _files(images or ())
    checked_url = connection.service_url(url)

    async def embed_all() -> bool:
        """Encode all images, and return whether all succeeded."""
        async with (
            httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=True) as http,
            connection.async_client(checked_url, max_side) as client,
        ):
            all_images: list[Any] = list(files)
            load: Callable[[Any], Any] = read_image
            if label_studio is not None and project is not None:
                server = LabelStudioProjects(label_studio.rstrip("/"), http, read_token())
                all_images = await server.images(project)
                load = server.file
            succeeded = True
            with output.progress("Images", len(all_images)) as update, output.log_to_stderr():
                async for image, result in client.embed_ahead(all_images, load=load):
                    update(advance=1)
                    if isinstance(result, Exception):
                        succeeded = False
                        print_error(f"{image}: {describe_error(result)}")
                    elif as_json:
                        print_json({"image": str(image), "image_id": result})
                    else:
                        print_line(f"{result}  {image}")
            return succeeded

    with connection.probing_client(checked_url) as probe, suppress(Problem):
        probe.info()  # a Problem shows that the service is reachable
    if not asyncio.run(embed_all()):
        raise typer.Exit(1)


def _files(paths: Iterable[Path]) -> list[Path]:
    """Return the images of paths, patterns and folders, each once."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += [path / name for name in list_images(path, path)]
        else:
            files += find_images([path])
    return list(dict.fromkeys(files))
