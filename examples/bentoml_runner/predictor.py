"""Masks from points on a picture, with Pillow, NumPy and ONNX Runtime: no framework, no cache.

It follows Segment Anything's ONNX example. Encoder and decoder are separate and may run in different processes.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from PIL import Image

FRAME = 1024
REPOSITORY = "MOBILE_SAM_MODEL_REPOSITORY"
"""Environment variable for the folder of the graphs; by default the one that `make weights` writes to."""
BOX_LABELS = {2, 3}

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.uint8]
Points = Sequence[Sequence[float]]


class InvalidInput(ValueError):
    """Invalid picture or points; the message says what was expected and what came."""


class Encoder:
    """Image encoder with ONNX Runtime's defaults.

    Raises:
        FileNotFoundError: the graph does not exist.
    """

    def __init__(self) -> None:
        self._session = _session("encoder")

    def encode(self, frames: Sequence[Array]) -> Array:
        """Encode several pictures in one run; return (N, 64, 64, 256) float16.

        Args:
            frames: pictures as returned by `to_frame`.
        """
        sizes_hw = np.array([frame.shape[:2] for frame in frames], np.int32)
        images = np.zeros((len(frames), FRAME, FRAME, 3), np.uint8)
        for image, frame, (height, width) in zip(images, frames, sizes_hw, strict=True):
            image[:height, :width] = frame
        return np.asarray(self._session.run(["image_embeddings"], {"images": images, "sizes_hw": sizes_hw})[0])


class Decoder:
    """Mask decoder with ONNX Runtime's defaults.

    Raises:
        FileNotFoundError: the graph does not exist.
    """

    def __init__(self) -> None:
        self._session = _session("decoder")

    def mask(self, embedding: Array, size: tuple[int, int], points_xy: Points, labels: Sequence[int]) -> Mask:
        """Return the mask of an object, (H, W) uint8 of 0 and 1.

        Args:
            embedding: embedding of the picture, (1, 64, 64, 256) float16.
            size: width and height of the picture.
            points_xy: points in pixels of the picture, x then y.
            labels: label per point: 0 outside the object, 1 on it, 2 box top-left, 3 box bottom-right.
        """
        width, height = frame_size(size)
        # Without a box the model expects a padding point.
        padding = 0 if BOX_LABELS & set(labels) else 1
        scaled = np.array(points_xy) * np.array([width / size[0], height / size[1]])
        prompt = {
            "image_embeddings": embedding,
            "point_coords": np.concatenate([scaled, np.zeros((padding, 2))])[None].astype(np.float32),
            "point_labels": np.array([[*labels, *[-1] * padding]], np.float32),
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }
        low_res = np.asarray(self._session.run(["single_masks"], prompt)[0])[0, 0]
        logits = cv2.resize(low_res, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)[:height, :width]
        mask: Mask = (cv2.resize(logits, size, interpolation=cv2.INTER_LINEAR) > 0).astype(np.uint8)
        return mask


def to_frame(picture: Image.Image) -> Array:
    """Scale a picture to the encoder's input, longest side 1024; return (height, width, 3) uint8 RGB.

    Raises:
        InvalidInput: the file is damaged.
    """
    try:
        pixels = picture.convert("RGB")
    except Exception as error:  # Pillow raises different types for damaged files
        raise InvalidInput(f"the picture is incomplete or damaged: {error}") from None
    return np.asarray(pixels.resize(frame_size(pixels.size), Image.Resampling.BILINEAR))


def frame_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return width and height of a picture scaled to a longest side of 1024."""
    width, height = (max(1, int(side * FRAME / max(size) + 0.5)) for side in size)
    return width, height


def check_points(size: tuple[int, int], points_xy: Points, labels: Sequence[int]) -> None:
    """Check that each point has a label and lies on the picture.

    Raises:
        InvalidInput: a label is missing, or a point lies outside.
    """
    if len(points_xy) != len(labels):
        raise InvalidInput(f"labels: expected {len(points_xy)}, one per point, got {len(labels)}")
    for x, y in points_xy:
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            raise InvalidInput(f"pos_coords: expected points within {size[0]} x {size[1]} pixels, got {[x, y]}")


def _session(part: str) -> ort.InferenceSession:
    repository = Path(os.environ.get(REPOSITORY, Path(__file__).parents[2] / "model_repository"))
    graph = repository / f"mobile_sam_{part}" / "1" / "model.onnx"
    if not graph.is_file():
        raise FileNotFoundError(f"{graph} does not exist; `make weights` creates it")
    return ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
