"""`mobile-sam masks`: a mask for every box and point of a detection data set."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from PIL import Image
from pycocotools import mask as rle_tools

from mobile_sam_client._commands import connection, files
from mobile_sam_client._commands.batch import Batch, Concurrency
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._commands.run import LabelledImage
from mobile_sam_client._datasets.class_names import YOLO_FOLDERS
from mobile_sam_client._datasets.dataset import Dataset, DatasetImage, DatasetObject
from mobile_sam_client._datasets.readers import read_dataset
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._pictures import encode, label_map
from mobile_sam_client._polygons import Ring, joined, polygons

Format = Literal["coco", "yolo", "voc", "label-studio", "csv"]
Target = Literal["coco", "coco-polygons", "yolo-seg", "png"]
Annotations = Annotated[
    str | None, option("JSON, CSV or YAML file of the data set, if it has several: its path in it.", "PATH")
]


def masks(
    dataset: Annotated[Path, typer.Argument(metavar="DATASET", help="Folder of the data set, with its images.")],
    *,
    form: Annotated[
        Format,
        option(
            "coco: instances, JSON; yolo: labels, images, data.yaml; voc: Pascal VOC, XML; label-studio: rectangles "
            "and key points, exported as JSON; csv: columns image, x0, y0, x1, y1 (or x, y) in pixels, and label.",
            None,
            "--format",
        ),
    ],
    out: Annotated[Path, option("Folder for the results.", "FOLDER")],
    to: Annotated[
        Target,
        typer.Option(
            help="coco: RLE; coco-polygons; yolo-seg: labels for segmentation; png: maps of classes and objects."
        ),
    ] = "coco",
    annotations: Annotations = None,
    min_score: Annotated[
        float,
        typer.Option(min=0, max=1, metavar="SCORE", help="Put masks with a lower score into review.json instead."),
    ] = 0,
    concurrency: Concurrency = 4,
    service: connection.ImageOptions,
) -> None:
    """Turn the boxes and points of a detection data set into masks.

    The same command resumes an interrupted run. Finished images are skipped
    unless image, boxes or weights have changed. What cannot be used does not stop the run.

    Files in the result folder, with the data set's ids, classes and further fields:
    annotations.json  COCO annotations; or labels and data.yaml; or classes, instances and classes.json
    review.json       COCO annotations of the masks below --min-score, which the page opens
    manifest.jsonl    a line per object: score, IoU of the mask's box and the given one, remarks
    failures.json     what was left out or changed, with reasons
    records           results per image, used to resume
    """
    if out.resolve() == dataset.resolve():
        raise typer.BadParameter("must not be the folder of the data set", param_hint="--out")
    files.check_writable(out / "manifest.jsonl")
    root = dataset.resolve()
    paths = {name: (root / name).resolve() for name in files.list_files(dataset, out)}
    names = [name for name, path in paths.items() if path.is_file() and path.is_relative_to(root)]
    try:
        data = read_dataset(form, names, lambda name: (root / name).open("rb"), annotations)
    except DatasetError as error:
        raise CommandError(f"{dataset}: {error}") from None
    jobs = {name: image.request() for name, image in data.images.items() if image.objects}
    work = DatasetBatch(jobs, images=dataset, out=out, data=data, min_score=min_score)
    work.run_with(service, concurrency)
    counts, written = work.write(to)
    work.report(counts, written, [*data.failures, *work.lost], as_json=service.as_json)


TOLERANCE = 0.5
"""Largest distance of a polygon from the mask's edge, in pixels."""
Found = list[tuple[DatasetObject, dict[str, Any]]]
"""Objects, and what `segment_shapes` returned for them."""


@dataclass(kw_only=True)
class DatasetBatch(Batch):
    """A run over the images of a data set, and the writer of its files."""

    data: Dataset
    min_score: float
    """Masks with a lower score are for the review list."""
    lost: list[dict[str, Any]] = field(default_factory=list)
    """Objects and images that were left out or changed, in the form of `Dataset.failures`."""

    def write(self, to: Target) -> tuple[dict[str, int], list[str]]:
        """Write all files, and return the numbers of objects by what became of them, and the files' names."""
        if to == "yolo-seg":
            written = self._write_yolo()
        elif to == "png":
            written = self._write_png()
        else:
            written = self._write_coco("annotations.json", "mask", as_polygons=to == "coco-polygons")
        if self.min_score:
            written += self._write_coco("review.json", "review")
        return self._write_manifest(), [*written, "manifest.jsonl"]

    def _write_coco(self, name: str, status: str, *, as_polygons: bool = False) -> list[str]:
        head = {**self.data.head, "categories": [*self.data.categories.values()]}
        files.write_coco(self.out / name, head, self._entries(status, as_polygons), self.weights)
        return [name]

    def _entries(self, status: str, as_polygons: bool) -> Iterator[files.Entry]:
        for image, record, found in self._found(status):
            annotations = []
            for each, fields in found:
                ids = {"image_id": image.fields["id"], "category_id": each.category["id"]}
                own = {name: value for name, value in fields.items() if name != "note"}
                if as_polygons:
                    own["segmentation"] = [joined(rings).ravel().tolist() for rings in _polygons(fields)]
                annotations.append({"iscrowd": 0, **each.fields, **own, **ids})
            if annotations or status == "mask":
                yield {**image.fields, "width": record.width, "height": record.height}, annotations
        if status == "mask":
            yield from ((image.fields, []) for image in self.data.images.values() if not image.objects)

    def _write_yolo(self) -> list[str]:
        """Write a polygon per mask; lines without width join its islands and holes."""
        numbers = {category["id"]: number for number, category in enumerate(self.data.categories.values())}
        for path, record, found in self._named():
            text = ""
            for each, fields in found:
                ring = joined([ring for rings in _polygons(fields) for ring in rings]) / (record.width, record.height)
                text += f"{numbers[each.category['id']]} {' '.join(f'{value:.6f}' for value in ring.ravel())}\n"
            files.write_bytes(self.out / "labels" / f"{path}.txt", text.encode())
        folders = {name: self.data.head[name] for name in YOLO_FOLDERS if name in self.data.head}
        names = [category["name"] for category in self.data.categories.values()]
        files.write_data_yaml(self.out / "data.yaml", names, folders)
        return ["labels", "data.yaml"]

    def _write_png(self) -> list[str]:
        """Write maps of the classes' ids and of the objects' numbers from 1; smaller objects lie on top."""
        categories = [*self.data.categories.values()]
        fit = all(0 < category["id"] < 2**16 for category in categories)
        values = {each["id"]: each["id"] if fit else number for number, each in enumerate(categories, 1)}
        for path, record, found in self._named():
            numbers = label_map((record.height, record.width), [fields["segmentation"] for _, fields in found])
            classes = np.array([0, *(values[each.category["id"]] for each, _ in found)], np.uint16)[numbers]
            for folder, pixels in (("classes", classes), ("instances", numbers)):
                picture = Image.fromarray(pixels.astype(np.uint8) if pixels.max() < 256 else pixels)
                files.write_bytes(self.out / folder / f"{path}.png", encode(picture))
        files.write_json(self.out / "classes.json", [{**each, "id": values[each["id"]]} for each in categories])
        return ["classes", "instances", "classes.json"]

    def _write_manifest(self) -> dict[str, int]:
        """Write a line per object, and return the numbers of objects by status."""
        counts = {"mask": 0, "review": 0, "lost": 0}
        with files.atomic_writer(self.out / "manifest.jsonl") as file:
            for image, record, found in self._found():
                scale = (record.width, record.height) if image.relative else (1, 1)
                for each, fields in found:
                    status = self._status(fields)
                    counts[status] += 1
                    place = {"image": image.name, "id": each.fields["id"], "class": each.category["name"]}
                    shape = (np.reshape(each.shape, (-1, 2)) * scale).ravel().tolist()
                    own = {name: value for name, value in fields.items() if name != "segmentation"}
                    file.write(json.dumps({**place, "shape": shape, "status": status, **own}).encode() + b"\n")
                    if fields["note"]:
                        failure = {"file": image.name, "object": each.fields["id"], "reason": fields["note"]}
                        self.lost.append(failure if status == "lost" else {**failure, "changed": True})
        return {"masks": counts["mask"], "review": counts["review"], "lost": counts["lost"]}

    def _found(self, status: str = "") -> Iterator[tuple[DatasetImage, LabelledImage, Found]]:
        """Yield the finished images with their objects, or with those of a status."""
        for record in self.results():
            image = self.data.images[record.file_name]
            found = list(zip(image.objects, record.objects, strict=True))
            yield image, record, [one for one in found if status in {"", self._status(one[1])}]

    def _named(self) -> Iterator[tuple[str, LabelledImage, Found]]:
        """Yield the masks of each image, with its path without suffix and folders `images`."""
        taken: dict[str, str] = {}
        for image, record, found in self._found("mask"):
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
