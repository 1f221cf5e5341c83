"""Results of a batch, one file per image, used to resume it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobile_sam_client._commands.coco import LabelledImage
from mobile_sam_client._commands.files import write_json


@dataclass(frozen=True)
class RecordKey:
    """Inputs of an image's result. A record is reused only if they are equal."""

    image_sha256: str
    asked: dict[str, Any]
    """Request parameters, JSON-serializable."""
    weights_sha256: str | None
    """None if the service does not report its weights."""

    @classmethod
    def for_image(cls, image: bytes, asked: dict[str, Any], weights_sha256: str | None) -> RecordKey:
        """Return the key for an image file."""
        return cls(hashlib.sha256(image).hexdigest(), json.loads(json.dumps(asked)), weights_sha256)


class Records:
    """A folder of results."""

    def __init__(self, folder: Path) -> None:
        """Use a folder, which need not exist yet."""
        self._folder = folder

    def read(self, name: str, key: RecordKey | None = None) -> LabelledImage | None:
        """Return the result for an image, or None if it is missing, damaged or has another key.

        Args:
            name: path of the image relative to the image folder.
            key: expected key; None for any.
        """
        try:
            record = json.loads(self._path(name).read_bytes())
            if key is not None and record["question"] != asdict(key):
                return None
            return LabelledImage(name, record["width"], record["height"], record["objects"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, key: RecordKey, image: LabelledImage) -> None:
        """Write the result for an image.

        Raises:
            CannotWrite: the file cannot be written.
        """
        write_json(self._path(image.file_name), {"question": asdict(key), **asdict(image)})

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
