"""`mobile-sam convert`: COCO annotations as the files of other tools."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from mobile_sam_client._commands.files import check_writable, write_data_yaml
from mobile_sam_client._commands.folder_batch import MAX_LISTED_FAILURES
from mobile_sam_client._commands.options import Force, option
from mobile_sam_client._commands.output import (
    CommandError,
    print_line,
    print_note,
)
from mobile_sam_client._commands.yolo_labels import Unmasked, write_yolo
from mobile_sam_client._errors import describe_error

REQUIREMENT = "supervision>=0.31"


def convert(
    annotations: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="COCO annotations, such as annotations.json of mobile-sam batch."
        ),
    ],
    *,
    images: Annotated[Path, option("Folder of the images.", "FOLDER")],
    to: Annotated[
        Literal["yolo", "voc", "labelme"],
        option(
            "yolo: labels for segmentation and data.yaml; voc: Pascal VOC, XML; "
            "labelme: LabelMe, JSON."
        ),
    ],
    out: Annotated[Path, option("Folder for the files.", "FOLDER")],
    force: Force = False,
) -> None:
    """Convert COCO annotations to YOLO, Pascal VOC or LabelMe.

    Masks become polygons: a cut joins a hole to its outline, and in YOLO and Pascal VOC
    each island of a mask becomes a separate object. In YOLO, an island of one pixel
    or of a straight line is a polygon of three points, an object with only a box is the whole box,
    and one without a mask and a box is left out.
    Needs the Python package supervision, and no service.
    """
    check_writable(out / "file")
    if not force and out.exists() and any(out.iterdir()):
        raise CommandError(f"{out} is not empty; write into it with --force")
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
    left_out = f", {len(unmasked.left_out)} objects left out" if unmasked.left_out else ""
    print_line(f"wrote {out}: {len(dataset)} images{left_out}")
    if unmasked.boxes:
        remark = "objects have only a box, which is written as their mask"
        print_note(f"note: {len(unmasked.boxes)} {remark}")
    for message in unmasked.left_out[:MAX_LISTED_FAILURES]:
        print_note(f"failed: {message}; it was left out")
    if len(unmasked.left_out) > MAX_LISTED_FAILURES:
        print_note(f"failed: {len(unmasked.left_out) - MAX_LISTED_FAILURES} more")
    if unmasked.left_out:
        raise typer.Exit(1)
