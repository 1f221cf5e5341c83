"""Readers of detection data sets: COCO, YOLO, Pascal VOC, Label Studio and CSV."""

import csv
import io
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree as Xml

from mobile_sam_client._datasets.dataset import MAX_LABEL_BYTES, Dataset, DatasetError, OpenFile

MAX_CLASSES = 65_536
MAX_YAML_BYTES = 2**20
UPLOAD_PREFIX = re.compile(r"^[0-9a-f]{8}-")
"""What Label Studio puts before the name of an uploaded file."""
YOLO_FOLDERS = ("path", "train", "val", "test")
"""Members of a YAML file that say where the images are."""
VOC_BOX = ("xmin", "ymin", "xmax", "ymax")
BOX_COLUMNS, POINT_COLUMNS = ("x0", "y0", "x1", "y1"), ("x", "y")


def read_dataset(form: str, names: Sequence[str], open_file: OpenFile, annotations: str | None = None) -> Dataset:
    """Read a detection data set.

    Args:
        form: a key of `READERS`.
        names: paths of the files in its folder, sorted.
        open_file: opens one of them.
        annotations: path of its JSON, CSV or YAML file; None if it has only one.

    Raises:
        DatasetError: the data set cannot be read, or has no boxes and points.
        OSError: a file cannot be read.
    """
    reader, suffixes = READERS[form]
    found = [name for name in names if name.lower().endswith(suffixes) and annotations in {None, name}]
    if len(found) > 1 or (not found and (annotations or form not in {"yolo", "voc"})):
        got = f"{len(found)} ({', '.join(found[:3])}); name it by --annotations" if found else "none"
        raise DatasetError(
            f"expected one {' or '.join(suffixes) or 'common'} file {annotations or ''} in the data set, got {got}"
        )
    data = Dataset(names, open_file)
    reader(data, found[0] if found else "")
    data.number()
    if not data.failures and not any(image.objects for image in data.images.values()):
        raise DatasetError(f"no boxes or points of the format {form} found")
    return data


def _read_coco(data: Dataset, annotations: str) -> None:
    document, lists = data.json(annotations), ("categories", "images", "annotations")
    if not isinstance(document, dict) or not all(isinstance(document.get(name), list) for name in lists):
        raise DatasetError(f"{annotations}: expected COCO with the lists {', '.join(lists)}")
    categories, images, objects = (document.pop(name) for name in lists)
    data.head, by_id = document, {}
    for index, entry in enumerate(categories):
        with data.reporting(annotations, category=index):
            data.categories.setdefault(entry["id"], {**entry, "name": str(entry["name"])})
    for index, entry in enumerate(images):
        with data.reporting(annotations, image=index):
            by_id[entry["id"]] = data.image(data.find(entry["file_name"], annotations), entry)
    for index, entry in enumerate(objects):
        with data.reporting(annotations, object=index):
            if entry["image_id"] not in by_id:
                raise DatasetError(f"its image {entry['image_id']} was left out or is not listed")
            category = data.numbered_category(entry["category_id"], annotations, object=index)
            left, top, width, height = entry["bbox"]
            data.add(by_id[entry["image_id"]], (left, top, left + width, top + height), category, entry)


def _read_yolo(data: Dataset, annotations: str) -> None:
    """Read `labels/**.txt`; the image of a file is in `images`."""
    for number, name in _yolo_names(data, annotations).items():
        data.categories[number] = {"id": number, "name": name}
    for name in data.names:
        folders, mark, last = f"/{name}".rpartition("/labels/")
        if not mark or not last.endswith(".txt"):
            continue
        with data.reporting(name):
            image = data.image(data.find(f"{folders}/images/{last[:-4]}"[1:]), {}, relative=True)
            for line, text in enumerate(data.text(name, MAX_LABEL_BYTES).splitlines(), 1):
                with data.reporting(name, line=line):
                    if text.strip():
                        number, box, fields = _yolo_label(text)
                        data.add(image, box, data.numbered_category(number, name, line=line), fields)
    # The place of a class in the list is its number.
    numbers = range(max((category["id"] for category in data.categories.values()), default=-1) + 1)
    data.categories = {
        number: data.categories.get(number) or {"id": number, "name": f"class {number}"} for number in numbers
    }


def _yolo_label(line: str) -> tuple[int, tuple[float, ...], dict[str, Any]]:
    """Return class number, box and further fields of a line."""
    number, *values = line.split()
    if not number.isdecimal() or int(number) >= MAX_CLASSES or len(values) not in {4, 5}:
        raise DatasetError(f"expected a class number, x, y, width, height and possibly a score, got {line[:80]}")
    x, y, width, height, *score = map(float, values)
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return int(number), box, {"source_score": score[0]} if score else {}


def _yolo_names(data: Dataset, annotations: str) -> dict[int, str]:
    """Return class names by number from a YAML file, or else from classes.txt if there is one."""
    if not annotations:
        return dict(enumerate(data.text("classes.txt").splitlines() if "classes.txt" in data.names else []))
    try:
        import yaml  # noqa: PLC0415 (optional)
    except ImportError:
        raise DatasetError(f"{annotations} needs another package: pip install 'mobile-sam-client[yolo]'") from None
    try:
        document = yaml.safe_load(data.text(annotations, MAX_YAML_BYTES))
        data.head = {name: document[name] for name in YOLO_FOLDERS if isinstance(document.get(name), str)}
        names = document["names"]
        names = names if isinstance(names, dict) else dict(enumerate(names))
        if not all(isinstance(name, (str, int, float)) for name in names.values()):
            raise DatasetError("a name is not text")  # text of lists could be huge: YAML repeats them by aliases
        found = {int(number): str(name) for number, name in names.items()}
        if not all(0 <= number < MAX_CLASSES for number in found):
            raise DatasetError(f"a number is not in the range from 0 to {MAX_CLASSES - 1}")
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatasetError(f"{annotations}: expected names of classes: {' '.join(str(error).split())}") from None
    return found


def _read_voc(data: Dataset, _: str) -> None:
    """Read Pascal VOC. Boxes are the first and last pixels, counted from 1.

    Entities would be declared in a document type, which Pascal VOC has not: it is refused.
    """
    for name in data.names:
        if not name.lower().endswith(".xml"):
            continue
        with data.reporting(name):
            text = data.text(name, MAX_LABEL_BYTES)
            if "<!DOCTYPE" in text:
                raise DatasetError("expected XML without a document type")
            root = Xml.fromstring(text)  # noqa: S314 (without entities)
            if root.tag != "annotation":
                raise DatasetError(f"expected Pascal VOC's <annotation>, got <{root.tag[:80]}>")
            size = {side: int(float(root.findtext(f"size/{side}") or 0)) for side in ("width", "height")}
            beside = name.replace("Annotations/", "JPEGImages/")
            image = data.image(data.find(root.findtext("filename") or "", beside), size)
            for number, each in enumerate(root.findall("object"), 1):
                with data.reporting(name, object=number):
                    x0, y0, x1, y1 = (float(each.findtext(f"bndbox/{tag}") or "nan") for tag in VOC_BOX)
                    fields = {child.tag: child.text for child in each if not len(child) and child.tag != "name"}
                    data.add(image, (x0 - 1, y0 - 1, x1, y1), data.category(each.findtext("name") or "object"), fields)


def _read_label_studio(data: Dataset, annotations: str) -> None:
    """Read rectangles and key points, which are in per cent of the image."""
    tasks = data.json(annotations)
    if not isinstance(tasks, list) or not all(isinstance(task, dict) and "annotations" in task for task in tasks):
        raise DatasetError(f"{annotations}: expected Label Studio's tasks, exported as JSON (not JSON-MIN)")
    for task in tasks:
        with data.reporting(annotations, task=task.get("id")):
            valid = [each for each in task["annotations"] if not each.get("was_cancelled")]
            results = [result for each in valid for result in each["result"]]
            image = data.image(_label_studio_image(data, task["data"]), {}, relative=True) if results else None
            for result in results:
                with data.reporting(annotations, object=result["id"]):
                    kind, value = result["type"], result["value"]
                    if image is None or not {"x", "points", "rle"} & value.keys():
                        continue  # such as a choice for the whole image
                    if kind.removesuffix("labels") not in {"rectangle", "keypoint"} or value.get("rotation"):
                        raise DatasetError(f"expected a rectangle without rotation or a key point, got {kind}")
                    x, y, labels = value["x"], value["y"], value.get(kind) or ["object"]
                    shape = (x, y) if kind.startswith("keypoint") else (x, y, x + value["width"], y + value["height"])
                    fields = {name: member for name, member in result.items() if name not in {"value", "type"}}
                    fields |= {"labels": labels, "task": task.get("id")}
                    data.add(image, [number / 100 for number in shape], data.category(labels[0]), fields)


def _label_studio_image(data: Dataset, values: dict[str, Any]) -> str:
    """Return the image of a task, found by the end of the path in one of its data."""
    for text in (value for value in values.values() if isinstance(value, str)):
        url = urlsplit(text)
        path = unquote(parse_qs(url.query).get("d", [url.path])[0]).lstrip("/")
        for name in (path, PurePosixPath(path).name, UPLOAD_PREFIX.sub("", PurePosixPath(path).name)):
            with suppress(DatasetError):
                return data.find(name)
    raise DatasetError(f"no image in the data set's folder fits {str(values)[:200]}")


def _read_csv(data: Dataset, annotations: str) -> None:
    """Read rows of `image`, and x0, y0, x1, y1 of a box or x, y of a point in pixels; `label` and `id` are optional."""
    rows = csv.DictReader(io.StringIO(data.text(annotations)), restkey="", strict=True)
    try:
        columns = set(rows.fieldnames or ())
        if "image" not in columns or not (columns.issuperset(BOX_COLUMNS) or columns.issuperset(POINT_COLUMNS)):
            raise DatasetError(f"{annotations}: expected the columns image and x0, y0, x1, y1 or x, y")
        for row in rows:
            with data.reporting(annotations, line=rows.line_num):
                if "" in row:
                    raise DatasetError("expected no more values than columns")
                image = data.image(data.find(row["image"], annotations), {})
                shape = BOX_COLUMNS if row.get("x0") or "x" not in row else POINT_COLUMNS
                used = {"image", "label", *shape}
                fields: dict[str, Any] = {name: value for name, value in row.items() if name not in used}
                if str(fields.get("id")).isdecimal():
                    fields["id"] = int(fields["id"])
                data.add(image, [row[name] for name in shape], data.category(row.get("label") or "object"), fields)
    except csv.Error as error:
        raise DatasetError(f"{annotations}: after line {rows.line_num}: {error}") from None


READERS: dict[str, tuple[Callable[[Dataset, str], None], tuple[str, ...]]] = {
    "coco": (_read_coco, (".json",)),
    "yolo": (_read_yolo, (".yaml", ".yml")),
    "voc": (_read_voc, ()),
    "label-studio": (_read_label_studio, (".json",)),
    "csv": (_read_csv, (".csv",)),
}
"""Functions that read the formats, and the suffixes of the file of their annotations; none if it has one per image."""
