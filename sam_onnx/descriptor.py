"""The descriptor of converted weights: what a service must know to use them, in `weights.json`.
No heavy imports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from sam_onnx.errors import ExportError

TINY_VIT, VIT, EFFICIENT_VIT, HIERA, REPVIT = "mobile_sam", "vit", "efficientvit", "hiera", "repvit"
"""Kinds of image encoders: of MobileSAM, Segment Anything, EfficientViT-SAM, SAM 2 and EdgeTAM."""
SAM2_KINDS = (HIERA, REPVIT)
LONGEST_SIDE, SQUASH = "longest_side", "squash"
"""Scaling of an image to the encoder's square: its longest side, the rest padded; or both sides,
its shape lost."""
IMAGENET, MIN_MAX = "imagenet", "min_max"
"""Normalisation in the encoder: ImageNet's mean and deviation, or the image's own range to [0,
1]."""
FIRST, BEST_OF_THREE, STABLE_OR_BEST, HQ_ONLY = (
    "first",
    "best_of_three",
    "stable_or_best",
    "hq_only",
)
"""Origin of the single mask: its own token, the candidate with the best score, the first of
these if it is stable and the second if not, or SAM-HQ's token, as all candidates."""


@dataclass(frozen=True)
class Descriptor:
    """How the encoder and the decoder of one set of weights are used."""

    architecture: str = TINY_VIT
    """Kind of the encoder, or `builtin`."""
    side: int = 1024
    """Side of the encoder's input, in pixels."""
    resize: str = LONGEST_SIDE
    normalisation: str = IMAGENET
    embedding: dict[str, list[int]] = field(
        default_factory=lambda: {"image_embeddings": [1, 64, 64, 256]}
    )
    """Tensors of an embedding, in float16: shape by name. The encoder's outputs, and inputs of
    the decoder."""
    single_mask: str = FIRST
    prompts: list[str] = field(default_factory=lambda: ["points", "boxes", "masks"])
    """Accepted prompts: `points`, `boxes`, `masks` (earlier ones)."""
    batch: int = 8
    """Images in one run of the encoder."""
    engines: list[str] = field(default_factory=lambda: ["openvino", "onnxruntime"])
    """Engines on a CPU, the fastest first; bfloat16 only where `make gate` has found that it
    preserves the masks."""


MEMBERS: dict[str, dict[str, Any]] = {
    TINY_VIT: {"engines": ["openvino-bf16", "openvino", "onnxruntime"]},
    EFFICIENT_VIT: {"batch": 4},  # an image takes 0.4 GB with XL0
    VIT: {"batch": 1},  # the scores of one image take 1 GB with ViT-H
    HIERA: {"resize": SQUASH, "single_mask": STABLE_OR_BEST, "batch": 1},
    REPVIT: {"resize": SQUASH, "single_mask": STABLE_OR_BEST},
}
"""Descriptor fields of the members of the family, by the kind of their encoder; unless a recipe
sets others."""
HQ: dict[str, Any] = {"engines": ["openvino", "onnxruntime"]}
"""Descriptor fields of SAM-HQ, whatever its encoder: its features have not been tried in
bfloat16."""
RECIPES: dict[str, dict[str, Any]] = {
    "tinysam": {
        "architecture": TINY_VIT,
        "single_mask": BEST_OF_THREE,
        "engines": ["openvino", "onnxruntime"],
    },
    "medsam": {
        "architecture": VIT,
        "resize": SQUASH,
        "normalisation": MIN_MAX,
        "prompts": ["boxes"],
    },
    "hq_only": {"single_mask": HQ_ONLY},
}
"""Descriptor fields of fine-tunes whose tensors do not tell them, by the word before the path of
a weights file."""


def configured(config: str, descriptor: Descriptor) -> str:
    """Return the text of the encoder's or the decoder's `config.pbtxt` for a descriptor.

    The tensors of an embedding are the only ones in float16: each run of such lines is written
    anew.
    """
    lines: list[str] = []
    for line in config.splitlines():
        if "TYPE_FP16" not in line:
            text = line
            if '"images"' in line:
                text = re.sub(r"\d+, \d+, 3 \]", f"{descriptor.side}, {descriptor.side}, 3 ]", line)
            lines.append(
                re.sub(r"^max_batch_size: [1-9]\d*", f"max_batch_size: {descriptor.batch}", text)
            )
        elif not lines or "TYPE_FP16" not in lines[-1]:
            dims = "1, " if "dims: [ 1," in line else ""
            for name, (_, *shape) in descriptor.embedding.items():
                text = re.sub(r'(name|key): "\w+"', rf'\1: "{name}"', line)
                lines.append(
                    re.sub(r"dims: \[.*?\]", f"dims: [ {dims}{', '.join(map(str, shape))} ]", text)
                )
    return "\n".join(lines) + "\n"


def check_same_tensors(descriptor: Descriptor, others: dict[int, Descriptor]) -> None:
    """Check that versions can share their models' configuration.

    Raises:
        ExportError: the weights have tensors of other names or shapes than those of another
            version.
    """
    for version, other in others.items():
        if (descriptor.side, descriptor.embedding) != (other.side, other.embedding):
            raise ExportError(
                f"these weights need another repository: beside version {version}, expected a frame"
                f" of {other.side} pixels and embeddings {other.embedding}, got {descriptor.side}"
                f" and {descriptor.embedding}; `rm -r model_repository/*/{version}` removes that"
                " version"
            )
