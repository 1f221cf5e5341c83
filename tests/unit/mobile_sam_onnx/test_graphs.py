from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest

from mobile_sam_onnx import CheckpointError, build_decoder, build_encoder, builtin
from mobile_sam_onnx.architecture import Architecture, random_state
from mobile_sam_onnx.attention import relative_bias

Arrays = dict[str, npt.NDArray[Any]]
GENERATOR = np.random.default_rng(0)


def signature(values: Any) -> dict[str, tuple[str, list[str | int]]]:
    return {
        value.name: (
            onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


def prompts(points: int, objects: int = 1, masks: int = 1) -> Arrays:
    return {
        "image_embeddings": np.random.default_rng(1).standard_normal((1, 64, 64, 64)).astype(np.float16),
        "point_coords": np.random.default_rng(2).uniform(0, 1024, (objects, points, 2)).astype(np.float32),
        "point_labels": np.random.default_rng(3).integers(0, 4, (objects, points)).astype(np.float32),
        "mask_input": np.random.default_rng(4).standard_normal((masks, 1, 256, 256)).astype(np.float32),
        "has_mask_input": np.zeros(masks, np.float32),
    }


def test_published_model_has_the_declared_signatures() -> None:
    state = random_state(Architecture())
    encoder, decoder = build_encoder(state), build_decoder(state)
    assert signature(encoder.graph.input) == {
        "images": ("UINT8", ["N", 1024, 1024, 3]),
        "sizes_hw": ("INT32", ["N", 2]),
    }
    assert list(signature(encoder.graph.output)) == ["image_embeddings"]
    kind, shape = signature(encoder.graph.output)["image_embeddings"]
    assert (kind, shape[1:]) == ("FLOAT16", [64, 64, 256])
    assert signature(decoder.graph.input) == {
        "image_embeddings": ("FLOAT16", [1, 64, 64, 256]),
        "point_coords": ("FLOAT", ["N", "P", 2]),
        "point_labels": ("FLOAT", ["N", "P"]),
        "mask_input": ("FLOAT", ["M", 1, 256, 256]),
        "has_mask_input": ("FLOAT", ["M"]),
    }
    outputs = signature(decoder.graph.output)
    assert list(outputs) == ["low_res_masks", "iou_predictions", "single_masks"]
    assert outputs["low_res_masks"][1][1:] == [4, 256, 256]
    assert outputs["single_masks"][1][1:] == [1, 256, 256]
    assert outputs["iou_predictions"][1][1:] == [4]
    for model in (encoder, decoder):
        onnx.checker.check_model(model, full_check=True)
        assert model.ir_version <= 10
        assert {entry.domain for entry in model.opset_import} <= {"", "ai.onnx"}


def test_smaller_encoder_runs_on_a_batch(small_encoder: Any) -> None:
    images = GENERATOR.integers(0, 256, (2, 1024, 1024, 3)).astype(np.uint8)
    (answer,) = small_encoder(images=images, sizes_hw=np.array([[1024, 700], [512, 1024]], np.int32))
    assert answer.shape == (2, 64, 64, 64)
    assert np.isfinite(answer).all()
    assert 0.1 < answer.std(dtype=np.float32) < 10


def test_pixels_outside_the_valid_area_are_ignored(small_encoder: Any) -> None:
    images = np.zeros((2, 1024, 1024, 3), np.uint8)
    images[0] = 255
    images[:, :300, :1024] = GENERATOR.integers(0, 256, (300, 1024, 3))
    (answer,) = small_encoder(images=images, sizes_hw=np.array([[300, 1024]] * 2, np.int32))
    np.testing.assert_array_equal(answer[0], answer[1])


def test_attention_biases_affect_the_output(small_state: Arrays, small_encoder: Any, run_model: Any) -> None:
    images = GENERATOR.integers(0, 256, (1, 1024, 1024, 3)).astype(np.uint8)
    inputs = {"images": images, "sizes_hw": np.array([[1024, 1024]], np.int32)}
    (biased,) = small_encoder(**inputs)
    without = {key: value * (0 if key.endswith("attention_biases") else 1) for key, value in small_state.items()}
    (zeroed,) = run_model(build_encoder(without))(**inputs)
    assert np.abs(biased - zeroed).max() > 1e-2


def test_relative_bias_depends_on_absolute_offsets() -> None:
    table = np.arange(4, dtype=np.float32).reshape(1, 4)
    np.testing.assert_array_equal(relative_bias(table, 2)[0], [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]])


def test_too_few_down_samplings_are_rejected() -> None:
    shallow = Architecture(widths=(16, 32), depths=(1, 1), heads=(1, 2), windows=(7, 7), embedding=64)
    with pytest.raises(CheckpointError, match="down-samplings"):
        build_encoder(random_state(shallow))


def test_batched_prompts_match_single_prompts(small_decoder: Any) -> None:
    inputs = prompts(points=3, objects=4)
    masks, scores = small_decoder(**inputs)
    assert masks.shape == (4, 4, 256, 256)
    for index in range(4):
        alone = {**inputs, **{name: inputs[name][index : index + 1] for name in ("point_coords", "point_labels")}}
        expected_masks, expected_scores = small_decoder(**alone)
        np.testing.assert_allclose(masks[index], expected_masks[0], atol=1e-5 * np.abs(expected_masks).max())
        np.testing.assert_allclose(scores[index], expected_scores[0], atol=1e-5)


def test_absent_points_are_ignored(small_decoder: Any) -> None:
    inputs = prompts(points=2)
    filler = np.array([[[5.0, 900.0], [1e4, -3.0], [0.0, 0.0]]], np.float32)
    filled = {
        **inputs,
        "point_coords": np.concatenate([inputs["point_coords"], filler], axis=1),
        "point_labels": np.concatenate([inputs["point_labels"], np.full((1, 3), -2, np.float32)], axis=1),
    }
    for answer, expected in zip(small_decoder(**filled), small_decoder(**inputs), strict=True):
        np.testing.assert_allclose(answer, expected, atol=1e-5 * np.abs(expected).max())


def test_padding_point_differs_from_an_absent_point(small_decoder: Any) -> None:
    inputs = prompts(points=2)
    inputs["point_labels"][0, 1] = -1
    absent = {**inputs, "point_labels": np.array([[inputs["point_labels"][0, 0], -2]], np.float32)}
    assert np.abs(small_decoder(**inputs)[0] - small_decoder(**absent)[0]).max() > 1e-3


def test_coordinates_of_a_padding_point_are_ignored(small_decoder: Any) -> None:
    inputs = prompts(points=1)
    inputs["point_labels"][:] = -1
    elsewhere = {**inputs, "point_coords": inputs["point_coords"] + 50}
    np.testing.assert_array_equal(small_decoder(**inputs)[0], small_decoder(**elsewhere)[0])


def test_mask_input_is_shared_by_all_prompts(small_decoder: Any) -> None:
    inputs = prompts(points=2, objects=3)
    inputs["has_mask_input"] = np.ones(1, np.float32)
    repeated = {
        **inputs,
        "mask_input": np.repeat(inputs["mask_input"], 3, axis=0),
        "has_mask_input": np.ones(3, np.float32),
    }
    for answer, expected in zip(small_decoder(**inputs), small_decoder(**repeated), strict=True):
        np.testing.assert_allclose(answer, expected, atol=1e-5 * np.abs(expected).max())


def test_mask_input_per_prompt(small_decoder: Any) -> None:
    inputs = prompts(points=2, objects=2, masks=2)
    inputs["has_mask_input"] = np.array([0, 1], np.float32)
    inputs["mask_input"][0] = np.nan  # unused
    masks, _ = small_decoder(**inputs)
    for index in range(2):
        alone = {name: value[index : index + 1] for name, value in inputs.items() if name != "image_embeddings"}
        expected, _ = small_decoder(image_embeddings=inputs["image_embeddings"], **alone)
        np.testing.assert_allclose(masks[index], expected[0], atol=1e-5 * np.abs(expected).max())


def test_openvino_matches_for_changing_numbers_of_prompts_and_masks(
    small_state: Arrays, small_decoder: Any, tmp_path: Path
) -> None:
    openvino = pytest.importorskip("openvino")
    file = tmp_path / "decoder.onnx"
    onnx.save(build_decoder(small_state), file)
    request = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    for points, objects, masks, has_mask in [(2, 1, 1, 0), (2, 3, 1, 0), (2, 1, 1, 0), (4, 2, 2, 1), (4, 2, 1, 0)]:
        inputs = prompts(points, objects, masks) | {"has_mask_input": np.full(masks, has_mask, np.float32)}
        answer = request.infer(inputs)
        for name, expected in zip(("low_res_masks", "iou_predictions"), small_decoder(**inputs), strict=True):
            np.testing.assert_allclose(answer[name], expected, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("built", ["small", "builtin"])
def test_single_masks_are_the_first_low_res_masks(small_state: Arrays, built: str) -> None:
    model = build_decoder(small_state) if built == "small" else builtin.build_decoder(builtin.load_weights())
    runtime = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = prompts(points=2, objects=3)
    channels = runtime.get_inputs()[0].shape[3]
    inputs["image_embeddings"] = GENERATOR.standard_normal((1, 64, 64, channels)).astype(np.float16)
    single, every = runtime.run(["single_masks", "low_res_masks"], inputs)
    assert single.shape == (3, 1, 256, 256)
    np.testing.assert_array_equal(single, every[:, :1])
