"""Files of the masks of a data set: COCO, YOLO, PNG maps, the review list and the manifest."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pycocotools import mask as rle_tools

from mobile_sam_client._commands.batch import Batch
from mobile_sam_client._commands.coco import Entry, write_coco
from mobile_sam_client._commands.files import atomic_writer, write_bytes, write_json
from mobile_sam_client._commands.run import LabelledImage
from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, DatasetObject
from mobile_sam_client._datasets.readers import YOLO_FOLDERS
from mobile_sam_client._pictures import encode, label_map
from mobile_sam_client._polygons import Ring, joined, polygons

TOLERANCE = 0.5
"""Largest distance of a polygon from the mask's edge, in pixels."""
Found = list[tuple[DatasetObject, dict[str, Any]]]
"""Objects, and what `segment_shapes` returned for them."""


@dataclass
class MaskFiles:
    """Writer of the results for a data set."""

    out: Path
    data: Dataset
    work: Batch
    min_score: float
    """Masks with a lower score are for the review list."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Objects and images without a mask in the files, in the form of `Dataset.failures`."""

    def write(self, to: str) -> tuple[dict[str, int], list[str]]:
        """Write all files, and return the numbers of objects by what became of them, and the files' names."""
        if to == "yolo-seg":
            written = self._write_yolo()
        elif to == "png":
            written = self._write_png()
        else:
            written = self._write_coco("annotations.json", self._entries("mask", to == "coco-polygons"))
        if self.min_score:
            written += self._write_coco("review.json", (entry for entry in self._entries("review", False) if entry[1]))
        return self._write_manifest(), [*written, "manifest.jsonl"]

    def _write_coco(self, name: str, entries: Iterable[Entry]) -> list[str]:
        head = {**self.data.head, "categories": [*self.data.categories.values()]}
        write_coco(self.out / name, head, entries, self.work.weights)
        return [name]

    def _entries(self, status: str, as_polygons: bool) -> Iterator[Entry]:
        for image, record, found in self._results(status):
            annotations = []
            for each, fields in found:
                ids = {"image_id": image.fields["id"], "category_id": each.category["id"]}
                own = {name: value for name, value in fields.items() if name != "note"}
                if as_polygons:
                    own["segmentation"] = [joined(rings).ravel().tolist() for rings in _polygons(fields)]
                annotations.append({"iscrowd": 0, **each.fields, **own, **ids})
            yield {**image.fields, "width": record.width, "height": record.height}, annotations
        yield from ((image.fields, []) for image in self.data.images.values() if not image.objects)

    def _write_yolo(self) -> list[str]:
        """Write a polygon per mask; lines without width join its islands and holes."""
        numbers = {id(category): number for number, category in enumerate(self.data.categories.values())}
        for path, record, found in self._named_results():
            text = ""
            for each, fields in found:
                ring = joined([ring for rings in _polygons(fields) for ring in rings]) / (record.width, record.height)
                text += f"{numbers[id(each.category)]} {' '.join(f'{value:.6f}' for value in ring.ravel())}\n"
            write_bytes(self.out / "labels" / f"{path}.txt", text.encode())
        folders = {name: self.data.head[name] for name in YOLO_FOLDERS if name in self.data.head}
        names = [category["name"] for category in self.data.categories.values()]
        members = {"train": "images", "val": "images", **folders, "names": names}
        # JSON is YAML.
        text = "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in members.items())
        write_bytes(self.out / "data.yaml", text.encode(errors="replace"))
        return ["labels", "data.yaml"]

    def _write_png(self) -> list[str]:
        """Write maps of the classes' ids and of the objects' numbers from 1; smaller objects lie on top."""
        categories = [*self.data.categories.values()]
        fit = all(0 < category["id"] < 2**16 for category in categories)
        values = {id(each): each["id"] if fit else number for number, each in enumerate(categories, 1)}
        for path, record, found in self._named_results():
            numbers = label_map((record.height, record.width), [fields["segmentation"] for _, fields in found])
            classes = np.array([0, *(values[id(each.category)] for each, _ in found)], np.uint16)[numbers]
            for folder, pixels in (("classes", classes), ("instances", numbers)):
                picture = Image.fromarray(pixels.astype(np.uint8) if pixels.max() < 256 else pixels)
                write_bytes(self.out / folder / f"{path}.png", encode(picture))
        write_json(self.out / "classes.json", [{**each, "id": values[id(each)]} for each in categories])
        return ["classes", "instances", "classes.json"]

    def _write_manifest(self) -> dict[str, int]:
        """Write a line per object, and return the numbers of objects by status."""
        counts = {"mask": 0, "review": 0, "lost": 0}
        with atomic_writer(self.out / "manifest.jsonl") as file:
            for image, record, found in self._results():
                scale = (record.width, record.height) if image.relative else (1, 1)
                for each, fields in found:
                    status = self._status(fields)
                    counts[status] += 1
                    place = {"image": image.name, "id": each.fields["id"], "class": each.category["name"]}
                    shape = (np.reshape(each.shape, (-1, 2)) * scale).ravel().tolist()
                    own = {name: value for name, value in fields.items() if name != "segmentation"}
                    file.write(json.dumps({**place, "shape": shape, "status": status, **own}).encode() + b"\n")
                    if status == "lost":
                        self.lost.append({"file": image.name, "object": each.fields["id"], "reason": fields["note"]})
        return {"masks": counts["mask"], "review": counts["review"], "lost": counts["lost"]}

    def _results(self, status: str = "") -> Iterator[tuple[DatasetImage, LabelledImage, Found]]:
        """Yield the finished images with their objects, or with those of a status."""
        for record in self.work.results():
            image = self.data.images[record.file_name]
            found = list(zip(image.objects, record.objects, strict=True))
            yield image, record, [one for one in found if status in {"", self._status(one[1])}]

    def _named_results(self) -> Iterator[tuple[str, LabelledImage, Found]]:
        """Yield the masks of each image, with its path without suffix and folders `images`."""
        taken: dict[str, str] = {}
        for image, record, found in self._results("mask"):
            path = f"/{image.name}".replace("/images/", "/").rpartition(".")[0][1:]
            if (other := taken.setdefault(path, image.name)) == image.name:
                yield path, record, found
            else:
                self.lost.append({"file": image.name, "reason": f"its files would have the names of those of {other}"})

    def _status(self, fields: dict[str, Any]) -> str:
        if "segmentation" not in fields:
            return "lost"
        return "review" if fields["score"] < self.min_score else "mask"


def _polygons(fields: dict[str, Any]) -> list[list[Ring]]:
    return polygons(rle_tools.decode(fields["segmentation"]).astype(bool), TOLERANCE)
