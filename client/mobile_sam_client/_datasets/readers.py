"""Readers of detection data sets: COCO, YOLO, Pascal VOC, Label Studio and CSV."""

from collections.abc import Callable, Sequence
from typing import Literal

from mobile_sam_client._datasets.class_names import LIST_SUFFIXES
from mobile_sam_client._datasets.coco import read_coco
from mobile_sam_client._datasets.csv_boxes import read_csv
from mobile_sam_client._datasets.dataset import Dataset, OpenFile
from mobile_sam_client._datasets.label_studio import read_label_studio
from mobile_sam_client._datasets.values import DatasetError
from mobile_sam_client._datasets.voc import read_voc
from mobile_sam_client._datasets.yolo import read_yolo

DatasetFormat = Literal["coco", "yolo", "voc", "label-studio", "csv"]


def read_dataset(
    form: str, names: Sequence[str], open_file: OpenFile, annotations: str | None = None
) -> Dataset:
    """Read a detection data set.

    Args:
        form: a key of `READERS`.
        names: paths of the files in its folder, sorted.
        open_file: opens one of them.
        annotations: path of its JSON, CSV or YAML file, or of YOLO's list of names; None if it has
            only one.

    Raises:
        DatasetError: the data set cannot be read, or has no boxes and points.
        OSError: a file cannot be read.
    """
    reader, suffixes = READERS[form]
    if annotations and form == "yolo":
        suffixes = (*suffixes, *LIST_SUFFIXES)
    files = [name for name in names if name.lower().endswith(suffixes)]
    if annotations is not None:
        files = [name for name in files if name == annotations]
    # YOLO's file is optional, and Pascal VOC has none.
    is_needed = bool(annotations) or form not in {"yolo", "voc"}
    if len(files) > 1 or (is_needed and not files):
        got = "none"
        if files:
            got = f"{len(files)} ({', '.join(files[:3])}); name it by --annotations"
        expected = f"expected one {' or '.join(suffixes) or 'common'} file {annotations or ''}"
        raise DatasetError(f"{expected} in the data set, got {got}")
    data = Dataset(names, open_file)
    reader(data, files[0] if files else "")
    data.number()
    if not data.failures and not any(image.objects for image in data.images.values()):
        raise DatasetError(f"no boxes or points of the format {form} found")
    return data


READERS: dict[str, tuple[Callable[[Dataset, str], None], tuple[str, ...]]] = {
    "coco": (read_coco, (".json",)),
    "yolo": (read_yolo, (".yaml", ".yml")),
    "voc": (read_voc, ()),
    "label-studio": (read_label_studio, (".json",)),
    "csv": (read_csv, (".csv",)),
}
"""Functions that read the formats, and the suffixes of the file of their annotations; none if it
has one per image."""
