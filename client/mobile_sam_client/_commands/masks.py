"""`mobile-sam masks`: a mask for every box and point of a detection data set."""

from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer

from mobile_sam_client._commands import files
from mobile_sam_client._commands import options as shared
from mobile_sam_client._commands.box_files import BoxWriter
from mobile_sam_client._commands.dataset_files import DatasetWriter
from mobile_sam_client._commands.folder_batch import FolderFiles, report, run_batch
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client.batches import Batch
from mobile_sam_client.datasets import Dataset, DatasetError, DatasetFormat, read_dataset

OutputFormat = Literal["coco", "coco-polygons", "yolo-seg", "png", "boxes"]
"""Formats of masks, or boxes in the format of the data set."""
Writer = TypeVar("Writer", bound=DatasetWriter)


def masks(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="Folder of the data set, with its images.")
    ],
    *,
    form: Annotated[
        DatasetFormat,
        option(
            "coco: instances, JSON; yolo: labels, images, data.yaml; voc: Pascal VOC, XML; "
            "label-studio: rectangles and key points, exported as JSON; "
            "csv: columns image, x0, y0, x1, y1 (or x, y) in pixels, and label.",
            None,
            "--format",
        ),
    ],
    out: Annotated[Path, option("Folder for the results.", "FOLDER")],
    to: Annotated[
        OutputFormat,
        typer.Option(
            help="coco: RLE; coco-polygons; yolo-seg: labels for segmentation; "
            "png: maps of classes and objects; boxes: the boxes around the masks, in the format "
            "of the data set."
        ),
    ] = "coco",
    annotations: Annotated[
        str | None,
        option(
            "JSON, CSV or YAML file of the data set, if it has several: its path in it.", "PATH"
        ),
    ] = None,
    min_score: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SCORE",
            help="Put masks with a lower score into review.json instead.",
        ),
    ] = 0,
    concurrency: shared.Concurrency = 4,
    as_json: shared.AsJson = False,
    url: shared.Url = None,
    max_side: shared.MaxSide = None,
) -> None:
    """Turn the boxes and points of a detection data set into masks.

    The same command resumes an interrupted run. Finished images are skipped
    unless image, boxes or weights have changed. What cannot be used does not stop the run.

    Files in the result folder, with the data set's ids, classes and further fields:
    annotations.json  COCO annotations; or labels and data.yaml; or classes, instances and classes.json
                      with --to boxes, as the data set: labels and data.yaml, Annotations, tasks.json
                      or boxes.csv
    review.json       COCO annotations of the masks below --min-score, which the page opens
    manifest.jsonl    a line per object: score, IoU of the mask's box and the given one, remarks
    failures.json     what was left out or changed, with reasons
    records           results per image, used to resume
    """  # noqa: E501 (lines of the help)
    if out.resolve() == dataset.resolve():
        raise typer.BadParameter("must not be the folder of the data set", param_hint="--out")
    files.check_writable(out / "manifest.jsonl")
    data = _read(dataset, form, annotations, excluded=out)
    requests = {name: image.request() for name, image in data.images.items() if image.objects}

    folder_files = FolderFiles(requests, dataset, out, draw=False, max_side=max_side)
    work = Batch(folder_files.requests, folder_files)
    stop_reason = run_batch(work, url, max_side, concurrency)

    def make(kind: type[Writer]) -> Writer:
        return kind(
            data,
            out,
            results=lambda: folder_files.results(work.done),
            weights=work.weights,
            min_score=min_score,
        )

    writer: DatasetWriter
    if to == "boxes":
        writer = box_writer = make(BoxWriter)
        written = box_writer.write_boxes(form)
    else:
        writer = make(DatasetWriter)
        written = writer.write_masks(to)
    if min_score:
        written.append(writer.write_review())
    counts = writer.write_manifest()
    report(
        work,
        folder_files,
        counts=counts,
        written=[*written, "manifest.jsonl"],
        stop_reason=stop_reason,
        as_json=as_json,
        others=[*data.failures, *writer.failures],
    )


def _read(folder: Path, form: DatasetFormat, annotations: str | None, excluded: Path) -> Dataset:
    """Read a data set; files that are links to outside of its folder are no part of it."""
    root = folder.resolve()
    names = []
    for name in files.list_files(folder, excluded):
        path = (root / name).resolve()
        if path.is_file() and path.is_relative_to(root):
            names.append(name)
    try:
        return read_dataset(form, names, lambda name: (root / name).open("rb"), annotations)
    except DatasetError as error:
        raise CommandError(f"{folder}: {error}") from None
