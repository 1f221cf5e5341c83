"""`mobile-sam masks`: a mask for every box and point of a detection data set."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from mobile_sam_client._commands import connection, files
from mobile_sam_client._commands.batch import Batch, Concurrency
from mobile_sam_client._commands.mask_files import MaskFiles
from mobile_sam_client._commands.options import option
from mobile_sam_client._commands.output import CommandError
from mobile_sam_client._datasets.dataset import DatasetError, DatasetFiles
from mobile_sam_client._datasets.readers import read_dataset

Format = Enum("Format", {"coco": "coco", "yolo": "yolo", "voc": "voc", "label_studio": "label-studio", "csv": "csv"})
Target = Enum("Target", {"coco": "coco", "coco_polygons": "coco-polygons", "yolo_seg": "yolo-seg", "png": "png"})
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
    ] = Target.coco,
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
    failures.json     what has no mask, with reasons
    records           results per image, used to resume
    """
    if out.resolve() == dataset.resolve():
        raise typer.BadParameter("must not be the folder of the data set", param_hint="--out")
    files.check_writable(out / "manifest.jsonl")
    root = dataset.resolve()
    paths = {name: (root / name).resolve() for name in files.list_files(dataset, out)}
    names = [name for name, path in paths.items() if path.is_file() and path.is_relative_to(root)]
    try:
        data = read_dataset(form.value, DatasetFiles(names, lambda name: (root / name).open("rb")), annotations)
    except DatasetError as error:
        raise CommandError(f"{dataset}: {error}") from None
    jobs = {name: image.request() for name, image in data.images.items() if image.objects}
    work = Batch(jobs, images=dataset, out=out)
    work.run_with(service, concurrency)
    results = MaskFiles(out, data, work, min_score)
    counts, written = results.write(to.value)
    work.report(counts, written, [*data.failures, *results.lost], as_json=service.as_json)
