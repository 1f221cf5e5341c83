"""Mean IoU with human masks of one click, three candidates, a box, and up to five clicks; and of what needs no model.

    python benchmarks/quality.py --data DIR --encoder encoder.onnx --decoder decoder.onnx --out report.md --sheet x.png

The folder holds the pictures, label maps in which an object has the value `label`, and `objects.json`, a list of
{"image", "mask", "label", "point" [x, y], "box" [x0, y0, x1, y1]}. Each next click is put at the centre of the largest
error region, and the answer before it is fed back as `mask_input`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

FRAME = 1024
Mask = NDArray[np.bool_]
Picture = NDArray[np.uint8]


@dataclass
class Thing:
    """One object: `image` (H, W, 3) uint8 RGB, `mask` (H, W) bool, `point` x, y, `box` x0, y0, x1, y1."""

    name: str
    image: Picture
    mask: Mask
    point: tuple[float, float]
    box: tuple[float, float, float, float]


@dataclass
class Answer:
    """`masks` (4, H, W) bool, 0 the returned one, 1 to 3 candidates; `scores` (4,); `low_res` (1, 256, 256), mask 0."""

    masks: Mask
    scores: NDArray[np.float32]
    low_res: NDArray[np.float32]


# image, points (P, 2) in its pixels, labels (P,), earlier low-resolution mask or None
Segment = Callable[[Picture, NDArray[np.float32], NDArray[np.float32], NDArray[np.float32] | None], Answer]


def onnx_segmenter(encoder_file: Path, decoder_file: Path, threads: int) -> Segment:
    """The only place that knows how the model is reached: two ONNX files in this process."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    providers = ["CPUExecutionProvider"]
    encoder = onnxruntime.InferenceSession(str(encoder_file), options, providers=providers)
    decoder = onnxruntime.InferenceSession(str(decoder_file), options, providers=providers)
    kept: dict[int, NDArray[np.float32]] = {}

    def embedding_of(image: Picture, size_hw: tuple[int, int]) -> NDArray[np.float32]:
        if id(image) not in kept:
            kept.clear()
            scaled = Image.fromarray(image).resize(size_hw[::-1], Image.Resampling.BILINEAR)
            frame = np.zeros((1, FRAME, FRAME, 3), np.uint8)
            frame[0, : size_hw[0], : size_hw[1]] = np.asarray(scaled)
            kept[id(image)] = encoder.run(None, {"images": frame, "sizes_hw": np.array([size_hw], np.int32)})[0]
        return kept[id(image)]

    def segment(
        image: Picture, points: NDArray[np.float32], labels: NDArray[np.float32], earlier: NDArray[np.float32] | None
    ) -> Answer:
        height, width = image.shape[:2]
        scale = FRAME / max(height, width)
        size_hw = (int(height * scale + 0.5), int(width * scale + 0.5))
        low, scores = decoder.run(
            None,
            {
                "image_embeddings": embedding_of(image, size_hw),
                "point_coords": (points * scale)[None].astype(np.float32),
                "point_labels": labels[None].astype(np.float32),
                "mask_input": np.zeros((1, 1, 256, 256), np.float32) if earlier is None else earlier[None],
                "has_mask_input": np.array([earlier is not None], np.float32),
            },
        )
        masks = []
        for logits in low[0]:
            framed = cv2.resize(logits, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)[: size_hw[0], : size_hw[1]]
            masks.append(cv2.resize(framed, (width, height), interpolation=cv2.INTER_LINEAR) > 0)
        return Answer(np.stack(masks), scores[0], low[0, :1])

    return segment


def read_things(folder: Path) -> list[Thing]:
    """All objects of the benchmark, in the order of their pictures."""
    things = []
    pictures: dict[str, Picture] = {}
    for entry in sorted(json.loads((folder / "objects.json").read_text()), key=lambda e: str(e["image"])):
        name = entry["image"]
        if name not in pictures:
            pictures[name] = np.asarray(Image.open(folder / name).convert("RGB"))
        labels = np.asarray(Image.open(folder / entry["mask"]))
        mask = labels == entry["label"]
        things.append(
            Thing(f"{name} {entry['label']}", pictures[name], mask, tuple(entry["point"]), tuple(entry["box"]))
        )
    return things


def iou(one: Mask, other: Mask) -> float:
    """Intersection over union of two (H, W) bool masks."""
    return float((one & other).sum() / max(int((one | other).sum()), 1))


def next_click(answer: Mask, wanted: Mask) -> tuple[tuple[float, float], float] | None:
    """Centre of the largest error region and the label it needs; None where nothing is wrong."""
    best: tuple[int, Mask, float] | None = None
    for wrong, label in ((wanted & ~answer, 1.0), (answer & ~wanted, 0.0)):
        count, pieces, stats, _ = cv2.connectedComponentsWithStats(wrong.astype(np.uint8), connectivity=4)
        if count > 1:
            piece = 1 + int(stats[1:, cv2.CC_STAT_AREA].argmax())
            area = int(stats[piece, cv2.CC_STAT_AREA])
            if best is None or area > best[0]:
                best = (area, pieces == piece, label)
    if best is None:
        return None
    depth = cv2.distanceTransform(np.pad(best[1].astype(np.uint8), 1), cv2.DIST_L2, 5)[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    return (float(column), float(row)), best[2]


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


def flood_fill(thing: Thing, tolerance: int) -> Mask:
    """What a magic wand selects: neighbours within `tolerance` of the clicked colour, in Lab."""
    lab = cv2.cvtColor(thing.image, cv2.COLOR_RGB2LAB)
    filled = np.zeros((lab.shape[0] + 2, lab.shape[1] + 2), np.uint8)
    flags = 4 | cv2.FLOODFILL_MASK_ONLY | cv2.FLOODFILL_FIXED_RANGE | (1 << 8)
    start = (int(thing.point[0]), int(thing.point[1]))
    cv2.floodFill(lab, filled, start, 0, (tolerance,) * 3, (tolerance,) * 3, flags)
    mask: Mask = filled[1:-1, 1:-1] > 0
    return mask


def grab_cut(thing: Thing, from_box: bool) -> Mask:
    """OpenCV's GrabCut, five rounds, from the box, or from a disc about the click with the border as background."""
    height, width = thing.mask.shape
    state = np.full((height, width), cv2.GC_PR_BGD, np.uint8)
    if from_box:
        x0, y0, x1, y1 = (int(value) for value in thing.box)
        state[:] = cv2.GC_BGD
        state[y0:y1, x0:x1] = cv2.GC_PR_FGD
    else:
        centre = (int(thing.point[0]), int(thing.point[1]))
        cv2.circle(state, centre, max(height, width) // 8, cv2.GC_PR_FGD, -1)
        cv2.circle(state, centre, 5, cv2.GC_FGD, -1)
    if not (state & 1 == 0).any():  # a box that leaves no background (the even states)
        return np.ones((height, width), bool)
    cv2.setRNGSeed(0)
    backwards = np.ascontiguousarray(thing.image[..., ::-1])
    models = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.grabCut(backwards, state, (0, 0, 0, 0), *models, 5, cv2.GC_INIT_WITH_MASK)
    found: Mask = (state == cv2.GC_FGD) | (state == cv2.GC_PR_FGD)
    return found


def baselines(thing: Thing) -> dict[str, float]:
    """What the same prompts give without a model."""
    box = np.zeros(thing.mask.shape, bool)
    x0, y0, x1, y1 = (int(value) for value in thing.box)
    box[y0:y1, x0:x1] = True
    fills = [iou(flood_fill(thing, tolerance), thing.mask) for tolerance in (10, 20, 35)]
    return {
        "flood fill in Lab from the click": fills[1],
        "flood fill, best of three tolerances": max(fills),
        "GrabCut from the click": iou(grab_cut(thing, from_box=False), thing.mask),
        "GrabCut from the box": iou(grab_cut(thing, from_box=True), thing.mask),
        "the box itself": iou(box, thing.mask),
    }


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
