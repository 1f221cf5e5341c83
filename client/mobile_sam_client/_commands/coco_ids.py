"""Ids for a COCO file that stay what they were when the file is written anew with more in it."""

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
class Own:
    """The ids of an image."""

    image: int
    first_object: int
    """The first of its objects' ids, which follow one another."""
    objects: int
    """How many there are."""
    objects_sha256: str


class CocoIds:
    """Which ids are whose, counted from 1. None is ever given to another image, or to another object."""

    def __init__(self, known: Mapping[str, Own] | None = None) -> None:
        """Go on from what is known.

        Args:
            known: the ids of images, by their names.
        """
        self._known = dict(known or {})
        self._next_image = max((own.image for own in self._known.values()), default=0) + 1
        self._next_object = max((own.first_object + own.objects for own in self._known.values()), default=1)

    @classmethod
    def read(cls, path: Path) -> CocoIds:
        """The ids that `write` wrote; none where there is no such file.

        Raises:
            CommandError: it is damaged.
            OSError: it cannot be read.
        """
        try:
            return cls({name: Own(**own) for name, own in json.loads(path.read_bytes()).items()})
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError, AttributeError):
            raise CommandError(
                f"{path}: expected the ids of images and objects as an earlier run wrote them, got something else; "
                "without the file all are numbered anew"
            ) from None

    def write(self, path: Path) -> None:
        """Keep the ids for a later run.

        Raises:
            CannotWrite: the file cannot be written.
        """
        write_json(path, {name: asdict(own) for name, own in self._known.items()})

    def of(self, name: str, objects: Sequence[Mapping[str, Any]]) -> Own:
        """An image's ids: those that it had, but new ones for its objects where these are not what they were.

        Args:
            name: of the image.
            objects: what was found on it, as JSON holds it.
        """
        sha256 = hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()
        known = self._known.get(name)
        if known is None or known.objects_sha256 != sha256:
            known = Own(known.image if known else self._next_image, self._next_object, len(objects), sha256)
            self._known[name] = known
            self._next_image = max(self._next_image, known.image + 1)
            self._next_object += len(objects)
        return known
