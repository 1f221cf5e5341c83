"""SAM 2's neck (Ravi et al. 2024, arXiv:2408.00714): a feature pyramid, and the decoder's
projections of its levels.
"""

import spox.opset.ai.onnx.v20 as op
from spox import Var

from sam_onnx.errors import CheckpointError
from sam_onnx.hq import is_hq
from sam_onnx.images import EMBEDDING, EMBEDDING_SIZE, FRAME_SIDE, HIGH_RES_FEATURES, STEM_STRIDE
from sam_onnx.nodes import linear, reshape, sizes_of
from sam_onnx.tensors import Array, Tensors


def pyramid(stages: list[Var], tensors: Tensors) -> dict[str, Var]:
    """Return the embedding from tokens (N, size**2, channels) after each of four stages, and a
    checkpoint's tensors.

    It has `image_embeddings` (N, 64, 64, C), `high_res_features_0` (N, 256, 256, C / 8) and
    `high_res_features_1` (N, 128, 128, C / 4), C = 256 for the published models. Level 2 of the
    pyramid has the level above it added, and the embedding of an empty memory. The decoder's
    projections of levels 0 and 1 are products with those of the pyramid.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    if is_hq(tensors):
        raise CheckpointError(
            "this checkpoint looks like HQ-SAM 2, which is not served; nearest are SAM-HQ and SAM 2"
        )
    no_memory = tensors.get("no_mem_embed", 1, 1, None)[0, 0]
    width = len(no_memory)
    laterals = [_lateral(stage, tensors, 3 - level, width) for level, stage in enumerate(stages)]
    weights, biases = zip(*laterals, strict=True)
    features = {}
    for level in (0, 1):
        project, size = (
            tensors.under("mask_decoder").under(f"conv_s{level}"),
            FRAME_SIDE // STEM_STRIDE >> level,
        )
        weight = project.get("weight", None, width, 1, 1)[:, :, 0, 0]
        bias = weight @ biases[level] + project.get("bias", len(weight))
        projected = linear(stages[level], (weight @ weights[level]).T, bias)
        features[HIGH_RES_FEATURES[level]] = reshape(projected, 0, size, size, len(weight))
    half = EMBEDDING_SIZE // 2
    embedding = linear(stages[2], weights[2].T, biases[2] + no_memory)
    above = linear(stages[3], weights[3].T, biases[3])
    embedding = op.add(
        reshape(embedding, 0, half, 2, half, 2, width), reshape(above, 0, half, 1, half, 1, width)
    )
    return {EMBEDDING: reshape(embedding, 0, EMBEDDING_SIZE, EMBEDDING_SIZE, width), **features}


def _lateral(stage: Var, tensors: Tensors, index: int, width: int) -> tuple[Array, Array]:
    """Return weight (width, channels) and bias (width,) of the pyramid's projection of a stage;
    the last is index 0.
    """
    projection = (
        tensors.under("image_encoder").under("neck").under("convs").under(index).under("conv")
    )
    return projection.get("weight", width, sizes_of(stage)[-1], 1, 1)[:, :, 0, 0], projection.get(
        "bias", width
    )
