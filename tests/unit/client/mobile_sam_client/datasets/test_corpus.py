"""Readers of detection data sets with the label files in tests/formats: objects, classes, and
messages.

The page's readers run through the same files.
"""

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from mobile_sam_client._datasets.dataset import Dataset
from mobile_sam_client._datasets.readers import READERS, read_dataset
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._shapes import check_size

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


def read(path: Path, case: dict[str, Any]) -> Dataset:
    folder = path.parent / "input"
    contents = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }
    contents |= {name: blank(name, size) for name, size in case["images"].items()}
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


@pytest.mark.parametrize("form", sorted(READERS))
def test_corpus_has_cases_of_each_format(form):
    names = [path.parent.name for path in CORPUS.glob(f"{form}/*/case.json")]
    assert "plain" in names
    assert len(names) > 10
