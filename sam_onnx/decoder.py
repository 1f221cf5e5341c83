"""The prompt encoder and mask decoder as one graph: N prompts for one embedding.

Pixels stay in the order of the 64x64 positions, each followed by its 4x4 pixels, until the four masks are put in raster
order. So nothing larger than the output is transposed.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.descriptor import BEST_OF_THREE, FIRST
from sam_onnx.images import EMBEDDING, EMBEDDING_SIZE
from sam_onnx.nodes import LAYER_NORM_2D_EPSILON, constant, finished_model, ints, layer_norm, linear, reshape
from sam_onnx.prompts import ABSENT_LABEL, embed_masks, embed_points, image_positions
from sam_onnx.tensors import Array, StateDict, Tensors
from sam_onnx.two_way import two_way_transformer

MASK_SIZE = 4 * EMBEDDING_SIZE
ABSENT_SCORE = -3e4  # its exp() is 0 in float32, and it fits float16


def build_decoder(state: StateDict, single_mask: str = FIRST) -> onnx.ModelProto:
    """Build the decoder; `single_mask` is the descriptor's rule.

    Inputs, float32 except the first: `image_embeddings` (1, 64, 64, C) float16; `point_coords` (N, P, 2), x then y in
    pixels of the 1024-frame, without the half pixel to the centre; `point_labels` (N, P): 0 negative, 1 positive, 2 and
    3 box corners, -1 the official padding point, -2 no point; `mask_input` (M, 1, 256, 256) logits and `has_mask_input`
    (M,), 1 where the mask is used; M is N, or 1 for all prompts, which saves work.
    Outputs: `low_res_masks` (N, K, 256, 256) logits and `iou_predictions` (N, K), K = 4: the single mask and the three
    candidates; `single_masks` (N, 1, 256, 256), only the first of them, for callers that need no more.

    Raises:
        CheckpointError: a tensor is missing or does not fit the others.
    """
    tensors = Tensors(state)
    decoder, prompts = tensors.under("mask_decoder"), tensors.under("prompt_encoder")
    mask_tokens = decoder.under("mask_tokens").get("weight", None, None)
    masks, width = mask_tokens.shape
    embeddings = spox.argument(Tensor(np.float16, (1, EMBEDDING_SIZE, EMBEDDING_SIZE, width)))
    coords = spox.argument(Tensor(np.float32, ("N", "P", 2)))
    labels = spox.argument(Tensor(np.float32, ("N", "P")))
    mask_input = spox.argument(Tensor(np.float32, ("M", 1, MASK_SIZE, MASK_SIZE)))
    has_mask = spox.argument(Tensor(np.float32, ("M",)))

    own = np.concatenate([decoder.under("iou_token").get("weight", 1, width), mask_tokens])
    batch = op.slice(op.shape(labels), ints(0), ints(1))
    own_tokens = op.expand(constant(own[None]), op.concat([batch, ints(*own.shape)], axis=0))
    tokens = op.concat([own_tokens, embed_points(coords, labels, prompts, width)], axis=1)
    missing = op.cast(op.equal(labels, constant(ABSENT_LABEL)), to=np.float32)
    absent = op.pad(op.mul(missing, constant(ABSENT_SCORE)), ints(0, len(own), 0, 0), constant(0.0))

    positions = op.cast(reshape(embeddings, 1, -1, width), to=np.float32)
    positions = op.add(positions, embed_masks(mask_input, has_mask, prompts, width))
    tokens, positions = two_way_transformer(
        tokens,
        positions,
        image_positions(prompts, width),
        op.unsqueeze(absent, ints(1, 2)),
        decoder.under("transformer"),
    )
    iou_token = op.squeeze(op.slice(tokens, ints(0), ints(1), ints(1)), ints(1))
    outputs = op.slice(tokens, ints(1), ints(1 + masks), ints(1))
    scores = _perceptron(iou_token, [decoder.under("iou_prediction_head")], width, masks)
    pixels, channels = _upscale(positions, decoder.under("output_upscaling"), width)
    heads = [decoder.under("output_hypernetworks_mlps").under(index) for index in range(masks)]
    kernels = _perceptron(op.transpose(outputs, perm=[1, 0, 2]), heads, width, channels)
    logits = op.matmul(op.transpose(kernels, perm=[1, 0, 2]), op.transpose(pixels, perm=[0, 2, 1]))
    logits = reshape(logits, -1, masks, EMBEDDING_SIZE, EMBEDDING_SIZE, 2, 2, 2, 2)
    logits = reshape(op.transpose(logits, perm=[0, 1, 2, 4, 6, 3, 5, 7]), -1, masks, MASK_SIZE, MASK_SIZE)
    if single_mask == BEST_OF_THREE:
        logits, scores = with_best_first(logits, scores)
    first_mask = op.slice(logits, ints(0), ints(1), ints(1))
    return finished_model(
        "mobile_sam_decoder",
        {
            EMBEDDING: embeddings,
            "point_coords": coords,
            "point_labels": labels,
            "mask_input": mask_input,
            "has_mask_input": has_mask,
        },
        {"low_res_masks": logits, "iou_predictions": scores, "single_masks": first_mask},
    )


def with_best_first(logits: Var, scores: Var) -> tuple[Var, Var]:
    """Replace the first of the masks (N, 4, 256, 256) and scores (N, 4) by the best-scored of the others."""
    candidates = op.slice(scores, ints(1), ints(4), ints(1))
    best = op.add(op.arg_max(candidates, axis=1, keepdims=True), ints(1))
    order = op.concat([best, op.expand(ints(1, 2, 3), op.concat([op.shape(best, end=1), ints(3)], axis=0))], axis=1)
    return op.gather_nd(logits, op.unsqueeze(order, ints(2)), batch_dims=1), op.gather_elements(scores, order, axis=1)


def _upscale(positions: Var, tensors: Tensors, width: int) -> tuple[Var, int]:
    """Up-sample (N, 4096, width) to (N, 4096 * 16, channels): two transposed 2x2 convolutions as matrix products."""
    first = tensors.get("0.weight", width, None, 2, 2)
    middle = first.shape[1]
    second = tensors.get("3.weight", middle, None, 2, 2)
    channels = second.shape[1]
    x = linear(positions, _blocks(first), np.tile(tensors.get("0.bias", middle), 4))
    x = reshape(x, -1, 4 * EMBEDDING_SIZE**2, middle)
    x = op.gelu(layer_norm(x, tensors.under(1), middle, LAYER_NORM_2D_EPSILON))
    x = op.gelu(linear(x, _blocks(second), np.tile(tensors.get("3.bias", channels), 4)))
    return reshape(x, -1, MASK_SIZE**2, channels), channels


def _blocks(kernel: Array) -> Array:
    """Reshape (in, out, 2, 2) to (in, 2 * 2 * out), the pixels of a block outermost."""
    return np.ascontiguousarray(kernel.transpose(0, 2, 3, 1).reshape(kernel.shape[0], -1))


def _perceptron(x: Var, mlps: list[Tensors], inputs: int, outputs: int) -> Var:
    """Apply MLPs of equal shape with ReLU between layers, one per leading index of `x`; a single MLP to all of `x`."""
    depth = mlps[0].under("layers").count()
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
