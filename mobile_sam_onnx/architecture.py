"""Keys and shapes of a MobileSAM state dict, and untrained weights."""

import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mobile_sam_onnx.two_way import HEADS

Shapes = Iterator[tuple[str, tuple[int, ...]]]

# Learned vectors and tables; other matrices and kernels are scaled to keep the variance of their inputs.
UNIT_KEYS = re.compile(r"(_embed|_tokens?|point_embeddings\.\d)\.weight$|gaussian_matrix$|attention_biases$")


@dataclass(frozen=True)
class Architecture:
    """Dimensions of a MobileSAM; the defaults are the published model (`vit_t`)."""

    widths: tuple[int, ...] = (64, 128, 160, 320)
    depths: tuple[int, ...] = (2, 2, 6, 2)
    heads: tuple[int, ...] = (2, 4, 5, 10)
    windows: tuple[int, ...] = (7, 7, 14, 7)
    expansion: int = 4
    embedding: int = 256
    transformer_depth: int = 2
    transformer_mlp: int = 2048
    mask_channels: int = 16
    mask_tokens: int = 4

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape by key of every tensor that the graphs need."""
        return dict([*self._encoder(), *self._prompt_encoder(), *self._mask_decoder()])

    def _encoder(self) -> Shapes:
        root, first = "image_encoder", self.widths[0]
        yield from _conv_norm(f"{root}.patch_embed.seq.0", first // 2, 3, 3)
        yield from _conv_norm(f"{root}.patch_embed.seq.2", first, first // 2, 3)
        for index, (width, depth) in enumerate(zip(self.widths, self.depths, strict=True)):
            layer = f"{root}.layers.{index}"
            for number in range(depth):
                block = f"{layer}.blocks.{number}"
                yield from self._attention_block(block, index) if index else self._conv_block(block, width)
            if index + 1 < len(self.widths):
                after = self.widths[index + 1]
                yield from _bottleneck(f"{layer}.downsample", width, after, after)
        yield f"{root}.neck.0.weight", (self.embedding, self.widths[-1], 1, 1)
        yield from _pair(f"{root}.neck.1", self.embedding)
        yield f"{root}.neck.2.weight", (self.embedding, self.embedding, 3, 3)
        yield from _pair(f"{root}.neck.3", self.embedding)

    def _conv_block(self, block: str, width: int) -> Shapes:
        yield from _bottleneck(block, width, width * self.expansion, width)

    def _attention_block(self, block: str, index: int) -> Shapes:
        width, hidden = self.widths[index], self.widths[index] * self.expansion
        yield f"{block}.attn.attention_biases", (self.heads[index], self.windows[index] ** 2)
        yield from _pair(f"{block}.attn.norm", width)
        yield from _pair(f"{block}.attn.qkv", 3 * width, width)
        yield from _pair(f"{block}.attn.proj", width, width)
        yield from _pair(f"{block}.mlp.norm", width)
        yield from _pair(f"{block}.mlp.fc1", hidden, width)
        yield from _pair(f"{block}.mlp.fc2", width, hidden)
        yield from _conv_norm(f"{block}.local_conv", width, 1, 3)

    def _prompt_encoder(self) -> Shapes:
        root, width, channels = "prompt_encoder", self.embedding, self.mask_channels
        yield f"{root}.pe_layer.positional_encoding_gaussian_matrix", (2, width // 2)
        for index in range(4):
            yield f"{root}.point_embeddings.{index}.weight", (1, width)
        yield f"{root}.not_a_point_embed.weight", (1, width)
        yield f"{root}.no_mask_embed.weight", (1, width)
        yield from _pair(f"{root}.mask_downscaling.0", channels // 4, 1, 2, 2)
        yield from _pair(f"{root}.mask_downscaling.1", channels // 4)
        yield from _pair(f"{root}.mask_downscaling.3", channels, channels // 4, 2, 2)
        yield from _pair(f"{root}.mask_downscaling.4", channels)
        yield from _pair(f"{root}.mask_downscaling.6", width, channels, 1, 1)

    def _mask_decoder(self) -> Shapes:
        root, width = "mask_decoder", self.embedding
        for index in range(self.transformer_depth):
            layer = f"{root}.transformer.layers.{index}"
            yield from _attention(f"{layer}.self_attn", width, width)
            yield from _attention(f"{layer}.cross_attn_token_to_image", width, width // 2)
            yield from _attention(f"{layer}.cross_attn_image_to_token", width, width // 2)
            yield from _pair(f"{layer}.mlp.lin1", self.transformer_mlp, width)
            yield from _pair(f"{layer}.mlp.lin2", width, self.transformer_mlp)
            for norm in range(1, 5):
                yield from _pair(f"{layer}.norm{norm}", width)
        yield from _attention(f"{root}.transformer.final_attn_token_to_image", width, width // 2)
        yield from _pair(f"{root}.transformer.norm_final_attn", width)
        yield f"{root}.iou_token.weight", (1, width)
        yield f"{root}.mask_tokens.weight", (self.mask_tokens, width)
        yield f"{root}.output_upscaling.0.weight", (width, width // 4, 2, 2)
        yield f"{root}.output_upscaling.0.bias", (width // 4,)
        yield from _pair(f"{root}.output_upscaling.1", width // 4)
        yield f"{root}.output_upscaling.3.weight", (width // 4, width // 8, 2, 2)
        yield f"{root}.output_upscaling.3.bias", (width // 8,)
        for index in range(self.mask_tokens):
            yield from _perceptron(f"{root}.output_hypernetworks_mlps.{index}", width, width // 8)
        yield from _perceptron(f"{root}.iou_prediction_head", width, self.mask_tokens)


def random_state(architecture: Architecture, seed: int = 0) -> dict[str, npt.NDArray[np.generic]]:
    """Return untrained float32 weights, the same on every machine; activations keep about unit size in all layers."""
    assert architecture.embedding % (2 * HEADS) == 0
    return {key: _random(key, shape, seed) for key, shape in architecture.shapes().items()}


def _random(key: str, shape: tuple[int, ...], seed: int) -> npt.NDArray[np.generic]:
    if len(shape) == 1:
        scale = key.endswith(("running_var", ".weight"))
        return np.full(shape, 1.0 if scale else 0.0, np.float32)
    generator = np.random.Generator(np.random.PCG64(zlib.crc32(f"{seed}:{key}".encode())))
    deviation = 1.0 if UNIT_KEYS.search(key) else math.sqrt(1.0 / math.prod(shape[1:]))
    return (generator.standard_normal(shape, dtype=np.float32) * np.float32(deviation)).astype(np.float32)


def _pair(name: str, *shape: int) -> Shapes:
    yield f"{name}.weight", shape
    yield f"{name}.bias", shape[:1]


def _conv_norm(name: str, outputs: int, inputs: int, size: int) -> Shapes:
    yield f"{name}.c.weight", (outputs, inputs, size, size)
    for key in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.bn.{key}", (outputs,)


def _bottleneck(name: str, inputs: int, hidden: int, outputs: int) -> Shapes:
    yield from _conv_norm(f"{name}.conv1", hidden, inputs, 1)
    yield from _conv_norm(f"{name}.conv2", hidden, 1, 3)
    yield from _conv_norm(f"{name}.conv3", outputs, hidden, 1)


def _attention(name: str, width: int, inner: int) -> Shapes:
    for key in "qkv":
        yield from _pair(f"{name}.{key}_proj", inner, width)
    yield from _pair(f"{name}.out_proj", width, inner)


def _perceptron(name: str, width: int, outputs: int) -> Shapes:
    for index, size in enumerate((width, width, outputs)):
        yield from _pair(f"{name}.layers.{index}", size, width)
