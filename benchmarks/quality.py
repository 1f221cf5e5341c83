"""Mean IoU with human masks of what the service answers, beside what needs no model.

    python -m benchmarks.quality DIR

asks the running service, as a user would, for every object of a folder (see `benchmarks.objects`): one click, three
candidates, a box, and up to five clicks, each next one at the centre of the largest error and refining the answer so
far. Prints a table, and writes it with a sheet of the best, middle and worst objects to `out/quality/`.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from benchmarks.baselines import baselines
from benchmarks.objects import Mask, Picture, Thing, iou, next_click, read_things
from benchmarks.service import ROOT, running
from client.request import Photo

OUTPUT = ROOT / "out" / "quality"
ROWS = 4
"""Objects of each kind on the sheet."""
CLICKS = 5


@dataclass
class Answer:
    """`masks` (K, H, W) bool, their `scores` (K,) and what to refine them by; the name of the weights that answered."""

    masks: Mask
    scores: list[float]
    low_res: list[str]
    weights: str


def ask(photo: Photo, **prompt: Any) -> Answer:
    """The service's answer to a prompt."""
    parts = photo.segment(mask_format="npy", segmented_image="none", low_res_mask=True, **prompt)
    masks = np.load(io.BytesIO(parts["mask"]))
    result = json.loads(parts["result"])
    scores = [mask["score"] for mask in result["masks"]]
    low_res = [mask["low_res_mask"] for mask in result["masks"]]
    shape = (len(scores), result["height"], result["width"])
    return Answer(masks.reshape(shape), scores, low_res, result["weights"]["name"])


@dataclass
class Score:
    """What one object got: IoU by way of asking, and masks to look at."""

    thing: Thing
    iou: dict[str, float] = field(default_factory=dict)
    shown: dict[str, Mask] = field(default_factory=dict)
    score: float = 0.0
    weights: str = ""


def clicks(photo: Photo, thing: Thing) -> list[Answer]:
    """Answers after 1 to 5 clicks, each refining the one before it."""
    points, labels = [thing.point], [1]
    answers: list[Answer] = []
    for _ in range(CLICKS):
        earlier = {"mask_input": answers[-1].low_res[0]} if answers else {}
        answers.append(ask(photo, pos_coords=points, labels=labels, **earlier))
        click = next_click(answers[-1].masks[0], thing.mask)
        if click:
            points.append(click[0])
            labels.append(click[1])
    return answers


def measure(url: str, thing: Thing) -> Score:
    """All ways of asking the service for one object."""
    result = Score(thing)
    photo = Photo(url, thing.file.read_bytes())
    answers = clicks(photo, thing)
    for number, answer in enumerate(answers, 1):
        result.iou[f"{number} click{'s' if number > 1 else ''}"] = iou(answer.masks[0], thing.mask)
    three = ask(photo, pos_coords=[thing.point], multimask_output=True)
    candidates = [iou(mask, thing.mask) for mask in three.masks]
    result.iou["1 click, best of three candidates"] = max(candidates)
    result.iou["1 click, candidate of highest score"] = candidates[int(np.argmax(three.scores))]
    boxed = ask(photo, box=thing.box)
    result.iou["box"] = iou(boxed.masks[0], thing.mask)
    best = three.masks[int(np.argmax(candidates))]
    result.shown = {"1 click": answers[0].masks[0], "1 click, best of three candidates": best, "box": boxed.masks[0]}
    result.shown["5 clicks"] = answers[-1].masks[0]
    result.score, result.weights = answers[0].scores[0], answers[0].weights
    return result


def table(scores: Sequence[Score], others: Sequence[dict[str, float]]) -> str:
    """Markdown: mean IoU, and the share of objects above one half and above three quarters."""
    lines = ["| asked with | mean IoU | over 0.5 | over 0.75 |", "|---|---|---|---|"]
    for rows in ([score.iou for score in scores], others):
        for name in rows[0] if rows else ():
            values = np.array([row[name] for row in rows])
            lines.append(
                f"| {name} | {values.mean():.3f} | {(values > 0.5).mean():.0%} | {(values > 0.75).mean():.0%} |"
            )
    first = np.array([score.iou["1 click"] for score in scores])
    claimed = np.array([score.score for score in scores])
    lines += ["", f"Objects: {len(scores)}. Predicted IoU of one click: mean {claimed.mean():.3f}, "
              f"correlation with the true one {np.corrcoef(first, claimed)[0, 1]:.2f}."]  # fmt: skip
    return "\n".join(lines)


def drawn(thing: Thing, mask: Mask, caption: str, width: int = 240) -> Picture:
    """The picture with `mask` tinted, its outline, the human outline and the click."""
    picture = thing.image.astype(np.float32)
    picture[mask] = 0.5 * picture[mask] + 0.5 * np.array([255, 60, 60], np.float32)
    shown = picture.astype(np.uint8)
    outline, _ = cv2.findContours(thing.mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(shown, outline, -1, (60, 255, 60), 2)
    cv2.circle(shown, (int(thing.point[0]), int(thing.point[1])), 6, (255, 255, 0), -1)
    scale = width / max(shown.shape[:2])
    small = cv2.resize(shown, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    tile = np.zeros((width + 16, width, 3), np.uint8)
    tile[16 : 16 + small.shape[0], : small.shape[1]] = small
    cv2.putText(tile, caption, (3, 12), cv2.FONT_HERSHEY_SIMPLEX, 0.4, (255, 255, 255), 1, cv2.LINE_AA)
    return tile


def sheet(scores: Sequence[Score], rows: int) -> Picture:
    """Rows of best, middle and worst objects by one click; columns are ways of asking."""
    ranked = sorted(scores, key=lambda score: -score.iou["1 click"])
    middle = len(ranked) // 2 - rows // 2
    chosen = [*ranked[:rows], *ranked[middle : middle + rows], *ranked[-rows:]]
    lines = [
        np.hstack([drawn(s.thing, mask, f"{name} {s.iou[name]:.2f}") for name, mask in s.shown.items()]) for s in chosen
    ]
    return np.vstack(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="photographs with outlined objects")
    things = read_things(parser.parse_args().folder)
    with running(ROOT / "model_repository") as service:
        scores = [measure(service.url, thing) for thing in tqdm(things, desc="service", unit="object")]
    others = [baselines(thing) for thing in tqdm(things, desc="without a model", unit="object")]
    report = table(scores, others)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "table.md").write_text(report + "\n")
    cv2.imwrite(str(OUTPUT / "sheet.png"), cv2.cvtColor(sheet(scores, ROWS), cv2.COLOR_RGB2BGR))
    print(f"{report}\nwrote {OUTPUT}/table.md and sheet.png")


if __name__ == "__main__":
    main()
