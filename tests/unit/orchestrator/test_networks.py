"""Inputs of the encoder and the decoder, and what the decoder's outputs become."""

import numpy as np
import pytest

from orchestrator.networks import (
    DecoderError,
    decode,
    encoder_inputs,
    mask_inputs,
    points_to_frame,
)
from orchestrator.tensors import DECODER_INPUTS, ENCODER_INPUTS, NO_POINT, PADDING_POINT

EMBEDDING = {"image_embeddings": np.zeros((1, 64, 64, 256), np.float16)}


def points(*xy) -> np.ndarray:
    return np.array([xy], np.float32)


def labels(*values) -> np.ndarray:
    return np.array([values], np.int32)


def of_one_click(decoder, *, candidates: bool = False):
    """Return the answer to a click by a decoder, which gets the inputs and the outputs' names."""
    return decode(
        decoder,
        EMBEDDING,
        points((900, 600)),
        labels(1),
        size_hw=(1200, 1800),
        frame_hw=(683, 1024),
        candidates=candidates,
    )


def numbered(inputs, outputs):
    """Return masks and scores that say which output they are."""
    count = 4 if outputs[0] == "low_res_masks" else 1
    logits = np.arange(count, dtype=np.float32)[None, :, None, None]
    return [
        np.broadcast_to(logits, (1, count, 256, 256)),
        np.array([[0.0, 1.0, 2.0, 3.0]], np.float32),
    ]


@pytest.mark.parametrize(("candidates", "wanted"), [(False, [0]), (True, [1, 2, 3])])
def test_single_mask_and_candidates_come_with_their_scores(candidates, wanted):
    logits, scores = of_one_click(numbered, candidates=candidates)
    assert logits[0, :, 0, 0].tolist() == scores[0].tolist() == wanted
    assert logits.shape == (1, len(wanted), 256, 256)


def test_inputs_are_the_declared_ones():
    received = {}

    def decoder(inputs, outputs):
        received.update(inputs)
        return numbered(inputs, outputs)

    of_one_click(decoder)
    assert list(received) == [tensor.name for tensor in DECODER_INPUTS]
    for tensor in DECODER_INPUTS:
        array = received[tensor.name]
        assert f"FP{8 * array.dtype.itemsize}" == tensor.datatype
        varies = [size == -1 for size in tensor.shape]
        assert [-1 if free else size for free, size in zip(varies, array.shape, strict=True)] == [
            *tensor.shape
        ]
    images = encoder_inputs(np.zeros((1024, 1024, 3), np.uint8), (683, 1024))
    assert {
        name: (array.dtype.name.upper(), array.shape[1:]) for name, array in images.items()
    } == {tensor.name: (tensor.datatype, tensor.shape) for tensor in ENCODER_INPUTS}
    assert images["sizes_hw"].tolist() == [[683, 1024]]


@pytest.mark.parametrize("output", [0, 1], ids=["logits", "scores"])
def test_values_that_are_not_finite_are_an_error(output):
    def decoder(inputs, outputs):
        arrays = [array.copy() for array in numbered(inputs, outputs)]
        arrays[output][0, 0] = np.nan
        return arrays

    with pytest.raises(DecoderError, match="mobile_sam_decoder: expected finite logits and scores"):
        of_one_click(decoder)


def test_points_are_scaled_and_padded():
    point_coords, point_labels = points_to_frame(
        points((900, 600)), labels(1), (1200, 1800), (683, 1024)
    )
    assert point_coords.tolist() == [[[512, 341.5], [0, 0]]]
    assert point_labels.tolist() == [[1, PADDING_POINT]]
    assert point_coords.dtype == point_labels.dtype == np.float32


def test_only_objects_without_a_box_get_the_padding_point():
    boxes, mixed = labels(2, 3), np.array([[2, 3], [1, NO_POINT]], np.int32)
    point_coords, point_labels = points_to_frame(
        points((1, 2), (3, 4)), boxes, (1024, 1024), (1024, 1024)
    )
    assert (point_coords.tolist(), point_labels.tolist()) == ([[[1, 2], [3, 4]]], [[2, 3]])
    _, point_labels = points_to_frame(np.zeros((2, 2, 2), np.float32), mixed, (9, 9), (1024, 1024))
    assert point_labels.tolist() == [[2, 3, NO_POINT], [1, NO_POINT, PADDING_POINT]]


@pytest.mark.parametrize("count", [None, 0], ids=["left out", "none"])
def test_without_earlier_masks_one_empty_mask_serves_all_objects(count):
    masks, objects = (
        (None, None)
        if count is None
        else (np.zeros((0, 256, 256), np.float32), np.zeros(0, np.int32))
    )
    mask_input, has_mask = mask_inputs(masks, objects, 5)
    assert mask_input.shape == (1, 1, 256, 256)
    assert not mask_input.any()
    assert has_mask.tolist() == [0]
    assert mask_input.dtype == has_mask.dtype == np.float32
