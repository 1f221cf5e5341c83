"""Masks from points on a picture, with Pillow, NumPy and ONNX Runtime: no framework, no cache.

It follows Segment Anything's ONNX example. Encoder and decoder are separate and may run in
different processes.
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
"""Environment variable for the folder of the graphs; by default the one that `make weights`
writes to."""
BOX_LABELS = {2, 3}

Array = npt.NDArray[Any]
UInt8Mask = npt.NDArray[np.uint8]
Points = Sequence[Sequence[float]]


def load(part: str) -> ort.InferenceSession:
    """Load the `encoder` or the `decoder` with ONNX Runtime's defaults.

    Raises:
        FileNotFoundError: the graph does not exist.
    """
    repository = Path(os.environ.get(REPOSITORY, Path(__file__).parents[2] / "model_repository"))
    graph = repository / f"mobile_sam_{part}" / "1" / "model.onnx"
    if not graph.is_file():
        raise FileNotFoundError(f"{graph} does not exist; `make weights` creates it")
    return ort.InferenceSession(graph, providers=["CPUExecutionProvider"])


def to_frame(picture: Image.Image) -> Array:
    """Scale an RGB picture to the encoder's input, longest side 1024; return (height, width, 3)
    uint8.
    """
    return np.asarray(picture.resize(frame_size(picture.size), Image.Resampling.BILINEAR))


def frame_size(size: tuple[int, int]) -> tuple[int, int]:
    """Return width and height of a picture scaled to a longest side of 1024."""
    width, height = (max(1, int(side * FRAME / max(size) + 0.5)) for side in size)
    return width, height


def encode(encoder: ort.InferenceSession, frames: Sequence[Array]) -> Array:
    """Encode several pictures, as returned by `to_frame`, in one run; return (N, 64, 64, 256)
    float16.
    """
    sizes_hw = np.array([frame.shape[:2] for frame in frames], np.int32)
    images = np.zeros((len(frames), FRAME, FRAME, 3), np.uint8)
    for image, frame, (height, width) in zip(images, frames, sizes_hw, strict=True):
        image[:height, :width] = frame
    return np.asarray(
        encoder.run(["image_embeddings"], {"images": images, "sizes_hw": sizes_hw})[0]
    )


def decode(
    decoder: ort.InferenceSession,
    embedding: Array,
    size: tuple[int, int],
    points_xy: Points,
    labels: Sequence[int],
) -> UInt8Mask:
    """Return the mask of an object, (H, W) uint8 of 0 and 1.

    Args:
        decoder: the loaded graph.
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
    low_res = np.asarray(decoder.run(["single_masks"], prompt)[0])[0, 0]
    logits = cv2.resize(low_res, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)[:height, :width]
    mask: UInt8Mask = (cv2.resize(logits, size, interpolation=cv2.INTER_LINEAR) > 0).astype(
        np.uint8
    )
    return mask
