"""Overlays: an image with its objects in colours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from mobile_sam_client import Rle
from mobile_sam_client._commands.files import write_bytes
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._images import displayed_pixels
from mobile_sam_client._pictures import Pixels, draw

SUFFIXES = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}


def encode(picture: Pixels | Image.Image, suffix: str) -> bytes:
    """Encode a picture in the format of a suffix in `SUFFIXES`."""
    image = picture if isinstance(picture, Image.Image) else Image.fromarray(picture)
    file = io.BytesIO()
    image.save(file, SUFFIXES[suffix.lower()], quality=90, compress_level=1)
    return file.getvalue()


def write_overlay(path: Path, image: bytes, rles: Sequence[Rle]) -> None:
    """Draw objects on an image and write the picture.

    Raises:
        CommandError: the image cannot be read, or the file cannot be written.
    """
    try:
        drawn = draw(displayed_pixels(image), rles)
    except ValueError as error:
        raise CommandError(f"cannot draw on the image: {error}") from error
    write_bytes(path, encode(drawn, path.suffix))
