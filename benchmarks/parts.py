"""Steps of a request that own code does, beside what a library would do, and the decoder by size of its runs."""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from benchmarks.photo import SIZE, photo
from benchmarks.raw import RawModel
from benchmarks.service import ROOT
from benchmarks.timing import interleaved, show_ratios

sys.path.append(str(ROOT / "model_repository" / "mobile_sam" / "1"))  # where Triton finds them too

from mobile_sam_cache import EmbeddingCache, Entry
from mobile_sam_png import bilevel_png, packed, png

ROUNDS = 20
BATCHES = (1, 8, 32)


def pictures() -> None:
    """Print what PNG files of a picture and of a mask cost."""
    backwards = np.ascontiguousarray(cv2.imdecode(np.frombuffer(photo(), np.uint8), cv2.IMREAD_COLOR))
    picture = np.ascontiguousarray(backwards[..., ::-1])
    coarse = np.random.default_rng(0).normal(size=(8, 12)).astype(np.float32)
    mask = cv2.resize(coarse, SIZE, interpolation=cv2.INTER_CUBIC) > 0
    bilevel = [cv2.IMWRITE_PNG_BILEVEL, 1]
    arms: dict[str, Callable[[], object]] = {
        "picture, OpenCV": lambda: cv2.imencode(".png", backwards),
        "picture, mobile_sam_png": lambda: png(picture),
        "mask, OpenCV": lambda: cv2.imencode(".png", mask.view(np.uint8) * np.uint8(255), bilevel),
        "mask, mobile_sam_png": lambda: bilevel_png([packed(mask)], SIZE[0]),
    }
    show_ratios(
        interleaved(arms, ROUNDS, "PNG"),
        {"picture, mobile_sam_png": "picture, OpenCV", "mask, mobile_sam_png": "mask, OpenCV"},
    )


def cache() -> None:
    """Print what writing and reading an embedding costs."""
    entry = Entry(np.zeros((1, 256, 64, 64), np.float16), (SIZE[1], SIZE[0]), photo())
    with tempfile.TemporaryDirectory(dir=ROOT / ".cache") as folder:
        name = "0" * 64
        kept = EmbeddingCache(Path(folder), "f" * 64, 2**30, print)

        def read(store: EmbeddingCache) -> None:
            found = store.get(name)
            assert found is not None
            found.embedding.copy()

        arms: dict[str, Callable[[], object]] = {
            "embedding, write": lambda: kept.put(name, entry),
            "embedding, first read of a process": lambda: read(EmbeddingCache(Path(folder), "f" * 64, 2**30, print)),
            "embedding, further read": lambda: read(kept),
        }
        show_ratios(interleaved(arms, ROUNDS, "cache"), {})


def batches(raw: RawModel) -> None:
    """Print what a prompt costs in runs of the decoder of several sizes."""
    embedding = raw.encode()

    def run(count: int) -> None:
        prompt = {
            **raw.prompt,
            "point_coords": np.repeat(raw.prompt["point_coords"], count, axis=0),
            "point_labels": np.repeat(raw.prompt["point_labels"], count, axis=0),
        }
        raw.decoder.run(["low_res_masks", "iou_predictions"], {"image_embeddings": embedding, **prompt})

    arms = {f"decoder, {count} prompts": partial(run, count) for count in BATCHES}
    times = interleaved(arms, ROUNDS // 2, "batches")
    print()
    for count, values in zip(BATCHES, times.values(), strict=True):
        print(f"decoder, {count:2} prompts a run: {statistics.median(values) * 1e3 / count:6.1f} ms a prompt")


def measure(raw: RawModel) -> None:
    """Measure and print all of it."""
    pictures()
    cache()
    batches(raw)
