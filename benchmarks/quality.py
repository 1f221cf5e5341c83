"""Mean IoU with human masks of one click, three candidates, a box, and up to five clicks; and of what needs no model.

    python -m benchmarks.quality --data DIR --encoder encoder.onnx --decoder decoder.onnx --out report.md --sheet x.png

The folder holds the pictures, label maps in which an object has the value `label`, and `objects.json`, a list of
{"image", "mask", "label", "point" [x, y], "box" [x0, y0, x1, y1]}. Each next click is put at the centre of the largest
error region, and the answer before it is fed back as `mask_input`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
from tqdm import tqdm

from benchmarks.quality_baselines import baselines
from benchmarks.quality_data import Mask, Picture, Thing, iou, next_click, read_things
from benchmarks.quality_model import Answer, Segment, onnx_segmenter


@dataclass
class Score:
    """What one object got: IoU by way of asking, and masks to look at."""

    thing: Thing
    iou: dict[str, float] = field(default_factory=dict)
    shown: dict[str, Mask] = field(default_factory=dict)
    score: float = 0.0


def clicks(segment: Segment, thing: Thing, count: int, feed_back: bool) -> list[Answer]:
    """Answers after 1 to `count` clicks."""
    points, labels = [thing.point], [1.0]
    answers: list[Answer] = []
    for _ in range(count):
        earlier = answers[-1].low_res if answers and feed_back else None
        answers.append(segment(thing.image, np.array(points, np.float32), np.array(labels, np.float32), earlier))
        click = next_click(answers[-1].masks[0], thing.mask)
        if click:
            points.append(click[0])
            labels.append(click[1])
    return answers


def measure(segment: Segment, thing: Thing) -> Score:
    """All ways of asking the model for one object."""
    result = Score(thing)
    answers = clicks(segment, thing, 5, feed_back=True)
    for number, answer in enumerate(answers, 1):
        result.iou[f"{number} click{'s' if number > 1 else ''}"] = iou(answer.masks[0], thing.mask)
    candidates = [iou(mask, thing.mask) for mask in answers[0].masks[1:]]
    result.iou["best of three"] = max(candidates)
    result.iou["highest score of three"] = candidates[int(answers[0].scores[1:].argmax())]
    result.iou["5 clicks, no mask fed back"] = iou(clicks(segment, thing, 5, feed_back=False)[-1].masks[0], thing.mask)
    corners = np.array(thing.box, np.float32).reshape(2, 2)
    boxed = segment(thing.image, corners, np.array([2, 3], np.float32), None)
    result.iou["box"] = iou(boxed.masks[0], thing.mask)
    best = int(np.argmax(candidates)) + 1
    result.shown = {"1 click": answers[0].masks[0], "best of three": answers[0].masks[best], "box": boxed.masks[0]}
    result.shown["5 clicks"] = answers[-1].masks[0]
    result.score = float(answers[0].scores[0])
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
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--decoder", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="Markdown file to write")
    parser.add_argument("--sheet", type=Path, help="PNG to write: best, middle and worst objects")
    parser.add_argument("--rows", type=int, default=4, help="objects of each kind on the sheet")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-baselines", action="store_true", help="leave out flood fill and GrabCut")
    arguments = parser.parse_args()
    segment = onnx_segmenter(arguments.encoder, arguments.decoder, arguments.threads)
    things = read_things(arguments.data)
    started = time.perf_counter()
    scores = [measure(segment, thing) for thing in tqdm(things, desc="model")]
    seconds = time.perf_counter() - started
    others = [] if arguments.no_baselines else [baselines(thing) for thing in tqdm(things, desc="without a model")]
    report = table(scores, others)
    print(f"{report}\n{len(things)} objects in {seconds:.0f} s")
    if arguments.out:
        arguments.out.write_text(report + "\n")
    if arguments.sheet:
        cv2.imwrite(str(arguments.sheet), cv2.cvtColor(sheet(scores, arguments.rows), cv2.COLOR_RGB2BGR))


if __name__ == "__main__":
    main()
