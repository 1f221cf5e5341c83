"""`mobile-sam convert`: COCO annotations as the files of other tools."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from mobile_sam_client._commands.annotation_masks import (
    coco_document,
    is_label_studio,
    read_annotations,
    write_label_studio,
)
from mobile_sam_client._commands.files import check_writable, write_json
from mobile_sam_client._commands.folder_batch import MAX_LISTED_FAILURES, described
from mobile_sam_client._commands.options import Force, option
from mobile_sam_client._commands.output import CommandError, print_line, print_note
from mobile_sam_client._commands.polygon_files import check_supervision, write_polygons

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
    or of a straight line is a polygon of three points.
    These need the Python package supervision. No service is needed.

    An object with only a box becomes the whole box. What cannot be read is left out and listed.
    """
    check_writable(out / "file")
    if not force and out.exists() and any(out.iterdir()):
        raise CommandError(f"{out} is not empty; write into it with --force")
    if to == "coco" and not is_label_studio(annotations):
        raise CommandError(f"cannot convert {annotations}: it is no list of Label Studio's tasks")
    if to in {"yolo", "voc", "labelme"}:
        check_supervision()
    data = read_annotations(annotations, images)
    if to == "coco":
        document = coco_document(data)
        write_json(out / "annotations.json", document)
        count = len(document["images"])
    elif to == "label-studio":
        count = write_label_studio(data, images, out)
    else:
        count = write_polygons(data, images, to, out)
    _report(out, count, data.failures)


def _report(out: Path, count: int, failures: Sequence[Failure]) -> None:
    """Print what was written, left out and changed; exit with 1 if anything was left out.

    Args:
        out: the folder.
        count: number of images.
        failures: what was left out or changed.
    """
    lost = sum("changed" not in failure for failure in failures)
    left_out = f", {lost} objects left out" if lost else ""
    print_line(f"wrote {out}: {count} images{left_out}")
    # Losses come first: there may be many changes, such as objects with only a box.
    listed = sorted(failures, key=lambda failure: "changed" in failure)
    for failure in listed[:MAX_LISTED_FAILURES]:
        print_note(described(failure))
    if len(listed) > MAX_LISTED_FAILURES:
        more = len(listed) - MAX_LISTED_FAILURES
        print_note(f"{more} more failures and changes")
    if lost:
        raise typer.Exit(1)
