"""Prompts on the sample images, and the official predictor's answers with the official weights.

`make_expected.py` writes `expected.npz`, which has for each image
- `embedding/<image>`: (256, 4, 4) float32, every 16th position of the embedding from (8, 8);
- `channels/<image>`: (2, 256) float32, mean and standard deviation of each channel;
and for each case with K masks (1 or 3)
- `logits/<case>`: (K, 32, 32) float32, every 8th pixel of the low-resolution logits from (4, 4);
- `low_res/<case>`: (K, 8192) uint8, the low-resolution masks (256, 256), 1 bit per pixel;
- `mask/<case>`: (K, ceil(H * W / 8)) uint8, the masks at the image's size (H, W), 1 bit per pixel;
- `scores/<case>`: (K,) float32.
A case that refines another gets the other's low-resolution mask of the highest score.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
SAMPLES = HERE.parents[1] / "page" / "samples"
EXPECTED = HERE / "expected.npz"
Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One prompt: `points_xy` in pixels, `labels` 0 or 1, `box_xyxy`, and the case that it
    refines.
    """

    name: str
    image: str
    points_xy: list[list[float]]
    labels: list[int]
    box_xyxy: list[float] | None
    multimask: bool
    refines: str | None

    @property
    def file(self) -> Path:
        """Path of the image."""
        return SAMPLES / f"{self.image}.jpg"


def read_cases() -> list[Case]:
    """Return all cases; one that refines another comes after it."""
    return [_case(**fields) for fields in json.loads((HERE / "cases.json").read_text())]


def _case(name: str, image: str, refines: str | None = None, **fields: Any) -> Case:
    positive, negative = fields.get("pos_coords", []), fields.get("neg_coords", [])
    labels = [1] * len(positive) + [0] * len(negative)
    multimask = fields.get("multimask_output", False)
    return Case(name, image, positive + negative, labels, fields.get("box"), multimask, refines)


def sampled_embedding(embedding: Array) -> Array:
    """Return `embedding/...` of an embedding (256, 64, 64)."""
    sampled: Array = embedding[:, 8::16, 8::16].astype(np.float32)
    return sampled


def channel_statistics(embedding: Array) -> Array:
    """Return `channels/...` of an embedding (256, 64, 64)."""
    flat = embedding.reshape(len(embedding), -1).astype(np.float64)
    statistics: Array = np.stack([flat.mean(axis=1), flat.std(axis=1)]).astype(np.float32)
    return statistics


def sampled_logits(low_res: Array) -> Array:
    """Return `logits/...` of low-resolution masks (K, 256, 256)."""
    sampled: Array = low_res[:, 4::8, 4::8].astype(np.float32)
    return sampled


def packed(masks: Array) -> Array:
    """Pack bool masks (K, H, W) to bits, (K, ceil(H * W / 8)) uint8."""
    return np.packbits(masks.reshape(len(masks), -1), axis=1)


def ious(bits: Array, expected: Array) -> list[float]:
    """Return the IoU of each of K pairs of packed masks; 1 for two empty masks."""
    one, other = (
        np.unpackbits(packed_masks, axis=1).astype(bool) for packed_masks in (bits, expected)
    )
    return [
        float((a & b).sum() / (a | b).sum()) if (a | b).any() else 1.0
        for a, b in zip(one, other, strict=True)
    ]
