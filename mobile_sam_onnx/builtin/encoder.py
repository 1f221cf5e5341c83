"""The encoder graph: a padded batch of pictures to embeddings."""

import numpy as np
import onnx
import spox.opset.ai.onnx.v17 as op
from spox import Tensor, Var, argument, build

from mobile_sam_onnx.builtin.layers import average, conv, double, floats, ints, part, reshape, stage
from mobile_sam_onnx.builtin.layout import CHANNELS, FRAME, IMAGE_SIDE, LAYOUT, SIDE
from mobile_sam_onnx.tensors import StateDict

OPSET = 17
_CELL = FRAME // IMAGE_SIDE


def set_versions(model: onnx.ModelProto) -> onnx.ModelProto:
    """Set the opset of the model's operators (spox writes the lowest possible), and name its outputs' batch size."""
    model.opset_import[0].version = OPSET
    for output in model.graph.output:
        output.type.tensor_type.shape.dim[0].dim_param = "N"
    return model


def _inside(size: Var, count: int, step: int) -> Var:
    """Return (N, count) float32: the part of each of `count` pixels, `step` wide, that lies before `size` (N, 1)."""
    starts = floats(np.arange(count)[None] * step)
    return op.clip(op.div(op.sub(size, starts), floats(step)), floats(0), floats(1))


def _pixels(images: Var, sizes_hw: Var) -> tuple[Var, Var]:
    """Return RGB (N, 3, 256, 256) in 0..1, and the part of each pixel inside the image (N, 1, 256, 256)."""
    sizes = op.cast(sizes_hw, to=np.float32)
    height, width = part(sizes, 1, 0, 1), part(sizes, 1, 1, 2)

    def area(count: int, step: int) -> Var:
        rows = op.unsqueeze(_inside(height, count, step), ints([1, 3]))
        return op.mul(rows, op.unsqueeze(_inside(width, count, step), ints([1, 2])))

    kept = op.mul(op.transpose(op.cast(images, to=np.float32), perm=[0, 3, 1, 2]), area(FRAME, 1))
    valid = area(IMAGE_SIDE, _CELL)
    scale = op.mul(op.max([valid, floats(1e-6)]), floats(255))
    return op.div(average(kept, _CELL, _CELL), scale), valid


def _opponent(rgb: Var) -> Var:
    """Convert RGB in 0..1 to lightness, red-green, yellow-blue (N, 3, H, W)."""
    mix = np.array([[4 / 3, 4 / 3, 4 / 3], [6, -6, 0], [3, 3, -6]], np.float32)[:, :, None, None]
    return op.conv(rgb, floats(mix), floats([-2, 0, 0]), kernel_shape=[1, 1])


def _step_from(mean: Var, axis: int) -> Var:
    """Return the absolute difference of (N, 3, 64, 64) to the previous cell along `axis`, zero before the first."""
    before = np.zeros(8, np.int64)
    before[axis] = 1
    padded = op.pad(mean, op.const(before), floats(0.0), mode="constant")
    return op.abs(op.sub(mean, part(padded, axis, 0, SIDE)))


def embed(state: StateDict, images: Var, sizes_hw: Var) -> Var:
    """Compute the maps of the layout, packed to (N, 256, 64, 64)."""
    rgb, valid = _pixels(images, sizes_hw)
    colour = op.mul(_opponent(rgb), valid)
    line = np.linspace(-1, 1, IMAGE_SIDE, dtype=np.float32)
    places = [op.mul(valid, floats(line[None, None, None])), op.mul(valid, floats(line[None, None, :, None]))]
    x = op.relu(conv(state, "encoder.stem", op.concat([colour, valid, *places], axis=1), stride=2))
    x = op.relu(conv(state, "encoder.stem2", x))
    guide = conv(state, "encoder.guide", x)

    share = average(valid, 4, 4)
    inside = op.cast(op.greater(share, floats(0)), to=np.float32)
    safe = op.max([share, floats(0.01)])
    mean = op.div(average(colour, 4, 4), safe)
    light = part(colour, 1, 0, 1)
    mean_light = part(mean, 1, 0, 1)
    variance = op.sub(op.div(average(op.mul(light, light), 4, 4), safe), op.mul(mean_light, mean_light))
    spread = op.mul(op.sqrt(op.add(op.max([variance, floats(0)]), floats(1e-3))), floats(4))
    near = op.mul(op.concat([mean, spread], axis=1), inside)
    around = op.div(average(near, 5, 1, 2), op.max([average(inside, 5, 1, 2), floats(0.01)]))
    plain = op.concat([near, op.mul(around, inside)], axis=1)

    x64 = op.concat([op.relu(conv(state, "encoder.down64", x, stride=2)), plain], axis=1)
    x64 = stage(state, "encoder.stage64", x64)
    x32 = stage(state, "encoder.stage32", conv(state, "encoder.down32", x64, stride=2))
    x16 = stage(state, "encoder.stage16", conv(state, "encoder.down16", x32, stride=2))
    x8 = stage(state, "encoder.stage8", conv(state, "encoder.down8", x16, stride=2))
    x16 = stage(state, "encoder.merge16", op.add(x16, double(conv(state, "encoder.up16", x8))))
    x32 = stage(state, "encoder.merge32", op.add(x32, double(conv(state, "encoder.up32", x16))))
    x64 = stage(state, "encoder.merge64", op.add(x64, double(conv(state, "encoder.up64", x32))))
    rich = op.concat([x64, plain], axis=1)
    edges = op.concat([x64, _step_from(mean, 3), _step_from(mean, 2)], axis=1)
    maps = {
        "likeness": conv(state, "encoder.likeness", rich),
        "costs": op.add(op.softplus(conv(state, "encoder.costs", edges)), floats(0.005)),
        "fine": conv(state, "encoder.fine", rich),
        "middle": conv(state, "encoder.middle", x32),
        "coarse": conv(state, "encoder.coarse", x16),
        "kernels": conv(state, "encoder.kernels", x32),
        "guide": guide,
        "valid": inside,
    }
    packed = op.concat([reshape(maps[name], 0, -1, SIDE, SIDE) for name, _, _ in LAYOUT], axis=1)
    used = sum(channels * side * side // SIDE**2 for _, channels, side in LAYOUT)
    return op.pad(packed, ints([0, 0, 0, 0, 0, CHANNELS - used, 0, 0]), floats(0.0), mode="constant")


def build_encoder(state: StateDict) -> onnx.ModelProto:
    """Build the encoder, with the interface of MobileSAM's.

    `images` uint8 (N, 1024, 1024, 3) RGB, `sizes_hw` int32 (N, 2) -> `image_embeddings` float16 (N, 64, 64, 256).
    Pixels of `images` below and right of `sizes_hw` (height, width) are ignored. The embedding is the maps of the
    layout in order.
    """
    images = argument(Tensor(np.uint8, ("N", FRAME, FRAME, 3)))
    sizes_hw = argument(Tensor(np.int32, ("N", 2)))
    embeddings = reshape(op.cast(embed(state, images, sizes_hw), to=np.float16), 0, SIDE, SIDE, CHANNELS)
    return set_versions(build({"images": images, "sizes_hw": sizes_hw}, {"image_embeddings": embeddings}))
