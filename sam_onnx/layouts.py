"""Layouts of Segment Anything's checkpoints: other names for the authors' tensors, and what a
file's keys look like.
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sam_onnx.descriptor import EFFICIENT_VIT, HIERA, REPVIT, TINY_VIT, VIT
from sam_onnx.errors import CheckpointError
from sam_onnx.tensors import StateDict

ENCODER_PREFIXES = {
    TINY_VIT: "image_encoder.layers.",
    VIT: "image_encoder.blocks.",
    EFFICIENT_VIT: "image_encoder.backbone.stages.",
    HIERA: "image_encoder.trunk.blocks.",
    REPVIT: "image_encoder.trunk.body.stages_",
}
"""Beginning of keys that only checkpoints with this kind of encoder have."""
ANCHOR = "prompt_encoder.no_mask_embed.weight"
"""A key of both layouts. What a fine-tune has in front of it, such as `module.sam.`, is in front
of all of its keys."""
STACKED_POINTS = "prompt_encoder.point_embeddings.weight"
"""Tensor (4, C) of transformers' `Sam2Model`; the authors' are
`prompt_encoder.point_embeddings.0.weight` to 3."""
SAM_2 = (
    (r"^sam_(prompt_encoder|mask_decoder)\.", r"\1."),
    (r"^(mask_decoder\.transformer\..*\.mlp)\.layers\.0\.", r"\1.lin1."),
    (r"^(mask_decoder\.transformer\..*\.mlp)\.layers\.1\.", r"\1.lin2."),
)
"""Patterns of the keys of SAM 2's authors, and Segment Anything's keys of the same tensors."""
HUGGING_FACE = (
    (r"^vision_encoder\.backbone\.", "image_encoder.trunk."),
    (r"^image_encoder\.trunk\.timm_model\.", "image_encoder.trunk.body."),
    (r"^vision_encoder\.", "image_encoder."),
    (r"^image_encoder\.neck\.convs\.(\d+)\.", r"image_encoder.neck.convs.\1.conv."),
    (r"^(image_encoder\.trunk\.blocks\.\d+)\.layer_norm", r"\1.norm"),
    (r"^(image_encoder\.trunk\..*\.mlp)\.proj_in\.", r"\1.layers.0."),
    (r"^(image_encoder\.trunk\..*\.mlp)\.proj_out\.", r"\1.layers.1."),
    (r"^no_memory_embedding$", "no_mem_embed"),
    (r"^(mask_decoder\.transformer\..*)\.o_proj\.", r"\1.out_proj."),
    (r"^(mask_decoder\.transformer\..*\.mlp)\.proj_in\.", r"\1.lin1."),
    (r"^(mask_decoder\.transformer\..*\.mlp)\.proj_out\.", r"\1.lin2."),
    (
        r"^(shared_image_embedding|prompt_encoder\.shared_embedding)\.positional_embedding$",
        "prompt_encoder.pe_layer.positional_encoding_gaussian_matrix",
    ),
    (r"\.patch_embed\.projection\.", ".patch_embed.proj."),
    (r"^image_encoder\.layers\.(\d+)\.layer_norm", r"image_encoder.blocks.\1.norm"),
    (r"^image_encoder\.layers\.", "image_encoder.blocks."),
    (r"neck\.conv1\.", "neck.0."),
    (r"neck\.layer_norm1\.", "neck.1."),
    (r"neck\.conv2\.", "neck.2."),
    (r"neck\.layer_norm2\.", "neck.3."),
    (r"\.point_embed\.", ".point_embeddings."),
    (r"mask_embed\.conv1\.", "mask_downscaling.0."),
    (r"mask_embed\.layer_norm1\.", "mask_downscaling.1."),
    (r"mask_embed\.conv2\.", "mask_downscaling.3."),
    (r"mask_embed\.layer_norm2\.", "mask_downscaling.4."),
    (r"mask_embed\.conv3\.", "mask_downscaling.6."),
    (r"upscale_conv1\.", "output_upscaling.0."),
    (r"upscale_layer_norm\.", "output_upscaling.1."),
    (r"upscale_conv2\.", "output_upscaling.3."),
    (r"\.hq_token\.", ".hf_token."),
    (r"\.hq_mask_mlp\.", ".hf_mlp."),
    (r"\.compress_vit_(conv|norm)", r".compress_vit_feat.\1"),
    (r"\.encoder_(conv|norm)", r".embedding_encoder.\1"),
    (r"\.mask_(conv|norm)", r".embedding_maskfeature.\1"),
    (r"(vit_feat|embedding_encoder|maskfeature)\.conv1\.", r"\1.0."),
    (r"(vit_feat|embedding_encoder|maskfeature)\.norm\.", r"\1.1."),
    (r"(vit_feat|embedding_encoder|maskfeature)\.conv2\.", r"\1.3."),
    (r"layer_norm_final_attn\.", "norm_final_attn."),
    (r"^(mask_decoder\.transformer\.layers\.\d+)\.layer_norm", r"\1.norm"),
    (r"^(mask_decoder\.(?:iou|output|hf_mlp|pred).*)\.layers\.0\.", r"\1.layers.1."),
    (r"^(mask_decoder\.(?:iou|output|hf_mlp|pred).*)\.proj_in\.", r"\1.layers.0."),
    (r"^(mask_decoder\.(?:iou|output|hf_mlp|pred).*)\.proj_out\.", r"\1.layers.2."),
)
"""Patterns of keys of transformers' `SamModel`, `SamHQModel`, `Sam2Model` and `EdgeTamModel`, and
the authors' keys.

All are applied, in this order.
"""
OTHERS = (
    (
        r"(^|\.)(detector|tracker|tracker_model|detector_model)\.|vision_backbone\.",
        "SAM 3, whose licence is gated",
    ),
    (r"image_encoder\.fuse_stage", "EdgeSAM, whose licence is non-commercial"),
    (r"image_encoder\.features\.", "RepViT-SAM"),
)
"""Patterns of keys of relatives that are not served, the first that fits."""


def authors_layout(
    state: Mapping[str, npt.NDArray[np.generic]],
) -> dict[str, npt.NDArray[np.generic]]:
    """Return a state dict with the authors' keys, without prefixes and what is outside the model;
    others unchanged.

    The prompt encoder and the mask decoder of SAM 2 have Segment Anything's keys.
    """
    anchors = [key for key in state if key.endswith(ANCHOR)]
    prefix = anchors[0].removesuffix(ANCHOR).removesuffix("sam_") if len(anchors) == 1 else ""
    renamed = {
        key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)
    }
    rules = HUGGING_FACE if any(key.startswith("vision_encoder.") for key in renamed) else SAM_2
    renamed = {authors_key(key, rules): value for key, value in renamed.items()}
    if STACKED_POINTS in renamed:
        rows = enumerate(np.atleast_1d(renamed.pop(STACKED_POINTS)))
        renamed |= {
            STACKED_POINTS.replace("weight", f"{kind}.weight"): row[None] for kind, row in rows
        }
    return renamed


def encoder_kind(state: StateDict) -> str:
    """Return the kind of a checkpoint's image encoder, of `ENCODER_PREFIXES`.

    Raises:
        CheckpointError: it has another one, or is no checkpoint of Segment Anything's family.
    """
    relative = next(
        (name for pattern, name in OTHERS if any(re.search(pattern, key) for key in state)), None
    )
    kinds = [
        kind
        for kind, prefix in ENCODER_PREFIXES.items()
        if any(key.startswith(prefix) for key in state)
    ]
    if kinds and not relative:
        return kinds[0]
    missing = (
        f"; missing key: expected {'... or '.join(ENCODER_PREFIXES.values())}..., got no such key"
    )
    raise CheckpointError(
        f"this checkpoint looks like {relative or 'another model'}, which is not served; nearest"
        " are MobileSAM, SAM's ViT-B, L and H, SAM-HQ, EfficientViT-SAM, SAM 2 and EdgeTAM, with"
        " their fine-tunes" + ("" if relative else missing)
    )


def authors_key(key: str, rules: Sequence[tuple[str, str]] = HUGGING_FACE) -> str:
    """Return the key of the authors' tensor with a key of another layout, transformers' by
    default.
    """
    for pattern, replacement in rules:
        key = re.sub(pattern, replacement, key)
    return key
