"""The graphs of both architectures, a small MobileSAM and the built-in model: signatures,
batches, padding.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import openvino
import pytest

from orchestrator import tensors
from sam_onnx import CheckpointError, images, prompts, upscaling
from sam_onnx import model as networks
from sam_onnx.encoder import build_encoder
from sam_onnx.window_attention import relative_bias
from tests.unit.sam_onnx.conftest import decode, session

CLICKS_XY, CLICK_LABELS = (
    [[[500, 300], [0, 0]], [[350, 150], [650, 450]], [[100, 700], [500, 300]]],
    [[1, -2], [2, 3], [1, 0]],
)


@dataclass(frozen=True)
class Model:
    """Both graphs of an architecture and functions that run them."""

    graphs: dict[str, onnx.ModelProto]
    encoder: Any
    decoder: Any
    channels: int

    def encode(self, image: npt.NDArray[np.uint8], *sizes_hw: tuple[int, int]) -> Any:
        return self.encoder(images=image, sizes_hw=np.array(sizes_hw, np.int32))[0]

    def decode(self, *prompts: Any) -> Any:
        """Return low-resolution masks (N, 4, 256, 256) and scores (N, 4)."""
        return decode(self.decoder, *prompts)


def with_sessions(graphs: list[onnx.ModelProto], channels: int) -> Model:
    encoder, decoder = graphs
    return Model(
        {"encoder": encoder, "decoder": decoder}, session(encoder), session(decoder), channels
    )


@pytest.fixture(scope="module")
def small(small_state: Any) -> Model:
    return with_sessions(networks.build(small_state)[1], 64)


@pytest.fixture(scope="module")
def builtin() -> Model:
    return with_sessions(networks.builtin()[1], 256)


def frame_with_disc(
    size_hw: tuple[int, int] = (768, 1024),
    centre_xy: tuple[int, int] = (500, 300),
    padding: int = 0,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_]]:
    """Return (1, 1024, 1024, 3) uint8, an orange disc on green, top left, within `padding`; and
    the disc.
    """
    image = np.full((1, 1024, 1024, 3), padding, np.uint8)
    height, width = size_hw
    y, x = np.mgrid[0:height, 0:width]
    disc = (x - centre_xy[0]) ** 2 + (y - centre_xy[1]) ** 2 < 150**2
    grain = np.random.default_rng(0).integers(-8, 9, (height, width, 1))
    image[0, :height, :width] = np.where(disc[..., None], (220, 120, 30), (40, 110, 50)) + grain
    return image, disc


@pytest.fixture(scope="module")
def embedding(small: Model) -> Any:
    """Embedding of a picture with a disc."""
    return small.encode(frame_with_disc()[0], (768, 1024)).copy()


def assert_close(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-4 * max(1, np.abs(other).max()))


def signature(values: Any) -> dict[str, tuple[str, list[str | int]]]:
    return {
        value.name: (
            onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type),
            [axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim],
        )
        for value in values
    }


@pytest.fixture(params=["small", "builtin"])
def model(request: pytest.FixtureRequest) -> Model:
    found: Model = request.getfixturevalue(request.param)
    return found


def test_graphs_have_the_declared_signatures(model):
    encoder, decoder = model.graphs["encoder"].graph, model.graphs["decoder"].graph
    assert signature(encoder.input) == {
        "images": ("UINT8", ["N", 1024, 1024, 3]),
        "sizes_hw": ("INT32", ["N", 2]),
    }
    outputs = signature([*encoder.output, *decoder.output])
    assert {name: (kind, shape[1:]) for name, (kind, shape) in outputs.items()} == {
        "image_embeddings": ("FLOAT16", [64, 64, model.channels]),
        "low_res_masks": ("FLOAT", [4, 256, 256]),
        "iou_predictions": ("FLOAT", [4]),
        "single_masks": ("FLOAT", [1, 256, 256]),
    }
    assert signature(decoder.input) == {
        "image_embeddings": ("FLOAT16", [1, 64, 64, model.channels]),
        "point_coords": ("FLOAT", ["N", "P", 2]),
        "point_labels": ("FLOAT", ["N", "P"]),
        "mask_input": ("FLOAT", ["M", 1, 256, 256]),
        "has_mask_input": ("FLOAT", ["M"]),
    }


def test_built_in_graphs_have_the_tensors_that_the_orchestrator_uses(builtin):
    encoder, decoder = builtin.graphs["encoder"].graph, builtin.graphs["decoder"].graph
    kinds = {"UINT8": "UINT8", "INT32": "INT32", "FLOAT16": "FP16", "FLOAT": "FP32"}

    def sizes(shape: list[Any]) -> tuple[int, ...]:
        return tuple(size if isinstance(size, int) else -1 for size in shape)

    def declared(values: Any) -> dict[str, Any]:
        return {
            name: (kinds[kind], sizes(shape)) for name, (kind, shape) in signature(values).items()
        }

    def wanted(names: tuple[tensors.Tensor, ...], *batch: int) -> dict[str, Any]:
        return {tensor.name: (tensor.datatype, (*batch, *tensor.shape)) for tensor in names}

    assert declared(encoder.input) == wanted(tensors.ENCODER_INPUTS, -1)
    assert declared(encoder.output) == wanted(tensors.ENCODER_OUTPUTS, -1)
    assert declared(decoder.input) == wanted(tensors.DECODER_INPUTS)
    assert declared(decoder.output) == wanted(tensors.DECODER_OUTPUTS)


def test_labels_and_sides_are_those_that_the_orchestrator_uses():
    assert (prompts.PADDING_POINT, prompts.NO_POINT) == (tensors.PADDING_POINT, tensors.NO_POINT)
    assert (images.FRAME_SIDE, upscaling.MASK_SIDE) == (tensors.FRAME_SIDE, tensors.MASK_SIDE)


def test_graphs_use_standard_operators_of_supported_versions(model):
    for graph in model.graphs.values():
        assert graph.ir_version <= 10
        versions = {(entry.domain, 17 <= entry.version <= 20) for entry in graph.opset_import}
        assert versions <= {("", True), ("ai.onnx", True)}


def test_images_of_a_batch_are_encoded_alone_and_without_their_padding(small):
    wide, tall = (768, 1024), (1024, 699)
    both = small.encode(
        np.concatenate([frame_with_disc(size_hw)[0] for size_hw in (wide, tall)]), wide, tall
    )
    assert both.shape == (2, 64, 64, small.channels)
    assert np.isfinite(both).all()
    alone = [
        small.encode(frame_with_disc(size_hw, padding=255)[0], size_hw)[0]
        for size_hw in (wide, tall)
    ]
    assert_close(both, alone)


def test_batch_of_prompts_is_decoded_as_single_prompts(small, embedding):
    masks, scores = small.decode(embedding, CLICKS_XY, CLICK_LABELS)
    assert masks.shape == (3, 4, 256, 256)
    for index, (points, labels) in enumerate(zip(CLICKS_XY, CLICK_LABELS, strict=True)):
        assert_close(
            (masks[index : index + 1], scores[index : index + 1]),
            small.decode(embedding, [points], [labels]),
        )


def test_absent_points_are_ignored(small, embedding):
    alone = small.decode(embedding, [[[500, 300]]], [[1]])
    assert_close(
        small.decode(embedding, [[[500, 300], [700, 20], [1e4, -3]]], [[1, -2, -2]]), alone
    )


def test_mask_input_is_shared_per_prompt_or_unused(small, embedding):
    points, labels = [[[500, 300]], [[100, 700]]], [[1], [1]]
    mask = small.decode(embedding, points[:1], labels[:1])[0][:, :1]
    shared = small.decode(embedding, points, labels, mask, [1])
    assert_close(shared, small.decode(embedding, points, labels, np.repeat(mask, 2, 0), [1, 1]))
    own = small.decode(embedding, points, labels, np.concatenate([mask, -mask]), [0, 1])
    assert_close([values[:1] for values in own], small.decode(embedding, points[:1], labels[:1]))
    assert_close(
        [values[1:] for values in own], small.decode(embedding, points[1:], labels[1:], -mask, [1])
    )
    unused = small.decode(embedding, points, labels, np.full_like(mask, 30), [0])
    np.testing.assert_array_equal(unused[0], small.decode(embedding, points, labels)[0])


def test_single_masks_are_the_first_low_res_masks(small, embedding):
    (masks,) = decode(
        session(small.graphs["decoder"], "single_masks"), embedding, CLICKS_XY, CLICK_LABELS
    )
    np.testing.assert_array_equal(masks, small.decode(embedding, CLICKS_XY, CLICK_LABELS)[0][:, :1])


def test_relative_bias_depends_on_absolute_offsets():
    table = np.arange(4, dtype=np.float32).reshape(1, 4)
    np.testing.assert_array_equal(
        relative_bias(table, 2)[0], [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    )


def test_too_few_down_samplings_are_rejected(small_state):
    deep = ("image_encoder.layers.1.downsample", "image_encoder.layers.2", "image_encoder.layers.3")
    shallow = {key: value for key, value in small_state.items() if not key.startswith(deep)}
    with pytest.raises(CheckpointError, match="down-samplings"):
        build_encoder(shallow)


def test_padding_point_has_no_coordinates_and_differs_from_an_absent_point(small):
    embedding = np.random.default_rng(1).standard_normal((1, 64, 64, 64)).astype(np.float16)
    padded, elsewhere, absent = (
        small.decode(embedding, [[[500, 300], second]], [[1, label]])[0]
        for second, label in (([700, 20], -1), ([750, 70], -1), ([700, 20], -2))
    )
    np.testing.assert_array_equal(padded, elsewhere)
    assert np.abs(padded - absent).max() > 1e-3


def check_openvino(decoder: onnx.ModelProto, file: Path, **embedding: tuple[int, ...]) -> None:
    """Compare OpenVINO with ONNX Runtime for changing prompts, on embeddings of these shapes;
    `file` is written.
    """
    run = session(decoder)
    onnx.save(decoder, file)
    request = (
        openvino.Core()
        .compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        .create_infer_request()
    )
    rng = np.random.default_rng(1)
    for points, objects, masks, has_mask in [
        (2, 1, 1, 0),
        (2, 3, 1, 0),
        (2, 1, 1, 0),
        (4, 2, 2, 1),
        (4, 2, 1, 0),
    ]:
        inputs = {
            **{
                name: rng.standard_normal(shape).astype(np.float16)
                for name, shape in embedding.items()
            },
            "point_coords": rng.uniform(0, 1024, (objects, points, 2)).astype(np.float32),
            "point_labels": rng.integers(0, 4, (objects, points)).astype(np.float32),
            "mask_input": rng.standard_normal((masks, 1, 256, 256)).astype(np.float32),
            "has_mask_input": np.full(masks, has_mask, np.float32),
        }
        answer = request.infer(inputs)
        for name, expected in zip(("low_res_masks", "iou_predictions"), run(**inputs), strict=True):
            np.testing.assert_allclose(answer[name], expected, atol=1e-4 * np.abs(expected).max())


def test_openvino_matches_for_changing_numbers_of_prompts_and_masks(small, tmp_path):
    check_openvino(
        small.graphs["decoder"], tmp_path / "decoder.onnx", image_embeddings=(1, 64, 64, 64)
    )


@pytest.mark.parametrize(
    ("points", "labels"),
    [([[500, 300]], [1]), ([[350, 150], [650, 450]], [2, 3]), ([[450, 330], [100, 100]], [1, 0])],
    ids=["click", "box", "positive and negative click"],
)
def test_builtin_model_segments_a_disc(builtin, points, labels):
    image, disc = frame_with_disc()
    masks, scores = builtin.decode(builtin.encode(image, (768, 1024)), [points], [labels])
    found = np.kron(masks[0, 0] > 0, np.ones((4, 4), bool))[:768, :1024]
    assert (found & disc).sum() / (found | disc).sum() > 0.85
    assert 0.7 < scores[0, 0] <= 1
