"""Scaling of an image to the encoder's frame as a graph, with the pixels that Pillow makes.

For devices on which it takes less time than Pillow on a core. Formulas: Pillow 13's
`src/libImaging/Resample.c` for 8 bits and `BILINEAR`, a triangle that is as wide as a pixel of the
target when an image becomes smaller.
"""

import numpy as np
import onnx
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Tensor, Var

from sam_onnx.nodes import argument_like, ints, item, length_of, places, reshape

CHANNELS = 3
WEIGHT_BITS = 22
"""Pillow's weights are multiples of 2**-22."""
DIGIT_BITS = (14, 7, 0)
"""Places of the digits into which the weights are split. Products of digits and pixels, and their
sums, are integers that even TF32 multiplies exactly, with its 11 significant bits and sums in
float32."""


def scaled_frame(side: int) -> tuple[dict[str, Var], dict[str, Var]]:
    """Return inputs and outputs of the graph that scales an image into the frame.

    Inputs: `pixels` (H, W, 3) uint8 RGB, the image; `box_xyxy` (4,) float32, the part of it to
    scale, in pixels; `frame_hw` (2,) int32, height and width of that part in the frame. Outputs:
    `images` (1, S, S, 3) uint8, the part in the top left corner, S = `side`.
    """
    pixels = spox.argument(Tensor(np.uint8, ("H", "W", CHANNELS)))
    box_xyxy = spox.argument(Tensor(np.float32, (4,)))
    frame_hw = spox.argument(Tensor(np.int32, (2,)))
    height, width = (item(frame_hw, index) for index in (0, 1))
    x0, y0, x1, y1 = (item(box_xyxy, index) for index in range(4))

    def narrowed(image: Var) -> Var:
        lines = op.transpose(image, perm=[1, 0, 2])
        return op.transpose(_scaled(lines, x0, x1, width), perm=[1, 0, 2])

    def lowered(image: Var) -> Var:
        return _scaled(image, y0, y1, height)

    # Rows first where the height shrinks by more than twice as many pixels as the width.
    old_height, old_width = (op.cast(length_of(pixels, axis), to=np.int32) for axis in (0, 1))
    shrinks_by = op.sub(old_height, height)
    is_more = op.greater(shrinks_by, op.mul(op.sub(old_width, width), op.const(np.int32(2))))
    rows_first = op.and_(op.greater(shrinks_by, op.const(np.int32(0))), is_more)
    (image,) = op.if_(
        op.squeeze(rows_first, ints(0)),
        then_branch=lambda: [narrowed(lowered(pixels))],
        else_branch=lambda: [lowered(narrowed(pixels))],
    )

    missing = [op.sub(ints(side), op.cast(length, to=np.int64)) for length in (height, width)]
    padding = op.concat([ints(0, 0, 0), *missing, ints(0)], axis=0)
    frame = op.unsqueeze(op.pad(image, padding), ints(0))
    return {"pixels": pixels, "box_xyxy": box_xyxy, "frame_hw": frame_hw}, {"images": frame}


def _scaled(image: Var, start: Var, end: Var, after: Var) -> Var:
    """Scale the first axis of (before, N, 3) uint8 to `after` values, and round to 8 bits.

    Args:
        image: the pixels.
        start: (1,) float32, where the part begins on that axis.
        end: (1,) float32.
        after: (1,) int32.
    """
    before = length_of(image, 0)
    sources, rest = _weights(start, end, before, after)
    digits = []
    for bits in DIGIT_BITS:
        digit = op.floor(op.div(rest, op.const(np.float64(2**bits))))
        rest = op.sub(rest, op.mul(digit, op.const(np.float64(2**bits))))
        digits.append(op.unsqueeze(op.cast(digit, to=np.float32), ints(1)))
    lines = op.gather(reshape(image, 0, -1), sources, axis=0)  # (after, taps, N * 3)
    products = op.matmul(op.concat(digits, axis=1), op.cast(lines, to=np.float32))
    by_digit = op.split(op.cast(products, to=np.int32), num_outputs=len(digits), axis=1)
    sums = op.const(np.int32(2 ** (WEIGHT_BITS - 1)))  # to round
    for bits, product in zip(DIGIT_BITS, by_digit, strict=True):
        sums = op.add(sums, op.mul(product, op.const(np.int32(2**bits))))
    values = op.div(sums, op.const(np.int32(2**WEIGHT_BITS)))
    values = op.cast(op.min([values, op.const(np.int32(255))]), to=np.uint8)
    shape = [op.cast(after, to=np.int64), length_of(image, 1), ints(CHANNELS)]
    return op.reshape(values, op.concat(shape, axis=0))


def _weights(start: Var, end: Var, before: Var, after: Var) -> tuple[Var, Var]:
    """Return which pixels make up each new one, and their weights.

    Returns:
        Places (after, taps) int64 and weights (after, taps), integers in float64; the sum of each
        row of weights is about 2**22.
    """
    one, half = (op.const(np.float64(value)) for value in (1, 0.5))
    scale = op.div(op.cast(op.sub(end, start), to=np.float64), op.cast(after, to=np.float64))
    support = op.max([scale, one])
    # In Pillow's order: in another one, sums that end in a half would be rounded the other way.
    per_pixel = op.div(one, support)
    centres = op.mul(op.add(places(after), half), scale)
    centres = op.unsqueeze(op.add(op.cast(start, to=np.float64), centres), ints(1))
    taps = op.add(op.mul(op.ceil(support), op.const(np.float64(2))), one)
    first = op.floor(op.add(op.sub(centres, support), half))
    pixels = op.add(first, op.unsqueeze(places(taps), ints(0)))
    last = op.sub(op.cast(before, to=np.float64), one)
    inside = op.max([op.min([pixels, last]), op.const(np.float64(0))])

    distances = op.abs(op.mul(op.add(op.sub(pixels, centres), half), per_pixel))
    weights = op.max([op.sub(one, distances), op.const(np.float64(0))])
    weights = op.where(op.equal(pixels, inside), weights, op.const(np.float64(0)))
    weights = op.div(weights, op.reduce_sum(weights, ints(1)))
    weights = op.floor(op.add(op.mul(weights, op.const(np.float64(2**WEIGHT_BITS))), half))
    return op.cast(inside, to=np.int64), weights


def with_scaling(encoder: onnx.ModelProto) -> onnx.ModelProto:
    """Return an encoder that scales the image itself.

    Its inputs are those of `scaled_frame` and the weights that are inputs of `encoder`, and its
    outputs those of `encoder`.
    """
    image, sizes, *others = encoder.graph.input
    inputs, frame = scaled_frame(image.type.tensor_type.shape.dim[1].dim_value)
    sizes_hw = op.unsqueeze(inputs["frame_hw"], ints(0))
    weights = {value.name: argument_like(value) for value in others}
    outputs = spox.inline(encoder)(**{image.name: frame["images"], sizes.name: sizes_hw}, **weights)
    return spox.build(inputs | weights, outputs)
