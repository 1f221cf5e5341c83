"""Maps of prompts: similarity to the clicked spots, cheapest paths from them, soft colour models of box and mask.

This module has no weights; it works on the learned embedding. N is the number of prompts, P of points.
"""

import numpy as np
import spox.opset.ai.onnx.v17 as op
from spox import Var

from mobile_sam_onnx.builtin.layers import average, double, floats, ints, part, reshape
from mobile_sam_onnx.builtin.layout import (
    BLOB_SIGMAS,
    COSTS,
    FAR,
    FRAME,
    HEAD_WIDTH,
    HEADS,
    KERNEL_WIDTH,
    KERNELS,
    LAYOUT,
    MASK_CLAMP,
    ROUNDS,
    SIDE,
    SOURCES,
    SPOT_SIGMA,
)  # fmt: skip

_CELLS = SIDE * SIDE
_LINE = np.arange(SIDE, dtype=np.float32)


def unpack(embedding: Var) -> dict[str, Var]:
    """Return the maps of the layout, each (1, C, S, S), from `embedding` (1, 256, 64, 64)."""
    maps, start = {}, 0
    for name, channels, side in LAYOUT:
        taken = channels * side * side // _CELLS
        maps[name] = reshape(part(embedding, 1, start, start + taken), 1, channels, side, side)
        start += taken
    return maps


def earlier_mask(mask_input: Var, has_mask: Var) -> Var:
    """Return probabilities (N, 1, 64, 64) from logits (N, 1, 256, 256); zero where `has_mask` (N,) is 0."""
    clamped = op.clip(mask_input, floats(-MASK_CLAMP), floats(MASK_CLAMP))
    return op.mul(op.sigmoid(average(clamped, 4, 4)), op.unsqueeze(has_mask, ints([1, 2, 3])))


def _has_label(labels: Var, label: float) -> Var:
    """Return (N, P) float32, 1 where the label is `label`."""
    return op.cast(op.equal(labels, floats(label)), to=np.float32)


def _nearest(distance: Var, chosen: Var, axis: int) -> Var:
    """Return the smallest distance along `axis`, the points, where `chosen`, of the same rank, is 1."""
    penalty = op.mul(op.sub(floats(1), chosen), floats(FAR * 100))
    return op.reduce_min(op.add(distance, penalty), axes=[axis], keepdims=0)


def _likeness(maps: dict[str, Var], away: Var, positive: Var, negative: Var) -> list[Var]:
    """Return the similarity of each cell to the positive and to the negative spots, two (N, HEADS, 64, 64)."""
    weight = op.mul(op.exp(op.div(away, floats(-2 * SPOT_SIGMA**2))), maps["valid"])
    total = op.reduce_sum(weight, ints([2, 3]), keepdims=1)
    weight = reshape(op.div(weight, op.add(total, floats(1e-6))), -1, _CELLS)
    flat = reshape(maps["likeness"], HEADS * HEAD_WIDTH, _CELLS)
    spots = reshape(op.matmul(weight, op.transpose(flat, perm=[1, 0])), -1, HEADS, HEAD_WIDTH)
    spots = op.transpose(spots, perm=[1, 0, 2])  # (HEADS, N * P, width)
    looks = reshape(maps["likeness"], HEADS, HEAD_WIDTH, _CELLS)
    unlike = op.sub(
        op.add(
            op.reduce_sum(op.mul(looks, looks), ints([1]), keepdims=1),
            op.reduce_sum(op.mul(spots, spots), ints([2]), keepdims=1),
        ),
        op.mul(op.matmul(spots, looks), floats(2)),
    )
    by_point = op.concat([ints([HEADS]), op.shape(positive), ints([_CELLS])], axis=0)
    unlike = op.reshape(unlike, by_point)
    similarities = []
    for chosen in (positive, negative):
        nearest = _nearest(unlike, op.unsqueeze(chosen, ints([0, 3])), 2)  # (HEADS, N, cells)
        alike = op.exp(op.div(nearest, floats(-HEAD_WIDTH)))
        similarities.append(reshape(op.transpose(alike, perm=[1, 0, 2]), -1, HEADS, SIDE, SIDE))
    return similarities


def _running_min(x: Var, axis: int, backward: bool) -> Var:
    """Return the running minimum along `axis` of 64 cells, by doubling."""
    shift = 1
    while shift < SIDE:
        head, tail = part(x, axis, 0, SIDE - shift), part(x, axis, shift, SIDE)
        better = op.min([head, tail])
        kept = part(x, axis, SIDE - shift, SIDE) if backward else part(x, axis, 0, shift)
        x = op.concat([better, kept] if backward else [kept, better], axis=axis)
        shift *= 2
    return x


def _path_costs(start: Var, costs: Var) -> Var:
    """Return the cheapest cost from the seeds to every cell along rows and columns: (M, COSTS, 64, 64).

    `start` (M, 1, 64, 64) is 0 at seeds and FAR elsewhere; `costs` (1, 2 * COSTS, 64, 64) are those of a step from the
    left, then from above. A pass along a row is exact: with s the running sum of costs, the cost from the left is
    runmin(d - s) + s.
    """
    passes = [
        (op.cumsum(part(costs, 1, 0, COSTS), op.const(np.int64(3))), 3),
        (op.cumsum(part(costs, 1, COSTS, 2 * COSTS), op.const(np.int64(2))), 2),
    ]
    reach = start
    for _ in range(ROUNDS):
        for total, axis in passes:
            forward = op.add(_running_min(op.sub(reach, total), axis, backward=False), total)
            backward = op.sub(_running_min(op.add(reach, total), axis, backward=True), total)
            reach = op.min([forward, backward])
    return reach


def _spread(maps: dict[str, Var], sources: Var) -> Var:
    """Average each of `sources` (N, SOURCES, 64, 64) over similar cells; returns (N, SOURCES * KERNELS, 64, 64)."""
    queries = reshape(maps["kernels"], KERNELS, KERNEL_WIDTH, 1024)
    keys = reshape(average(maps["kernels"], 2, 2), KERNELS, KERNEL_WIDTH, 256)
    present = op.max_pool(maps["valid"], kernel_shape=[4, 4], strides=[4, 4])[0]
    absent = op.mul(op.sub(floats(1), reshape(present, 1, 1, 256)), floats(1e4))
    product = op.matmul(op.transpose(queries, perm=[0, 2, 1]), keys)  # (KERNELS, 1024, 256)
    own = op.reduce_sum(op.mul(keys, keys), ints([1]), keepdims=1)
    weights = op.softmax(op.sub(op.sub(op.mul(product, floats(2)), own), absent), axis=-1)
    small = reshape(average(sources, 4, 4), 1, -1, 256)
    spread = op.matmul(small, op.transpose(weights, perm=[0, 2, 1]))  # (KERNELS, N * SOURCES, 1024)
    spread = op.transpose(reshape(spread, KERNELS, -1, SOURCES, 1024), perm=[1, 2, 0, 3])
    return double(reshape(spread, -1, SOURCES * KERNELS, SIDE // 2, SIDE // 2))


def _box(spot: Var, labels: Var) -> tuple[Var, Var]:
    """Return the box's margin at each cell, positive inside (N, 1, 64, 64), and whether there is a box (N, 1, 1, 1)."""
    first, second = _has_label(labels, 2), _has_label(labels, 3)
    corners = [
        op.reduce_sum(op.mul(spot, op.unsqueeze(chosen, ints([2]))), ints([1]), keepdims=0)
        for chosen in (first, second)
    ]
    axes = []
    for index, shape in ((0, (1, 1, 1, SIDE)), (1, (1, 1, SIDE, 1))):
        line = floats(_LINE.reshape(shape))
        low, high = (op.unsqueeze(part(corner, 1, index, index + 1), ints([2, 3])) for corner in corners)
        axes.append(op.min([op.sub(line, low), op.sub(high, line)]))
    has_box = op.unsqueeze(op.reduce_max(second, axes=[1], keepdims=1), ints([2, 3]))
    return op.min(axes), has_box


def conditions(maps: dict[str, Var], points: Var, labels: Var, mask: Var, has_mask: Var) -> Var:
    """Compute (N, CONDITIONS, 64, 64) from `points` (N, P, 2) x, y in the frame, `labels` (N, P), `mask`
    (N, 1, 64, 64) probabilities and `has_mask` (N,)."""
    positive, negative = _has_label(labels, 1), _has_label(labels, 0)
    cell = FRAME // SIDE
    spot = op.clip(op.sub(op.div(op.add(points, floats(0.5)), floats(cell)), floats(0.5)), floats(0), floats(SIDE - 1))
    offsets = [
        op.sub(op.unsqueeze(part(spot, 2, index, index + 1), ints([3])), floats(_LINE.reshape(shape)))
        for index, shape in ((0, (1, 1, 1, SIDE)), (1, (1, 1, SIDE, 1)))
    ]  # (N, P, 1, 64) and (N, P, 64, 1)
    away = op.add(op.mul(offsets[0], offsets[0]), op.mul(offsets[1], offsets[1]))
    like_positive, like_negative = _likeness(maps, away, positive, negative)

    margin, has_box = _box(spot, labels)
    inside = op.mul(op.clip(op.add(margin, floats(0.5)), floats(0), floats(1)), has_box)
    outside = op.mul(op.cast(op.less(margin, floats(-1)), to=np.float32), has_box)

    squared = [op.unsqueeze(_nearest(away, op.unsqueeze(c, ints([2, 3])), 1), ints([1])) for c in (positive, negative)]
    seeds = [op.mul(op.cast(op.greater(d, floats(0.51)), to=np.float32), floats(FAR)) for d in squared]
    seeds[1] = op.mul(seeds[1], op.sub(floats(1), outside))
    reach = _path_costs(op.concat(seeds, axis=0), maps["costs"])
    reach_positive, reach_negative = op.split(reach, outputs_count=2, axis=0)
    near_positive, near_negative = op.exp(op.neg(reach_positive)), op.exp(op.neg(reach_negative))
    contest = op.sigmoid(op.sub(reach_negative, reach_positive))
    sources = op.concat([inside, mask, part(near_positive, 1, 1, 2), part(near_negative, 1, 1, 2)], axis=1)

    blobs = [op.exp(op.div(d, floats(-2 * sigma**2))) for d in squared for sigma in BLOB_SIGMAS]
    ones = op.add(op.mul(inside, floats(0)), floats(1))
    toward = op.mul(op.tanh(op.div(margin, floats(8))), has_box)
    plain = [*blobs, inside, outside, toward, op.mul(ones, has_box), mask]
    plain += [op.mul(ones, op.unsqueeze(has_mask, ints([1, 2, 3]))), op.mul(ones, maps["valid"])]
    spread = _spread(maps, sources)
    return op.concat([like_positive, like_negative, near_positive, near_negative, contest, spread, *plain], axis=1)
