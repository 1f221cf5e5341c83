"""`mobile-sam convert`: COCO annotations as the files of other tools."""

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal

import typer

from mobile_sam_client._commands.annotation_masks import (
    coco_document,
    is_label_studio,
    read_annotations,
    write_label_studio,
)
from mobile_sam_client._commands.files import check_writable, write_data_yaml, write_json
from mobile_sam_client._commands.folder_batch import MAX_LISTED_FAILURES, described
from mobile_sam_client._commands.options import Force, option
from mobile_sam_client._commands.output import (
    CommandError,
    print_line,
    print_note,
)
from mobile_sam_client._commands.yolo_labels import Unmasked, write_yolo
from mobile_sam_client._errors import describe_error

REQUIREMENT = "supervision>=0.31"
Failure = dict[str, Any]
"""What was left out or changed, in the form of `Dataset.failures`."""


def convert(
    annotations: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="COCO annotations, such as annotations.json of mobile-sam batch; or tasks "
            "exported from Label Studio as JSON.",
        ),
    ],
    *,
    images: Annotated[Path, option("Folder of the images.", "FOLDER")],
    to: Annotated[
        Literal["yolo", "voc", "labelme", "label-studio", "coco"],
        option(
            "yolo: labels for segmentation and data.yaml; voc: Pascal VOC, XML; "
            "labelme: LabelMe, JSON; label-studio: tasks with brush masks; "
            "coco: RLE, of Label Studio's tasks."
        ),
    ],
    out: Annotated[Path, option("Folder for the files.", "FOLDER")],
    force: Force = False,
) -> None:
    """Convert COCO annotations or Label Studio's tasks.

    label-studio and coco keep masks, names and scores as they are. Label Studio's brush masks,
    polygons and rectangles are read.

    Otherwise masks become polygons: a cut joins a hole to its outline, and in YOLO and Pascal VOC
    each island of a mask becomes a separate object. In YOLO, an island of one pixel
    or of a straight line is a polygon of three points, an object with only a box is the whole box,
    and one without a mask and a box is left out.
    These need the Python package supervision. No service is needed.
    """
    check_writable(out / "file")
    if not force and out.exists() and any(out.iterdir()):
        raise CommandError(f"{out} is not empty; write into it with --force")
    is_tasks = is_label_studio(annotations)
    if to == "coco" and not is_tasks:
        raise CommandError(f"cannot convert {annotations}: it is no list of Label Studio's tasks")
    if to in {"label-studio", "coco"}:
        data = read_annotations(annotations, images)
        if to == "coco":
            document = coco_document(data)
            write_json(out / "annotations.json", document)
            count = len(document["images"])
        else:
            count = write_label_studio(data, images, out)
        _report(out, count, [], data.failures)
        return
    if is_tasks:
        data = read_annotations(annotations, images)
        document = coco_document(data)
        with TemporaryDirectory() as folder:
            coco = Path(folder) / "annotations.json"
            write_json(coco, document)
            _convert_by_supervision(coco, images, to, out, data.failures)
        return
    _convert_by_supervision(annotations, images, to, out, [])


def _convert_by_supervision(
    annotations: Path, images: Path, to: str, out: Path, failures: Sequence[Failure]
) -> None:
    """Convert COCO annotations; `failures` are those of an earlier step."""
    try:
        import supervision  # noqa: PLC0415 (optional, and slow to import)
    except ImportError:
        command = f"pip install '{REQUIREMENT}'"
        raise CommandError(f"convert needs another package: {command}") from None
    unmasked = Unmasked([], [])
    try:
        dataset = supervision.DetectionDataset.from_coco(
            str(images), str(annotations), force_masks=True
        )
        if to == "yolo":
            unmasked = write_yolo(dataset, out / "labels")
            write_data_yaml(out / "data.yaml", dataset.classes, {})
        elif to == "voc":
            dataset.as_pascal_voc(annotations_directory_path=str(out))
        else:
            dataset.as_labelme(annotations_directory_path=str(out))
    except (ValueError, KeyError, TypeError) as error:
        reason = describe_error(error, with_file=True)
        if isinstance(error, KeyError):
            reason = f"{error} is missing"
        raise CommandError(f"cannot convert {annotations}: {reason}") from error
    if unmasked.boxes:
        remark = "objects have only a box, which is written as their mask"
        print_note(f"note: {len(unmasked.boxes)} {remark}")
    lines = [f"failed: {message}; it was left out" for message in unmasked.left_out]
    _report(out, len(dataset), lines, failures)


def _report(out: Path, count: int, lines: Sequence[str], failures: Sequence[Failure]) -> None:
    """Print what was written, left out and changed; exit with 1 if anything was left out.

    Args:
        out: the folder.
        count: number of images.
        lines: lines about objects that were left out.
        failures: further ones, or changes, in the form of `Dataset.failures`.
    """
    lost = len(lines) + sum("changed" not in failure for failure in failures)
    left_out = f", {lost} objects left out" if lost else ""
    print_line(f"wrote {out}: {count} images{left_out}")
    listed = [*lines, *map(described, failures)]
    for line in listed[:MAX_LISTED_FAILURES]:
        print_note(line)
    if len(listed) > MAX_LISTED_FAILURES:
        print_note(f"failed: {len(listed) - MAX_LISTED_FAILURES} more")
    if lost:
        raise typer.Exit(1)
