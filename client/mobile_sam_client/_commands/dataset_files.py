"""The files that `mobile-sam masks` writes for a data set: masks, review list and manifest."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image
from pycocotools import mask as rle_tools

from mobile_sam_client import Weights
from mobile_sam_client._commands import files
from mobile_sam_client._datasets.class_names import YOLO_FOLDERS
from mobile_sam_client._errors import describe_error
from mobile_sam_client._pictures import encode, label_map
from mobile_sam_client._polygons import Ring, joined, polygons
from mobile_sam_client.batches import LabelledImage
from mobile_sam_client.datasets import Dataset, DatasetError, DatasetImage, DatasetObject

MaskFormat = Literal["coco", "coco-polygons", "yolo-seg", "png"]
"""Formats of masks."""
Status = Literal["mask", "review", "lost"]
"""A mask, a mask below the lowest score, or no mask."""
TOLERANCE = 0.5
"""Largest distance of a polygon from the mask's edge, in pixels."""


class MaskedObject(NamedTuple):
    """An object of a data set, and its mask."""

    source: DatasetObject
    fields: dict[str, Any]
    """Members of its COCO annotation as `segment_shapes` returns them; without a mask, `note`."""


class MaskedImage(NamedTuple):
    """An image of a data set, and its objects with their masks."""

    source: DatasetImage
    width: int
    height: int
    objects: list[MaskedObject]


class DatasetWriter:
    """The writer of a data set's masks."""

    def __init__(
        self,
        data: Dataset,
        out: Path,
        *,
        results: Callable[[], Iterable[LabelledImage]],
        weights: Weights | None,
        min_score: float,
    ) -> None:
        """Prepare the files; nothing is written yet.

        Args:
            data: the data set.
            out: folder for the files.
            results: yields the finished images, anew for each file, so that they are not all in
                memory at once.
            weights: weights that made the masks, if known.
            min_score: masks with a lower score are for the review list.
        """
        self.failures: list[dict[str, Any]] = []
        """Objects and images left out or changed, in the form of `Dataset.failures`."""
        self._data = data
        self._out = out
        self._results = results
        self._weights = weights
        self._min_score = min_score

    def write_masks(self, form: MaskFormat) -> list[str]:
        """Write the masks, and return the names of the files."""
        if form == "yolo-seg":
            return self._write_yolo()
        if form == "png":
            return self._write_png()
        self._write_coco("annotations.json", "mask", as_polygons=form == "coco-polygons")
        return ["annotations.json"]

    def write_review(self) -> str:
        """Write the masks below the lowest score, and return the name of the file."""
        self._write_coco("review.json", "review", as_polygons=False)
        return "review.json"

    def write_manifest(self) -> dict[str, int]:
        """Write a line per object, and return the numbers of masks, masks to review and losses."""
        counts = {"mask": 0, "review": 0, "lost": 0}
        with files.atomic_writer(self._out / "manifest.jsonl") as file:
            for image in self._images():
                for item in image.objects:
                    status = self._status(item.fields)
                    counts[status] += 1
                    line = _manifest_line(image, item, status)
                    file.write(json.dumps(line).encode() + b"\n")
                    note = item.fields["note"]
                    if note:
                        self._note(image, item, note, is_lost=status == "lost")
        return {"masks": counts["mask"], "review": counts["review"], "lost": counts["lost"]}

    def _note(self, image: MaskedImage, item: MaskedObject, note: str, *, is_lost: bool) -> None:
        """Note that an object was left out or changed."""
        failure = {
            "file": image.source.name,
            "object": item.source.fields["id"],
            "reason": note,
        }
        if not is_lost:
            failure["changed"] = True
        self.failures.append(failure)

    def _write_coco(self, name: str, status: Status, *, as_polygons: bool) -> None:
        head = {**self._data.head, "categories": list(self._data.categories.values())}
        entries = self._coco_entries(status, as_polygons=as_polygons)
        files.write_coco(self._out / name, head, entries, self._weights)

    def _coco_entries(self, status: Status, *, as_polygons: bool) -> Iterator[files.Entry]:
        for image in self._images(status):
            annotations = []
            for item in image.objects:
                annotations.append(_coco_annotation(image, item, as_polygons=as_polygons))
            # The review list has only the images with masks to review.
            if annotations or status == "mask":
                size = {"width": image.width, "height": image.height}
                yield {**image.source.fields, **size}, annotations
        if status == "mask":
            yield from self._empty_entries()

    def _empty_entries(self) -> Iterator[files.Entry]:
        """Yield the COCO entries of images without objects, with their sizes, which COCO requires.

        They are not segmented, but a part of the data set.
        """
        for source in self._data.images.values():
            if source.objects:
                continue
            try:
                size_wh = source.request()["size_wh"] or self._data.size_wh(source.name)
            except (DatasetError, OSError) as error:
                self.failures.append({"file": source.name, "reason": describe_error(error)})
                continue
            width, height = size_wh
            yield {**source.fields, "width": width, "height": height}, []

    def _write_yolo(self) -> list[str]:
        """Write a polygon per mask; lines without width join its islands and holes."""
        categories = self._data.categories.values()
        class_numbers = {category["id"]: number for number, category in enumerate(categories)}
        for path, image in self._images_by_path():
            size_wh = (image.width, image.height)
            lines = []
            for item in image.objects:
                rings: list[Ring] = []
                for polygon in _polygons(item.fields):
                    rings += polygon
                points = joined(rings) / size_wh
                numbers = " ".join(f"{value:.6f}" for value in points.ravel())
                lines.append(f"{class_numbers[item.source.category['id']]} {numbers}\n")
            files.write_bytes(self._out / "labels" / f"{path}.txt", "".join(lines).encode())
        head = self._data.head
        folders = {name: head[name] for name in YOLO_FOLDERS if name in head}
        class_names = [category["name"] for category in categories]
        files.write_data_yaml(self._out / "data.yaml", class_names, folders)
        return ["labels", "data.yaml"]

    def _write_png(self) -> list[str]:
        """Write maps of the classes' ids and of the objects' numbers from 1.

        Smaller objects lie on top.
        """
        categories = list(self._data.categories.values())
        # Ids that do not fit into 16 bits are replaced by numbers.
        fit = all(0 < category["id"] < 2**16 for category in categories)
        values = {}
        for number, category in enumerate(categories, 1):
            values[category["id"]] = category["id"] if fit else number
        for path, image in self._images_by_path():
            rles = [item.fields["segmentation"] for item in image.objects]
            instances = label_map((image.height, image.width), rles)
            value_by_number = [0]  # of the background
            for item in image.objects:
                value_by_number.append(values[item.source.category["id"]])
            classes = np.array(value_by_number, np.uint16)[instances]
            for folder, pixels in (("classes", classes), ("instances", instances)):
                if pixels.max() < 2**8:
                    picture = Image.fromarray(pixels.astype(np.uint8))
                else:
                    picture = Image.fromarray(pixels)
                files.write_bytes(self._out / folder / f"{path}.png", encode(picture))
        listed = [{**category, "id": values[category["id"]]} for category in categories]
        files.write_json(self._out / "classes.json", listed)
        return ["classes", "instances", "classes.json"]

    def _images(self, status: Status | None = None) -> Iterator[MaskedImage]:
        """Yield the finished images with all their objects, or with those of a status."""
        for result in self._results():
            source = self._data.images[result.file_name]
            objects = []
            for source_object, fields in zip(source.objects, result.objects, strict=True):
                if status is None or self._status(fields) == status:
                    objects.append(MaskedObject(source_object, fields))
            yield MaskedImage(source, result.width, result.height, objects)

    def _images_by_path(
        self, status: Status | None = "mask", folders: Sequence[str] = ("images",)
    ) -> Iterator[tuple[str, MaskedImage]]:
        """Yield the images with their masks, each with a path for its files.

        The path has no suffix and no folders of images. An image whose path is taken is left out.
        """
        owners: dict[str, str] = {}
        for image in self._images(status):
            name = image.source.name
            path = f"/{name}"
            for folder in folders:
                path = path.replace(f"/{folder}/", "/")
            path = path.rpartition(".")[0][1:]
            owner = owners.setdefault(path, name)
            if owner == name:
                yield path, image
            else:
                reason = f"its files would overwrite those of {owner}"
                self.failures.append({"file": name, "reason": reason})

    def _status(self, fields: dict[str, Any]) -> Status:
        if "segmentation" not in fields:
            return "lost"
        return "review" if fields["score"] < self._min_score else "mask"


def shape_in_pixels(image: MaskedImage, source: DatasetObject) -> list[float]:
    """Return the shape of an object in pixels of the displayed image."""
    scale = (image.width, image.height) if image.source.relative else (1, 1)
    pixels: list[float] = (np.reshape(source.shape, (-1, 2)) * scale).ravel().tolist()
    return pixels


def _manifest_line(image: MaskedImage, item: MaskedObject, status: Status) -> dict[str, Any]:
    """Return the line of an object in the manifest; its shape is in pixels."""
    fields = {name: value for name, value in item.fields.items() if name != "segmentation"}
    return {
        "image": image.source.name,
        "id": item.source.fields["id"],
        "class": item.source.category["name"],
        "shape": shape_in_pixels(image, item.source),
        "status": status,
        **fields,
    }


def _coco_annotation(
    image: MaskedImage, item: MaskedObject, *, as_polygons: bool
) -> dict[str, Any]:
    """Return a COCO annotation with the ids and further fields of the data set."""
    fields = {name: value for name, value in item.fields.items() if name != "note"}
    if as_polygons:
        rings = [joined(polygon) for polygon in _polygons(item.fields)]
        fields["segmentation"] = [ring.ravel().tolist() for ring in rings]
    return {
        "iscrowd": 0,
        **item.source.fields,
        **fields,
        "image_id": image.source.fields["id"],
        "category_id": item.source.category["id"],
    }


def _polygons(fields: dict[str, Any]) -> list[list[Ring]]:
    return polygons(rle_tools.decode(fields["segmentation"]).astype(bool), TOLERANCE)
