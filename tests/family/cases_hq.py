"""Seeded models of SAM-HQ, and the answers of the authors' code.

`make family-test` compares them with `expected_hq.npz`. It has for each model and each of its
images
- `<model>/embedding/<image>`: (C / 16, 4, 4) float32, every 16th channel and position from (8, 8);
- `<model>/features/<image>`: (C / 32, 4, 4) float32, every 4th channel and 64th pixel of the
  features from (32, 32);
- `<model>/logits/<image>`: (P, 4, 8, 8) float32 for the P prompts, every 32nd pixel from (16, 16);
- `<model>/masks/<image>`: (P, 4, 128) uint8, every 8th pixel;
- `<model>/scores/<image>`: (P, 4) float32;
- `<model>/only/<image>`: (8, 8) float32, the logits of SAM-HQ's token alone for the click;
and `keys`: (N, 2) text, the keys of transformers' `SamHQModel` with the authors' keys of the same
tensors.
"""

from pathlib import Path
from typing import Any

import numpy as np

from sam_onnx.random_weights import Shape, mobile_sam_shapes
from tests.family import cases
from tests.family.cases import Array, noisy_state, sam_shapes

EXPECTED = Path(__file__).parent / "expected_hq.npz"
TINY = {
    "widths": (16, 24, 32, 320),
    "depths": (1, 1, 2, 1),
    "heads": (1, 2, 4, 5),
    "windows": (7, 7, 5, 4),
}
"""The authors' code does not shrink the image for a layer of width 320."""
MODELS: dict[str, dict[str, Any]] = {
    "vit": {**cases.MODELS["small"], "depth": 4, "global_blocks": (1, 3)},
    "tiny_vit": {**TINY, "expansion": 2, "embedding": 256, "transformer_mlp": 96},
}


def state_of(options: dict[str, Any]) -> dict[str, Array]:
    """Return weights by the authors' keys, without a tensor that is constant; `options` are as
    in `MODELS`.
    """
    is_vit = "width" in options
    shapes = sam_shapes(**options) if is_vit else mobile_sam_shapes(**options)
    early = options["width"] if is_vit else options["widths"][2]
    state = noisy_state(shapes | hq_shapes(options.get("embedding", 256), early))
    for key in (key for key in state if key.endswith("running_var")):
        state[key] += 1
    # So that both masks of a sum are about as large.
    state["mask_decoder.hf_mlp.layers.2.weight"] *= np.float32(0.2)
    return state


def hq_shapes(width: int, early: int) -> dict[str, Shape]:
    """Return the shape by key of SAM-HQ's own tensors, for early features of so many channels."""
    quarter, eighth = width // 4, width // 8
    layers: dict[str, Shape] = {
        "compress_vit_feat.0": (early, width, 2, 2),
        "compress_vit_feat.1": (width,),
        "compress_vit_feat.3": (width, eighth, 2, 2),
        "embedding_encoder.0": (width, quarter, 2, 2),
        "embedding_encoder.1": (quarter,),
        "embedding_encoder.3": (quarter, eighth, 2, 2),
        "embedding_maskfeature.0": (quarter, eighth, 3, 3),
        "embedding_maskfeature.1": (quarter,),
        "embedding_maskfeature.3": (eighth, quarter, 3, 3),
        **{
            f"hf_mlp.layers.{index}": (size, width)
            for index, size in enumerate((width, width, eighth))
        },
    }
    shapes: dict[str, Shape] = {"mask_decoder.hf_token.weight": (1, width)}
    for name, shape in layers.items():
        is_transposed = shape[2:] == (2, 2)
        shapes |= {
            f"mask_decoder.{name}.weight": shape,
            f"mask_decoder.{name}.bias": shape[is_transposed:][:1],
        }
    return shapes


def sampled(embedding: Array, features: Array) -> tuple[Array, Array]:
    """Return `embedding/...` and `features/...` of an embedding (C, 64, 64) and features (C / 8,
    256, 256).
    """
    return cases.sampled(embedding[::16]), features[::4, 32::64, 32::64].astype(np.float32)


def sampled_masks(low_res: Array) -> tuple[Array, Array]:
    """Return `logits/...` and `masks/...` of low-resolution masks (..., 4, 256, 256)."""
    bits = np.packbits((low_res[..., ::8, ::8] > 0).reshape(*low_res.shape[:-2], -1), axis=-1)
    return low_res[..., 16::32, 16::32].astype(np.float32), bits
