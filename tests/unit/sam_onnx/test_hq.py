"""SAM-HQ: parity with its authors' code, layouts, its token alone, and tensors that do not fit."""

from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sam_onnx import CheckpointError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.decoder import build_decoder
from sam_onnx.descriptor import Descriptor
from sam_onnx.model import build
from tests.family.cases import PROMPTS, SIZES_HW, Array, image, named, sam_shapes
from tests.family.cases_hq import EXPECTED, MODELS, sampled, sampled_masks, state_of
from tests.unit.sam_onnx.conftest import decode, session
from tests.unit.sam_onnx.test_family import MIN_IOU, answers, assert_close
from tests.unit.sam_onnx.test_graphs import CLICK_LABELS, CLICKS_XY, check_openvino

SHAPES = {"image_embeddings": (1, 64, 64, 64), "hq_features": (1, 256, 256, 8)}
"""Tensors of an embedding of the small ViT."""


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def state() -> dict[str, Array]:
    return state_of(MODELS["vit"])


def encode(encoder: Any, size_hw: tuple[int, int]) -> dict[str, Array]:
    found = encoder(images=image(size_hw)[None], sizes_hw=np.array([size_hw], np.int32))
    return dict(zip(SHAPES, found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "tiny_vit"])
def test_answers_match_the_authors_code(name, expected):
    encoder, decoder = map(session, build(state_of(MODELS[name]))[1])
    for size_hw in SIZES_HW:
        embedding = encode(encoder, size_hw)
        where, found = named(size_hw), dict[str, Array]()
        parts = sampled(*(each[0].transpose(2, 0, 1) for each in embedding.values()))
        for part, values in zip(("embedding", "features"), parts, strict=True):
            assert_close(values, expected[f"{name}/{part}/{where}"])
        for index, (prompt, fields) in enumerate(PROMPTS.items()):
            (found[prompt],), (scores,) = answers(decoder, embedding, fields, found)
            logits, bits = sampled_masks(found[prompt])
            assert_close(logits, expected[f"{name}/logits/{where}"][index])
            assert_close(scores, expected[f"{name}/scores/{where}"][index])
            one, other = np.unpackbits(
                [bits, expected[f"{name}/masks/{where}"][index]], axis=-1
            ).astype(bool)
            assert (one & other).sum() >= MIN_IOU * (one | other).sum() > 0


def test_descriptor_has_both_tensors_and_no_engine_in_bfloat16():
    descriptor, _ = build(state_of(MODELS["tiny_vit"]))
    tensors = {"image_embeddings": [1, 64, 64, 256], "hq_features": [1, 256, 256, 32]}
    assert descriptor == Descriptor(
        "mobile_sam", embedding=tensors, engines=["openvino", "onnxruntime"]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit", "tiny_vit"])
def test_hq_only_answers_with_the_mask_of_the_added_token(name, expected):
    (plain, (_, both)), (descriptor, networks) = (
        build(state_of(MODELS[name]), recipe) for recipe in ("", "hq_only")
    )
    assert (plain.single_mask, descriptor.single_mask) == ("first", "hq_only")
    assert descriptor.embedding == plain.embedding
    size_hw = SIZES_HW[0]
    embedding = encode(session(networks[0]), size_hw)
    (masks,), scores = answers(session(networks[1]), embedding, PROMPTS["click"], {})
    assert_close(sampled_masks(masks[0])[0], expected[f"{name}/only/{named(size_hw)}"])
    assert all(np.array_equal(masks[0], mask) for mask in masks)
    assert_close(scores, answers(session(both), embedding, PROMPTS["click"], {})[1])


def test_hq_only_needs_the_tensors_of_sam_hq(state):
    plain = {key: value for key, value in state.items() if key in sam_shapes(**MODELS["vit"])}
    assert build(plain)[0].embedding.keys() == {"image_embeddings"}
    with pytest.raises(
        CheckpointError, match="hq_only: expected weights of SAM-HQ, got none of its tensors"
    ):
        build(plain, "hq_only")


def test_prompts_of_a_batch_get_the_answers_that_each_gets_alone(state):
    decoder = session(build_decoder(state))
    rng = np.random.default_rng(0)
    embedding = {
        name: rng.standard_normal(shape).astype(np.float16) for name, shape in SHAPES.items()
    }
    batch = decode(decoder, embedding, CLICKS_XY, CLICK_LABELS)
    for index, (points, labels) in enumerate(zip(CLICKS_XY, CLICK_LABELS, strict=True)):
        for one, other in zip(batch, decode(decoder, embedding, [points], [labels]), strict=True):
            assert_close(one[index], other[0])


@pytest.mark.slow
def test_openvino_matches_for_changing_numbers_of_prompts_and_masks(state, tmp_path):
    check_openvino(build_decoder(state), tmp_path / "decoder.onnx", **SHAPES)


@pytest.mark.slow
def test_both_layouts_give_the_same_bytes(state, expected, tmp_path):
    other = {
        key: state[authors]
        for key, authors in expected["keys"]
        if not key.startswith("prompt_encoder.shared")
    }
    assert len(other) == len(state)
    save_file(other, tmp_path / "model.safetensors")
    np.savez(tmp_path / "authors.npz", **state)
    graphs = [
        build(load_checkpoint(tmp_path / name))[1] for name in ("model.safetensors", "authors.npz")
    ]
    assert [graph.SerializeToString() for graph in graphs[0]] == [
        graph.SerializeToString() for graph in graphs[1]
    ]


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("hf_token.weight", (1, 65), r"expected mask_decoder\.hf_token\.weight \(1, 64\)"),
        (
            "compress_vit_feat.0.weight",
            (47, 64, 2, 2),
            r"compress_vit_feat\.0\.weight \(48, any, 2, 2\)",
        ),
        (
            "embedding_encoder.3.weight",
            (16, 7, 2, 2),
            r"embedding_encoder\.3\.weight \(16, 8, 2, 2\)",
        ),
        (
            "embedding_maskfeature.0.weight",
            (16, 9, 3, 3),
            r"embedding_maskfeature\.0\.weight \(any, 8, 3, 3\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(state, key, shape, message):
    with pytest.raises(CheckpointError, match=message):
        build({**state, f"mask_decoder.{key}": np.ones(shape, np.float32)})
