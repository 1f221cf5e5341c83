"""What a batch has done, a file for each image, so that a later run goes on where this one ended."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobile_sam_client._commands.coco import LabelledImage
from mobile_sam_client._commands.files import write_json


@dataclass(frozen=True)
class Question:
    """What an image is asked. Equal questions have equal answers."""

    image_sha256: str
    asked: dict[str, Any]
    """The parameters, as JSON holds them."""
    weights_sha256: str | None
    """None where the service does not say which it has."""

    @classmethod
    def about(cls, image: bytes, asked: dict[str, Any], weights_sha256: str | None) -> Question:
        """The question about an image file."""
        return cls(hashlib.sha256(image).hexdigest(), json.loads(json.dumps(asked)), weights_sha256)


class Records:
    """A folder of what is done."""

    def __init__(self, folder: Path) -> None:
        """Take a folder, which need not be there yet."""
        self._folder = folder

    def read(self, name: str, question: Question | None = None) -> LabelledImage | None:
        """What was found on an image; None where nothing is known, or only the answer to another question.

        Args:
            name: of the image, as a path from the folder of images.
            question: None: whatever it was.
        """
        try:
            record = json.loads(self._path(name).read_bytes())
            if question is not None and record["question"] != asdict(question):
                return None
            return LabelledImage(name, record["width"], record["height"], record["objects"])
        except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged: either way not done
            return None

    def write(self, question: Question, image: LabelledImage) -> None:
        """Keep what was found on an image.

        Raises:
            CannotWrite: the file cannot be written.
        """
        record = {"question": asdict(question), **asdict(image)}
        path = self._path(image.file_name)
        write_json(path, record)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
