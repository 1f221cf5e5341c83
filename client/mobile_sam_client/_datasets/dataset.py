"""A detection data set, images with boxes and points, as the readers of all formats return it.

Annotation files only name images. What is read is one of the files listed in the data set's folder,
so that no path in them leads outside of it.
"""

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from typing import Any, NamedTuple

from mobile_sam_client._datasets import texts
from mobile_sam_client._datasets.image_paths import ImagePaths
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._images import displayed_wh

MAX_BYTES = 2**29
"""Largest file of annotations. JSON takes about ten times its size in memory."""
MAX_LABEL_BYTES = 2**23
"""Largest file of the annotations of one image."""
OpenFile = Callable[[str], AbstractContextManager[Any]]
"""Opens the binary file at a path in the data set's folder."""


class DatasetObject(NamedTuple):
    """A box or a point of an image."""

    shape: list[float]  # x0, y0, x1, y1 of a box, or x, y of a point
    category: dict[str, Any]  # members of its COCO category
    fields: dict[str, Any]  # members of its COCO annotation, among them `id`


class DatasetImage(NamedTuple):
    """An image and its objects."""

    name: str  # path in the data set's folder
    # Members of its COCO entry, among them `id`, and `width` and `height` if known.
    fields: dict[str, Any]
    relative: (
        bool  # True: shapes are parts of width and height; False: pixels of the displayed image
    )
    objects: list[DatasetObject]

    def request(self) -> dict[str, Any]:
        """Return what its masks depend on, as JSON has it; see `segment_shapes`."""
        size = [self.fields.get("width"), self.fields.get("height")]
        return {
            "shapes": [item.shape for item in self.objects],
            "relative": self.relative,
            "size_wh": size if all(size) else None,
        }


class Dataset:
    """A data set, which a reader fills."""

    def __init__(self, names: Sequence[str], open_file: OpenFile) -> None:
        """Create an empty data set in a folder with these files, sorted."""
        self.names, self._open = names, open_file
        self.paths = ImagePaths(names)
        """The images in the folder, to find those that label files name."""
        self.head: dict[str, Any] = {}
        """Further members of its document, such as `info` of COCO."""
        self.categories: dict[Hashable, dict[str, Any]] = {}
        """Members of COCO categories, by what the format names them with."""
        self.images: dict[str, DatasetImage] = {}
        """Images by path."""
        self.failures: list[dict[str, Any]] = []
        """What was left out or changed: `file`, the object's place, and `reason`; `changed` is true
        for the latter."""

    def content(self, name: str, limit: int = MAX_BYTES) -> bytes:
        """Return a file; of a larger one only `limit` bytes are read."""
        with self._open(name) as file:
            content = bytes(file.read(limit + 1))
        if len(content) > limit:
            raise DatasetError(f"expected at most {limit // 2**20} MiB")
        return content

    def text(self, name: str, limit: int = MAX_BYTES) -> str:
        """Return a text file in UTF-8, or in the encoding that its byte order mark tells."""
        return texts.decode(self.content(name, limit))

    def json(self, name: str) -> Any:
        """Return a JSON document."""
        text = self.text(name)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DatasetError(f"not valid JSON: {error}") from None

    def size_wh(self, name: str) -> tuple[int, int]:
        """Return width and height of an image as displayed."""
        with self._open(name) as file:
            content = bytes(file.read())
        try:
            return displayed_wh(content)
        except ValueError as error:
            raise DatasetError(f"{name}: {error}") from None

    @contextmanager
    def reporting(self, file: str, **place: Any) -> Iterator[None]:
        """Note what cannot be read in the block as a failure."""
        try:
            yield
        except DatasetError as error:
            self.report(str(error), file, **place)

    def report(self, reason: str, file: str, **place: Any) -> None:
        """Note a failure: something was left out."""
        self.failures.append({"file": file, **place, "reason": " ".join(reason.split())})

    def note(self, reason: str, file: str, **place: Any) -> None:
        """Note a change: something is not as the file says."""
        self.report(reason, file, **place)
        self.failures[-1]["changed"] = True

    def image(
        self, name: str, fields: Mapping[str, Any], *, relative: bool = False
    ) -> DatasetImage:
        """Return an image, which is added if it is new; with `fields` it should be."""
        if name in self.images and fields:
            self.note("listed twice; the objects were joined", name)
        return self.images.setdefault(
            name, DatasetImage(name, {"file_name": name, **fields}, relative, [])
        )

    def category(self, name: str) -> dict[str, Any]:
        """Return the category of a name, which is added if it is new."""
        return self.categories.setdefault(name, {"name": name})

    def numbered_category(self, number: Hashable, file: str, **place: Any) -> dict[str, Any]:
        """Return the category of a number, which is added, and noted, if it is not listed."""
        if number not in self.categories:
            reason = f"class {number} is not listed; it was named 'class {number}'"
            self.note(reason, file, **place)
        text = str(number)
        category_id = int(text) if text.isascii() and text.isdecimal() else number
        category = {"id": category_id, "name": f"class {number}"}
        return self.categories.setdefault(number, category)

    def check_pixels(self, image: DatasetImage, values: Sequence[float]) -> None:
        """Raise `DatasetError` if numbers in pixels look like parts of the image's size.

        Args:
            image: the image of the box.
            values: four numbers, as the format has them.
        """
        *_, width, height = values
        if not all(0 <= value <= 1 for value in values) or not (width and height):
            return
        size_wh = image.request()["size_wh"] or self.size_wh(image.name)
        if max(size_wh) > 1:
            expected = "expected pixels, which this format has"
            raise DatasetError(f"all numbers of the box are between 0 and 1: {expected}")

    def add(
        self,
        image: DatasetImage,
        shape: Sequence[float],
        category: dict[str, Any],
        fields: Mapping[str, Any],
    ) -> None:
        """Add an object; its shape is two or four finite numbers."""
        assert len(shape) in {2, 4}
        image.objects.append(DatasetObject([*shape], category, dict(fields)))

    def number(self) -> None:
        """Give each category, image and object an id of its own."""
        images: list[dict[str, Any]] = []
        objects: list[dict[str, Any]] = []
        for image in self.images.values():
            images.append(image.fields)
            objects += [item.fields for item in image.objects]
        for entries in (list(self.categories.values()), images, objects):
            _number(entries)


def _number(entries: Sequence[dict[str, Any]]) -> None:
    """Give an id to each entry without one, or with that of another.

    `source_id` keeps the old one.
    """
    owners: dict[int, dict[str, Any]] = {}
    for entry in entries:
        entry_id = entry.get("id")
        if type(entry_id) is int:  # not a truth value
            owners.setdefault(entry_id, entry)
    unused = count(max(owners, default=0) + 1)
    for entry in entries:
        entry_id = entry.get("id")
        if type(entry_id) is int and owners[entry_id] is entry:
            continue
        entry["id"] = next(unused)
        if entry_id is not None:
            entry["source_id"] = entry_id


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Name the file in the errors of a block."""
    try:
        yield
    except DatasetError as error:
        raise DatasetError(f"{file}: {error}") from None
