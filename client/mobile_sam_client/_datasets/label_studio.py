"""Label Studio: tasks exported as JSON, with rectangles and key points in per cent of the image."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, naming
from mobile_sam_client._datasets.image_paths import is_image
from mobile_sam_client._datasets.values import (
    DatasetError,
    json_list,
    json_object,
    member,
    number,
    pixels,
    shown,
    sorted_box,
)

UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts before the name of an uploaded file."""
LABELS = "labels"
PROMPT_SHAPES = ("rectangle", "keypoint")
"""Regions that are prompts for masks."""
SHAPES = (*PROMPT_SHAPES, "brush", "polygon")
"""Known regions; their results may have the labels in themselves, as rectanglelabels."""
ABOUT_REGIONS = frozenset(
    (
        "choices",
        "datetime",
        "number",
        "pairwise",
        "ranker",
        "rating",
        "relation",
        "taxonomy",
        "textarea",
    )
)
"""Results that say something about a region, whose place they repeat, or about the whole task."""
LOCAL_FILE = re.compile(r"(?:^|&)d=([^&]*)")
"""The path in the query of an address of local files."""
NO_LABEL = "object"
FRAME = ("original_width", "original_height")

Task = Mapping[str, Any]
ReadRegion = Callable[[Dataset, Task, Mapping[str, Any], list[str]], None]
"""Adds the object of a region of a task: of a result, with its labels."""
ReadEmpty = Callable[[Dataset, Task], None]
"""Reads a task whose annotation says that there are no objects."""


def read_label_studio(data: Dataset, annotations: str) -> None:
    """Read the rectangles and key points of all annotations that were not skipped."""
    read_tasks(data, annotations, _read_prompt, lambda *_: None)


def read_tasks(
    data: Dataset, annotations: str, read_region: ReadRegion, read_empty: ReadEmpty
) -> None:
    """Read the regions of all annotations that were not skipped."""
    with naming(annotations):
        tasks = _tasks(data.text(annotations))
    for index, task in enumerate(tasks):
        place = {"task": task.get("id", index)}
        with data.reporting(annotations, **place):
            lists = task["annotations"] if "annotations" in task else task["completions"]
            for annotation in json_list(lists, "annotations"):
                with data.reporting(annotations, **place):
                    fields = json_object(annotation)
                    if not fields.get("was_cancelled"):
                        results = json_list(member(fields, "result"), "result")
                        _read_results(
                            data, task, results, read_region, file=annotations, place=place
                        )
                        if _is_empty(results):
                            read_empty(data, task)


def _is_empty(results: Sequence[Any]) -> bool:
    """Return whether an annotation says that there are no objects: no result is a region.

    A result that cannot be read may be a region.
    """
    for result in results:
        kind = result.get("type") if isinstance(result, dict) else None
        if not isinstance(kind, str) or kind not in ABOUT_REGIONS:
            return False
    return True


def _tasks(text: str) -> list[dict[str, Any]]:
    """Return the tasks of an export."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        lines = " (a task a line is not read)" if text.lstrip().startswith("{") else ""
        raise DatasetError(f"not valid JSON{lines}: {error}") from None
    tasks = document if isinstance(document, list) else [document]
    for task in tasks:
        is_task = isinstance(task, dict) and {"annotations", "completions"} & task.keys()
        if not is_task or (task is document and "data" not in task):
            raise DatasetError("expected Label Studio's tasks, exported as JSON (not JSON-MIN)")
    return tasks


def _read_results(
    data: Dataset,
    task: Mapping[str, Any],
    results: Sequence[Any],
    read_region: ReadRegion,
    *,
    file: str,
    place: Mapping[str, Any],
) -> None:
    """Read an annotation. Results with one id are a region and its labels, in any order."""
    regions: list[tuple[str, Any, dict[str, Any]]] = []
    labels: dict[str, tuple[Any, list[Any]]] = {}
    for index, result in enumerate(results):
        result_id = result.get("id", index) if isinstance(result, dict) else index
        with data.reporting(file, **place, object=result_id):
            fields = json_object(result)
            key = f"id {result_id}" if "id" in fields else f"index {index}"
            kind = member(fields, "type")
            if not isinstance(kind, str):
                raise DatasetError(f"expected a type as text, got {shown(kind)}")
            if kind in ABOUT_REGIONS:
                continue
            value = json_object(member(fields, "value"), "value")
            is_region = _is_region(fields, value)
            if kind == LABELS and is_region:
                labels.setdefault(key, (result_id, []))[1].append(value.get(LABELS))
            elif is_region or kind.removesuffix(LABELS) in SHAPES:
                regions.append((key, result_id, fields))
    for key, result_id, fields in regions:
        with data.reporting(file, **place, object=result_id):
            label_lists = [fields["value"].get(fields["type"])]
            if key in labels:
                label_lists += labels[key][1]
            read_region(data, task, fields, _joined_labels(label_lists))
    region_keys = {key for key, *_ in regions}
    for key in sorted(labels.keys() - region_keys):
        result_id, _ = labels[key]
        data.report("labels whose region is not in the export", file, **place, object=result_id)


def _is_region(result: Mapping[str, Any], value: Mapping[str, Any]) -> bool:
    """Return whether a result is a region of an image; those of texts and sounds have no x."""
    return bool({"x", "points", "rle"} & value.keys()) or FRAME[0] in result


def _joined_labels(label_lists: Sequence[Any]) -> list[str]:
    """Return the labels of a region and of further results with its id."""
    joined: list[str] = []
    for labels in label_lists:
        if labels is None:
            continue
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise DatasetError(f"expected labels as text, got {shown(labels)}")
        joined += [label for label in labels if label not in joined]
    return joined or [NO_LABEL]


def _read_prompt(
    data: Dataset,
    task: Task,
    result: Mapping[str, Any],
    labels: list[str],
) -> None:
    kind, value = result["type"], result["value"]
    shape_kind = kind.removesuffix(LABELS)
    if shape_kind not in PROMPT_SHAPES:
        raise DatasetError(f"expected a rectangle or a key point, got {kind}")
    rotation = number(value.get("rotation") or 0, "rotation")
    if rotation % 360:
        got = f"one that is rotated by {rotation:g} degrees"
        raise DatasetError(f"expected a rectangle without rotation, got {got}")
    check_turn(result)
    sides = ("x", "y") if shape_kind == "keypoint" else ("x", "y", "width", "height")
    parts = [number(member(value, side), side) / 100 for side in sides]
    if len(parts) == 4:
        x, y, width, height = parts
        parts = [*sorted_box(x, y, x + width, y + height)]
    image = find_image(data, task, result)
    fields = {name: member_ for name, member_ in result.items() if name not in {"value", "type"}}
    fields |= {"labels": labels, "task": task.get("id")}
    data.add(image, parts, data.category(labels[0]), fields)


def check_turn(result: Mapping[str, Any]) -> None:
    """Raise `DatasetError` if the image of a result was turned in Label Studio."""
    turned = number(result.get("image_rotation") or 0, "image_rotation")
    if turned % 360:
        turning = f"the image was turned by {turned:g} degrees in Label Studio"
        raise DatasetError(f"{turning}: its regions are not read")


def find_image(data: Dataset, task: Task, result: Mapping[str, Any]) -> DatasetImage:
    """Return the image of a result, which has the size that the result tells."""
    width, height = (pixels(result.get(name), name) for name in FRAME)
    size_wh = (width, height) if width and height else None
    name = _image_name(data, json_object(task.get("data"), "data"), result, size_wh)
    image = data.image(name, {}, relative=True)
    if size_wh:
        earlier_wh = image.request()["size_wh"]
        if earlier_wh and tuple(earlier_wh) != size_wh:
            other = "other regions of this image say {} x {}".format(*earlier_wh)
            raise DatasetError(f"its image has {width} x {height} pixels, but {other}")
        image.fields.update(width=width, height=height)
    return image


def _image_name(
    data: Dataset,
    values: Mapping[str, Any],
    result: Mapping[str, Any],
    size_wh: tuple[int, int] | None,
) -> str:
    """Return the image of the data that `to_name` names, or else the only one that fits."""
    to_name = result.get("to_name")
    value = values.get(to_name) if isinstance(to_name, str) else None
    if isinstance(value, list):
        return _image_in_list(data, value, result)
    if isinstance(value, str) and _names_a_file(value):
        return _image_of(data, value)
    candidates: list[str] = []
    for text in values.values():
        if isinstance(text, str) and _names_a_file(text):
            try:
                name = _image_of(data, text)
            except DatasetError:
                continue
            if name not in candidates:
                candidates.append(name)
    if not candidates:
        raise DatasetError(f"no image in the data set's folder fits {shown(values)}")
    fitting = candidates
    if len(candidates) > 1 and size_wh:
        fitting = [name for name in candidates if data.size_wh(name) == size_wh]
    if len(fitting) != 1:
        which = ", ".join((fitting or candidates)[:3])
        count = "several" if fitting else "none"
        several = "several images are in the task's data"
        raise DatasetError(f"{several}, and {count} of them fit {to_name}: {which}")
    return fitting[0]


def _image_in_list(data: Dataset, values: Sequence[Any], result: Mapping[str, Any]) -> str:
    """Return the image of a result whose task has a list of them."""
    index = result.get("item_index", 0 if len(values) == 1 else None)
    if index is None:
        raise DatasetError("several images are in a list, and item_index is missing")
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(values):
        raise DatasetError(f"expected item_index from 0 to {len(values) - 1}, got {shown(index)}")
    if not isinstance(values[index], str):
        raise DatasetError(f"expected the address of an image, got {shown(values[index])}")
    return _image_of(data, values[index])


def _path_of(address: str) -> str:
    """Return the path in an address, or in the query of an address of local files."""
    try:
        url = urlsplit(address)
    except ValueError:
        return address
    local = LOCAL_FILE.search(url.query)
    return unquote(local[1] if local else url.path)


def _names_a_file(address: str) -> bool:
    """Return whether an address ends with the name of an image file."""
    return is_image(_path_of(address)) or is_image(address)


def _image_of(data: Dataset, address: str) -> str:
    """Return the image of an address, by the longest ending of its path that only one image has."""
    path = _path_of(address).replace("\\", "/")
    if data.paths.has_name(address):  # a name with a character that means something in addresses
        path = address
    folders, slash, name = path.rpartition("/")
    if not data.paths.has_name(path):
        name = UPLOAD_PREFIX.sub("", name)
    return data.paths.find_by_ending(f"{folders}{slash}{name}")
