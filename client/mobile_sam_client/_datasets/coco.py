"""COCO instances in JSON: boxes in pixels."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, naming
from mobile_sam_client._datasets.values import (
    DatasetError,
    identifier,
    json_object,
    member,
    number,
    pixels,
    shown,
    size_fields,
    sorted_box,
    text,
)

LISTS = ("categories", "images", "annotations")
SIDES = ("width", "height")


def read_coco(data: Dataset, annotations: str) -> None:
    """Read the boxes of a COCO document.

    Ids are compared as text. An id of several images or classes decides nothing.
    """
    with naming(annotations):
        document = data.json(annotations)
        if not isinstance(document, dict):
            document = {}
        if not all(isinstance(document.get(name), list) for name in LISTS):
            raise DatasetError(f"expected COCO with the lists {', '.join(LISTS)}")
    categories, images, objects = (document.pop(name) for name in LISTS)
    data.head = document
    names: dict[str, set[str]] = defaultdict(set)
    file_names: dict[str, str] = {}
    files: dict[str, set[str]] = defaultdict(set)
    for index, entry in enumerate(categories):
        with data.reporting(annotations, category=index):
            fields = json_object(entry)
            name = text(member(fields, "name"), "a name")
            key = identifier(member(fields, "id"), "id")
            names[key].add(name)
            data.categories.setdefault(key, {**fields, "name": name})
    for index, entry in enumerate(images):
        with data.reporting(annotations, image=index):
            fields = json_object(entry)
            key = identifier(member(fields, "id"), "id")
            image = _read_image(data, fields, annotations, file_names, is_new=key not in files)
            files[key].add(image.name)
    for index, entry in enumerate(objects):
        with data.reporting(annotations, object=index):
            fields = json_object(entry)
            file = _only(files, member(fields, "image_id"), "image")
            if file is None:
                image_id = shown(fields["image_id"])
                raise DatasetError(f"its image {image_id} was left out or is not listed")
            _only(names, member(fields, "category_id"), "category")
            _read_object(data, data.images[file], fields, file=annotations, index=index)


def _read_image(
    data: Dataset, fields: Mapping[str, Any], file: str, file_names: dict[str, str], *, is_new: bool
) -> DatasetImage:
    """Add an image, and its name in the file to those of the images."""
    name = member(fields, "file_name")
    if not isinstance(name, str):
        raise DatasetError(f"expected a file name as text, got {shown(name)}")
    width, height = (pixels(fields.get(side), side) for side in SIDES)
    path = data.paths.find(name, file)
    first = file_names.setdefault(path, name)
    if first != name:
        raise DatasetError(f"{first} and {name} are both taken for the image {path}")
    if not is_new and path in data.images:
        return data.images[path]  # an entry that is there twice
    others = {key: value for key, value in fields.items() if key not in SIDES}
    return data.image(path, {**others, **size_fields(width, height)})


def _read_object(
    data: Dataset,
    image: DatasetImage,
    fields: dict[str, Any],
    *,
    file: str,
    index: int,
) -> None:
    box = member(fields, "bbox")
    if not isinstance(box, list) or len(box) != 4:
        raise DatasetError(f"expected bbox to be a list of 4 numbers, got {shown(box)}")
    x, y, width, height = (number(value, "bbox") for value in box)
    data.check_pixels(image, (x, y, width, height))
    if width < 0 or height < 0:
        data.note("width or height is negative: the corners were sorted", file, object=index)
    key = identifier(fields["category_id"], "category_id")
    category = data.numbered_category(key, file, object=index)
    data.add(image, sorted_box(x, y, x + width, y + height), category, fields)


def _only(values_by_id: Mapping[str, set[str]], value: Any, kind: str) -> str | None:
    """Return the value of an id, or None if there is none.

    Raises:
        DatasetError: the value is no id, or the id of several.
    """
    key = identifier(value, f"{kind}_id")
    values = values_by_id.get(key, set())
    if len(values) > 1:
        plural = {"image": "images", "category": "classes"}[kind]
        raise DatasetError(f"several {plural} have the id {key}")
    return next(iter(values), None)
