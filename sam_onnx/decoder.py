"""The prompt encoder and mask decoder as one graph: N prompts for one embedding.

Pixels stay in the order of the 64x64 positions, each followed by its 4x4 pixels, until the four masks are put in raster
order. So nothing larger than the output is transposed; but SAM-HQ's convolutions need raster order before.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.descriptor import BEST_OF_THREE, FIRST, HQ_ONLY
from sam_onnx.hq import FEATURES, hq_mask, is_hq
from sam_onnx.images import EMBEDDING, EMBEDDING_SIZE
from sam_onnx.nodes import constant, finished_model, ints, linear, reshape
from sam_onnx.prompts import ABSENT_LABEL, embed_masks, embed_points, image_positions
from sam_onnx.tensors import StateDict, Tensors
from sam_onnx.two_way import two_way_transformer
from sam_onnx.upscaling import MASK_SIZE, upscale

ABSENT_SCORE = -3e4  # its exp() is 0 in float32, and it fits float16


def build_decoder(state: StateDict, single_mask: str = FIRST) -> onnx.ModelProto:
    """Build the decoder; `single_mask` is the descriptor's rule.

    Inputs, float32 except the first: `image_embeddings` (1, 64, 64, C) float16; `point_coords` (N, P, 2), x then y in
    pixels of the 1024-frame, without the half pixel to the centre; `point_labels` (N, P): 0 negative, 1 positive, 2 and
    3 box corners, -1 the official padding point, -2 no point; `mask_input` (M, 1, 256, 256) logits and `has_mask_input`
    (M,), 1 where the mask is used; M is N, or 1 for all prompts, which saves work.
    Outputs: `low_res_masks` (N, K, 256, 256) logits and `iou_predictions` (N, K), K = 4: the single mask and the three
    candidates; `single_masks` (N, 1, 256, 256), only the first of them, for callers that need no more.

    SAM-HQ needs `hq_features` (1, 256, 256, C / 8) float16 too. Each of its masks is a sum with that of its own token.

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

    hq = is_hq(tensors) or single_mask == HQ_ONLY
    own = np.concatenate([decoder.under("iou_token").get("weight", 1, width), mask_tokens])
    own = np.concatenate([own, decoder.under("hf_token").get("weight", 1, width)]) if hq else own
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
    channels = len(decoder.get("output_upscaling.3.bias", None))
    pixels = op.gelu(upscale(positions, decoder.under("output_upscaling"), width, channels))
    pixels = reshape(pixels, -1, MASK_SIZE**2, channels)
    features: dict[str, Var] = {}
    if hq:
        token = op.slice(tokens, ints(1 + masks), ints(2 + masks), ints(1))
        kernel = _perceptron(token, [decoder.under("hf_mlp")], width, channels)
        features = {FEATURES: spox.argument(Tensor(np.float16, (1, MASK_SIZE, MASK_SIZE, channels)))}
        added = hq_mask(pixels, kernel, features[FEATURES], channels, decoder)
    if single_mask == HQ_ONLY:
        logits = op.expand(added, ints(1, masks, 1, 1))
    else:
        heads = [decoder.under("output_hypernetworks_mlps").under(index) for index in range(masks)]
        kernels = _perceptron(op.transpose(outputs, perm=[1, 0, 2]), heads, width, channels)
        logits = op.matmul(op.transpose(kernels, perm=[1, 0, 2]), op.transpose(pixels, perm=[0, 2, 1]))
        logits = reshape(logits, -1, masks, EMBEDDING_SIZE, EMBEDDING_SIZE, 2, 2, 2, 2)
        logits = reshape(op.transpose(logits, perm=[0, 1, 2, 4, 6, 3, 5, 7]), -1, masks, MASK_SIZE, MASK_SIZE)
        logits = op.add(logits, added) if hq else logits
    if single_mask == BEST_OF_THREE:
        logits, scores = with_best_first(logits, scores)
    first_mask = op.slice(logits, ints(0), ints(1), ints(1))
    return finished_model(
        "mobile_sam_decoder",
        {
            EMBEDDING: embeddings,
            **features,
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
