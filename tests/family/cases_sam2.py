"""Seeded models of SAM 2 and EdgeTAM, and the answers of their authors' code, `expected_sam2.npz`.

It has for each model, whose one image fills the frame,
- `<model>/<tensor>`: (16, 4, 4) float32, sampled channels and positions of a tensor of the
  embedding;
- `<model>/logits/<prompt>`, `<model>/masks/<prompt>`, `<model>/scores/<prompt>`: as in
  `expected.npz`;
and for those of `LAYOUTS` `<model>/keys`: (N, 2) text, the keys of transformers' `Sam2Model` or
`EdgeTamModel` with Segment Anything's keys of the same tensors.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from sam_onnx.random_weights import Shape, mobile_sam_shapes
from tests.family.cases import PROMPTS, Array, noisy_state

EXPECTED = Path(__file__).parent / "expected_sam2.npz"
SIZE_HW = (768, 1024)
"""The image of `cases.image`, all of which is inside."""
TENSORS = ("high_res_features_0", "high_res_features_1", "image_embeddings")
TINY = {
    "depths": (1, 2, 7, 2),
    "global_blocks": (5, 7, 9),
    "heads": 1,
    "windows": (8, 4, 14, 7),
    "background": (7, 7),
}
LARGE = {
    **TINY,
    "depths": (2, 6, 36, 4),
    "global_blocks": (23, 33, 43),
    "heads": 2,
    "windows": (8, 4, 16, 8),
}
MODELS: dict[str, dict[str, Any]] = {
    "small": {**TINY, "width": 24, "embedding": 128},
    "deep": {**LARGE, "width": 8, "embedding": 128},
    "tiny": {**TINY, "width": 96, "embedding": 256},
    "edgetam": {"width": 48, "depths": (2, 2, 14, 2), "embedding": 256},
}
LAYOUTS = ("small", "edgetam")
"""Models whose files are tested in transformers' layout, too."""
HEAD_WIDTH = 256
"""Hidden channels of the head that predicts scores."""


def prompts_of(model: str) -> dict[str, dict[str, Any]]:
    """Return the prompts for a model by name: one for a large model."""
    return PROMPTS if model == "small" else {"click": PROMPTS["click"]}


def sampled(tensor: Array) -> Array:
    """Return `<model>/<tensor>` of a tensor (C, H, W)."""
    channels, height, width = (
        size // parts for size, parts in zip(tensor.shape, (16, 4, 4), strict=True)
    )
    found: Array = tensor[::channels, height // 2 :: height, width // 2 :: width].astype(np.float32)
    return found


def sam2_state(*, object_score: float = 10.0, **options: Any) -> dict[str, Array]:
    """Return weights by the authors' keys; their predicted object score is about `object_score`."""
    trunk = hiera_shapes(**options) if "windows" in options else repvit_shapes(**options)
    state = noisy_state({**trunk, **sam2_shapes(options["width"], options["embedding"])})
    for key in state:
        if key.endswith("running_var"):
            state[key] += np.float32(1)
        elif re.search(r"(mixer|ffn)\..*bn\.weight", key):
            # In residual sums, which would grow with every block.
            state[key] *= np.float32(0.3)
    state["sam_mask_decoder.pred_obj_score_head.layers.2.bias"][:] = object_score
    return state


def sam2_shapes(width: int, embedding: int) -> dict[str, Shape]:
    """Return the shape by key of every tensor that images need, without the trunk of the
    encoder.
    """
    layers: dict[str, Shape] = {
        f"image_encoder.neck.convs.{index}.conv": (embedding, width << 3 - index, 1, 1)
        for index in range(4)
    }
    decoder = "sam_mask_decoder"
    layers |= {
        f"{decoder}.conv_s{level}": (embedding // (8 >> level), embedding, 1, 1) for level in (0, 1)
    }
    sizes = {
        "pred_obj_score_head": (*[embedding] * 3, 1),
        "iou_prediction_head": (embedding, *[HEAD_WIDTH] * 2, 4),
    }
    for head, widths in sizes.items():
        layers |= {
            f"{decoder}.{head}.layers.{index}": (widths[index + 1], widths[index])
            for index in range(3)
        }
    shapes = {
        "no_mem_embed": (1, 1, embedding),
        f"{decoder}.obj_score_token.weight": (1, embedding),
        **_biased(layers),
    }
    for key, shape in mobile_sam_shapes(embedding=embedding).items():
        if not key.startswith(("image_encoder.", "mask_decoder.iou_prediction_head.")):
            renamed = key.replace("mlp.lin1.", "mlp.layers.0.").replace(
                "mlp.lin2.", "mlp.layers.1."
            )
            shapes[f"sam_{renamed}"] = shape
    return shapes


def hiera_shapes(
    *,
    width: int,
    depths: tuple[int, ...],
    background: tuple[int, int],
    windows: tuple[int, ...],
    **_: Any,
) -> dict[str, Shape]:
    """Return the shape by key of every tensor of a Hiera."""
    trunk = "image_encoder.trunk"
    layers: dict[str, Shape] = {f"{trunk}.patch_embed.proj": (width, 3, 7, 7)}
    stages = [stage for stage, depth in enumerate(depths) for _ in range(depth)]
    for index, (before, stage) in enumerate(pairwise([0, *stages])):
        block, inputs, outputs = f"{trunk}.blocks.{index}", width << before, width << stage
        layers |= {f"{block}.norm1": (inputs,), f"{block}.norm2": (outputs,)}
        layers |= {
            f"{block}.attn.qkv": (3 * outputs, inputs),
            f"{block}.attn.proj": (outputs, outputs),
        }
        layers |= {
            f"{block}.mlp.layers.0": (4 * outputs, outputs),
            f"{block}.mlp.layers.1": (outputs, 4 * outputs),
        }
        layers |= {f"{block}.proj": (outputs, inputs)} if inputs != outputs else {}
    positions = {"pos_embed": background, "pos_embed_window": (windows[0], windows[0])}
    return _biased(layers) | {
        f"{trunk}.{name}": (1, width, *size) for name, size in positions.items()
    }


def repvit_shapes(*, width: int, depths: tuple[int, ...], **_: Any) -> dict[str, Shape]:
    """Return the shape by key of every tensor of a RepViT."""
    body = "image_encoder.trunk.body"
    kernels: dict[str, Shape] = {
        f"{body}.stem.conv1": (width // 2, 3, 3, 3),
        f"{body}.stem.conv2": (width, width // 2, 3, 3),
    }
    layers: dict[str, Shape] = {}
    for index, depth in enumerate(depths):
        stage, channels = f"{body}.stages_{index}", width << index
        blocks = {f"{stage}.blocks.{number}": channels for number in range(depth)}
        if index:
            down, half = f"{stage}.downsample", channels // 2
            blocks[f"{down}.pre_block"] = half
            kernels[f"{down}.spatial_downsample"] = (half, 1, 3, 3)
            kernels[f"{down}.channel_downsample"] = (channels, half, 1, 1)
            kernels |= _mixer(f"{down}.ffn", channels)
        for block, size in blocks.items():
            kernels[f"{block}.token_mixer.conv"] = (size, 1, 3, 3)
            kernels[f"{block}.token_mixer.conv1"] = (size, 1, 1, 1)
            kernels |= _mixer(f"{block}.channel_mixer", size)
        for number in range(0, depth, 2):
            hidden = (channels // 4 + 4) // 8 * 8
            layers[f"{stage}.blocks.{number}.se.fc1"] = (hidden, channels, 1, 1)
            layers[f"{stage}.blocks.{number}.se.fc2"] = (channels, hidden, 1, 1)
    norm = ("weight", "bias", "running_mean", "running_var")
    norms = {f"{name}.bn.{each}": shape[:1] for name, shape in kernels.items() for each in norm}
    return {f"{name}.c.weight": shape for name, shape in kernels.items()} | norms | _biased(layers)


def _mixer(name: str, channels: int) -> dict[str, Shape]:
    return {
        f"{name}.conv1": (2 * channels, channels, 1, 1),
        f"{name}.conv2": (channels, 2 * channels, 1, 1),
    }


def _biased(layers: dict[str, Shape]) -> dict[str, Shape]:
    """Return the shape by key of the weights and biases of layers."""
    return {
        f"{name}.{key}": shape
        for name, each in layers.items()
        for key, shape in (("weight", each), ("bias", each[:1]))
    }
