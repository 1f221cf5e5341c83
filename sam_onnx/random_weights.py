"""Keys and shapes of a MobileSAM state dict, and untrained weights."""

import math
import re
import zlib
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]

# Learned vectors and tables; other matrices and kernels are scaled to keep the variance of their
# inputs.
UNIT_KEYS = re.compile(
    r"(_embed|_tokens?|point_embeddings\.\d)\.weight$|gaussian_matrix$|attention_biases$"
)
SUFFIXES = {
    ".c": (".c.weight", ".bn.weight", ".bn.bias", ".bn.running_mean", ".bn.running_var"),
    ".*": (".weight", ".bias"),
}
"""Keys of a convolution with a batch norm, and of a layer with a bias, by their suffix in
`mobile_sam_shapes`.

The first has the given shape, the others have one value for each output.
"""


def mobile_sam_shapes(
    *,
    widths: Shape = (64, 128, 160, 320),
    depths: Shape = (2, 2, 6, 2),
    heads: Shape = (2, 4, 5, 10),
    windows: Shape = (7, 7, 14, 7),
    expansion: int = 4,
    embedding: int = 256,
    transformer_depth: int = 2,
    transformer_mlp: int = 2048,
    mask_channels: int = 16,
) -> dict[str, Shape]:
    """Return the shape by key of every tensor that the graphs need; the defaults are the
    published model (`vit_t`).
    """
    half, quarter, eighth, masks = embedding // 2, embedding // 4, embedding // 8, 4
    layers: dict[str, Shape] = {
        "image_encoder.patch_embed.seq.0.c": (widths[0] // 2, 3, 3, 3),
        "image_encoder.patch_embed.seq.2.c": (widths[0], widths[0] // 2, 3, 3),
        "image_encoder.neck.0.weight": (embedding, widths[-1], 1, 1),
        "image_encoder.neck.1.*": (embedding,),
        "image_encoder.neck.2.weight": (embedding, embedding, 3, 3),
        "image_encoder.neck.3.*": (embedding,),
        "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix": (2, half),
        **{f"prompt_encoder.point_embeddings.{label}.weight": (1, embedding) for label in range(4)},
        "prompt_encoder.not_a_point_embed.weight": (1, embedding),
        "prompt_encoder.no_mask_embed.weight": (1, embedding),
        "prompt_encoder.mask_downscaling.0.*": (mask_channels // 4, 1, 2, 2),
        "prompt_encoder.mask_downscaling.1.*": (mask_channels // 4,),
        "prompt_encoder.mask_downscaling.3.*": (mask_channels, mask_channels // 4, 2, 2),
        "prompt_encoder.mask_downscaling.4.*": (mask_channels,),
        "prompt_encoder.mask_downscaling.6.*": (embedding, mask_channels, 1, 1),
        "mask_decoder.transformer.norm_final_attn.*": (embedding,),
        "mask_decoder.iou_token.weight": (1, embedding),
        "mask_decoder.mask_tokens.weight": (masks, embedding),
        "mask_decoder.output_upscaling.0.weight": (embedding, quarter, 2, 2),
        "mask_decoder.output_upscaling.0.bias": (quarter,),
        "mask_decoder.output_upscaling.1.*": (quarter,),
        "mask_decoder.output_upscaling.3.weight": (quarter, eighth, 2, 2),
        "mask_decoder.output_upscaling.3.bias": (eighth,),
    }
    for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for block in (f"image_encoder.layers.{index}.blocks.{number}" for number in range(depth)):
            layers |= (
                _bottleneck(block, width, expansion * width, width)
                if index == 0
                else {
                    f"{block}.attn.attention_biases": (heads[index], windows[index] ** 2),
                    f"{block}.attn.norm.*": (width,),
                    f"{block}.attn.qkv.*": (3 * width, width),
                    f"{block}.attn.proj.*": (width, width),
                    f"{block}.mlp.norm.*": (width,),
                    f"{block}.mlp.fc1.*": (expansion * width, width),
                    f"{block}.mlp.fc2.*": (width, expansion * width),
                    f"{block}.local_conv.c": (width, 1, 3, 3),
                }
            )
        for after in widths[index + 1 : index + 2]:
            layers |= _bottleneck(f"image_encoder.layers.{index}.downsample", width, after, after)
    attentions = {"final_attn_token_to_image": half}
    for layer in (f"layers.{index}" for index in range(transformer_depth)):
        attentions |= {f"{layer}.self_attn": embedding, f"{layer}.cross_attn_token_to_image": half}
        attentions[f"{layer}.cross_attn_image_to_token"] = half
        layers[f"mask_decoder.transformer.{layer}.mlp.lin1.*"] = (transformer_mlp, embedding)
        layers[f"mask_decoder.transformer.{layer}.mlp.lin2.*"] = (embedding, transformer_mlp)
        layers |= {
            f"mask_decoder.transformer.{layer}.norm{number}.*": (embedding,)
            for number in range(1, 5)
        }
    for name, inner in attentions.items():
        layers |= {
            f"mask_decoder.transformer.{name}.{key}_proj.*": (inner, embedding) for key in "qkv"
        }
        layers[f"mask_decoder.transformer.{name}.out_proj.*"] = (embedding, inner)
    perceptrons = {"iou_prediction_head": masks}
    perceptrons |= {f"output_hypernetworks_mlps.{index}": eighth for index in range(masks)}
    for name, outputs in perceptrons.items():
        sizes = enumerate((embedding, embedding, outputs))
        layers |= {
            f"mask_decoder.{name}.layers.{index}.*": (size, embedding) for index, size in sizes
        }
    shapes: dict[str, Shape] = {}
    for name, shape in layers.items():
        first, *others = SUFFIXES.get(name[-2:], (name[-2:],))
        shapes |= {name[:-2] + first: shape, **{name[:-2] + suffix: shape[:1] for suffix in others}}
    return shapes


def _bottleneck(name: str, inputs: int, hidden: int, outputs: int) -> dict[str, Shape]:
    kernels = (hidden, inputs, 1, 1), (hidden, 1, 3, 3), (outputs, hidden, 1, 1)
    return {f"{name}.conv{number}.c": kernel for number, kernel in enumerate(kernels, 1)}


def random_state(shapes: Mapping[str, Shape], seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Return untrained float32 weights, the same on every machine; activations keep about unit
    size in all layers.
    """
    return {key: _random(key, shape, seed) for key, shape in shapes.items()}


def _random(key: str, shape: Shape, seed: int) -> npt.NDArray[np.generic]:
    if len(shape) == 1:
        scale = key.endswith(("running_var", ".weight"))
        return np.full(shape, 1.0 if scale else 0.0, np.float32)
    deviation = 1.0 if UNIT_KEYS.search(key) else math.sqrt(1.0 / math.prod(shape[1:]))
    return seeded_normal(key, shape, seed) * np.float32(deviation)


def seeded_normal(key: str, shape: Shape, seed: int) -> npt.NDArray[np.float32]:
    """Return standard normal float32 values for a tensor, the same on every machine."""
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(f"{seed}:{key}".encode())))
    return generator.standard_normal(shape, dtype=np.float32)
