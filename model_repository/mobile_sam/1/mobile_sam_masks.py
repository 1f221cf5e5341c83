"""Masks: from the decoder's logits to the image's size, and to the bytes of an answer."""

from __future__ import annotations

import io

import cv2
import numpy as np
import numpy.typing as npt
import orjson

FRAME = 1024
FORMATS = ("json", "npy", "png")

Logits = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]


def upsample(logits: Logits, frame_hw: tuple[int, int], size_hw: tuple[int, int]) -> Mask:
    """A low-resolution answer as a mask of the image.

    As the official predictor: bilinear to the 1024-frame, crop to the valid area, bilinear to the image, threshold 0.

    Args:
        logits: (256, 256) float32.
        frame_hw: height and width of the image's valid area in the frame.
        size_hw: height and width of the displayed image.

    Returns:
        (H, W) bool.
    """
    in_frame = cv2.resize(logits, (FRAME, FRAME), interpolation=cv2.INTER_LINEAR)
    valid = in_frame[: frame_hw[0], : frame_hw[1]]
    height, width = size_hw
    return np.greater(cv2.resize(valid, (width, height), interpolation=cv2.INTER_LINEAR), 0)


def encode(masks: Mask, mask_format: str) -> bytes:
    """The body of an answer's `mask` part.

    Args:
        masks: (H, W) bool, or (K, H, W) bool for several.
        mask_format: `json`: nested lists of 0 and 1; `npy`: a NumPy file of the bool array; `png`: a 1-bit picture, in
            which several masks stand one below the other, (K * H, W).
    """
    if mask_format == "json":
        return orjson.dumps(masks.view(np.uint8), option=orjson.OPT_SERIALIZE_NUMPY)
    if mask_format == "npy":
        file = io.BytesIO()
        np.save(file, masks, allow_pickle=False)
        return file.getvalue()
    if mask_format == "png":
        rows = masks.reshape(-1, masks.shape[-1])
        done, data = cv2.imencode(".png", rows.view(np.uint8) * np.uint8(255), [cv2.IMWRITE_PNG_BILEVEL, 1])
        if not done:
            raise ValueError(f"OpenCV could not encode a mask of shape {masks.shape} as PNG")
        return data.tobytes()
    raise ValueError(f"mask_format must be one of {', '.join(FORMATS)}, got {mask_format!r}")


def area_and_box(mask: Mask) -> tuple[int, list[int]]:
    """Pixels of the mask, and its box_xyxy with exclusive right and bottom ([0, 0, 0, 0] where it is empty).

    Args:
        mask: (H, W) bool.
    """
    points = mask.view(np.uint8)
    x, y, width, height = cv2.boundingRect(points)
    return cv2.countNonZero(points), [x, y, x + width, y + height]
