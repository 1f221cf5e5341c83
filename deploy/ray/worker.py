"""The Ray actor that segments the images of a part and writes its file."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deploy.ray.plan import Image, Row
from mobile_sam_client import AsyncClient, MobileSamError, Record, Weights
from mobile_sam_client._commands.output import CommandError, describe_with_file
from mobile_sam_client._commands.run import LabelledImage, Run

if TYPE_CHECKING:
    from deploy.ray.results import Results


class Part(Run):
    """A run over some images, whose results become rows."""

    def __init__(self, images: Iterable[Image], weights: Weights, read: Callable[[str], bytes]) -> None:
        """Prepare the rows of images, whose files are read by a function."""
        super().__init__({image.path: json.loads(image.asked) for image in images}, weights)
        self.rows: dict[str, Row] = {image.path: {**image._asdict(), "weights": weights.sha256} for image in images}
        self._read = read

    def load(self, name: str) -> tuple[bytes, None]:
        """Read an image file."""
        file = self._read(name)
        self.rows[name]["sha256"] = hashlib.sha256(file).hexdigest()
        return file, None

    def save(self, file: bytes, result: LabelledImage) -> None:  # noqa: ARG002
        """Put the masks into the image's row."""
        masks = [{**fields.pop("segmentation", {}), **fields} for fields in result.objects]
        for index, (name, fields) in enumerate(self.jobs[result.file_name].get("objects", ())):
            masks[index] |= {"class": name, "fields": json.dumps(fields), "prompt": index}
        self.rows[result.file_name] |= {"width": result.width, "height": result.height, "masks": masks}

    def record_fields(self, record: Record) -> dict[str, Any]:
        """Return what is kept of a mask of everything."""
        return {**super().record_fields(record), "point": record.point_coords[0]}


@dataclass(frozen=True)
class Worker:
    """Processes parts one after the other."""

    connect: Callable[[], AsyncClient]
    """Returns a new client of the service."""
    weights: Weights
    """Weights that all answers must come from."""
    in_flight: int
    """Maximum number of concurrent requests."""
    read: Callable[[str], bytes]
    """Reads the file at a path; called once per image, in a thread."""
    results: Results

    def process(self, name: str, images: list[Image]) -> tuple[int, str]:
        """Process a part; one that is repeated, after the death of its worker, replaces the first.

        Returns:
            The number of images, and the reason to stop the batch, or an empty one. A raised error would arrive wrapped
            in Ray's traceback.
        """
        part = Part(images, self.weights, self.read)
        try:
            asyncio.run(part.segment_all(self.connect, self.in_flight))
            self.results.write(name, [row | {"error": part.failures.get(path)} for path, row in part.rows.items()])
        except (MobileSamError, CommandError, OSError) as error:
            return 0, describe_with_file(error)
        return len(images), ""
