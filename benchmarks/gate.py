"""Do masks stay what they are on a quicker engine? `python -m benchmarks.gate [SHARED]`

Mean IoU of each engine's masks with those of ONNX Runtime in float32: with the built-in weights on the objects of
SHARED/quality (see `benchmarks.objects`), each by a click and by a box, and with MobileSAM's architecture on the
prompts of SHARED/reference and its weights. An engine that falls below `LEAST` is not for the service to choose there.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tqdm import tqdm

from benchmarks.engines import ONNX_RUNTIME, OPENVINO_BF16, OPENVINO_F32, Array, Engine, load
from benchmarks.figures import table
from benchmarks.objects import Mask, iou, read_things
from benchmarks.service import ROOT
from mobile_sam_onnx import Preparer
from utils.machine import has_bf16

sys.path.append(str(ROOT / "model_repository" / "mobile_sam" / "1"))  # where Triton finds them too

import mobile_sam_images as images
import mobile_sam_prompts as prompts
from mobile_sam_masks import upsample

LEAST = 0.98
BASELINE = (ONNX_RUNTIME, ONNX_RUNTIME)
OTHERS = ((OPENVINO_F32, OPENVINO_F32), (OPENVINO_BF16, OPENVINO_F32), (OPENVINO_BF16, OPENVINO_BF16))
"""Of encoder and decoder."""


@dataclass(frozen=True)
class Question:
    """A prompt on an image: `points_xy` (P, 2) pixels and `labels` (P,)."""

    file: Path
    points_xy: Sequence[Sequence[float]]
    labels: Sequence[int]


def of_quality(folder: Path) -> Iterator[Question]:
    """A click on and a box around each object."""
    for thing in read_things(folder):
        x0, y0, x1, y1 = thing.box
        yield Question(thing.file, [thing.point], [1])
        yield Question(thing.file, [[x0, y0], [x1, y1]], [2, 3])


def of_reference(folder: Path, pictures: Path) -> Iterator[Question]:
    """The prompts of the reference cases."""
    for case in json.loads((folder / "cases.json").read_text()):
        x0, y0, x1, y1 = case["box"] or (0, 0, 0, 0)
        corners = [[x0, y0], [x1, y1]] if case["box"] else []
        labels = [*(case["labels"] or []), *([2, 3] if case["box"] else [])]
        yield Question(pictures / case["image"], [*(case["points"] or []), *corners], labels)


class Networks:
    """Encoders and decoders of a model repository on several engines."""

    def __init__(self, repository: Path) -> None:
        self._repository = repository
        self._loaded: dict[tuple[str, str], Engine] = {}
        self._embeddings: dict[tuple[Path, str], Array] = {}

    def masks(self, question: Question, engines: tuple[str, str]) -> list[Mask]:
        """The single answer and the three candidates, each (H, W) bool."""
        pixels = images.decode(images.open_image(question.file.read_bytes(), 10**9))
        size_hw, frame = (pixels.shape[0], pixels.shape[1]), images.to_frame(pixels)
        key = (question.file, engines[0])
        if key not in self._embeddings:
            image: dict[str, Array] = {"images": frame.pixels[None], "sizes_hw": np.array([frame.size_hw], np.int32)}
            self._embeddings[key] = self._engine("encoder", engines[0]).run(["image_embeddings"], image)[0].copy()
        points = np.array([question.points_xy], np.float32)
        coords, labels = prompts.to_frame(points, np.array([question.labels], np.int32), size_hw, frame.size_hw)
        feed: dict[str, Array] = {
            "image_embeddings": self._embeddings[key],
            "point_coords": coords,
            "point_labels": labels,
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        (logits,) = self._engine("decoder", engines[1]).run(["low_res_masks"], feed)
        return [upsample(low_res, frame.size_hw, size_hw) > 0 for low_res in logits[0]]

    def _engine(self, part: str, engine: str) -> Engine:
        if (part, engine) not in self._loaded:
            self._loaded[part, engine] = load(self._repository / f"mobile_sam_{part}" / "1" / "model.onnx", engine)
        return self._loaded[part, engine]


def compared(repository: Path, questions: Sequence[Question], title: str) -> Mapping[tuple[str, str], Array]:
    """IoU of the four masks with those of the baseline, (questions, 4), by engines."""
    networks = Networks(repository)
    others = [pair for pair in OTHERS if OPENVINO_BF16 not in pair or has_bf16()]
    found: dict[tuple[str, str], list[list[float]]] = {pair: [] for pair in others}
    for question in tqdm(questions, desc=title, unit="prompt"):
        expected = networks.masks(question, BASELINE)
        for pair in others:
            made = networks.masks(question, pair)
            # Two empty masks are the same.
            found[pair].append([iou(a, b) if (a | b).any() else 1.0 for a, b in zip(made, expected, strict=True)])
    return {pair: np.array(values) for pair, values in found.items()}


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="holds quality/, reference/ and images/")
    shared = parser.parse_args().shared
    reference = shared / "reference"
    sets = {
        "built-in weights": ("builtin", list(of_quality(shared / "quality"))),
        "MobileSAM's architecture": (
            str(reference / "mobile_sam_seed7.pt"),
            list(of_reference(reference, shared / "images")),
        ),
    }
    rows = []
    for title, (weights, questions) in sets.items():
        with TemporaryDirectory() as folder:
            Preparer(Path(folder), print).prepare(weights)
            for pair, values in compared(Path(folder), questions, title).items():
                single, candidates = float(values[:, 0].mean()), float(values[:, 1:].mean())
                verdict = "kept" if min(single, candidates) >= LEAST else f"below {LEAST}"
                rows.append((title, len(questions), *pair, f"{single:.4f}", f"{candidates:.4f}", verdict))
    print(table(("", "prompts", "encoder", "decoder", "single answer", "candidates", "masks"), rows))


if __name__ == "__main__":
    main()
