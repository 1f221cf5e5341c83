"""What the plain peers share: a click on a picture to a mask, with Pillow, NumPy and ONNX Runtime, and nothing kept.

Neither framework is to blame or to thank for this part; it is written as Segment Anything's ONNX example is.
"""

from __future__ import annotations

import os
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from PIL import Image

FRAME = 1024
REPOSITORY = "BENCHMARK_MODEL_REPOSITORY"
"""The variable that names the folder of the graphs."""

Mask = npt.NDArray[np.uint8]


class Predictor:
    """Encoder and decoder, with ONNX Runtime's defaults."""

    def __init__(self) -> None:
        repository = Path(os.environ[REPOSITORY])
        self.encoder, self.decoder = (
            ort.InferenceSession(
                repository / f"mobile_sam_{part}" / "1" / "model.onnx", providers=["CPUExecutionProvider"]
            )
            for part in ("encoder", "decoder")
        )

    def segment(self, image: Image.Image, points_xy: list[list[float]]) -> Mask:
        """The mask of an object, (H, W) uint8 of 0 and 1.

        Args:
            image: the picture.
            points_xy: clicks on the object, x then y, pixels of the picture.
        """
        image = image.convert("RGB")
        scale = FRAME / max(image.size)
        width, height = (int(side * scale + 0.5) for side in image.size)
        frame = np.zeros((1, FRAME, FRAME, 3), np.uint8)
        frame[0, :height, :width] = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        sizes = np.array([[height, width]], np.int32)
        (embedding,) = self.encoder.run(["image_embeddings"], {"images": frame, "sizes_hw": sizes})

        scales = np.array([width / image.width, height / image.height])
        coords = np.concatenate([np.array(points_xy) * scales, np.zeros((1, 2))])[None].astype(np.float32)
        labels = np.array([[1] * len(points_xy) + [-1]], np.float32)
        prompt = {
            "image_embeddings": embedding,
            "point_coords": coords,
            "point_labels": labels,
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        low_res = np.asarray(self.decoder.run(["single_masks"], prompt)[0])[0, 0]
        logits = cv2.resize(low_res, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)[:height, :width]
        mask: Mask = (cv2.resize(logits, image.size, interpolation=cv2.INTER_LINEAR) > 0).astype(np.uint8)
        return mask


def overlay(image: Image.Image, mask: Mask) -> Image.Image:
    """The picture with the object tinted."""
    red = Image.new("RGB", image.size, (255, 60, 60))
    picture = image.convert("RGB")
    return Image.composite(Image.blend(picture, red, 0.5), picture, Image.fromarray(mask * np.uint8(255)))
