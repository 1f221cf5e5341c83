"""The descriptor: what it says of each member, and the configuration of the models that is made
from it.
"""

import re
from pathlib import Path

import numpy as np
import pytest
import spox
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from sam_onnx.decoder import with_best_first
from sam_onnx.descriptor import MIN_MAX, Descriptor, check_same_tensors, configured
from sam_onnx.errors import CheckpointError, ExportError
from sam_onnx.images import PIXEL_STD, centred_pixels
from sam_onnx.model import build, builtin
from sam_onnx.nodes import finished_model
from tests.family.cases import MODELS, noisy_state, sam_shapes
from tests.unit.sam_onnx.conftest import decode, session

REPOSITORY = Path(__file__).parents[3] / "model_repository"
THREE = Descriptor(
    side=512, batch=1, embedding={"image_embeddings": [1, 64, 64, 256], "hq": [1, 256, 256, 32]}
)


@pytest.mark.parametrize("file", ["config.pbtxt", "configs/gpu.pbtxt"])
@pytest.mark.parametrize("model", ["mobile_sam_encoder", "mobile_sam_decoder"])
def test_checked_in_configuration_is_the_one_of_mobile_sam(model, file):
    config = (REPOSITORY / model / file).read_text()
    assert configured(config, Descriptor()) == config
    changed = configured(config, THREE)
    assert changed != config
    assert configured(changed, Descriptor()) == config


def test_configuration_has_side_batch_and_tensors_of_the_descriptor():
    encoder, decoder = (
        text_format.Parse(
            configured((REPOSITORY / model / "config.pbtxt").read_text(), THREE), ModelConfig()
        )
        for model in ("mobile_sam_encoder", "mobile_sam_decoder")
    )
    assert encoder.max_batch_size == 1
    assert encoder.input[0].dims == encoder.model_warmup[0].inputs["images"].dims == [512, 512, 3]
    assert {each.name: each.dims for each in encoder.output} == {
        "image_embeddings": [64, 64, 256],
        "hq": [256, 256, 32],
    }
    assert decoder.max_batch_size == 0
    assert {each.name: each.dims for each in decoder.input}["hq"] == [1, 256, 256, 32]
    assert decoder.model_warmup[0].inputs["hq"].dims == [1, 256, 256, 32]
    assert decoder.model_warmup[0].inputs["point_coords"].dims == [1, 2, 2]


def test_configuration_for_gpus_has_the_tensors_of_the_descriptor():
    encoder, decoder = (
        text_format.Parse(
            configured((REPOSITORY / model / "configs/gpu.pbtxt").read_text(), THREE),
            ModelConfig(),
        )
        for model in ("mobile_sam_encoder", "mobile_sam_decoder")
    )
    assert encoder.max_batch_size == decoder.max_batch_size == 0
    # An image of any size, which is not that of the frame.
    assert encoder.model_warmup[0].inputs["pixels"].dims == [1200, 1800, 3]
    embedding = {"image_embeddings": [1, 64, 64, 256], "hq": [1, 256, 256, 32]}
    assert {each.name: each.dims for each in encoder.output} == embedding
    inputs = {each.name: each.dims for each in decoder.input}
    assert embedding.items() <= inputs.items()
    assert decoder.model_warmup[0].inputs["hq"].dims == [1, 256, 256, 32]


def test_versions_share_a_configuration_only_with_the_same_tensors():
    check_same_tensors(Descriptor(), {2: Descriptor("vit", batch=1)})
    message = (
        "these weights need another repository: beside version 2, expected a frame of 1024 pixels"
    )
    with pytest.raises(ExportError, match=re.escape(message)):
        check_same_tensors(THREE, {2: Descriptor()})


def test_built_in_descriptor_has_the_networks_tensors():
    assert builtin()[0] == Descriptor("builtin", engines=["onnxruntime"])


def test_single_mask_is_the_best_of_three():
    logits, scores = (
        spox.argument(spox.Tensor(np.float32, ("N", 4, 5, 5))),
        spox.argument(spox.Tensor(np.float32, ("N", 4))),
    )
    chosen = with_best_first(logits, scores)
    run = session(
        finished_model(
            "best", {"x": logits, "s": scores}, dict(zip(("logits", "scores"), chosen, strict=True))
        )
    )
    rng = np.random.default_rng(0)
    given, rated = (
        rng.random((9, 4, 5, 5)).astype(np.float32),
        rng.random((9, 4)).astype(np.float32),
    )
    rated[:, 0] = 2
    best = rated[:, 1:].argmax(axis=1) + 1
    assert set(best) == {1, 2, 3}
    order = np.concatenate([best[:, None], np.tile([1, 2, 3], (9, 1))], axis=1)
    masks, numbers = run(x=given, s=rated)
    assert np.array_equal(masks, np.take_along_axis(given, order[:, :, None, None], axis=1))
    assert np.array_equal(numbers, np.take_along_axis(rated, order, axis=1))


@pytest.mark.slow
def test_recipe_of_tinysam_changes_the_single_mask_only(small_state):
    (plain, networks), (descriptor, tiny) = (
        build(small_state, recipe) for recipe in ("", "tinysam")
    )
    assert (plain.single_mask, descriptor.single_mask) == ("first", "best_of_three")
    assert networks[0].SerializeToString() == tiny[0].SerializeToString()
    embedding = np.random.default_rng(0).standard_normal((1, 64, 64, 64)).astype(np.float16)
    masks, scores = decode(session(networks[1]), embedding, [[[500, 300], [0, 0]]], [[1, -1]])
    (single,) = decode(
        session(tiny[1], "single_masks"), embedding, [[[500, 300], [0, 0]]], [[1, -1]]
    )
    assert np.array_equal(single[0, 0], masks[0, 1 + scores[0, 1:].argmax()])


def test_recipe_of_medsam_squashes_and_takes_boxes_only():
    descriptor = build(noisy_state(sam_shapes(**MODELS["small"])), "medsam")[0]
    assert (descriptor.resize, descriptor.normalisation, descriptor.prompts) == (
        "squash",
        "min_max",
        ["boxes"],
    )


def test_recipe_for_another_encoder_is_refused(small_state):
    with pytest.raises(
        CheckpointError, match="medsam: expected weights of a vit encoder, got a mobile_sam one"
    ):
        build(small_state, "medsam")


def test_min_max_normalisation_uses_the_images_own_range():
    rng = np.random.default_rng(0)
    images = spox.argument(spox.Tensor(np.uint8, ("N", 32, 32, 3)))
    sizes_hw = spox.argument(spox.Tensor(np.int32, ("N", 2)))
    pixels = centred_pixels(images, sizes_hw, 32, MIN_MAX)
    run = session(
        finished_model("pixels", {"images": images, "sizes_hw": sizes_hw}, {"pixels": pixels})
    )
    given = rng.integers(30, 200, (2, 32, 32, 3)).astype(np.uint8)
    given[1] = 7
    (found,) = run(images=given, sizes_hw=np.full((2, 2), 32, np.int32))
    found = found.transpose(0, 2, 3, 1) / np.array(PIXEL_STD, np.float32)
    low, high = float(given[0].min()), float(given[0].max())
    assert np.allclose(found[0], (given[0] - low) / (high - low), atol=1e-6)
    assert not found[1].any()
