"""`mobile-sam embed`: encode images ahead of the first prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mobile_sam_client import BodyTooLarge, InvalidImage
from mobile_sam_client._commands import options
from mobile_sam_client._commands.connection import connected_client
from mobile_sam_client._commands.failures import describe
from mobile_sam_client._commands.files import read_image
from mobile_sam_client._commands.output import print_error, print_line

EXAMPLES = options.examples("mobile-sam embed photos/*.jpg")


def embed(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="PNG, JPEG or WebP files.", show_default=False)],
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Encode images, so that later prompts on them are answered quickly.

    Prints the id and name of each image. The service keeps the embeddings across restarts.
    """
    failed = 0
    with connected_client(url, local) as client:
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
