"""YOLO: a text file per image. A line has a class number, and centre, width and height of a box."""

from itertools import chain, repeat
from pathlib import PurePosixPath
from typing import Any

from mobile_sam_client._datasets.class_names import (
    LINE_ENDS,
    MAX_CLASSES,
    is_list_of_names,
    read_class_names,
)
from mobile_sam_client._datasets.dataset import MAX_LABEL_BYTES, Dataset
from mobile_sam_client._datasets.image_paths import no_image, several_images
from mobile_sam_client._datasets.values import DatasetError, number, sorted_box

LABELS = "labels"
BOX = ("x", "y", "width", "height")
DARKNET_FOLDER = ("obj_", "_data")
"""How the names of darknet's folders of labels and images begin and end, such as obj_train_data."""
MAX_PART = 2
"""Largest number of a box. Boxes at the image's edge may exceed it, but not by so much."""


def read_yolo(data: Dataset, annotations: str) -> None:
    """Read the label files: those in folders `labels`, or else those beside images."""
    for number_, name in read_class_names(data, annotations).items():
        data.categories[number_] = {"id": number_, "name": name}
    for file in _label_files(data, annotations):
        with data.reporting(file):
            _read_file(data, file)
    _fill_numbers(data)


def _label_files(data: Dataset, annotations: str) -> list[str]:
    """Return the label files; other texts, such as lists of images, are none."""
    texts = [file for file in data.names if file.lower().endswith(".txt")]
    texts = [file for file in texts if file != annotations and not is_list_of_names(file)]
    in_labels = [file for file in texts if LABELS in PurePosixPath(file).parent.parts]
    if in_labels:
        return in_labels
    return [file for file in texts if _is_darknet(file) or data.paths.at(_without_suffix(file))]


def _is_darknet(file: str) -> bool:
    start, end = DARKNET_FOLDER
    folder = PurePosixPath(file).parent.name
    return folder.startswith(start) and folder.endswith(end)


def _find_image(data: Dataset, file: str) -> str:
    """Return the image of a label file: in `images` for `labels`, beside it, or beside `labels`."""
    stem = _without_suffix(file)
    parts = PurePosixPath(stem).parts
    places = [stem]
    if LABELS in parts:
        last = len(parts) - 1 - parts[::-1].index(LABELS)
        images = PurePosixPath(*parts[:last], "images", *parts[last + 1 :])
        beside = PurePosixPath(*parts[:last], *parts[last + 1 :])
        places = [str(images), stem, str(beside)]
    for place in places:
        images_at_place = data.paths.at(place)
        if len(images_at_place) > 1:
            raise several_images(images_at_place, place)
        if images_at_place:
            return images_at_place[0]
    raise no_image(places[0])


def _read_file(data: Dataset, file: str) -> None:
    image = data.image(_find_image(data, file), {}, relative=True)
    lines = [text.split() for text in LINE_ENDS.split(data.text(file, MAX_LABEL_BYTES))]
    has_track_ids = any(_has_track_id(values) for values in lines)
    for line, values in enumerate(lines, 1):
        if not values:
            continue
        with data.reporting(file, line=line):
            class_number = _class_number(values[0])
            shape, fields = _box(values[1:], has_track_ids=has_track_ids)
            if shape[2] < 0 or shape[3] < 0:
                data.note("width or height is negative: the corners were sorted", file, line=line)
            x, y, width, height = shape
            box = sorted_box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            data.add(image, box, data.numbered_category(class_number, file, line=line), fields)


def _class_number(text: str) -> int:
    """Return a class number; some tools write 0 as 0.0."""
    try:
        value = number(text, "class")
    except DatasetError:
        value = -1.0
    if not value.is_integer() or not 0 <= value < MAX_CLASSES:
        raise DatasetError(f"expected a class number, got {text[:80]}")
    return int(value)


def _has_track_id(values: list[str]) -> bool:
    """Return whether a line is a box and a whole number above 1, which is no score."""
    return len(values) == 6 and values[5].isdecimal() and int(values[5][:20]) > 1


def _box(texts: list[str], *, has_track_ids: bool) -> tuple[list[float], dict[str, Any]]:
    """Return centre, width and height of a box, and its score as a further field.

    Args:
        texts: the numbers after the class number.
        has_track_ids: True if the boxes of this file have track ids in the place of scores.

    Raises:
        DatasetError: the line is of another kind, which the message names.
    """
    names = chain(BOX, repeat("the line"))
    values = [number(text, name) for text, name in zip(texts, names, strict=False)]
    kind = _other_kind(values)
    if len(values) == 5 and has_track_ids:
        kind = "a box with a track id"
    if kind:
        expected = "expected a box: x, y, width and height after the class number"
        raise DatasetError(f"{expected}, got {kind}")
    if any(abs(value) > MAX_PART for value in values[:4]):
        raise DatasetError("expected a box in parts of the image's width and height, got pixels")
    return values[:4], {"source_score": values[4]} if len(values) == 5 else {}


def _other_kind(values: list[float]) -> str:
    """Return what the numbers after a class number are, if they are no box; else nothing."""
    count = len(values)
    keypoints = values[4:]
    if count < 4:
        return f"{count} numbers"
    if count == 4 or (count == 5 and 0 <= values[4] <= 1):
        return ""
    if count == 5:
        return "a fifth number that is no score, such as a track id or an angle"
    if count == 6:
        track = "a box with a score and a track id"
        return track if values[5] > 1 else f"{track}, or a polygon of three points"
    if count == 8:
        return "an oriented box, or a polygon of four points"
    if len(keypoints) % 3 == 0 and all(value in {0, 1, 2} for value in keypoints[2::3]):
        return "a pose: a box with key points"
    if count % 2:
        return "a pose, or a polygon with a score"
    return "a polygon, or a pose"


def _fill_numbers(data: Dataset) -> None:
    """Name the classes that have no names: the place of a class in the list is its number."""
    count = max((category["id"] for category in data.categories.values()), default=-1) + 1
    named = data.categories
    data.categories = {}
    for number_ in range(count):
        unnamed = {"id": number_, "name": f"class {number_}"}
        data.categories[number_] = named.get(number_, unnamed)


def _without_suffix(file: str) -> str:
    return str(PurePosixPath(file).with_suffix(""))
