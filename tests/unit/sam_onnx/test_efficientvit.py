"""EfficientViT-SAM: parity with its authors' code, what the descriptor says of it, and tensors
that do not fit.
"""

import numpy as np
import pytest

from sam_onnx import CheckpointError
from sam_onnx.descriptor import Descriptor
from sam_onnx.model import build
from tests.family.cases import Array, named
from tests.family.cases_efficientvit import (
    EXPECTED,
    FRAMES,
    framed,
    prompts_of,
    sampled_answers,
    sampled_embedding,
    sizes_of,
    state_of,
)
from tests.unit.sam_onnx.conftest import session
from tests.unit.sam_onnx.test_family import MIN_IOU, answers, assert_close

STAGES = "image_encoder.backbone.stages."


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def state(expected) -> dict[str, Array]:
    return state_of(expected["small/shapes"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "small_xl", "l0"])
def test_answers_match_the_authors_code(name, expected):
    descriptor, models = build(state_of(expected[f"{name}/shapes"]))
    assert descriptor == Descriptor("efficientvit", side=FRAMES[name], batch=4)
    encoder, decoder = map(session, models)
    for size_hw in sizes_of(name):
        pixels, framed_hw = framed(name, size_hw)
        (embedding,) = encoder(images=pixels[None], sizes_hw=np.array([framed_hw], np.int32))
        where = named(size_hw)
        found: dict[str, Array] = {}
        assert_close(
            sampled_embedding(embedding[0].transpose(2, 0, 1)),
            expected[f"{name}/embedding/{where}"],
        )
        for prompt, fields in prompts_of(name).items():
            case = f"{where}/{prompt}"
            (found[prompt],), (scores,) = answers(decoder, embedding, fields, found)
            logits, bits = sampled_answers(found[prompt])
            assert_close(logits, expected[f"{name}/logits/{case}"])
            assert_close(scores, expected[f"{name}/scores/{case}"])
            one, other = np.unpackbits([bits, expected[f"{name}/masks/{case}"]], axis=-1).astype(
                bool
            )
            assert (one & other).sum() >= MIN_IOU * (one | other).sum() > 0


def test_queries_without_a_positive_number_read_nothing(state):
    zeros = {
        key: np.zeros_like(value) for key, value in state.items() if key.endswith("qkv.conv.weight")
    }
    pixels, framed_hw = framed("small", (1024, 1024))
    encoder = session(build({**state, **zeros})[1][0])
    assert np.isfinite(encoder(images=pixels[None], sizes_hw=np.array([framed_hw], np.int32))).all()


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        ("0.op_list.0.conv.weight", (8, 4, 3, 3), r"expected .*stages\.0.* \(any, 3, 3, 3\)"),
        (
            "0.op_list.1.main.conv2.conv.weight",
            (9, 8, 3, 3),
            r"expected .*conv2\.conv\.weight \(8, 8, 3, 3\)",
        ),
        (
            "3.op_list.1.main.depth_conv.conv.weight",
            (128, 1, 5, 5),
            r"expected .* \(128, 1, 3, 3\)",
        ),
        (
            "4.op_list.1.context_module.main.aggreg.0.0.weight",
            (192, 1, 4, 4),
            r"expected .* \(192, 1, 5, 5\)",
        ),
        (
            "4.op_list.1.context_module.main.aggreg.0.1.weight",
            (192, 40, 1, 1),
            "qkv.conv.weight divisible by 120",
        ),
        ("6.op_list.0.conv.weight", (1,), "expected 5 or 6 stages of EfficientViT, got 7"),
    ],
)
def test_tensors_that_do_not_fit_are_named(state, key, shape, message):
    with pytest.raises(CheckpointError, match=message):
        build({**state, f"{STAGES}{key}": np.ones(shape, np.float32)})


@pytest.mark.parametrize(
    "part", ["3.op_list.0.main", "4.op_list.1.context_module.main.proj", "4.op_list.2.local_module"]
)
def test_part_that_is_missing_is_named(state, part):
    name = f"{STAGES}{part}."
    with pytest.raises(CheckpointError, match=f"missing key: expected {name}"):
        build({key: value for key, value in state.items() if not key.startswith(name)})
