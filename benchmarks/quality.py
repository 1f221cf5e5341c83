"""Quality of the service's masks: IoU with human masks by kind of prompt, and clicks needed.

    python -m benchmarks.quality DIR --weights official builtin

prompts a running service with every object of a folder (see `benchmarks.objects`): a click, three candidates, a box,
and further clicks (see `benchmarks.clicks`), each refining the previous mask through `mask_input`. Every click gets the
default answer, a single mask. Prints tables of all weights and of methods without a model, and writes them to
`out/quality/`.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from benchmarks.clicks import MAX_CLICKS, Click, clicks_to_reach, iou_after, next_click, number_of_clicks
from benchmarks.figures import table
from benchmarks.objects import LabelledObject, Mask, iou, read_objects
from benchmarks.service import BUILTIN, OFFICIAL, ROOT, prepare, running
from mobile_sam_client import Client

OUTPUT = ROOT / "out" / "quality"
CLICKS = 5
"""Minimum number of clicks on every object."""
TARGETS = (0.85, 0.90)


@dataclass
class Prediction:
    """Masks (K, H, W) bool with their scores and low-resolution masks for refinement."""

    masks: Mask
    scores: list[float]
    low_res: list[Any]


def ask(client: Client, image: Path, **prompt: Any) -> Prediction:
    """Return the service's masks for a prompt."""
    best = client.segment(image, segmented_image="none", low_res_mask=True, **prompt)
    found = best.candidates or (best,)
    scores, low_res = [one.score for one in found], [one.low_res_mask for one in found]
    return Prediction(np.stack([one.mask for one in found]), scores, low_res)


@dataclass
class Score:
    """IoU of one object's masks: by kind of prompt, and after 1, 2, ... clicks."""

    after: list[float] = field(default_factory=list)
    iou: dict[str, float] = field(default_factory=dict)
    score: float = 0.0
    """Score that the service returned for the first click."""


def click_until_good(client: Client, labelled: LabelledObject) -> Score:
    """Click on an object until the IoU reaches all `TARGETS`, at least `CLICKS` and at most `MAX_CLICKS` times."""
    result = Score()
    earlier: dict[str, Any] = {}
    click: Click | None = Click(labelled.point, 1)
    clicks: list[Click] = []
    while click and len(clicks) < MAX_CLICKS and (len(clicks) < CLICKS or result.after[-1] < max(TARGETS)):
        clicks.append(click)
        points, labels = [click.point_xy for click in clicks], [click.label for click in clicks]
        answer = ask(client, labelled.file, pos_coords=points, labels=labels, **earlier)
        earlier = {"mask_input": answer.low_res[0]}
        result.after.append(iou(answer.masks[0], labelled.mask))
        if len(clicks) == 1:
            result.score = answer.scores[0]
        click = next_click(answer.masks[0], labelled.mask, clicks)
    return result


def measure(url: str, labelled: LabelledObject) -> Score:
    """Prompt the service with one object in all ways."""
    with Client(url) as client:
        result = click_until_good(client, labelled)
        three = ask(client, labelled.file, pos_coords=[labelled.point], multimask_output=True)
        boxed = ask(client, labelled.file, box=labelled.box)
    for number in range(1, CLICKS + 1):
        result.iou[f"{number} click{'s' if number > 1 else ''}"] = iou_after(result.after, number)
    candidates = [iou(mask, labelled.mask) for mask in three.masks]
    result.iou["1 click, best of three candidates"] = max(candidates)
    result.iou["1 click, candidate of highest score"] = candidates[int(np.argmax(three.scores))]
    result.iou["box"] = iou(boxed.masks[0], labelled.mask)
    return result


def iou_table(columns: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Return a table of mean IoU and the shares of objects above 0.5 and 0.75, one row per kind of prompt.

    Args:
        columns: for each column, every object's IoU by kind of prompt.
    """
    header = ["asked with", *(title for name in columns for title in (f"{name}: mean IoU", "over 0.5", "over 0.75"))]
    rows = []
    for prompt in next(iter(columns.values()))[0]:
        rows.append([prompt])
        for objects in columns.values():
            values = np.array([each[prompt] for each in objects])
            rows[-1] += [f"{values.mean():.3f}", f"{(values > 0.5).mean():.0%}", f"{(values > 0.75).mean():.0%}"]
    return table(header, rows)


def clicks_table(scores: Mapping[str, Sequence[Score]]) -> str:
    """Return a table of the clicks needed and of the agreement between the first click's score and IoU."""
    rows: list[list[str]] = []
    for target in TARGETS:
        needed = {name: [clicks_to_reach(score.after, target) for score in each] for name, each in scores.items()}
        rows.append([f"NoC@{target * 100:.0f}", *(f"{number_of_clicks(each):.2f}" for each in needed.values())])
        never = (f"{each.count(None)} of {len(each)}" for each in needed.values())
        rows.append([f"IoU {target:.2f} not reached with {MAX_CLICKS} clicks", *never])
    means = (np.mean([iou_after(score.after, CLICKS) for score in each]) for each in scores.values())
    rows.append([f"mIoU at {CLICKS} clicks", *(f"{mean:.3f}" for mean in means)])
    first = {name: [[score.after[0], score.score] for score in each] for name, each in scores.items()}
    rows.append(["mean score of 1 click", *(f"{np.mean(each, axis=0)[1]:.3f}" for each in first.values())])
    agreement = (f"{np.corrcoef(np.transpose(each))[0, 1]:.2f}" for each in first.values())
    rows.append(["correlation of that score with its IoU", *agreement])
    return table(["", *scores], rows)


def flood_fill(labelled: LabelledObject, tolerance: int) -> Mask:
    """Return the selection of a magic wand: neighbours within `tolerance` of the clicked colour, in Lab."""
    lab = cv2.cvtColor(labelled.image, cv2.COLOR_RGB2LAB)
    filled = np.zeros((lab.shape[0] + 2, lab.shape[1] + 2), np.uint8)
    flags = 4 | cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | (1 << 8)
    start = (int(labelled.point[0]), int(labelled.point[1]))
    cv2.floodFill(lab, filled, start, (0,), (tolerance,) * 3, (tolerance,) * 3, flags)
    mask: Mask = filled[1:-1, 1:-1] > 0
    return mask


def grab_cut(labelled: LabelledObject, from_box: bool) -> Mask:
    """Run five iterations of GrabCut, from the box or from a disc around the click."""
    height, width = labelled.mask.shape
    state = np.full((height, width), cv2.GC_PR_BGD, np.uint8)
    if from_box:
        x0, y0, x1, y1 = (int(value) for value in labelled.box)
        state[:] = cv2.GC_BGD
        state[y0:y1, x0:x1] = cv2.GC_PR_FGD
    else:
        centre = (int(labelled.point[0]), int(labelled.point[1]))
        cv2.circle(state, centre, max(height, width) // 8, (cv2.GC_PR_FGD,), -1)
        cv2.circle(state, centre, 5, (cv2.GC_FGD,), -1)
    if not (state & 1 == 0).any():  # the box covers the image: no background (even states)
        return np.ones((height, width), bool)
    cv2.setRNGSeed(0)
    backwards = np.ascontiguousarray(labelled.image[..., ::-1])
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(backwards, state, (0, 0, 0, 0), *models, 5, cv2.GC_INIT_WITH_MASK)
    found: Mask = (state == cv2.GC_FGD) | (state == cv2.GC_PR_FGD)
    return found


def baselines(labelled: LabelledObject) -> dict[str, float]:
    """Return each baseline's IoU with the human mask."""
    box = np.zeros(labelled.mask.shape, bool)
    x0, y0, x1, y1 = (int(value) for value in labelled.box)
    box[y0:y1, x0:x1] = True
    fills = [iou(flood_fill(labelled, tolerance), labelled.mask) for tolerance in (10, 20, 35)]
    return {
        "flood fill in Lab from the click": fills[1],
        "flood fill, best of three tolerances": max(fills),
        "GrabCut from the click": iou(grab_cut(labelled, from_box=False), labelled.mask),
        "GrabCut from the box": iou(grab_cut(labelled, from_box=True), labelled.mask),
        "the box itself": iou(box, labelled.mask),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="photographs with outlined objects")
    parser.add_argument("--weights", nargs="+", default=[OFFICIAL, BUILTIN], help="default: official and builtin")
    engine = os.environ.get("MOBILE_SAM_ENGINE", "auto")
    parser.add_argument("--engine", default=engine, help="as in MOBILE_SAM_ENGINE; default: %(default)s")
    options = parser.parse_args()
    objects = read_objects(options.folder)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    scores: dict[str, list[Score]] = {}
    for weights in options.weights:
        name = Path(weights).stem
        with running(prepare(weights), engine=options.engine) as service:
            scores[name] = [measure(service.url, labelled) for labelled in tqdm(objects, desc=name, unit="object")]
    with ProcessPoolExecutor() as pool:
        others = list(tqdm(pool.map(baselines, objects), desc="without a model", total=len(objects), unit="object"))
    tables = (
        iou_table({name: [score.iou for score in each] for name, each in scores.items()}),
        clicks_table(scores),
        iou_table({"no model": others}),
    )
    report = "\n\n".join([f"Objects: {len(objects)}.", *tables])
    (OUTPUT / "tables.md").write_text(report + "\n")
    print(f"{report}\n\nwrote {OUTPUT}/tables.md")


if __name__ == "__main__":
    main()
