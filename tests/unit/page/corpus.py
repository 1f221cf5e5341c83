"""The label files in tests/formats as cases of the page's readers, and whether they were read
right.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.unit.page.formats import decode, encoded

CORPUS = Path(__file__).parents[2] / "formats"
BOX_ONLY = re.compile(r"(has|is) only a box: its mask is the whole box")
"""A message of every box without a mask, which the cases do not repeat."""
NO_OBJECTS = re.compile(r"class \d+")
"""Names of numbers that a list of classes skips. The page has a class of this name only if an
object needs it."""


def load(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def name_of(path: Path) -> str:
    return f"{path.parts[-3]}/{path.parts[-2]}"


def page_cases() -> dict[str, Path]:
    """Return the cases that the page reads, by name."""
    paths = sorted(CORPUS.glob("*/*/case.json"))
    return {name_of(path): path for path in paths if "page" in load(path).get("readers", ["page"])}


CASES = page_cases()


def project_of(path: Path) -> dict[str, Any]:
    """Return the files of a case and its images, as the page has them."""
    folder = path.parent / "input"
    files = {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    images = load(path)["images"]
    sizes = [
        {"name": name, "width": width, "height": height} for name, (width, height) in images.items()
    ]
    return {"files": encoded(files), "sizes": sizes}


def messages_of(result: dict[str, Any], images: dict[str, Any]) -> Iterator[str]:
    """Yield the messages that a user sees."""
    if "error" in result:
        yield result["error"]
        return
    yield from (message for message in result["warnings"] if not BOX_ONLY.search(message))
    for image in result["project"]["images"]:
        if image["objects"] and image["name"] not in images:
            yield f"{image['name']}: add this image first"


def found_object(annotation: dict[str, Any], names: dict[int, str]) -> dict[str, Any]:
    mask = decode(annotation["rle"])
    (columns,), (rows,) = np.nonzero(mask.any(axis=0)), np.nonzero(mask.any(axis=1))
    box = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
    return {
        "class": names[annotation["categoryId"]],
        "box": [int(value) for value in box],
        "area": int(mask.sum()),
    }


def assert_project_is_right(case: dict[str, Any], project: dict[str, Any]) -> None:
    names = {category["id"]: category["name"] for category in project["classes"]}
    found = {}
    for image in project["images"]:
        if image["name"] in case["right"] or (image["objects"] and image["name"] in case["images"]):
            found[image["name"]] = [
                found_object(annotation, names) for annotation in image["objects"]
            ]
    assert {name: len(objects) for name, objects in found.items()} == {
        name: len(objects) for name, objects in case["right"].items()
    }
    for name, objects in case["right"].items():
        for one, right in zip(found[name], objects, strict=True):
            assert {key: one[key] for key in right} == right
    if "classes" in case:
        used = {one["class"] for objects in found.values() for one in objects}
        assert list(names.values()) == [
            name for name in case["classes"] if name in used or not NO_OBJECTS.fullmatch(name)
        ]


def assert_is_right(name: str, result: dict[str, Any]) -> None:
    """Compare what the page has read of a case, or its error, with what is right."""
    case = load(CASES[name])
    messages = list(messages_of(result, case["images"]))
    refused = case.get("refused", {}).get("page")
    if refused:
        assert "error" in result, result
        assert re.search(refused, messages[0]), messages
        return
    expected = case.get("notes", {}).get("page", [])
    assert len(messages) == len(expected), messages
    for message, pattern in zip(messages, expected, strict=True):
        assert re.search(pattern, message), message
    assert_project_is_right(case, result.get("project", {"classes": [], "images": []}))
