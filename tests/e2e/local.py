"""A caller who decodes by himself, from the metadata of an embedding's file alone."""

import json
from typing import Any

import cv2
import numpy as np
import onnxruntime
import requests
from numpy.typing import NDArray
from safetensors import deserialize
from safetensors.numpy import load

from harness import Server


def get(server: Server, path: str, *, key: str = "", **headers: str) -> requests.Response:
    keyed = {"X-API-Key": key} if key else {}
    return requests.get(f"{server.url}{path}", headers={**keyed, **headers}, timeout=60)


def metadata(file: bytes) -> dict[str, str]:
    assert deserialize(file)
    header = json.loads(file[8 : 8 + int.from_bytes(file[:8], "little")])
    found: dict[str, str] = header["__metadata__"]
    return found


def decode(
    file: bytes, decoder: bytes, points_xy: list[list[int]], labels: list[int]
) -> tuple[NDArray[np.bool_], float]:
    """Return the single mask in the whole image and its score, given an embedding's and the
    decoder's file.
    """
    about = metadata(file)
    x0, y0, x1, y1 = json.loads(about["region"])
    frame_wh = np.array([int(about["frame_width"]), int(about["frame_height"])])
    coords = (np.array(points_xy, np.float32) - [x0, y0]) * frame_wh / [x1 - x0, y1 - y0]
    logits, score = run(decoder, load(file), np.vstack([coords, [[0, 0]]]), [*labels, -1])
    in_frame = cv2.resize(logits, (1024, 1024))[: frame_wh[1], : frame_wh[0]]
    mask = np.zeros((int(about["height"]), int(about["width"])), bool)
    mask[y0:y1, x0:x1] = cv2.resize(in_frame, (x1 - x0, y1 - y0)) > 0
    return mask, score


def run(
    decoder: bytes, embedding: dict[str, NDArray[Any]], coords: NDArray[Any], labels: list[int]
) -> tuple[NDArray[np.float32], float]:
    """Return logits (256, 256) and the score of the single mask, given points in the frame,
    padding included.
    """
    inputs: dict[str, Any] = {
        **embedding,
        "point_coords": coords[None].astype(np.float32),
        "point_labels": np.array([labels], np.float32),
        "mask_input": np.zeros((1, 1, 256, 256), np.float32),
        "has_mask_input": np.zeros(1, np.float32),
    }
    masks, scores = onnxruntime.InferenceSession(decoder).run(
        ["single_masks", "iou_predictions"], inputs
    )
    return masks[0, 0], float(scores[0, 0])
