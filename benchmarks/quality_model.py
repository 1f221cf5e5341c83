"""How the model under measurement is reached: one function from a picture and prompts to masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray
from PIL import Image

from benchmarks.quality_data import Mask, Picture

FRAME = 1024


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
