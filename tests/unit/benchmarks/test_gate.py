"""Criterion for engines that keep the masks, its clicks, weights that are used otherwise, and
the descriptor's line.
"""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from benchmarks import gate, stats
from benchmarks.engines import ONNX_RUNTIME, OPENVINO_BF16, OPENVINO_F32
from benchmarks.gate import (
    BASELINE,
    CLICKS,
    compare,
    engines_line,
    fastest,
    keeps_first_candidates,
    keeps_masks,
    time_graphs,
)
from benchmarks.objects import LabelledObject
from harness.repository import make_repository
from tests.family.cases import MODELS, noisy_state, sam_shapes
from tests.family.cases_hq import state_of

OBJECTS, BOX = 20, CLICKS
NEAR = np.ones((OBJECTS, CLICKS + 1, 4))
HUMAN = np.full((OBJECTS, CLICKS + 1, 2), 0.7)
SHALLOW = {**MODELS["small"], "depth": 1, "global_blocks": (0,)}


def changed(values: np.ndarray, where: tuple, value: float) -> np.ndarray:
    """Return a copy of the values with `value` at an index."""
    copy = values.copy()
    copy[where] = value
    return copy


@pytest.mark.parametrize(
    ("kept", "agreed"),
    [
        pytest.param(True, 0.981 * NEAR, id="near-float32"),
        *(
            pytest.param(False, changed(NEAR, np.s_[:, at, 0], 0.979), id=f"single-{at}")
            for at in range(CLICKS + 1)
        ),
        *(
            pytest.param(False, changed(NEAR, np.s_[:, at, 1:], 0.979), id=f"others-{at}")
            for at in range(CLICKS + 1)
        ),
        pytest.param(True, changed(NEAR, np.s_[0, :, 0], 0.89), id="one-low-mask-of-20"),
        pytest.param(False, changed(NEAR, np.s_[:2, 4, 0], 0.89), id="two-low-masks-of-20"),
        pytest.param(True, changed(NEAR, np.s_[:2, 4, 1], 0.89), id="two-low-candidates-of-20"),
    ],
)
def test_engine_keeps_masks_only_if_those_of_every_click_are_near_float32(kept, agreed):
    assert keeps_masks(agreed, HUMAN, HUMAN) is kept


@pytest.mark.parametrize(
    ("kept", "change", "where"),
    [
        pytest.param(True, -0.0029, np.s_[:], id="small-drop"),
        pytest.param(False, -0.004, np.s_[:, 0, 0], id="first-click-drops"),
        pytest.param(False, -0.004, np.s_[:, 4, 0], id="fifth-click-drops"),
        pytest.param(False, -0.004, np.s_[:, 0, 1], id="best-of-three-drops"),
        pytest.param(False, -0.004, np.s_[:, BOX, 0], id="box-drops"),
    ],
)
def test_engine_keeps_masks_only_without_a_drop_of_human_iou(kept, change, where):
    assert keeps_masks(NEAR, changed(HUMAN, where, 0.7 + change), HUMAN) is kept


@pytest.mark.parametrize(
    ("kept", "where"),
    [(True, np.s_[:, 1:, 1:]), (True, np.s_[:, 0, 0]), (False, np.s_[:, 0, 1:])],
    ids=["other-prompts", "single-mask", "candidates"],
)
def test_decoder_of_all_masks_must_keep_the_candidates_of_first_clicks(kept, where):
    assert keeps_first_candidates(changed(NEAR, where, 0.97)) is kept


@pytest.fixture
def labelled(tmp_path: Path) -> LabelledObject:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture.png")
    mask = np.zeros((60, 80), bool)
    mask[20:40, 30:60] = True
    return LabelledObject(tmp_path / "picture.png", pixels, mask, (45, 30), (30, 20, 60, 40))


@pytest.mark.parametrize("kept", [True, False])
def test_bfloat16_beside_a_decoder_in_float32_depends_on_the_candidates_of_first_clicks(
    labelled, kept, monkeypatch
):
    networks = SimpleNamespace(
        answer=lambda labelled, *_: ([[labelled.mask] * 4] * (CLICKS + 1), [])
    )
    monkeypatch.setattr(gate, "Networks", lambda _: networks)
    monkeypatch.setattr(gate, "available", lambda: (ONNX_RUNTIME, OPENVINO_F32, OPENVINO_BF16))
    monkeypatch.setattr(gate, "keeps_first_candidates", lambda _: kept)
    rows, keeping = compare("small", Path(), [labelled])
    mixed = OPENVINO_BF16, OPENVINO_F32
    assert {row[-1] for row in rows if row[1:3] == [*mixed]} == {"yes" if kept else "no"}
    assert (mixed in keeping) is kept


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "state"),
    [
        pytest.param(
            "medsam:", lambda: noisy_state(sam_shapes(**SHALLOW)), id="squashed-only-boxes"
        ),
        pytest.param("", lambda: state_of(SHALLOW), id="several-tensors"),
    ],
)
def test_weights_that_are_used_otherwise_are_compared(word, state, labelled, tmp_path, monkeypatch):
    np.savez(tmp_path / "small.npz", **state())
    repository = make_repository(tmp_path / "repository", f"{word}{tmp_path / 'small.npz'}")
    rows, keeping = compare("small", repository, [labelled])
    (f32,) = (row for row in rows if row[1:4] == [OPENVINO_F32, OPENVINO_F32, "single"])
    *clicks, box, kept = f32[4:]
    assert [text > "0.99" for text in clicks] == [not word] * (CLICKS + 1)
    assert box > "0.99"
    assert kept == "yes"
    assert keeping[:2] == [BASELINE, (OPENVINO_F32, OPENVINO_F32)]
    monkeypatch.setattr(gate, "ROUNDS", 1)
    monkeypatch.setattr(gate, "LARGE_BATCH", 2)
    monkeypatch.setattr(stats, "WARM_UP", 0)
    table, times = time_graphs(repository, "small")
    assert "decoder, 1 prompt: openvino f32" in table
    assert {*fastest(keeping, times)} >= {"onnxruntime", "openvino"}


def test_line_for_the_descriptor_has_the_fastest_engine_first_and_no_bfloat16_for_untrained_weights(
    tmp_path,
):
    repository = make_repository(tmp_path / "repository", "builtin")
    engines = ONNX_RUNTIME, OPENVINO_F32, OPENVINO_BF16
    names = [f"{part}: {engine}" for part in ("encoder", "decoder, 1 prompt") for engine in engines]
    times = dict(zip(names, [[3.0], [2.0], [1.0], [1.0], [0.5], [9.0]], strict=True))
    keeping = [
        BASELINE,
        (OPENVINO_F32, OPENVINO_F32),
        (OPENVINO_BF16, OPENVINO_F32),
        (OPENVINO_BF16, OPENVINO_BF16),
    ]
    found = fastest(keeping, times)
    assert found == ["openvino-bf16", "openvino", "onnxruntime"]
    assert fastest(keeping[:1], times) == ["onnxruntime"]
    line = engines_line("builtin", repository, found)
    assert line.endswith(
        '"engines": ["openvino-bf16", "openvino", "onnxruntime"]; it has ["onnxruntime"]'
    )
    record = repository / "mobile_sam" / "1" / "weights.json"
    record.write_text(record.read_text().replace('"trained": true', '"trained": false'))
    assert '"engines": ["openvino", "onnxruntime"];' in engines_line("builtin", repository, found)
