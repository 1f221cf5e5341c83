"""Seeded models of the SAM family, prompts for them, and the answers of the authors' code.

`make family-test` compares them with `expected.npz`, which has for each model, `small` and `deep`,
and each of its images, named by their size like `768x1024`,
- `<model>/embedding/<image>`: (C, 4, 4) float32, every 16th position of the embedding from (8, 8);
- `<model>/logits/<image>/<prompt>`: (4, 16, 16) float32, every 16th pixel of the low-resolution
  masks from (8, 8);
- `<model>/masks/<image>/<prompt>`: (4, 512) uint8, every 4th pixel of the same, logits over 0, 1
  bit per pixel;
- `<model>/scores/<image>/<prompt>`: (4,) float32;
and `keys`: (N, 2) text, the keys of transformers' `SamModel` with the authors' keys of the same
tensors. The first mask and score are the single mask's, the others those of the candidates.
"""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sam_onnx.random_weights import Shape, mobile_sam_shapes, seeded_normal

Array = npt.NDArray[Any]

EXPECTED = Path(__file__).parent / "expected.npz"
SIZES_HW = ((768, 1024), (1024, 682), (1024, 1024))
"""Sizes in the encoder's frame."""
PROMPTS: dict[str, dict[str, Any]] = {
    "click": {"points": [[400, 300]]},
    "box": {"box": [150, 120, 600, 580]},
    "click-in-box": {"points": [[400, 300], [200, 200]], "box": [150, 120, 600, 580]},
    "refined": {"points": [[400, 300]], "refines": "click"},
}
"""Points, the first one positive and others negative, and boxes, in pixels of the frame; an
earlier prompt's mask."""
VIT_B = {"width": 768, "depth": 12, "heads": 12, "global_blocks": (2, 5, 8, 11)}
MODELS: dict[str, dict[str, Any]] = {
    "small": {
        "width": 48,
        "depth": 3,
        "heads": 3,
        "global_blocks": (1,),
        "embedding": 64,
        "transformer_mlp": 96,
    },
    "deep": {**VIT_B, "width": 128, "heads": 2},
}
"""`deep` has the blocks, the width of a head, the embedding and the decoder of ViT-B in a
fraction of its time."""


def sizes_of(model: str) -> tuple[tuple[int, int], ...]:
    """Return the sizes of a model's images: one for a deep model, which takes a second for each."""
    return SIZES_HW if model == "small" else SIZES_HW[:1]


def named(size_hw: tuple[int, int]) -> str:
    """Return the name of an image."""
    return f"{size_hw[0]}x{size_hw[1]}"


def sam_shapes(
    *,
    width: int,
    depth: int,
    heads: int,
    global_blocks: tuple[int, ...],
    embedding: int = 256,
    transformer_mlp: int = 2048,
) -> dict[str, Shape]:
    """Return the shape by key of every tensor of a Segment Anything with this ViT."""
    decoder = mobile_sam_shapes(embedding=embedding, transformer_mlp=transformer_mlp)
    shapes = {key: shape for key, shape in decoder.items() if not key.startswith("image_encoder.")}
    layers: dict[str, Shape] = {
        "patch_embed.proj": (width, 3, 16, 16),
        "neck.1": (embedding,),
        "neck.3": (embedding,),
    }
    shapes["image_encoder.pos_embed"] = (1, 64, 64, width)
    shapes["image_encoder.neck.0.weight"] = (embedding, width, 1, 1)
    shapes["image_encoder.neck.2.weight"] = (embedding, embedding, 3, 3)
    for index in range(depth):
        block, window = f"blocks.{index}", 64 if index in global_blocks else 14
        layers |= {f"{block}.norm1": (width,), f"{block}.norm2": (width,)}
        layers |= {f"{block}.attn.qkv": (3 * width, width), f"{block}.attn.proj": (width, width)}
        layers |= {f"{block}.mlp.lin1": (4 * width, width), f"{block}.mlp.lin2": (width, 4 * width)}
        shapes |= {
            f"image_encoder.{block}.attn.rel_pos_{axis}": (2 * window - 1, width // heads)
            for axis in "hw"
        }
    for name, shape in layers.items():
        shapes |= {f"image_encoder.{name}.weight": shape, f"image_encoder.{name}.bias": shape[:1]}
    return shapes


def noisy_state(shapes: dict[str, Shape]) -> dict[str, Array]:
    """Return float32 weights without a tensor that is constant, the same on every machine."""
    return {key: _noise(key, shape) for key, shape in shapes.items()}


def _noise(key: str, shape: Shape) -> Array:
    values = seeded_normal(key, shape, 0)
    if len(shape) == 1:
        return np.float32(0.1) * values + np.float32(key.endswith(".weight"))
    if "rel_pos" in key or "pos_embed" in key:
        return np.float32(0.3) * values
    table = (
        key.endswith("gaussian_matrix")
        or "token" in key
        or "embed." in key
        or "point_embeddings" in key
    )
    return (
        values if table and "proj" not in key else values / np.float32(np.sqrt(np.prod(shape[1:])))
    )


@cache
def image(size_hw: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """Return coloured stripes with noise, (1024, 1024, 3) uint8, of which only size_hw in the
    top left is the image.
    """
    y, x = np.mgrid[0:1024, 0:1024]
    waves = np.stack(
        [np.sin(x / 61 + y / 97), np.sin(x / 23 - y / 131), np.cos(x * y / 9000)], axis=-1
    )
    noise = np.random.default_rng(0).integers(-40, 41, (1024, 1024, 3))
    pixels: npt.NDArray[np.uint8] = np.clip(128 + 80 * waves + noise, 0, 255).astype(np.uint8)
    pixels[size_hw[0] :] = pixels[:, size_hw[1] :] = 255
    return pixels


def sampled(embedding: Array) -> Array:
    """Return `embedding/...` of an embedding (C, 64, 64)."""
    found: Array = embedding[:, 8::16, 8::16].astype(np.float32)
    return found


def sampled_masks(low_res: Array) -> tuple[Array, Array]:
    """Return `logits/...` and `masks/...` of low-resolution masks (4, 256, 256)."""
    return low_res[:, 8::16, 8::16].astype(np.float32), np.packbits(
        (low_res[:, ::4, ::4] > 0).reshape(4, -1), axis=1
    )
