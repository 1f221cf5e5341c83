"""The prompt encoder and mask decoder as one graph: N prompts for one embedding.

Pixels stay in the order of the 64x64 positions, each followed by its 4x4 pixels, until the four
masks are put in raster order. So nothing larger than the output is transposed; but SAM-HQ's
convolutions need raster order before.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.descriptor import BEST_OF_THREE, FIRST, HQ_ONLY, STABLE_OR_BEST
from sam_onnx.hq import FEATURES, hq_mask, is_hq
from sam_onnx.images import EMBEDDING, EMBEDDING_SIZE, HIGH_RES_FEATURES
from sam_onnx.nodes import constant, finished_model, ints, linear, reshape, sizes_of
from sam_onnx.prompts import (
    NO_POINT,
    embed_masks,
    embed_points,
    image_positions,
    with_padding_points,
)
from sam_onnx.tensors import Array, StateDict, Tensors
from sam_onnx.two_way import two_way_transformer
from sam_onnx.upscaling import MASK_SIDE, in_block_order, upscale

PROMPT: dict[str, tuple[int | str, ...]] = {
    "point_coords": ("N", "P", 2),
    "point_labels": ("N", "P"),
    "mask_input": ("M", 1, MASK_SIDE, MASK_SIDE),
    "has_mask_input": ("M",),
}
MASKS = 4  # the single one and three candidates
ABSENT_SCORE = -3e4  # its exp() is 0 in float32, and it fits float16
STABLE_IOU, STABLE_OFFSET = 0.98, 0.05  # SAM 2's; the offset in logits
NO_OBJECT = -1024.0  # logits of SAM 2's masks of nothing
MAX_LOGIT = 32.0  # in masks that SAM 2 takes


def build_decoder(state: StateDict, single_mask: str = FIRST) -> onnx.ModelProto:
    """Build the decoder; `single_mask` is the descriptor's rule.

    Inputs, float32 except the first: `image_embeddings` (1, 64, 64, C) float16; `point_coords` (N,
    P, 2), x then y in pixels of the 1024-frame, without the half pixel to the centre;
    `point_labels` (N, P): 0 negative, 1 positive, 2 and 3 box corners, -1 the official padding
    point, -2 no point; `mask_input` (M, 1, 256, 256) logits and `has_mask_input` (M,), 1 where the
    mask is used; M is N, or 1 for all prompts, which saves work. Outputs: `low_res_masks` (N, K,
    256, 256) logits and `iou_predictions` (N, K), K = 4: the single mask and the three candidates;
    `single_masks` (N, 1, 256, 256), only the first of them, for callers that need no more.

    SAM-HQ needs `hq_features` (1, 256, 256, C / 8) float16 too. Each of its masks is a sum with
    that of its own token.

    SAM 2 (Ravi et al. 2024, arXiv:2408.00714) needs `high_res_features_0` (1, 256, 256, C / 8) and
    `high_res_features_1` (1, 128, 128, C / 4) float16. If its score of an object is negative, all
    logits are -1024, as for its videos; its image predictor ignores that score. That predictor
    clamps the logits that it returns to [-32, 32], after it has upsampled them; here they are
    clamped when they come back in `mask_input`.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    tensors = Tensors(state)
    decoder, prompts = tensors.under("mask_decoder"), tensors.under("prompt_encoder")
    mask_tokens = decoder.under("mask_tokens").get("weight", MASKS, None)
    width = mask_tokens.shape[1]
    hq, is_sam2 = is_hq(tensors), decoder.has("conv_s0")
    high_res = _high_res_inputs(decoder) if is_sam2 else {}
    embedding = {
        EMBEDDING: spox.argument(Tensor(np.float16, (1, EMBEDDING_SIZE, EMBEDDING_SIZE, width))),
        **high_res,
    }
    prompt = {name: spox.argument(Tensor(np.float32, shape)) for name, shape in PROMPT.items()}
    coords, labels, mask_input, has_mask = prompt.values()

    output_tokens = np.concatenate(
        [decoder.under("iou_token").get("weight", 1, width), mask_tokens]
    )
    if hq or is_sam2:
        added_token = "hf_token" if hq else "obj_score_token"
        output_tokens = np.concatenate(
            [output_tokens, decoder.under(added_token).get("weight", 1, width)]
        )
    points = with_padding_points(coords, labels) if is_sam2 else (coords, labels)
    tokens, absent = _prompt_tokens(*points, output_tokens, prompts)
    earlier = (
        op.clip(mask_input, constant(-MAX_LOGIT), constant(MAX_LOGIT)) if is_sam2 else mask_input
    )

    positions = op.cast(reshape(embedding[EMBEDDING], 1, -1, width), to=np.float32)
    positions = op.add(positions, embed_masks(earlier, has_mask, prompts, width))
    encoding = image_positions(prompts, width)
    tokens, positions = two_way_transformer(
        tokens, positions, encoding, absent, decoder.under("transformer")
    )
    iou_token = op.squeeze(op.slice(tokens, ints(0), ints(1), ints(1)), ints(1))
    outputs = op.slice(tokens, ints(1), ints(1 + MASKS), ints(1))
    scores = _perceptron(iou_token, [decoder.under("iou_prediction_head")], width, MASKS)
    channels = len(decoder.get("output_upscaling.3.bias", None))
    features = [in_block_order(feature) for feature in high_res.values()]
    pixels = op.gelu(
        upscale(positions, decoder.under("output_upscaling"), width, channels, features)
    )
    pixels = reshape(pixels, -1, MASK_SIDE**2, channels)
    token = op.slice(tokens, ints(len(output_tokens) - 1), ints(len(output_tokens)), ints(1))
    if hq:
        kernel = _perceptron(token, [decoder.under("hf_mlp")], width, channels)
        embedding[FEATURES] = spox.argument(Tensor(np.float16, (1, MASK_SIDE, MASK_SIDE, channels)))
        added = hq_mask(pixels, kernel, embedding[FEATURES], channels, decoder)
    if single_mask == HQ_ONLY:
        logits = op.expand(added, ints(1, MASKS, 1, 1))
    else:
        logits = _masks(outputs, pixels, decoder, width)
        logits = op.add(logits, added) if hq else logits
    if single_mask in (BEST_OF_THREE, STABLE_OR_BEST):
        stable = first_is_stable(logits) if single_mask == STABLE_OR_BEST else None
        logits, scores = with_best_first(logits, scores, unless=stable)
    if is_sam2:
        scores = op.sigmoid(scores)
        present = op.greater(
            _perceptron(token, [decoder.under("pred_obj_score_head")], width, 1), constant(0.0)
        )
        logits = op.where(op.unsqueeze(present, ints(3)), logits, constant(NO_OBJECT))
    first_mask = op.slice(logits, ints(0), ints(1), ints(1))
    return finished_model(
        "mobile_sam_decoder",
        embedding | prompt,
        {"low_res_masks": logits, "iou_predictions": scores, "single_masks": first_mask},
    )


def _high_res_inputs(decoder: Tensors) -> dict[str, Var]:
    """Return SAM 2's inputs of finer features by name, the finest first."""
    inputs = {}
    for level, (name, layer) in enumerate(zip(HIGH_RES_FEATURES, (3, 0), strict=True)):
        channels = len(decoder.get(f"output_upscaling.{layer}.bias", None))
        width = len(decoder.get(f"conv_s{level}.bias", channels))
        inputs[name] = spox.argument(
            Tensor(np.float16, (1, MASK_SIDE >> level, MASK_SIDE >> level, width))
        )
    return inputs


def _prompt_tokens(coords: Var, labels: Var, own: Array, prompts: Tensors) -> tuple[Var, Var]:
    """Return `own` tokens and those of points, (N, T, width), and (N, 1, 1, T) `ABSENT_SCORE`
    where there is none.
    """
    batch = op.slice(op.shape(labels), ints(0), ints(1))
    own_tokens = op.expand(constant(own[None]), op.concat([batch, ints(*own.shape)], axis=0))
    missing = op.cast(op.equal(labels, constant(NO_POINT)), to=np.float32)
    absent = op.pad(op.mul(missing, constant(ABSENT_SCORE)), ints(0, len(own), 0, 0), constant(0.0))
    tokens = op.concat([own_tokens, embed_points(coords, labels, prompts, own.shape[1])], axis=1)
    return tokens, op.unsqueeze(absent, ints(1, 2))


def _masks(outputs: Var, pixels: Var, decoder: Tensors, width: int) -> Var:
    """Return the logits (N, 4, 256, 256) of mask tokens (N, 4, width) and pixels in block order."""
    heads = [decoder.under("output_hypernetworks_mlps").under(index) for index in range(MASKS)]
    kernels = _perceptron(op.transpose(outputs, perm=[1, 0, 2]), heads, width, sizes_of(pixels)[-1])
    logits = op.matmul(op.transpose(kernels, perm=[1, 0, 2]), op.transpose(pixels, perm=[0, 2, 1]))
    logits = reshape(logits, -1, MASKS, EMBEDDING_SIZE, EMBEDDING_SIZE, 2, 2, 2, 2)
    return reshape(
        op.transpose(logits, perm=[0, 1, 2, 4, 6, 3, 5, 7]), -1, MASKS, MASK_SIDE, MASK_SIDE
    )


def with_best_first(logits: Var, scores: Var, unless: Var | None = None) -> tuple[Var, Var]:
    """Replace the first of the masks (N, 4, 256, 256) and scores (N, 4) by the best-scored of the
    others.

    It stays where `unless` (N, 1) bool, if any, is true.
    """
    candidates = op.slice(scores, ints(1), ints(4), ints(1))
    best = op.add(op.arg_max(candidates, axis=1, keepdims=True), ints(1))
    best = best if unless is None else op.where(unless, ints(0), best)
    order = op.concat(
        [best, op.expand(ints(1, 2, 3), op.concat([op.shape(best, end=1), ints(3)], axis=0))],
        axis=1,
    )
    return op.gather_nd(logits, op.unsqueeze(order, ints(2)), batch_dims=1), op.gather_elements(
        scores, order, axis=1
    )


def first_is_stable(logits: Var) -> Var:
    """Return (N, 1) bool: whether the first of the masks (N, 4, 256, 256) hardly depends on the
    threshold.
    """
    first = op.slice(logits, ints(0), ints(1), ints(1))
    smaller, larger = (
        op.reduce_sum(
            op.cast(op.greater(first, constant(offset)), to=np.float32), ints(2, 3), keepdims=False
        )
        for offset in (STABLE_OFFSET, -STABLE_OFFSET)
    )
    return op.greater_or_equal(smaller, op.mul(larger, constant(STABLE_IOU)))


def _perceptron(x: Var, mlps: list[Tensors], inputs: int, outputs: int) -> Var:
    """Apply MLPs of equal shape with ReLU between layers, one per leading index of `x`; a single
    MLP to all of `x`.
    """
    depth = len(mlps[0].under("layers").children())
    for index in range(depth):
        size = outputs if index == depth - 1 else None
        layers = [mlp.under("layers").under(index) for mlp in mlps]
        weights = [layer.get("weight", size, inputs) for layer in layers]
        inputs = weights[0].shape[0]
        biases = [layer.get("bias", inputs) for layer in layers]
        if len(mlps) == 1:
            x = linear(x, weights[0].T, biases[0])
        else:
            x = linear(x, np.stack([weight.T for weight in weights]), np.stack(biases)[:, None])
        x = op.relu(x) if index < depth - 1 else x
    return x
