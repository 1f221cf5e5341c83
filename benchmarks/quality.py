"""Quality of the service's masks: IoU with human masks by kind of prompt, and clicks needed.

    python -m benchmarks.quality DIR --weights official builtin

prompts a running service with every object of a folder (see `benchmarks.objects`): a click, three
candidates, a box, and further clicks (see `benchmarks.clicks`), each refining the previous mask
through `mask_input`. Every click gets the default answer, a single mask. Prints tables of all
weights, and one of masks in regions by the first of them (see `benchmarks.regions`).
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks import regions
from benchmarks.clicks import MAX_CLICKS, Click, clicks_to_reach, iou_after, next_click
from benchmarks.objects import LabelledObject, iou, read_objects
from benchmarks.service import BUILTIN, OFFICIAL, running
from benchmarks.stats import table
from harness.repository import prepare
from mobile_sam_client import Client, Segmentation

CLICKS = 5
"""Minimum number of clicks on every object."""
TARGETS = (0.85, 0.90)


def ask(client: Client, image: Path, **prompt: Any) -> Segmentation:
    """Return the service's best mask for a prompt."""
    return client.segment(image, segmented_image="none", low_res_mask=True, **prompt)


@dataclass
class Score:
    """IoU of one object's masks: by kind of prompt, and after 1, 2, ... clicks."""

    after: list[float] = field(default_factory=list)
    iou: dict[str, float] = field(default_factory=dict)
    score: float = 0.0
    """Score that the service returned for the first click."""
    beside: list[bool] = field(default_factory=list)
    """Whether each click adds something beside the mask before it."""


def click_until_good(client: Client, labelled: LabelledObject) -> Score:
    """Click on an object until the IoU reaches all `TARGETS`, at least `CLICKS` and at most
    `MAX_CLICKS` times.
    """
    result = Score()
    earlier: dict[str, Any] = {}
    click: Click | None = Click(labelled.point, 1)
    clicks: list[Click] = []
    is_beside = False
    while (
        click
        and len(clicks) < MAX_CLICKS
        and (len(clicks) < CLICKS or result.after[-1] < max(TARGETS))
    ):
        clicks.append(click)
        points, labels = [click.point_xy for click in clicks], [click.label for click in clicks]
        answer = ask(client, labelled.file, pos_coords=points, labels=labels, **earlier)
        earlier = {"mask_input": answer.low_res_mask}
        result.after.append(iou(answer.mask, labelled.mask))
        if len(clicks) == 1:
            result.score = answer.score
        click = next_click(answer.mask, labelled.mask, clicks)
        result.beside.append(is_beside)
        is_beside = click is not None and click.label == 1
    return result


def measure(url: str, labelled: LabelledObject) -> Score:
    """Prompt the service with one object in all ways."""
    with Client(url) as client:
        result = click_until_good(client, labelled)
        three = ask(client, labelled.file, pos_coords=[labelled.point], multimask_output=True)
        boxed = ask(client, labelled.file, box=labelled.box)
    for number in range(1, CLICKS + 1):
        result.iou[f"{number} click{'s' if number > 1 else ''}"] = iou_after(result.after, number)
    candidates = [iou(candidate.mask, labelled.mask) for candidate in three.candidates]
    result.iou["1 click, best of three candidates"] = max(candidates)
    best = max(three.candidates, key=lambda candidate: candidate.score)
    result.iou["1 click, candidate of highest score"] = iou(best.mask, labelled.mask)
    result.iou["box"] = iou(boxed.mask, labelled.mask)
    return result


def iou_table(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a table of mean IoU and the share of objects above 0.75, one row per kind of
    prompt.
    """
    header = [
        "asked with",
        *(title for name in scores for title in (f"{name}: mean IoU", "over 0.75")),
    ]
    rows = []
    for prompt in next(iter(scores.values()))[0].iou:
        rows.append([prompt])
        for objects in scores.values():
            values = np.array([labelled.iou[prompt] for labelled in objects])
            rows[-1] += [f"{values.mean():.3f}", f"{(values > 0.75).mean():.0%}"]
    return table(header, rows)


def clicks_table(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a table of the clicks needed and of the agreement between the first click's score
    and IoU.
    """
    rows: list[list[str]] = []
    for target in TARGETS:
        needed = {
            name: [clicks_to_reach(score.after, target) for score in each]
            for name, each in scores.items()
        }
        means = (np.mean([clicks or MAX_CLICKS for clicks in each]) for each in needed.values())
        rows.append([f"NoC@{target * 100:.0f}", *(f"{mean:.2f}" for mean in means)])
        never = (f"{each.count(None)} of {len(each)}" for each in needed.values())
        rows.append([f"IoU {target:.2f} not reached with {MAX_CLICKS} clicks", *never])
    means = (
        np.mean([iou_after(score.after, CLICKS) for score in each]) for each in scores.values()
    )
    rows.append([f"mIoU at {CLICKS} clicks", *(f"{mean:.3f}" for mean in means)])
    first = {
        name: [[score.after[0], score.score] for score in each] for name, each in scores.items()
    }
    rows.append(
        ["mean score of 1 click", *(f"{np.mean(each, axis=0)[1]:.3f}" for each in first.values())]
    )
    agreement = (f"{np.corrcoef(np.transpose(each))[0, 1]:.2f}" for each in first.values())
    rows.append(["correlation of that score with its IoU", *agreement])
    return table(["", *scores], rows)


def keys_table(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a table of the keys that an annotator presses per object on the page until
    `TARGETS` are reached, with the setting "One click, one object".

    With the setting, Shift goes with each click that adds something beside the mask. Without it,
    `N` or Shift goes with the first click of each object: one key per object.
    """
    rows = []
    for target in TARGETS:
        means, easy_means = [], []
        for objects in scores.values():
            needed = [clicks_to_reach(score.after, target) or MAX_CLICKS for score in objects]
            keys = [sum(score.beside[:n]) for score, n in zip(objects, needed, strict=True)]
            easy = [number for number, n in zip(keys, needed, strict=True) if n <= CLICKS]
            means.append(f"{np.mean(keys):.2f}")
            easy_means.append(f"{np.mean(easy):.2f} ({len(easy)} of {len(objects)})")
        rows.append([f"keys per object to IoU {target:.2f}", *means])
        rows.append([f"of objects that reach it with {CLICKS} clicks", *easy_means])
    return table(["one click, one object", *scores], rows)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="photographs with outlined objects")
    parser.add_argument(
        "--weights", nargs="+", default=[OFFICIAL, BUILTIN], help="default: official and builtin"
    )
    options = parser.parse_args()
    objects, engine = read_objects(options.folder), os.environ.get("MOBILE_SAM_ENGINE", "auto")
    scores: dict[str, list[Score]] = {}
    by_region: regions.Scores = {}
    for weights in options.weights:
        name = Path(weights).stem
        with running(prepare(weights), engine) as service, TemporaryDirectory() as folder:
            scores[name] = [
                measure(service.url, labelled)
                for labelled in tqdm(objects, desc=name, unit="object")
            ]
            by_region = by_region or regions.measure_all(service.url, objects, Path(folder))
    print(f"Objects: {len(objects)}.\n\n{iou_table(scores)}\n\n{clicks_table(scores)}")
    print(f"\n{keys_table(scores)}")
    print(f"\nMean IoU with `region`, {options.weights[0]}:\n\n{regions.region_table(by_region)}")


if __name__ == "__main__":
    main()
