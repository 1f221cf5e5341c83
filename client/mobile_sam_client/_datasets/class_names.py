"""Names of classes by number, as YOLO's data sets have them: in YAML, or one a line.

Names are text as written. YAML's rules, by which `no` is false and `012` is ten, do not apply.
"""

import re
from pathlib import PurePosixPath
from typing import Any

from mobile_sam_client._datasets.dataset import Dataset, naming
from mobile_sam_client._datasets.values import DatasetError, shown

MAX_CLASSES = 65_536
MAX_YAML_BYTES = 2**20
YOLO_FOLDERS = ("path", "train", "val", "test")
"""Members of a YAML file that say where the images are."""
LIST_NAMES = ("classes.txt", "obj.names")
LIST_SUFFIXES = (".txt", ".names")
CLASS_NUMBER = re.compile(r"0|[1-9][0-9]{0,5}")
LINE_ENDS = re.compile(r"\r\n|\r|\n")


def read_class_names(data: Dataset, annotations: str) -> dict[int, str]:
    """Return names by number from a YAML file or a list of names; nothing if there is none.

    Args:
        data: the data set.
        annotations: path of the file; empty to look for classes.txt or obj.names.
    """
    if annotations and not annotations.lower().endswith(LIST_SUFFIXES):
        with naming(annotations):
            return _names_in_yaml(data, annotations)
    lists = [annotations] if annotations else _lists_of_names(data)
    names: dict[int, str] = {}
    for position, file in enumerate(lists):
        with naming(file):
            names_in_file = names_in_lines(data.text(file, MAX_YAML_BYTES))
        if position and names_in_file != names:
            files = " and ".join(lists[:3])
            raise DatasetError(f"{files} have different names; name one by --annotations")
        names = names_in_file
    return names


def names_in_lines(text: str) -> dict[int, str]:
    """Return the names in a text with one a line.

    A blank line has a number, but no name.
    """
    lines = [line.strip() for line in LINE_ENDS.split(text)]
    if len(lines) > MAX_CLASSES:
        raise DatasetError(f"expected at most {MAX_CLASSES} names")
    return {number: name for number, name in enumerate(lines) if name}


def is_list_of_names(file: str) -> bool:
    """Return whether a file is a list of names by its own name."""
    return PurePosixPath(file).name in LIST_NAMES or file.endswith(".names")


def _lists_of_names(data: Dataset) -> list[str]:
    """Return the files classes.txt; without any, obj.names and others of this suffix."""
    lists = [file for file in data.names if is_list_of_names(file)]
    classes = [file for file in lists if PurePosixPath(file).name == LIST_NAMES[0]]
    return classes or lists


def _names_in_yaml(data: Dataset, file: str) -> dict[int, str]:
    try:
        from mobile_sam_client._datasets.yaml_text import load_text  # noqa: PLC0415 (optional)
    except ImportError:
        extra = "./client[yolo]"
        raise DatasetError(f"YAML needs another package: pip install '{extra}'") from None
    document = load_text(data.text(file, MAX_YAML_BYTES))
    if not isinstance(document, dict) or "names" not in document:
        raise DatasetError("expected names of classes in the member names")
    for name in YOLO_FOLDERS:
        folder = document.get(name)
        if isinstance(folder, str) and folder:
            data.head[name] = folder
    return _numbered(document["names"])


def _numbered(names: Any) -> dict[int, str]:
    """Return the names in a list, or in a map from their numbers."""
    if isinstance(names, list):
        entries = {str(number): name for number, name in enumerate(names)}
    elif isinstance(names, dict):
        entries = names
    else:
        raise DatasetError(f"expected names as a list or a map from numbers, got {shown(names)}")
    names_by_number = {}
    for key, name in entries.items():
        if not CLASS_NUMBER.fullmatch(key) or int(key) >= MAX_CLASSES:
            expected = f"expected numbers of classes from 0 to {MAX_CLASSES - 1} in names"
            raise DatasetError(f"{expected}, got {shown(key)}")
        if not isinstance(name, str):
            raise DatasetError(f"expected the name of class {key} as text, got {shown(name)}")
        if name:
            names_by_number[int(key)] = name
    return names_by_number
