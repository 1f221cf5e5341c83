"""Stand-ins for the networks: graphs with the same inputs and outputs that answer at once, with
what the networks answered for one image.

A service with stand-ins does all the work beside the graphs and none of theirs, which takes many
times as long on a CPU and would hide it. Logits and masks are those of the recorded click for one
prompt, and those of the recorded grid for more.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import spox
import spox.opset.ai.onnx.v20 as op
from spox import Var

from benchmarks.engines import Array
from benchmarks.recording import Recording
from orchestrator import tensors
from sam_onnx.nodes import IR_VERSION, argument_like, ints, item, length_of, places, reshape
from utils.triton.repository import CONFIG
from utils.triton.versions import GPU_NETWORK_FILE, NETWORK_FILE

PIXEL_WEIGHT = 2.0**-10
"""Weight of a pixel in the stand-ins' embedding: the service checks that two images do not have the
same one."""
BITS = 8


def install(folder: Path, recording: Recording) -> None:
    """Replace the networks that a model repository serves by their stand-ins.

    Args:
        folder: the model repository.
        recording: answers of its networks.
    """
    config = (folder / tensors.ENCODER / CONFIG).read_text()
    work_on_pixels = GPU_NETWORK_FILE in config
    file = GPU_NETWORK_FILE if work_on_pixels else NETWORK_FILE
    decoder = mask_decoder if work_on_pixels else logit_decoder
    for model, stand_in in ((tensors.ENCODER, encoder), (tensors.DECODER, decoder)):
        path = folder / model / "1" / file
        onnx.save(stand_in(path, recording), path)


def encoder(path: Path, recording: Recording) -> onnx.ModelProto:
    """Return the stand-in for the encoder in a file, with or without the work on pixels.

    It answers the recorded embedding, whose first value depends on the middle pixel's red.
    """
    inputs = _inputs(path)
    image = inputs[tensors.PIXELS.name if tensors.PIXELS.name in inputs else tensors.IMAGES.name]
    red = op.mul(_middle_red(image), op.const(np.float32(PIXEL_WEIGHT)))
    outputs = {name: _with_change(array, red) for name, array in recording.embedding.items()}
    return _finished(inputs, outputs)


def logit_decoder(path: Path, recording: Recording) -> onnx.ModelProto:
    """Return the stand-in for the decoder in a file that returns logits."""
    inputs = _inputs(path)
    count = length_of(inputs[tensors.FRAME_POINTS_XY.name], 0)
    index = op.cast(places(count), to=np.int64)
    in_grid = op.add(op.mod(index, ints(len(recording.low_res_masks) - 1)), ints(1))
    is_grid = op.cast(op.greater(count, ints(1)), to=np.int64)
    rows = op.mul(in_grid, is_grid)  # the first is the click
    outputs = {
        tensors.LOW_RES_MASKS.name: recording.low_res_masks,
        tensors.SINGLE_MASKS.name: recording.low_res_masks[:, :1],
        tensors.IOU_PREDICTIONS.name: recording.iou_predictions,
    }
    return _finished(inputs, {name: _taken(array, rows) for name, array in outputs.items()})


def mask_decoder(path: Path, recording: Recording) -> onnx.ModelProto:
    """Return the stand-in for the decoder in a file that makes masks.

    With a threshold of the score it answers the grid's masks that reached the recorded thresholds,
    as many as the run has prompts for; without one the click's mask for each wanted mask.
    """
    inputs = _inputs(path)
    prompts = length_of(inputs[tensors.FRAME_POINTS_XY.name], 0)
    total = op.mul(prompts, length_of(inputs[tensors.WANTED_MASKS.name], 0))
    click_masks, grid_masks = recording.click_masks, recording.grid_masks
    indices = op.const(grid_masks[tensors.MASK_INDICES.name])

    def grid_rows() -> list[Var]:
        places_in_run = reshape(op.non_zero(op.less(indices, total)), -1)
        return [op.add(places_in_run, ints(1)), op.gather(indices, places_in_run)]

    def click_rows() -> list[Var]:
        index = op.cast(places(total), to=np.int64)
        return [op.mul(index, ints(0)), index]

    lowest = op.const(np.array([-np.inf]))
    has_threshold = op.greater(inputs[tensors.MIN_SCORE.name], lowest)
    rows, mask_indices = op.if_(
        op.squeeze(has_threshold, ints(0)), then_branch=grid_rows, else_branch=click_rows
    )
    masks = {name: np.concatenate([click_masks[name], grid_masks[name]]) for name in click_masks}
    outputs = {name: _taken(array, rows) for name, array in masks.items()}
    outputs[tensors.MASK_INDICES.name] = mask_indices
    size = op.cast(inputs[tensors.SIZE_HW.name], to=np.int64)
    for bits, axis in ((tensors.MASK_BITS.name, 0), (tensors.COLUMN_BITS.name, 1)):
        outputs[bits] = _cropped(masks[bits], rows, item(size, axis), item(size, 1 - axis))
    outputs[tensors.IS_FINITE.name] = op.const(np.ones(1, bool))
    return _finished(inputs, outputs)


def _inputs(path: Path) -> dict[str, Var]:
    """Return inputs like those of the graph in a file."""
    graph = onnx.load(path, load_external_data=False).graph
    return {value.name: argument_like(value) for value in graph.input}


def _middle_red(image: Var) -> Var:
    """Return the red of the middle pixels of (H, W, 3) or (B, H, W, 3), (1,) or (B,) float32."""
    channels_axis = len(image.unwrap_tensor().shape or ()) - 1
    for axis in (channels_axis - 2, channels_axis - 1):
        image = op.gather(image, op.div(length_of(image, axis), ints(2)), axis=axis)
    red = op.gather(image, ints(0), axis=channels_axis)
    return op.cast(reshape(red, -1), to=np.float32)


def _with_change(array: Array, change: Var) -> Var:
    """Return (1, N, ...) for each of B images with a change (B,) added to its first value.

    The array is copied once.
    """
    images = length_of(change, 0)
    copies = op.expand(op.const(array), op.concat([images, ints(*array.shape[1:])], axis=0))
    first = op.const(array.reshape(-1)[:1].astype(np.float32))
    indices = op.pad(
        reshape(op.cast(places(images), to=np.int64), -1, 1), ints(0, 0, 0, array.ndim - 1)
    )
    return op.scatter_nd(copies, indices, op.cast(op.add(first, change), to=array.dtype))


def _taken(array: Array, rows: Var) -> Var:
    return op.gather(op.const(array), rows)


def _cropped(array: Array, rows: Var, lines: Var, pixels: Var) -> Var:
    """Return some of the masks (M, h, w / 8), of at most this many lines and pixels, (1,) each.

    Masks of the recorded image are copied once.
    """
    groups = op.div(op.add(pixels, ints(BITS - 1)), ints(BITS))
    size = op.concat([lines, groups], axis=0)
    is_whole = op.reduce_min(op.cast(op.equal(size, ints(*array.shape[1:])), to=np.int64))
    (masks,) = op.if_(
        op.cast(is_whole, to=np.bool_),
        then_branch=lambda: [_taken(array, rows)],
        else_branch=lambda: [op.slice(_taken(array, rows), ints(0, 0), size, ints(1, 2))],
    )
    return masks


def _finished(inputs: dict[str, Var], outputs: dict[str, Var]) -> onnx.ModelProto:
    model = spox.build(inputs, outputs)
    model.ir_version = IR_VERSION
    return model
