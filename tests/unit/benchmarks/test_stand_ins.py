"""Stand-ins for the networks: the signatures of the real ones, and the recorded answers."""

import shutil

import numpy as np
import onnxruntime
import pytest

from benchmarks import recording, stand_ins
from orchestrator import tensors
from orchestrator.networks import (
    CANDIDATE_OUTPUTS,
    SINGLE_OUTPUT,
    MaskRule,
    decoder_inputs,
    encoder_inputs,
)
from triton_backends.common.onnxruntime_engine import signature
from utils.triton.repository import CONFIG
from utils.triton.versions import GPU_NETWORK_FILE

pytestmark = pytest.mark.slow

SIZE_HW, CLICK = (60, 90), (45, 30)
GRID = recording.POINTS_PER_SIDE**2
NETWORKS = [
    (tensors.ENCODER, "model.onnx"),
    (tensors.DECODER, "model.onnx"),
    (tensors.ENCODER, "gpu.onnx"),
    (tensors.DECODER, "gpu.onnx"),
]


def session(repository, model, file):
    path = repository / model / "1" / file
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def recorded(builtin_repository):
    rng = np.random.default_rng(0)
    picture = rng.integers(0, 256, (*SIZE_HW, 3), dtype=np.uint8)
    answers = recording.record(builtin_repository, picture, CLICK)
    # Untrained weights reach no threshold: two of the grid's masks are kept here.
    masks = {name: np.repeat(array, 2, axis=0) for name, array in answers.click_masks.items()}
    masks[tensors.MASK_INDICES.name] = np.array([2, 3 * GRID - 1])
    masks[tensors.SCORES.name] = np.array([0.25, 0.5], np.float32)
    return recording.Recording(
        answers.embedding,
        answers.low_res_masks,
        answers.iou_predictions,
        answers.click_masks,
        masks,
    )


@pytest.fixture(scope="module")
def repository(builtin_repository, recorded, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stand-ins") / "models"
    shutil.copytree(builtin_repository, folder)
    stand_ins.install(folder, recorded)
    with (folder / tensors.ENCODER / CONFIG).open("a") as config:
        config.write(f'\ndefault_model_filename: "{GPU_NETWORK_FILE}"\n')
    stand_ins.install(folder, recorded)
    return folder


def prompts(recorded, count):
    points_xy = np.full((count, 1, 2), CLICK, np.float32)
    labels = np.full((count, 1), tensors.POSITIVE, np.int32)
    return decoder_inputs(
        recorded.embedding, points_xy, labels, size_hw=SIZE_HW, frame_hw=(683, 1024)
    )


@pytest.mark.parametrize(("model", "file"), NETWORKS)
def test_stand_in_has_the_signature_of_the_network(builtin_repository, repository, model, file):
    real, stand_in = (session(folder, model, file) for folder in (builtin_repository, repository))
    assert signature(stand_in.get_inputs()) == signature(real.get_inputs())
    assert signature(stand_in.get_outputs()) == signature(real.get_outputs())


@pytest.mark.parametrize("file", ["model.onnx", "gpu.onnx"])
def test_encoder_answers_the_recorded_embedding_except_for_the_first_value(
    repository, recorded, file
):
    side, box = (1024, None) if file == "model.onnx" else (100, (0, 0, 100, 100))
    black = np.zeros((side, side, 3), np.uint8)
    white = black + 255
    (name,) = recorded.embedding
    encoder = session(repository, tensors.ENCODER, file)
    of_black, of_white = (
        encoder.run([name], encoder_inputs(pixels, (side, side), box))[0]
        for pixels in (black, white)
    )
    np.testing.assert_array_equal(of_black, recorded.embedding[name])
    different = np.flatnonzero(of_white != of_black)
    assert different.tolist() == [0]


@pytest.mark.parametrize(
    ("count", "rows"),
    [
        pytest.param(1, [0], id="the click"),
        pytest.param(2, [1, 2], id="less than the grid"),
        pytest.param(GRID + 1, [*range(1, GRID + 1), 1], id="more than the grid"),
    ],
)
def test_decoder_answers_recorded_logits(repository, recorded, count, rows):
    decoder = session(repository, tensors.DECODER, "model.onnx")
    names = [tensor.name for tensor in tensors.DECODER_OUTPUTS]
    low_res_masks, single_masks, scores = decoder.run(names, prompts(recorded, count))
    np.testing.assert_array_equal(low_res_masks, recorded.low_res_masks[rows])
    np.testing.assert_array_equal(single_masks, recorded.low_res_masks[rows, :1])
    np.testing.assert_array_equal(scores, recorded.iou_predictions[rows])


def masks(repository, recorded, count, rule):
    names = [tensor.name for tensor in tensors.GPU_DECODER_OUTPUTS]
    decoder = session(repository, tensors.DECODER, "gpu.onnx")
    answers = decoder.run(names, prompts(recorded, count) | rule.inputs())
    return dict(zip(names, answers, strict=True))


@pytest.mark.parametrize("count", [1, GRID])
@pytest.mark.parametrize("wanted", [SINGLE_OUTPUT, CANDIDATE_OUTPUTS, slice(0, 4)])
def test_decoder_answers_the_clicks_mask_without_a_threshold(repository, recorded, count, wanted):
    answers = masks(repository, recorded, count, MaskRule(wanted, SIZE_HW))
    total = count * (wanted.stop - wanted.start)
    assert answers.pop("mask_indices").tolist() == list(range(total))
    assert answers.pop("is_finite").tolist() == [True]
    for name, array in answers.items():
        expected = np.repeat(recorded.click_masks[name], total, axis=0)
        np.testing.assert_array_equal(array, expected, err_msg=name)


@pytest.mark.parametrize(
    ("count", "kept"), [pytest.param(GRID, 2, id="grid"), pytest.param(1, 1, id="one point")]
)
def test_decoder_answers_the_grids_masks_with_a_threshold(repository, recorded, count, kept):
    rule = MaskRule(CANDIDATE_OUTPUTS, SIZE_HW, min_score=0.8, min_stability=0.9)
    answers = masks(repository, recorded, count, rule)
    del answers["is_finite"]
    for name, array in answers.items():
        np.testing.assert_array_equal(array, recorded.grid_masks[name][:kept], err_msg=name)


def test_masks_are_no_larger_than_the_size_asked_for(repository, recorded):
    answers = masks(repository, recorded, 1, MaskRule(SINGLE_OUTPUT, (1, 9)))
    assert answers["mask_bits"].shape == (1, 1, 2)
