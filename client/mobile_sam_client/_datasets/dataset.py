"""A detection data set, images with boxes and points, as the readers of all formats return it.

Annotation files only name images. What is read is one of the files listed in the data set's folder, so that no path in
them leads outside of it.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from math import isfinite
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from mobile_sam_client._pictures import FORMATS

MAX_BYTES = 2**29
"""Largest file of annotations. JSON takes about ten times its size in memory."""
MAX_LABEL_BYTES = 2**23
"""Largest file of the annotations of one image."""
OpenFile = Callable[[str], AbstractContextManager[Any]]
"""Opens the binary file at a path in the data set's folder."""


class DatasetError(ValueError):
    """A data set, or an image or object of it, cannot be used; the message is one line."""


class DatasetObject(NamedTuple):
    """A box or a point of an image."""

    shape: list[float]  # x0, y0, x1, y1 of a box, or x, y of a point
    category: dict[str, Any]  # members of its COCO category
    fields: dict[str, Any]  # members of its COCO annotation, among them `id`


class DatasetImage(NamedTuple):
    """An image and its objects."""

    name: str  # path in the data set's folder
    fields: dict[str, Any]  # members of its COCO entry, among them `id`, and `width` and `height` if known
    relative: bool  # True: shapes are parts of width and height; False: pixels of the displayed image
    objects: list[DatasetObject]

    def request(self) -> dict[str, Any]:
        """Return what its masks depend on, as JSON has it; see `segment_shapes`."""
        size = [self.fields.get("width"), self.fields.get("height")]
        shapes = [each.shape for each in self.objects]
        return {"shapes": shapes, "relative": self.relative, "size_wh": size if all(size) else None}


class Dataset:
    """A data set, which a reader fills."""

    def __init__(self, names: Sequence[str], open_file: OpenFile) -> None:
        """Create an empty data set in a folder with these files, sorted."""
        self.names, self._open = names, open_file
        self.head: dict[str, Any] = {}
        """Further members of its document, such as `info` of COCO."""
        self.categories: dict[Hashable, dict[str, Any]] = {}
        """Members of COCO categories, by what the format names them with."""
        self.images: dict[str, DatasetImage] = {}
        """Images by path."""
        self.failures: list[dict[str, Any]] = []
        """What was left out or changed: `file`, `reason`, and the object's place."""
        self._by_end: dict[str, list[str]] = defaultdict(list)
        """Images by path, by path without suffix, and by file name after a slash."""
        for name in names:
            if name.lower().endswith(tuple(FORMATS)):
                path = PurePosixPath(name)
                for end in (name, str(path.with_suffix("")), f"/{path.name}"):
                    self._by_end[end].append(name)

    def text(self, name: str, limit: int = MAX_BYTES) -> str:
        """Return a text file in UTF-8; of a larger one only `limit` bytes are read."""
        with self._open(name) as file:
            content = bytes(file.read(limit + 1))
        if len(content) > limit:
            raise DatasetError(f"{name}: expected at most {limit // 2**20} MiB")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise DatasetError(f"{name}: expected text in UTF-8") from None

    def json(self, name: str) -> Any:
        """Return a JSON document."""
        text = self.text(name)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"{name}: not valid JSON: {error}") from None

    @contextmanager
    def reporting(self, file: str, **place: Any) -> Iterator[None]:
        """Note what cannot be read in the block as a failure."""
        try:
            yield
        except DatasetError as error:
            self.report(str(error), file, **place)
        except KeyError as error:
            self.report(f"{error} is missing", file, **place)
        except (ValueError, TypeError, AttributeError, OverflowError, SyntaxError) as error:
            self.report(f"malformed: {error}", file, **place)

    def report(self, reason: str, file: str, **place: Any) -> None:
        """Note a failure."""
        self.failures.append({"file": file, **place, "reason": " ".join(reason.split())})

    def find(self, path: str, beside: str = "") -> str:
        """Return the image at a path with or without suffix, also from another file, or the only one that ends so.

        Raises:
            DatasetError: the path leads outside, or fits no image or several.
        """
        wanted = PurePosixPath(path.replace("\\", "/"))
        if wanted.is_absolute() or ".." in wanted.parts:
            raise DatasetError(f"expected a path in the data set's folder, got {path}")
        ends = [name for name in self._by_end[f"/{wanted.name}"] if name.endswith(f"/{wanted}")]
        found = self._by_end[str(wanted)] or self._by_end[str(PurePosixPath(beside).parent / wanted)] or ends
        if not found:
            raise DatasetError(
                f"no PNG, JPEG or WebP file {path} in the data set's folder; links outside are not followed"
            )
        if len(found) > 1:
            raise DatasetError(f"{len(found)} images fit the name {path}: {', '.join(found[:3])}")
        return found[0]

    def image(self, name: str, fields: Mapping[str, Any], *, relative: bool = False) -> DatasetImage:
        """Return an image, which is added if it is new; with `fields` it should be."""
        if name in self.images and fields:
            self.report("listed twice; the objects were joined", name)
        return self.images.setdefault(name, DatasetImage(name, {"file_name": name, **fields}, relative, []))

    def category(self, name: str) -> dict[str, Any]:
        """Return the category of a name, which is added if it is new."""
        return self.categories.setdefault(name, {"name": name})

    def numbered_category(self, number: Hashable, file: str, **place: Any) -> dict[str, Any]:
        """Return the category of a number, which is added, and reported, if it is not listed."""
        if number not in self.categories:
            self.report(f"class {number} is not listed; it was named 'class {number}'", file, **place)
        return self.categories.setdefault(number, {"id": number, "name": f"class {number}"})

    def add(self, image: DatasetImage, shape: Sequence[Any], category: dict[str, Any], fields: Any) -> None:
        """Add an object, or raise `ValueError` if its shape is not two or four finite numbers."""
        numbers = [float(value) for value in shape]
        if len(numbers) not in {2, 4} or not all(map(isfinite, numbers)):
            raise DatasetError(f"expected finite coordinates of a box or a point, got {str(shape)[:80]}")
        image.objects.append(DatasetObject(numbers, category, dict(fields)))

    def number(self) -> None:
        """Give an id to each entry without one, or with that of another; `source_id` keeps what was there."""
        images = [image.fields for image in self.images.values()]
        objects = [each.fields for image in self.images.values() for each in image.objects]
        for entries in ([*self.categories.values()], images, objects):
            owners = {entry["id"]: entry for entry in reversed(entries) if type(entry.get("id")) is int}
            unused = count(max(owners, default=0) + 1)
            for entry in entries:
                own = entry.get("id")
                if type(own) is not int or owners[own] is not entry:
                    entry.update({"id": next(unused)} if own is None else {"id": next(unused), "source_id": own})
