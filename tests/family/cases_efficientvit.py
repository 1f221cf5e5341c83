"""Seeded models of EfficientViT-SAM, and the answers of the authors' code.

`make family-test` compares them with `expected_efficientvit.npz`. It has for each model
- `<model>/shapes`: (N,) text, the keys of the authors' tensors with their sizes;
and, fewer in number, the arrays of `expected.npz`:
- `<model>/embedding/<image>`: (C / 8, 4, 4) float32, every 8th channel;
- `<model>/logits/<image>/<prompt>`: (4, 8, 8) float32, every 32nd pixel from (16, 16);
- `<model>/masks/<image>/<prompt>`: (4, 128) uint8, every 8th pixel;
- `<model>/scores/<image>/<prompt>`: (4,) float32.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tests.family.cases import PROMPTS, SIZES_HW, Array, image, noisy_state, sampled

EXPECTED = Path(__file__).parent / "expected_efficientvit.npz"
MODELS: dict[str, dict[str, Any]] = {
    "small": {"width_list": [8, 16, 24, 32, 64], "depth_list": [1, 1, 1, 1, 2]},
    "small_xl": {
        "width_list": [8, 8, 16, 24, 32, 64],
        "depth_list": [0, 1, 1, 1, 1, 1],
        "block_list": ["res", "fmb", "fmb", "fmb", "att@3", "att@3"],
        "expand_list": [1, 4, 4, 4, 4, 6],
        "fewer_norm_list": [False, False, False, False, True, True],
    },
    "l0": {},
}
"""Options of the authors' backbone; the others are published models."""
FRAMES = {"small": 512, "small_xl": 1024, "l0": 512}


def sizes_of(model: str) -> tuple[tuple[int, int], ...]:
    """Return the sizes of a model's images, in the 1024-frame."""
    return SIZES_HW if model == "small" else SIZES_HW[1:2]


def prompts_of(model: str) -> dict[str, dict[str, Any]]:
    """Return a model's prompts: all have the same decoder."""
    return PROMPTS if model == "small" else {"click": PROMPTS["click"]}


def framed(model: str, size_hw: tuple[int, int]) -> tuple[Array, tuple[int, int]]:
    """Return the image (S, S, 3) uint8 in a model's frame, and its size there."""
    step = 1024 // FRAMES[model]
    return image(size_hw)[::step, ::step], (size_hw[0] // step, size_hw[1] // step)


def state_of(shapes: Array) -> dict[str, Array]:
    """Return weights without a constant tensor; batch norms have variances so small that their
    epsilon matters.
    """
    sizes = {key: tuple(map(int, others)) for key, *others in map(str.split, shapes)}
    state = noisy_state(sizes)
    for norm in [key.removesuffix("running_var") for key in sizes if key.endswith("running_var")]:
        state[f"{norm}running_var"] = np.float32(1e-4) * (1 + state[f"{norm}running_var"])
        for key in (f"{norm}running_mean", f"{norm.removesuffix('norm.')}conv.weight"):
            state[key] *= np.float32(1e-2)
    return state


def sampled_embedding(embedding: Array) -> Array:
    """Return `embedding/...` of an embedding (C, 64, 64)."""
    return sampled(embedding[::8])


def sampled_answers(low_res: Array) -> tuple[Array, Array]:
    """Return `logits/...` and `masks/...` of low-resolution masks (4, 256, 256)."""
    bits = np.packbits((low_res[:, ::8, ::8] > 0).reshape(4, -1), axis=1)
    return low_res[:, 16::32, 16::32].astype(np.float32), bits
