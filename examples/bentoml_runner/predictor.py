"""Points on a picture to a mask, with Pillow, NumPy and ONNX Runtime: no framework, and nothing kept.

Written as Segment Anything's ONNX example is, in the two halves that a server may want in two places.
"""

from __future__ import annotations

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
"""The variable that names the folder of the graphs; without it they are where `make weights` writes them."""
BOX_LABELS = {2, 3}

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.uint8]
Points = Sequence[Sequence[float]]


class Unusable(ValueError):
    """A picture or points of which no mask can come; the message says what was expected and what came."""


class Encoder:
    """Pictures to embeddings, with ONNX Runtime's defaults.

    Raises:
        FileNotFoundError: there is no graph.
    """

    def __init__(self) -> None:
        self._session = _session("encoder")

    def encode(self, frames: Sequence[Array]) -> Array:
        """Embeddings of several pictures in one run, (N, 64, 64, 256) float16.

        Args:
            frames: of each picture, as `frame_of` gives it.
        """
        sizes_hw = np.array([frame.shape[:2] for frame in frames], np.int32)
        images = np.zeros((len(frames), FRAME, FRAME, 3), np.uint8)
        for image, frame, (height, width) in zip(images, frames, sizes_hw, strict=True):
            image[:height, :width] = frame
        return np.asarray(self._session.run(["image_embeddings"], {"images": images, "sizes_hw": sizes_hw})[0])


class Decoder:
    """An embedding and points to a mask, with ONNX Runtime's defaults.

    Raises:
        FileNotFoundError: there is no graph.
    """

    def __init__(self) -> None:
        self._session = _session("decoder")

    def mask(self, embedding: Array, size: tuple[int, int], points_xy: Points, labels: Sequence[int]) -> Mask:
        """The mask of an object, (H, W) uint8 of 0 and 1.

        Args:
            embedding: of the picture, (1, 64, 64, 256) float16.
            size: width and height of the picture.
            points_xy: x then y, pixels of the picture.
            labels: of each point: 0 beside the object, 1 on it, 2 a box's top left corner, 3 its bottom right one.
        """
        width, height = frame_size(size)
        # Where there is no box, the model wants a point that is none.
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


def frame_of(picture: Image.Image) -> Array:
    """A picture as the encoder takes it, its longest side 1024: (height, width, 3) uint8 RGB.

    Raises:
        Unusable: the file is damaged.
    """
    try:
        pixels = picture.convert("RGB")
    except Exception as error:  # what Pillow raises of damaged files differs by format
        raise Unusable(f"expected a complete picture, got a damaged one: {error}") from None
    return np.asarray(pixels.resize(frame_size(pixels.size), Image.Resampling.BILINEAR))


def frame_size(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of a picture when its longest side is 1024."""
    width, height = (max(1, int(side * FRAME / max(size) + 0.5)) for side in size)
    return width, height


def check_points(size: tuple[int, int], points_xy: Points, labels: Sequence[int]) -> None:
    """See that each point has a label and is on the picture.

    Raises:
        Unusable: one has none, or is not.
    """
    if len(points_xy) != len(labels):
        raise Unusable(f"labels: expected {len(points_xy)}, one for each point, got {len(labels)}")
    for x, y in points_xy:
        if not (0 <= x <= size[0] and 0 <= y <= size[1]):
            raise Unusable(f"pos_coords: expected points on the picture of {size[0]} x {size[1]} pixels, got {[x, y]}")


def _session(part: str) -> ort.InferenceSession:
    repository = Path(os.environ.get(REPOSITORY, Path(__file__).parents[2] / "model_repository"))
    graph = repository / f"mobile_sam_{part}" / "1" / "model.onnx"
    if not graph.is_file():
        raise FileNotFoundError(f"{graph} is not there; `make weights` writes it")
    return ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
