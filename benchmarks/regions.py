"""Quality with `region`: IoU with human masks by the size of the object, without it, with "auto"
and with a view.

Photographs stand alone and in mosaics, where the same objects are small parts of large pictures.
The region of a view is what a user sees who has zoomed in: `VIEW` times the object's box, which is
not in the middle. Later clicks name the region of the first answer, unless they are outside of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.clicks import Click, next_click
from benchmarks.objects import LabelledObject, iou, read_picture
from benchmarks.stats import table
from mobile_sam_client import Client

MOSAICS = (1, 3, 8)
"""Photographs along each side of a picture."""
SIZES = ((0, 0.01), (0.01, 0.05), (0.05, 1))
"""Least and largest share of the picture that an object has."""
ARMS = ("whole image", "auto", "view")
PROMPTS = ("box", "1 click", "3 clicks")
VIEW = 3.0

Scores = dict[tuple[int, int], list[list[float]]]
"""IoU by prompt and arm of the objects of a mosaic and a size."""


def in_mosaics(
    objects: Sequence[LabelledObject], per_side: int, folder: Path
) -> Iterator[LabelledObject]:
    """Yield the objects on pictures of `per_side` x `per_side` photographs, which are written to
    a folder.
    """
    by_file: dict[Path, list[LabelledObject]] = {}
    for labelled in objects:
        by_file.setdefault(labelled.file, []).append(labelled)
    for shape in sorted({labelled.image.shape for labelled in objects}):
        files = [file for file in by_file if by_file[file][0].image.shape == shape]
        height, width, _ = shape
        for start in range(0, len(files), per_side**2):
            # The last mosaic is filled up with photographs whose objects were in an earlier one.
            tiles = [files[index % len(files)] for index in range(start, start + per_side**2)]
            rows = [tiles[at : at + per_side] for at in range(0, len(tiles), per_side)]
            picture = np.concatenate(
                [np.concatenate(list(map(read_picture, row)), axis=1) for row in rows]
            )
            path = folder / f"{per_side}-{height}-{start}.jpg"
            Image.fromarray(picture).save(path, quality=95)
            for index, file in enumerate(tiles[: len(files) - start]):
                x, y = index % per_side * width, index // per_side * height
                for labelled in by_file[file]:
                    mask = np.zeros(picture.shape[:2], bool)
                    mask[y : y + height, x : x + width] = labelled.mask
                    point = (labelled.point[0] + x, labelled.point[1] + y)
                    x0, y0, x1, y1 = labelled.box
                    yield LabelledObject(
                        path, picture, mask, point, (x0 + x, y0 + y, x1 + x, y1 + y)
                    )


def measure(client: Client, labelled: LabelledObject, region: Any) -> list[float]:
    """Return the IoU by box, by one click, and by three clicks, with a region."""
    options: dict[str, Any] = {"segmented_image": "none", "low_res_mask": True}
    sent, earlier = region, dict[str, Any]()
    ious = [
        iou(
            client.segment(labelled.file, box=labelled.box, region=region, **options).mask,
            labelled.mask,
        )
    ]
    clicks = [Click(labelled.point, 1)]
    while True:
        points, labels = [click.point_xy for click in clicks], [click.label for click in clicks]
        answer = client.segment(
            labelled.file, pos_coords=points, labels=labels, region=region, **earlier, **options
        )
        click = next_click(answer.mask, labelled.mask, clicks)
        if len(clicks) in (1, 3) or click is None:
            ious.append(iou(answer.mask, labelled.mask))
        if len(clicks) == 3 or click is None:
            return [*ious, *ious[-1:]][: len(PROMPTS)]
        clicks.append(click)
        region, earlier = answer.region, {"mask_input": answer.low_res_mask}
        x, y = click.point_xy
        if region and not (region[0] <= x <= region[2] and region[1] <= y <= region[3]):
            region, earlier = sent, {}


def view_of(labelled: LabelledObject, generator: np.random.Generator) -> list[float]:
    """Return a square that shows an object and its surroundings, as far as the picture has them."""
    size_wh, box = np.array(labelled.image.shape[1::-1]), np.reshape(labelled.box, (2, 2))
    sides = np.minimum(size_wh, np.clip(VIEW * (box[1] - box[0]).max(), 64, None))
    start = box[0] - generator.random(2) * (sides - (box[1] - box[0]))
    start = np.clip(start, 0, size_wh - sides)
    return [*start.tolist(), *(start + sides).tolist()]


def measure_all(url: str, objects: Sequence[LabelledObject], folder: Path) -> Scores:
    """Prompt the service with all objects on all pictures."""
    scores: Scores = {}
    generator = np.random.default_rng(0)
    with Client(url) as client:
        for per_side in MOSAICS:
            for labelled in in_mosaics(objects, per_side, folder):
                regions = (None, "auto", view_of(labelled, generator))
                size = next(
                    at for at, (low, high) in enumerate(SIZES) if low <= labelled.mask.mean() < high
                )
                measured = [measure(client, labelled, region) for region in regions]
                scores.setdefault((size, per_side), []).append(
                    np.transpose(measured).ravel().tolist()
                )
    return scores


def region_table(scores: Mapping[tuple[int, int], Sequence[Sequence[float]]]) -> str:
    """Return a table of mean IoU, one row per size of objects and kind of pictures."""
    header = [
        "objects",
        "photographs",
        "number",
        *(f"{prompt}: {arm}" for prompt in PROMPTS for arm in ARMS),
    ]
    rows = []
    for (size, per_side), values in sorted(scores.items()):
        low, high = SIZES[size]
        means = (f"{mean:.3f}" for mean in np.mean(values, axis=0))
        rows.append(
            [f"{low:.0%} to {high:.0%}", f"{per_side} x {per_side}", str(len(values)), *means]
        )
    return table(header, rows)
