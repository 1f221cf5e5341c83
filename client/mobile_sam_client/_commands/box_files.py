"""The files that `mobile-sam masks --to boxes` writes: the data set with the boxes of its masks."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree as Xml

from mobile_sam_client._commands import files
from mobile_sam_client._commands.dataset_files import (
    DatasetWriter,
    MaskedImage,
    MaskedObject,
    shape_in_pixels,
)
from mobile_sam_client._datasets.class_names import YOLO_FOLDERS
from mobile_sam_client._datasets.label_studio_tasks import IMAGE, address_of
from mobile_sam_client.datasets import DatasetFormat

MIN_BOX_IOU = 0.3
"""Lowest IoU of the mask's box with the given one. Below it, few boxes are better than the given
ones: `python -m benchmarks.loose_boxes` measures this."""
BoxStatus = Literal["box", "kept", "lost"]
"""The box of the mask, the given box, or none, for a point."""
Box = tuple[float, float, float, float]
"""x0, y0, x1, y1 in pixels of the displayed image; x1 and y1 are exclusive."""
NUMBER_FIELDS = ("id", "source_id")
"""Fields that a data set without ids gets."""


class BoxedObject(NamedTuple):
    """An object of a data set, and the box that is written for it."""

    item: MaskedObject
    box_xyxy: Box
    status: BoxStatus
    note: str


class BoxWriter(DatasetWriter):
    """The writer of a data set whose boxes became those of their masks."""

    def write_boxes(self, form: DatasetFormat) -> list[str]:
        """Write the boxes in the format of the data set, and return the names of the files."""
        writers = {
            "coco": self._write_coco_boxes,
            "yolo": self._write_yolo_boxes,
            "voc": self._write_voc_boxes,
            "label-studio": self._write_label_studio_boxes,
            "csv": self._write_csv_boxes,
        }
        return writers[form]()

    def write_manifest(self) -> dict[str, int]:
        """Write a line per object, and return the numbers of boxes, kept ones and losses."""
        counts = {"box": 0, "kept": 0, "lost": 0}
        with files.atomic_writer(self._out / "manifest.jsonl") as file:
            for image in self._images():
                for boxed in _boxed(image, self._min_score):
                    counts[boxed.status] += 1
                    line = _manifest_line(image, boxed)
                    file.write(json.dumps(line).encode() + b"\n")
                    if boxed.note:
                        is_lost = boxed.status != "box"
                        self._note(image, boxed.item, boxed.note, is_lost=is_lost)
        return {"boxes": counts["box"], "kept": counts["kept"], "lost": counts["lost"]}

    def _write_coco_boxes(self) -> list[str]:
        head = {**self._data.head, "categories": list(self._data.categories.values())}
        files.write_coco(self._out / "annotations.json", head, self._entries(), self._weights)
        return ["annotations.json"]

    def _entries(self) -> Iterator[files.Entry]:
        for image in self._images():
            annotations = []
            for boxed in self._written(image):
                source = boxed.item.source
                x0, y0, x1, y1 = boxed.box_xyxy
                fields = {
                    **source.fields,
                    "image_id": image.source.fields["id"],
                    "category_id": source.category["id"],
                    "bbox": [x0, y0, x1 - x0, y1 - y0],
                }
                if not fields.get("segmentation"):
                    fields["area"] = (x1 - x0) * (y1 - y0)
                annotations.append(fields)
            yield {**image.source.fields, "width": image.width, "height": image.height}, annotations
        yield from self._empty_entries()

    def _write_yolo_boxes(self) -> list[str]:
        categories = self._data.categories.values()
        class_numbers = {category["id"]: number for number, category in enumerate(categories)}
        for path, image in self._images_by_path(None):
            lines = []
            for boxed in self._written(image):
                source = boxed.item.source
                x0, y0, x1, y1 = _parts(boxed.box_xyxy, image)
                values = [(x0 + x1) / 2, (y0 + y1) / 2, x1 - x0, y1 - y0]
                if "source_score" in source.fields:
                    values.append(source.fields["source_score"])
                numbers = " ".join(f"{value:.6f}" for value in values)
                lines.append(f"{class_numbers[source.category['id']]} {numbers}\n")
            files.write_bytes(self._out / "labels" / f"{path}.txt", "".join(lines).encode())
        head = self._data.head
        folders = {name: head[name] for name in YOLO_FOLDERS if name in head}
        class_names = [category["name"] for category in categories]
        files.write_data_yaml(self._out / "data.yaml", class_names, folders)
        return ["labels", "data.yaml"]

    def _write_voc_boxes(self) -> list[str]:
        for path, image in self._images_by_path(None, ("images", "JPEGImages")):
            root = Xml.Element("annotation")
            Xml.SubElement(root, "filename").text = PurePosixPath(image.source.name).name
            size = Xml.SubElement(root, "size")
            for side, pixels in (("width", image.width), ("height", image.height), ("depth", 3)):
                Xml.SubElement(size, side).text = str(pixels)
            for boxed in self._written(image):
                _add_voc_object(root, boxed)
            Xml.indent(root)
            content = Xml.tostring(root, "utf-8", xml_declaration=True)
            files.write_bytes(self._out / "Annotations" / f"{path}.xml", content)
        return ["Annotations"]

    def _write_csv_boxes(self) -> list[str]:
        rows = []
        columns = dict.fromkeys(["image", "x0", "y0", "x1", "y1", "label"])
        for image in self._images():
            for boxed in self._written(image):
                source = boxed.item.source
                corners = dict(zip(("x0", "y0", "x1", "y1"), boxed.box_xyxy, strict=True))
                label = source.category["name"]
                row = {"image": image.source.name, **corners, "label": label, **source.fields}
                rows.append(row)
                columns |= dict.fromkeys(row)
        text = io.StringIO()
        writer = csv.DictWriter(text, list(columns), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue().encode(errors="replace")
        files.write_bytes(self._out / "boxes.csv", content)
        return ["boxes.csv"]

    def _write_label_studio_boxes(self) -> list[str]:
        """Write a task per image, with the ids and tags of the regions that were read."""
        tasks = []
        for image in self._images():
            results = [_rectangle(image, boxed) for boxed in self._written(image)]
            keys = [result["to_name"] for result in results] or [IMAGE]
            address = address_of(image.source.name)
            data = dict.fromkeys(keys, address)
            tasks.append({"data": data, "annotations": [{"result": results}]})
        files.write_json(self._out / "tasks.json", tasks)
        return ["tasks.json"]

    def _written(self, image: MaskedImage) -> Iterator[BoxedObject]:
        """Yield the objects of an image that have a box."""
        for boxed in _boxed(image, self._min_score):
            if boxed.status != "lost":
                yield boxed


def _boxed(image: MaskedImage, min_score: float) -> Iterator[BoxedObject]:
    """Yield each object of an image with the box of its mask, or with its own."""
    for item in image.objects:
        given = shape_in_pixels(image, item.source)
        reason = _why_kept(image, item.fields, min_score)
        if not reason:
            x, y, width, height = item.fields["bbox"]
            box = (x, y, x + width, y + height)
            yield BoxedObject(item, box, "box", item.fields["note"])
        elif len(given) == 4:
            x0, y0, x1, y1 = given
            note = f"{reason}; its box was kept"
            yield BoxedObject(item, (x0, y0, x1, y1), "kept", note)
        else:
            yield BoxedObject(item, (0, 0, 0, 0), "lost", reason)


def _why_kept(image: MaskedImage, fields: dict[str, Any], min_score: float) -> str:
    """Return why an object keeps its box; nothing if the mask is plausible."""
    if "segmentation" not in fields:
        return str(fields["note"])
    if fields["score"] < min_score:
        return f"its score {fields['score']:.2f} is below --min-score"
    box_iou = fields["box_iou"]
    if box_iou is not None and box_iou < MIN_BOX_IOU:
        return f"the box around the mask is another one, with an IoU of {box_iou:.2f}"
    is_whole_image = list(fields["bbox"]) == [0, 0, image.width, image.height]
    if is_whole_image and (box_iou is None or box_iou < 1):
        return "the mask reaches all sides of the image"
    return ""


def _manifest_line(image: MaskedImage, boxed: BoxedObject) -> dict[str, Any]:
    source = boxed.item.source
    scores = {
        name: value for name, value in boxed.item.fields.items() if name in {"score", "box_iou"}
    }
    return {
        "image": image.source.name,
        "id": source.fields["id"],
        "class": source.category["name"],
        "shape": shape_in_pixels(image, source),
        "status": boxed.status,
        "box": None if boxed.status == "lost" else list(boxed.box_xyxy),
        **scores,
        "note": boxed.note,
    }


def _parts(box_xyxy: Box, image: MaskedImage) -> Box:
    """Return a box in parts of the image's width and height."""
    x0, y0, x1, y1 = box_xyxy
    return x0 / image.width, y0 / image.height, x1 / image.width, y1 / image.height


def _add_voc_object(root: Xml.Element, boxed: BoxedObject) -> None:
    source = boxed.item.source
    element = Xml.SubElement(root, "object")
    Xml.SubElement(element, "name").text = source.category["name"]
    for name, value in source.fields.items():
        if name not in NUMBER_FIELDS:
            Xml.SubElement(element, name).text = value
    x0, y0, x1, y1 = boxed.box_xyxy
    box = Xml.SubElement(element, "bndbox")
    # The first and the last pixels, counted from 1.
    for tag, value in (("xmin", x0 + 1), ("ymin", y0 + 1), ("xmax", x1), ("ymax", y1)):
        Xml.SubElement(box, tag).text = f"{value:g}"


def _rectangle(image: MaskedImage, boxed: BoxedObject) -> dict[str, Any]:
    """Return a result of Label Studio."""
    source = boxed.item.source
    fields = source.fields
    x0, y0, x1, y1 = (100 * part for part in _parts(boxed.box_xyxy, image))
    to_name = fields.get("to_name")
    from_name = fields.get("from_name")
    return {
        "id": str(fields.get("source_id", fields["id"])),
        "type": "rectanglelabels",
        "from_name": from_name if isinstance(from_name, str) else "box",
        "to_name": to_name if isinstance(to_name, str) else IMAGE,
        "original_width": image.width,
        "original_height": image.height,
        "image_rotation": 0,
        "value": {
            "x": x0,
            "y": y0,
            "width": x1 - x0,
            "height": y1 - y0,
            "rotation": 0,
            "rectanglelabels": fields.get("labels", [source.category["name"]]),
        },
    }
