"""The decoder graph: low-resolution masks and scores for an embedding and a batch of prompts."""

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from mobile_sam_onnx.builtin.conditioning import conditions, earlier_mask, unpack
from mobile_sam_onnx.builtin.encoder import set_versions
from mobile_sam_onnx.builtin.layers import average, conv, double, floats, ints, part, reshape, stage
from mobile_sam_onnx.builtin.layout import CHANNELS, FRAME, GUIDES, SIDE, TOKENS
from mobile_sam_onnx.tensors import StateDict

_CELLS = SIDE * SIDE


def _linear(state: StateDict, name: str, x: Var) -> Var:
    return op.add(op.matmul(x, floats(state[f"{name}.weight"].T)), floats(state[f"{name}.bias"]))


def _body(state: StateDict, maps: dict[str, Var], given: Var) -> tuple[Var, Var]:
    """Return features at 64 and at 16 cells a side for each prompt, from its conditions and the image's maps."""
    x64 = op.relu(op.add(conv(state, "decoder.enter", given), maps["fine"]))
    x32 = stage(state, "decoder.stage32", op.add(conv(state, "decoder.down32", x64, stride=2), maps["middle"]))
    x16 = stage(state, "decoder.stage16", op.add(conv(state, "decoder.down16", x32, stride=2), maps["coarse"]))
    x8 = stage(state, "decoder.stage8", conv(state, "decoder.down8", x16, stride=2))
    x16 = stage(state, "decoder.merge16", op.add(x16, double(conv(state, "decoder.up16", x8))))
    x32 = stage(state, "decoder.merge32", op.add(x32, double(conv(state, "decoder.up32", x16))))
    x64 = op.add(x64, double(conv(state, "decoder.up64", x32)))
    return op.relu(conv(state, "decoder.finish", x64)), x16


def _masks(state: StateDict, x64: Var, guide: Var) -> Var:
    """Return logits (N, 4, 128, 128): 2 x 2 pixels per cell, plus a slope along each map of the guide at 128."""
    cells = reshape(conv(state, "decoder.cells", x64), 0, TOKENS, 4, _CELLS)
    slopes = reshape(conv(state, "decoder.slopes", x64), 0, TOKENS, GUIDES, 1, _CELLS)
    # the guide's 2 x 2 pixels as a dimension: (1, GUIDES, 64, 2, 64, 2) -> (1, 1, GUIDES, 4, cells)
    shades = op.transpose(reshape(guide, 1, GUIDES, SIDE, 2, SIDE, 2), perm=[0, 1, 3, 5, 2, 4])
    shades = reshape(shades, 1, 1, GUIDES, 4, _CELLS)
    total = op.add(cells, op.reduce_sum(op.mul(slopes, shades), ints([2]), keepdims=0))
    pixels = op.transpose(reshape(total, -1, TOKENS, 2, 2, SIDE, SIDE), perm=[0, 1, 4, 2, 5, 3])
    return reshape(pixels, -1, TOKENS, 2 * SIDE, 2 * SIDE)


def _predict_iou(state: StateDict, logits: Var, x64: Var, x16: Var) -> Var:
    """Return predicted IoU (N, 4), from the features that the masks cover."""
    chance = reshape(op.sigmoid(average(logits, 2, 2)), 0, TOKENS, _CELLS)
    cover = op.reduce_sum(chance, ints([2]), keepdims=1)
    features = op.transpose(reshape(x64, 0, -1, _CELLS), perm=[0, 2, 1])
    within = op.div(op.matmul(chance, features), op.add(cover, floats(1)))
    like_tokens = op.shape(within)
    everywhere = op.expand(op.reduce_mean(features, axes=[1], keepdims=1), like_tokens)
    broad = op.unsqueeze(op.reduce_mean(x16, axes=[2, 3], keepdims=0), ints([1]))
    broad = op.tile(broad, ints([1, TOKENS, 1]))

    def count(above: float) -> Var:
        return op.reduce_sum(op.cast(op.greater(chance, floats(above)), to=np.float32), ints([2]), keepdims=1)

    certain = op.reduce_sum(op.mul(chance, chance), ints([2]), keepdims=1)
    sure = op.div(certain, op.add(cover, floats(1)))
    edge = op.div(op.sub(cover, certain), floats(256))
    stable = op.div(count(0.8), op.add(count(0.2), floats(1)))
    facts = op.concat([broad, within, everywhere, sure, edge, stable, op.div(cover, floats(_CELLS))], axis=2)
    each = _linear(state, "decoder.judge2", op.relu(_linear(state, "decoder.judge1", facts)))
    own = op.reduce_sum(op.mul(each, floats(np.eye(TOKENS))), ints([2]), keepdims=0)
    return op.sigmoid(own)


def _best_mask(logits: Var, scores: Var, points: Var, labels: Var, has_mask: Var) -> Var:
    """Return the index (N,) int64 of the mask to return as the single mask.

    For a single click: the mask of the highest score. For a single box: the highest product of score and IoU of the
    mask's own box with the given one. Both prompts are ambiguous, and scores choose better than the token trained for
    it. For all other prompts: 0, that token.
    """

    def given(low: float, high: float) -> Var:
        inside = op.and_(op.greater_or_equal(labels, floats(low)), op.less_or_equal(labels, floats(high)))
        return op.cast(inside, to=np.float32)

    def count(low: float, high: float) -> Var:
        return op.reduce_sum(given(low, high), ints([1]), keepdims=0)

    points_given, fresh = count(0, 3), op.equal(has_mask, floats(0))
    lone_click = op.and_(op.and_(op.equal(points_given, floats(1)), op.equal(count(1, 1), floats(1))), fresh)
    lone_box = op.and_(op.and_(op.equal(points_given, floats(2)), op.equal(count(2, 3), floats(2))), fresh)
    corners = [
        op.reduce_sum(op.mul(points, op.unsqueeze(given(label, label), ints([2]))), ints([1]), keepdims=1)
        for label in (2, 3)
    ]
    ranked = op.mul(scores, _box_iou(logits, corners[0], corners[1]))
    chosen = op.where(op.unsqueeze(lone_box, ints([1])), ranked, scores)
    return op.mul(op.arg_max(chosen, axis=1, keepdims=0), op.cast(op.or_(lone_click, lone_box), to=np.int64))


def _box_iou(logits: Var, top_left: Var, bottom_right: Var) -> Var:
    """Return the IoU (N, 4) of each mask's box with a given one; corners (N, 1, 2) are x then y in the 1024-frame."""
    inside = op.cast(op.greater(logits, floats(0)), to=np.float32)
    sides = [op.reduce_max(inside, axes=[axis], keepdims=0) for axis in (2, 3)]  # (N, 4, 128): columns, rows
    step = FRAME / (2 * SIDE)

    def ends(last: int) -> Var:
        found = [op.arg_max(side, axis=2, keepdims=1, select_last_index=last) for side in sides]
        return op.mul(op.cast(op.concat(found, axis=2), to=np.float32), floats(step))

    low, high = ends(0), op.add(ends(1), floats(step))  # (N, 4, 2)
    shared = _product(op.max([op.sub(op.min([high, bottom_right]), op.max([low, top_left])), floats(0)]))
    both = op.add(_product(op.sub(high, low)), _product(op.sub(bottom_right, top_left)))
    found = op.reduce_max(sides[0], axes=[2], keepdims=0)  # 0 for an empty mask
    return op.mul(found, op.div(shared, op.sub(both, shared)))


def _product(lengths: Var) -> Var:
    return op.reduce_prod(lengths, axes=[2], keepdims=0)


def _replace_single(values: Var, best: Var) -> Var:
    """Replace index 0 of `values` (N, 4, ...), masks or scores, by the value of index `best` (N,)."""
    chosen = op.gather_nd(values, op.unsqueeze(best, ints([1])), batch_dims=1)
    return op.concat([op.unsqueeze(chosen, ints([1])), part(values, 1, 1, TOKENS)], axis=1)


def build_decoder(state: StateDict) -> onnx.ModelProto:
    """Build the decoder, with the interface of MobileSAM's.

    `image_embeddings` float16 (1, 64, 64, 256); `point_coords` float32 (N, P, 2), x then y in pixels of the 1024-frame;
    `point_labels` float32 (N, P): 0 negative, 1 positive, 2 and 3 box corners, below 0 ignored; `mask_input` float32
    (M, 1, 256, 256) logits with M = N or 1; `has_mask_input` float32 (M,) -> `low_res_masks` float32 (N, 4, 256, 256)
    logits, 0 the single mask, 1 to 3 the candidates; `iou_predictions` float32 (N, 4); `single_masks` float32
    (N, 1, 256, 256), only the single masks.
    """
    embeddings = argument(Tensor(np.float16, (1, SIDE, SIDE, CHANNELS)))
    points = argument(Tensor(np.float32, ("N", "P", 2)))
    labels = argument(Tensor(np.float32, ("N", "P")))
    mask_input = argument(Tensor(np.float32, ("M", 1, 256, 256)))
    has_mask_input = argument(Tensor(np.float32, ("M",)))

    maps = unpack(reshape(op.cast(embeddings, to=np.float32), 1, CHANNELS, SIDE, SIDE))
    prompts = part(op.shape(labels), 0, 0, 1)
    mask = earlier_mask(mask_input, has_mask_input)
    mask = op.expand(mask, op.concat([prompts, ints([1, 1, 1])], axis=0))
    has_mask = op.expand(has_mask_input, prompts)
    x64, x16 = _body(state, maps, conditions(maps, points, labels, mask, has_mask))
    logits = _masks(state, x64, maps["guide"])
    scores = _predict_iou(state, logits, x64, x16)
    best = _best_mask(logits, scores, points, labels, has_mask)
    logits, scores = _replace_single(logits, best), _replace_single(scores, best)
    fine = op.resize(logits, None, floats([1, 1, 2, 2]), mode="linear", coordinate_transformation_mode="half_pixel")
    model = build(
        {
            "image_embeddings": embeddings, "point_coords": points, "point_labels": labels, "mask_input": mask_input,
            "has_mask_input": has_mask_input,
        },
        {"low_res_masks": fine, "iou_predictions": scores, "single_masks": part(fine, 1, 0, 1)},
    )  # fmt: skip
    return set_versions(model)
