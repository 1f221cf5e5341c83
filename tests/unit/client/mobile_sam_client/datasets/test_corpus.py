"""Readers of detection data sets with the label files in tests/formats: objects, classes, and
messages.

The page's readers run through the same files.
"""

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client._commands.annotation_masks import masked_images
from mobile_sam_client._datasets.dataset import Dataset
from mobile_sam_client._datasets.label_studio_masks import read_label_studio_masks
from mobile_sam_client._datasets.readers import READERS, read_dataset
from mobile_sam_client._datasets.values import DatasetError, check_size

CORPUS = Path(__file__).parents[4] / "formats"
FILES = {"png": "PNG", "jpg": "JPEG", "jpeg": "JPEG", "webp": "WEBP"}
MAX_DIFFERENCE_PIXELS = 0.01


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def cases() -> list[Any]:
    """Return the paths of the cases that the command line reads."""
    paths = sorted(CORPUS.glob("*/*/case.json"))
    chosen = [path for path in paths if "client" in load(path).get("readers", ["client"])]
    return [pytest.param(path, id=f"{path.parts[-3]}/{path.parts[-2]}") for path in chosen]


def blank(name: str, size_wh: list[int]) -> bytes:
    """Return a black image file of the kind that its name tells."""
    buffer = io.BytesIO()
    Image.new("L", (size_wh[0], size_wh[1])).save(buffer, FILES[name.rpartition(".")[2]])
    return buffer.getvalue()


def contents_of(path: Path, case: dict[str, Any]) -> dict[str, bytes]:
    """Return the files of a case and its images, by path."""
    folder = path.parent / "input"
    contents = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    return contents | {name: blank(name, size) for name, size in case["images"].items()}


def read(path: Path, case: dict[str, Any]) -> Dataset:
    contents = contents_of(path, case)
    form = path.parts[-3]
    return read_dataset(
        form, sorted(contents), lambda name: io.BytesIO(contents[name]), case.get("annotations")
    )


def found_objects(data: Dataset, sizes_wh: dict[str, list[int]]) -> dict[str, list[dict[str, Any]]]:
    """Return class and pixels of each object, by image; of images that have another size only a
    failure is left.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for name, image in data.images.items():
        scale = sizes_wh[name] * 2 if image.relative else [1] * 4
        try:
            check_size(image.request(), (sizes_wh[name][0], sizes_wh[name][1]))
        except DatasetError as error:
            data.report(str(error), name)
            continue
        for each in image.objects:
            pixels = [value * side for value, side in zip(each.shape, scale, strict=False)]
            kind = "box" if len(pixels) == 4 else "point"
            found.setdefault(name, []).append({"class": each.category["name"], kind: pixels})
    return found


def right_objects(case: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    right: dict[str, list[dict[str, Any]]] = {}
    for name, objects in case["right"].items():
        if not objects:
            continue
        right[name] = [
            {key: value for key, value in each.items() if key != "area"} for each in objects
        ]
        for each in right[name]:
            kind = "box" if "box" in each else "point"
            each[kind] = pytest.approx(each[kind], abs=MAX_DIFFERENCE_PIXELS)
    return right


def printed(failure: dict[str, Any]) -> str:
    """Return a message as the command line prints it."""
    place = [
        f", {name} {failure[name]}" for name in failure if name not in {"file", "reason", "changed"}
    ]
    return f"{failure['file']}{''.join(place)}: {failure['reason']}"


@pytest.mark.parametrize("path", cases())
def test_label_files_are_read_right(path):
    case = load(path)
    refused = case.get("refused", {}).get("client")
    if refused:
        with pytest.raises(DatasetError, match=refused):
            read(path, case)
        return
    data = read(path, case)
    found = found_objects(data, case["images"])
    messages = [printed(failure) for failure in data.failures]
    expected = case.get("notes", {}).get("client", [])
    assert len(messages) == len(expected), messages
    for message, pattern in zip(messages, expected, strict=True):
        assert re.search(pattern, message), message
    assert found == right_objects(case)
    if "classes" in case:
        assert [category["name"] for category in data.categories.values()] == case["classes"]


def mask_cases() -> list[Any]:
    """Return the paths of Label Studio's cases that the page reads too, as masks."""
    paths = sorted(CORPUS.glob("label-studio/*/case.json"))
    chosen = [path for path in paths if "page" in load(path).get("readers", ["page"])]
    return [pytest.param(path, id=path.parts[-2]) for path in chosen]


def found_masks(data: Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return class, box and area of each object, by image."""
    found: dict[str, list[dict[str, Any]]] = {}
    for image, _, objects in masked_images(data):
        found[image.name] = []
        for item, mask in objects:
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            box = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
            found[image.name].append(
                {
                    "class": item.category["name"],
                    "box": [int(side) for side in box],
                    "area": int(mask.sum()),
                }
            )
    return found


@pytest.mark.parametrize("path", mask_cases())
def test_masks_of_label_studio_are_read_right(path):
    case = load(path)
    contents = contents_of(path, case)
    data = Dataset(sorted(contents), lambda name: io.BytesIO(contents[name]))
    if "refused" in case:
        with pytest.raises(DatasetError, match=case["refused"]["client"]):
            read_label_studio_masks(data, "export.json")
        return
    read_label_studio_masks(data, "export.json")
    data.number()
    found = found_masks(data)
    notes = case.get("notes", {})
    expected = notes.get("convert", notes.get("client", notes.get("page", [])))
    messages = [printed(failure) for failure in data.failures]
    assert len(messages) == len(expected), messages
    for message, pattern in zip(messages, notes.get("convert", []), strict=False):
        assert re.search(pattern, message), message
    right = {name: objects for name, objects in case["right"].items() if objects}
    assert found == right


@pytest.mark.parametrize("form", sorted(READERS))
def test_corpus_has_cases_of_each_format(form):
    names = [path.parent.name for path in CORPUS.glob(f"{form}/*/case.json")]
    assert "plain" in names
    assert len(names) > 10
