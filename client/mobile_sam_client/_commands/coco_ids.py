"""Stable ids for COCO files that are rewritten with more images."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mobile_sam_client._commands.failures import CommandError
from mobile_sam_client._commands.files import write_json


@dataclass(frozen=True)
class ImageIds:
    """Ids of an image and its objects."""

    image: int
    first_object: int
    """Id of the first object; the others follow consecutively."""
    objects: int
    """Number of objects."""
    objects_sha256: str


class CocoIds:
    """Assigned ids, counted from 1. An id is never reused for another image or object."""

    def __init__(self, known: Mapping[str, ImageIds] | None = None) -> None:
        """Continue from known ids.

        Args:
            known: ids by image name.
        """
        self._known = dict(known or {})
        self._next_image = max((ids.image for ids in self._known.values()), default=0) + 1
        self._next_object = max((ids.first_object + ids.objects for ids in self._known.values()), default=1)

    @classmethod
    def read(cls, path: Path) -> CocoIds:
        """Read the ids written by `write`; empty if the file does not exist.

        Raises:
            CommandError: the file is malformed.
            OSError: the file cannot be read.
        """
        try:
            return cls({name: ImageIds(**ids) for name, ids in json.loads(path.read_bytes()).items()})
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, AttributeError):
            raise CommandError(
                f"{path}: malformed, expected the ids written by an earlier run; delete the file to assign new ids"
            ) from None

    def write(self, path: Path) -> None:
        """Write the ids for a later run.

        Raises:
            CannotWrite: the file cannot be written.
        """
        write_json(path, {name: asdict(ids) for name, ids in self._known.items()})

    def assign(self, name: str, objects: Sequence[Mapping[str, Any]]) -> ImageIds:
        """Return the ids of an image: known ones, or new ones for a new image or changed objects.

        Args:
            name: image name.
            objects: JSON-serializable objects of the image.
        """
        sha256 = hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()
        known = self._known.get(name)
        if known is None or known.objects_sha256 != sha256:
            known = ImageIds(known.image if known else self._next_image, self._next_object, len(objects), sha256)
            self._known[name] = known
            self._next_image = max(self._next_image, known.image + 1)
            self._next_object += len(objects)
        return known
