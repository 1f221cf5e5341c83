"""`mobile-sam embed`: images encoded ahead of the first prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mobile_sam_client import BodyTooLarge, InvalidImage
from mobile_sam_client._commands import options
from mobile_sam_client._commands.connection import connected
from mobile_sam_client._commands.failures import cause
from mobile_sam_client._commands.files import read_image
from mobile_sam_client._commands.output import tell, tell_error

EXAMPLES = options.examples("mobile-sam embed photos/*.jpg")


def embed(
    images: Annotated[list[Path], typer.Argument(metavar="IMAGE", help="PNG, JPEG or WebP files.", show_default=False)],
    url: options.Url = options.DEFAULT_URL,
    local: options.Local = False,
) -> None:
    """Have images encoded ahead, so that the first prompt on them is answered at once.

    Prints each image's id and name. The service keeps what it encoded, over restarts too.
    """
    failed = 0
    with connected(url, local) as client:
        for image in images:
            try:
                tell(f"{client.embed(read_image(image)).image_id}  {image}")
            except (InvalidImage, BodyTooLarge, OSError) as error:
                if isinstance(error, BrokenPipeError):
                    raise
                failed += 1
                tell_error(f"{image}: {cause(error)}")
    if failed:
        raise typer.Exit(1)
