"""Segment Anything's ViT: parity with its authors' code, layouts of checkpoints, and what is not
recognised.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from sam_onnx import CheckpointError
from sam_onnx.checkpoint import load_checkpoint
from sam_onnx.layouts import encoder_kind
from sam_onnx.model import build
from tests.family.cases import (
    EXPECTED,
    MODELS,
    PROMPTS,
    Array,
    image,
    named,
    noisy_state,
    sam_shapes,
    sampled,
    sampled_masks,
    sizes_of,
)
from tests.unit.sam_onnx.conftest import decode, session

MAX_RELATIVE_L2 = 1e-3
MIN_IOU = 0.999
PADDING_POINT = -1


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    with np.load(EXPECTED) as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def state() -> dict[str, Array]:
    return noisy_state(sam_shapes(**MODELS["small"]))


def assert_close(found: Array, wanted: Array) -> None:
    assert np.linalg.norm(found - wanted) <= MAX_RELATIVE_L2 * np.linalg.norm(wanted)


def answers(decoder: Any, embedding: Any, prompt: dict[str, Any], masks: dict[str, Array]) -> Any:
    points, box = prompt.get("points", []), prompt.get("box", [])
    coords = [*points, *([box[:2], box[2:]] if box else [[0, 0]])]
    labels = [1, 0][: len(points)] + ([2, 3] if box else [PADDING_POINT])
    earlier = (masks[prompt["refines"]][None, :1], [1]) if "refines" in prompt else ()
    return decode(decoder, embedding, [coords], [labels], *earlier)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "deep"])
def test_answers_match_the_authors_code(name, expected):
    encoder, decoder = map(session, build(noisy_state(sam_shapes(**MODELS[name])))[1])
    for size_hw in sizes_of(name):
        (embedding,) = encoder(images=image(size_hw)[None], sizes_hw=np.array([size_hw], np.int32))
        where = named(size_hw)
        found: dict[str, Array] = {}
        assert_close(
            sampled(embedding[0].transpose(2, 0, 1)), expected[f"{name}/embedding/{where}"]
        )
        for prompt, fields in PROMPTS.items():
            (masks,), (scores,) = answers(decoder, embedding, fields, found)
            found[prompt] = masks
            logits, bits = sampled_masks(masks)
            assert_close(logits, expected[f"{name}/logits/{where}/{prompt}"])
            assert_close(scores, expected[f"{name}/scores/{where}/{prompt}"])
            one, other = (
                np.unpackbits(each).astype(bool)
                for each in (bits, expected[f"{name}/masks/{where}/{prompt}"])
            )
            assert (one & other).sum() >= MIN_IOU * (one | other).sum() > 0


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


@pytest.mark.parametrize("prefix", ["module.", "sam.", "module.sam_model."])
def test_prefix_of_a_fine_tune_is_removed_with_what_is_outside_the_model(state, prefix, tmp_path):
    tuned = {f"{prefix}{key}": value for key, value in state.items()}
    np.savez(tmp_path / "tuned.npz", **tuned, **{"loss.weight": np.ones(3)})
    assert load_checkpoint(tmp_path / "tuned.npz").keys() == state.keys()


def pruned(state: dict[str, Array]) -> dict[str, Array]:
    """Return the state with MLPs of another width."""
    cut: dict[str, Callable[[Array], Array]] = {
        "mlp.lin1.weight": lambda value: value[:100],
        "mlp.lin1.bias": lambda value: value[:100],
        "mlp.lin2.weight": lambda value: value[:, :100],
    }
    blocks = "image_encoder.blocks."
    names = {
        key: key.removeprefix(blocks).partition(".")[2] for key in state if key.startswith(blocks)
    }
    return {
        key: cut.get(names.get(key, ""), lambda value: value)(value) for key, value in state.items()
    }


@pytest.mark.slow
def test_pruned_widths_are_read_from_the_tensors(state):
    encoder = session(build(pruned(state))[1][0])
    (embedding,) = encoder(
        images=image((1024, 1024))[None], sizes_hw=np.array([[1024, 1024]], np.int32)
    )
    assert np.isfinite(embedding).all()


@pytest.mark.parametrize(
    ("key", "shape", "message"),
    [
        (
            "image_encoder.blocks.0.attn.rel_pos_w",
            (25, 16),
            "expected rel_pos_h and rel_pos_w of 2 [*] window - 1 rows",
        ),
        (
            "image_encoder.blocks.0.attn.rel_pos_h",
            (27, 17),
            "expected rel_pos_h and rel_pos_w of 2 [*] window - 1 rows",
        ),
        (
            "image_encoder.blocks.0.attn.qkv.weight",
            (143, 48),
            "expected qkv.weight to hold heads of 16 rows",
        ),
        (
            "image_encoder.pos_embed",
            (1, 32, 32, 48),
            "expected image_encoder.pos_embed [(]1, 64, 64, 48[)]",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(state, key, shape, message):
    with pytest.raises(CheckpointError, match=message):
        build({**state, key: np.ones(shape, np.float32)})


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("detector.backbone.vision_backbone.trunk.pos_embed", "SAM 3, whose licence is gated"),
        ("image_encoder.fuse_stage2.weight", "EdgeSAM, whose licence is non-commercial"),
        ("image_encoder.features.0.0.c.weight", "RepViT-SAM"),
        ("encoder.weight", "another model"),
    ],
)
def test_model_that_is_not_served_is_named_in_one_line(key, name):
    with pytest.raises(CheckpointError) as raised:
        encoder_kind({key: np.ones(1)})
    line = str(raised.value)
    assert line.startswith(f"this checkpoint looks like {name}")
    assert (
        "nearest are MobileSAM, SAM's ViT-B, L and H, SAM-HQ, EfficientViT-SAM, SAM 2 and EdgeTAM"
        in line
    )
    missing = "; missing key: expected image_encoder.layers.... or image_encoder.blocks...."
    assert (missing in line) == line.endswith(", got no such key") == (name == "another model")
    assert "\n" not in line


def test_hugging_face_key_that_is_missing_is_named_in_the_authors_layout(
    state, expected, tmp_path: Path
):
    other = {key: state[authors] for key, authors in expected["keys"]}
    del other["vision_encoder.neck.layer_norm1.weight"]
    save_file(other, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"expected image_encoder\.neck\.1\.weight"):
        build(load_checkpoint(tmp_path / "model.safetensors"))
