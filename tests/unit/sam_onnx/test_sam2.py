"""SAM 2 and EdgeTAM: parity with its authors' code, layouts of checkpoints, and what its decoder
does differently.
"""

from typing import Any

import numpy as np
import pytest
import spox
from safetensors.numpy import save_file

from sam_onnx import CheckpointError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.decoder import NO_OBJECT, first_is_stable, with_best_first
from sam_onnx.layouts import STACKED_POINTS, authors_layout
from sam_onnx.model import build
from sam_onnx.nodes import finished_model
from tests.family.cases import Array, image, sampled_masks
from tests.family.cases_sam2 import (
    EXPECTED,
    LAYOUTS,
    MODELS,
    SIZE_HW,
    TENSORS,
    prompts_of,
    sam2_state,
    sampled,
)
from tests.unit.sam_onnx.conftest import decode, session
from tests.unit.sam_onnx.test_family import MIN_IOU, answers, assert_close

CLICK, BOX = ([[400, 300], [0, 0]], [1, -1]), ([[150, 120], [600, 580]], [2, 3])


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def state() -> dict[str, Array]:
    return sam2_state(**MODELS["small"])


@pytest.fixture(scope="module")
def decoder(state: dict[str, Array]) -> Any:
    return session(build(authors_layout(state))[1][1])


@pytest.fixture(scope="module")
def embedding() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    shapes = zip(TENSORS, ((256, 16), (128, 32), (64, 128)), strict=True)
    return {
        name: rng.standard_normal((1, size, size, width)).astype(np.float16)
        for name, (size, width) in shapes
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "deep", "edgetam", "tiny"])
def test_answers_match_the_authors_code(name, expected):
    descriptor, networks = build(authors_layout(sam2_state(**MODELS[name])))
    encoder, decoder = map(session, networks)
    found = encoder(images=image(SIZE_HW)[None], sizes_hw=np.array([[1024, 1024]], np.int32))
    embedding = dict(zip(descriptor.embedding, found, strict=True))
    assert [list(embedding[key].shape) for key in descriptor.embedding] == [
        *descriptor.embedding.values()
    ]
    for key in TENSORS:
        assert_close(sampled(embedding[key][0].transpose(2, 0, 1)), expected[f"{name}/{key}"])
    earlier: dict[str, Array] = {}
    for prompt, fields in prompts_of(name).items():
        (masks,), (scores,) = answers(decoder, embedding, fields, earlier)
        earlier[prompt] = masks
        logits, bits = sampled_masks(masks)
        assert_close(logits, expected[f"{name}/logits/{prompt}"])
        assert_close(scores, expected[f"{name}/scores/{prompt}"])
        one, other = (
            np.unpackbits(each).astype(bool) for each in (bits, expected[f"{name}/masks/{prompt}"])
        )
        assert (one & other).sum() >= MIN_IOU * (one | other).sum() > 0


def test_single_mask_of_the_cases_is_the_first_and_another(expected):
    first, best = expected["tiny/scores/click"][:2], expected["small/scores/click"]
    assert first[0] < first[1]
    assert best[0] == best[1:].max()


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYOUTS)
def test_both_layouts_give_the_same_bytes(name, expected, tmp_path):
    state = sam2_state(**MODELS[name])
    authors = authors_layout(state)
    points = np.concatenate(
        [authors[STACKED_POINTS.replace("weight", f"{kind}.weight")] for kind in range(4)]
    )
    given, keys = {**authors, STACKED_POINTS: points}, expected[f"{name}/keys"]
    other = {key: given[authors_name] for key, authors_name in keys if "shared_e" not in key}
    assert len(other) == len(state) - 3
    save_file(other, tmp_path / "model.safetensors")
    np.savez(
        tmp_path / "authors.npz", **state, **{"memory_attention.layers.0.norm1.weight": np.ones(3)}
    )
    graphs = [
        build(load_checkpoint(tmp_path / name))[1] for name in ("model.safetensors", "authors.npz")
    ]
    assert [graph.SerializeToString() for graph in graphs[0]] == [
        graph.SerializeToString() for graph in graphs[1]
    ]


def test_fine_tune_with_a_prefix_is_read(state, tmp_path):
    np.savez(tmp_path / "tuned.npz", **{f"module.{key}": value for key, value in state.items()})
    assert load_checkpoint(tmp_path / "tuned.npz").keys() == authors_layout(state).keys()


def test_padding_point_is_added_only_to_prompts_without_one(decoder, embedding):
    box = decode(decoder, embedding, [BOX[0]], [BOX[1]])
    padded = decode(decoder, embedding, [[*BOX[0], [9, 9]]], [[*BOX[1], -1]])
    both = decode(decoder, embedding, [CLICK[0], BOX[0]], [CLICK[1], BOX[1]])
    click = decode(decoder, embedding, [CLICK[0]], [CLICK[1]])
    for index in range(2):
        assert_close(padded[index], box[index])
        assert_close(both[index], np.concatenate([click[index], box[index]]))


@pytest.mark.slow
def test_mask_without_an_object_is_empty(state, embedding):
    decoder = session(build(authors_layout(sam2_state(object_score=-10, **MODELS["small"])))[1][1])
    masks, scores = decode(decoder, embedding, [CLICK[0]], [CLICK[1]])
    assert (masks == NO_OBJECT).all()
    assert ((scores > 0) & (scores < 1)).all()


def test_earlier_mask_is_clamped(decoder, embedding):
    mask = np.random.default_rng(0).normal(0, 100, (1, 1, 256, 256)).astype(np.float32)
    masks = [
        decode(decoder, embedding, [CLICK[0]], [CLICK[1]], each, [1])[0]
        for each in (mask, mask.clip(-32, 32))
    ]
    assert np.array_equal(*masks)


def test_single_mask_is_the_first_while_that_is_stable():
    logits, scores = (
        spox.argument(spox.Tensor(np.float32, ("N", 4, *shape))) for shape in ((10, 10), ())
    )
    chosen = with_best_first(logits, scores, unless=first_is_stable(logits))
    run = session(
        finished_model(
            "best", {"x": logits, "s": scores}, dict(zip(("logits", "scores"), chosen, strict=True))
        )
    )
    given = np.full((4, 4, 100), -1, np.float32)
    given[0, 0, :50] = 1  # stable
    given[1, 0, :50], given[1, 0, 50] = 1, 0.04  # 50 / 51
    given[2, 0, :50], given[2, 0, 50:52] = 1, -0.04  # 50 / 52
    rated = np.array([[0.1, 0.2, 0.4, 0.3]] * 4, np.float32)  # the last mask is empty
    masks, numbers = run(x=given.reshape(4, 4, 10, 10), s=rated)
    assert numbers[:, 0].tolist() == pytest.approx([0.1, 0.1, 0.4, 0.1])
    assert np.array_equal(masks[2, 0], masks[2, 2])
    assert np.array_equal(masks[:, 1:].reshape(4, 3, 100), given[:, 1:])


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("image_encoder.trunk.blocks.0.attn.qkv.weight", (72, 23), r"attn.qkv.weight \(72, 24\)"),
        (
            "image_encoder.trunk.pos_embed_window",
            (1, 24, 7, 7),
            "expected pos_embed_window to divide 256",
        ),
        (
            "image_encoder.neck.convs.0.conv.weight",
            (128, 48, 1, 1),
            r"convs.0.conv.weight \(128, 192, 1, 1\)",
        ),
        ("mask_decoder.conv_s1.weight", (32, 127, 1, 1), r"conv_s1.weight \(any, 128, 1, 1\)"),
    ],
)
def test_tensors_that_do_not_fit_are_named(state, key, shape, message):
    with pytest.raises(CheckpointError, match=message):
        build({**authors_layout(state), key: np.ones(shape, np.float32)})


def test_heads_that_do_not_divide_the_width_are_named():
    state = sam2_state(**{**MODELS["deep"], "width": 9})
    with pytest.raises(CheckpointError, match=r"expected proj.bias divisible by 2, got 9"):
        build(authors_layout(state))


def test_hq_sam_2_is_refused(state):
    with pytest.raises(CheckpointError, match="looks like HQ-SAM 2, which is not served"):
        build(
            {**authors_layout(state), "mask_decoder.hf_token.weight": np.ones((1, 128), np.float32)}
        )


def test_unknown_variant_is_refused(state):
    other = {key: value for key, value in authors_layout(state).items() if ".blocks.11." not in key}
    with pytest.raises(
        CheckpointError, match=r"expected one of .* blocks in the stages .*, got \(1, 2, 7, 1\)"
    ):
        build(other)
