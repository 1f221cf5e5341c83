"""Loose boxes, and the boxes around the masks that the model makes of them.

    python -m benchmarks.loose_boxes DIR

widens the boxes of all objects of a folder (see `benchmarks.objects`) at each side by a random
share of the object's width and height, and asks a service with the official weights for their
masks. It prints the IoU with the true boxes before and after, and how many new boxes a lowest IoU
with the loose box would refuse. `mobile-sam masks --to boxes` and the page have this bound.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.objects import LabelledObject, Mask, read_objects
from benchmarks.service import OFFICIAL, running
from benchmarks.stats import table
from harness.repository import prepare
from mobile_sam_client import Client

SHARES = (0.0, 0.1, 0.2, 0.3, 0.5)
"""Mean shares by which a box is widened at each side."""
BOUNDS = (0.2, 0.25, 0.3, 0.4, 0.5)
Box = NDArray[np.float64]
"""(4,) float64: x0, y0, x1, y1 in pixels; x1 and y1 are exclusive."""


class Result(NamedTuple):
    """A loose box and the box of its mask."""

    share: float
    agreement: float
    """IoU of the two."""
    before: float
    """IoU of the loose box with the true one."""
    after: float
    """IoU of the mask's box with the true one."""


def box_of(mask: Mask) -> Box:
    """Return the smallest box around a mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], float)


def box_iou(one: Box, other: Box) -> float:
    """Return the intersection over union of two boxes."""
    sides = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    common = float(sides.clip(0).prod())
    areas = (one[2:] - one[:2]).prod() + (other[2:] - other[:2]).prod()
    return common / float(areas - common)


def measure(
    client: Client, labelled: LabelledObject, random: np.random.Generator
) -> Iterator[Result]:
    """Yield a result for each share by which the object's box is widened."""
    true = box_of(labelled.mask)
    height, width = labelled.mask.shape
    sides = np.tile(true[2:] - true[:2], 2) * [-1, -1, 1, 1]
    for share in SHARES:
        moves = random.uniform(0.5, 1.5, 4) * share * sides
        loose = np.clip(true + moves, 0, [width, height, width, height])
        found = client.segment(labelled.file, box=loose.tolist(), segmented_image="none")
        tight = np.array(found.box_xyxy, float)
        agreement, after = box_iou(tight, loose), box_iou(tight, true)
        yield Result(share, agreement, box_iou(loose, true), after)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="folder of objects with human masks")
    folder = parser.parse_args().folder
    random = np.random.default_rng(1)
    results: list[Result] = []
    with running(prepare(OFFICIAL)) as service, Client(service.url) as client:
        for labelled in read_objects(folder):
            results += measure(client, labelled, random)

    rows = []
    for share in SHARES:
        chosen = [one for one in results if one.share == share]
        before = np.mean([one.before for one in chosen])
        after = np.mean([one.after for one in chosen])
        least = min(one.agreement for one in chosen)
        rows.append(
            [f"{share:.0%}", str(len(chosen)), f"{before:.2f}", f"{after:.2f}", f"{least:.2f}"]
        )
    print(table(["widened by", "boxes", "IoU before", "IoU after", "least IoU, both"], rows))
    rows = []
    for bound in BOUNDS:
        below = [one for one in results if one.agreement < bound]
        better = sum(one.after > one.before for one in below)
        rows.append([f"{bound:.2f}", str(len(below)), str(better)])
    print(table(["bound", "boxes below", "of which the new one is better"], rows))


if __name__ == "__main__":
    main()
