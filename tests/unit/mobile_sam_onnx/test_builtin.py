from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from mobile_sam_onnx import CheckpointError
from mobile_sam_onnx.builtin import WEIGHTS, build_decoder, build_encoder, load_weights

ABSENT = -2.0


@pytest.fixture(scope="module")
def graphs():
    state = load_weights()
    return {"encoder": build_encoder(state), "decoder": build_decoder(state)}


@pytest.fixture(scope="module")
def sessions(graphs):
    return {
        name: onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
        for name, graph in graphs.items()
    }


def frame_with_disc(size_hw=(768, 1024), centre_xy=(500, 300), radius=150, padding=0):
    """Return (1, 1024, 1024, 3) uint8: an orange disc on a green ground, top left; `padding` fills the rest."""
    image = np.full((1, 1024, 1024, 3), padding, np.uint8)
    height, width = size_hw
    y, x = np.mgrid[0:height, 0:width]
    disc = (x - centre_xy[0]) ** 2 + (y - centre_xy[1]) ** 2 < radius**2
    grain = np.random.default_rng(0).integers(-8, 9, (height, width, 1))
    image[0, :height, :width] = np.where(disc[..., None], (220, 120, 30), (40, 110, 50)) + grain
    return image, disc


def encode(sessions, image, size_hw=(768, 1024)):
    return sessions["encoder"].run(None, {"images": image, "sizes_hw": np.array([size_hw], np.int32)})[0]


def decode(sessions, embedding, points, labels, mask=None):
    points, labels = np.array(points, np.float32), np.array(labels, np.float32)
    feed = {"image_embeddings": embedding, "point_coords": points, "point_labels": labels}
    feed["mask_input"] = np.zeros((1, 1, 256, 256), np.float32) if mask is None else mask
    feed["has_mask_input"] = np.full(len(feed["mask_input"]), mask is not None, np.float32)
    return sessions["decoder"].run(["low_res_masks", "iou_predictions"], feed)


def signature(values):
    """Return element type and shape by name; free dimensions have names."""
    kinds = {}
    for value in values:
        tensor = value.type.tensor_type
        kinds[value.name] = (tensor.elem_type, tuple(d.dim_param or d.dim_value for d in tensor.shape.dim))
    return kinds


def test_encoder_has_the_declared_signature(graphs):
    graph = graphs["encoder"].graph
    assert signature(graph.input) == {
        "images": (onnx.TensorProto.UINT8, ("N", 1024, 1024, 3)),
        "sizes_hw": (onnx.TensorProto.INT32, ("N", 2)),
    }
    assert signature(graph.output) == {"image_embeddings": (onnx.TensorProto.FLOAT16, ("N", 64, 64, 256))}


def test_decoder_has_the_declared_signature(graphs):
    graph, float32 = graphs["decoder"].graph, onnx.TensorProto.FLOAT
    assert signature(graph.input) == {
        "image_embeddings": (onnx.TensorProto.FLOAT16, (1, 64, 64, 256)),
        "point_coords": (float32, ("N", "P", 2)),
        "point_labels": (float32, ("N", "P")),
        "mask_input": (float32, ("M", 1, 256, 256)),
        "has_mask_input": (float32, ("M",)),
    }
    assert signature(graph.output) == {
        "low_res_masks": (float32, ("N", 4, 256, 256)),
        "single_masks": (float32, ("N", 1, 256, 256)),
        "iou_predictions": (float32, ("N", 4)),
    }


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_graphs_are_valid_and_use_standard_operators(graphs, name):
    model = graphs[name]
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version <= 10
    assert [(entry.domain, 17 <= entry.version <= 20) for entry in model.opset_import] == [("", True)]


def test_builtin_weights_are_small_and_loaded_as_float32():
    assert WEIGHTS.stat().st_size <= 8e6
    assert all(values.dtype == np.float32 for values in load_weights().values())


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 64, (4).to_bytes(8, "little") + b"nope"], ids=["empty", "noise", "no json"]
)
def test_invalid_safetensors_file_is_rejected(tmp_path: Path, content: bytes):
    path = tmp_path / "weights.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"safetensors"):
        load_weights(path)


@pytest.mark.parametrize("size_hw", [(768, 1024), (1024, 699)], ids=["wide", "tall"])
def test_padding_is_ignored(sessions, size_hw):
    black, _ = frame_with_disc(size_hw)
    white, _ = frame_with_disc(size_hw, padding=255)
    np.testing.assert_array_equal(encode(sessions, black, size_hw), encode(sessions, white, size_hw))


def test_batch_of_images_is_encoded_as_single_images(sessions):
    one, _ = frame_with_disc()
    other, _ = frame_with_disc((1024, 512), centre_xy=(200, 600))
    feed = {"images": np.concatenate([one, other]), "sizes_hw": np.array([[768, 1024], [1024, 512]], np.int32)}
    both = sessions["encoder"].run(None, feed)[0]
    np.testing.assert_allclose(both[:1], encode(sessions, one), atol=1e-4)
    np.testing.assert_allclose(both[1:], encode(sessions, other, (1024, 512)), atol=1e-4)


@pytest.mark.parametrize("ignored", [-1.0, ABSENT])
def test_points_with_labels_below_zero_are_ignored(sessions, ignored):
    embedding = encode(sessions, frame_with_disc()[0])
    alone = decode(sessions, embedding, [[[500, 300]]], [[1]])
    padded = decode(sessions, embedding, [[[500, 300], [700, 20], [0, 0]]], [[1, ignored, ignored]])
    for expected, found in zip(alone, padded, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-3)


def test_batch_of_prompts_is_decoded_as_single_prompts(sessions):
    embedding = encode(sessions, frame_with_disc()[0])
    points = [[[500, 300], [0, 0]], [[350, 150], [650, 450]], [[100, 700], [500, 300]]]
    labels = [[1, ABSENT], [2, 3], [1, 0]]
    masks, scores = decode(sessions, embedding, points, labels)
    assert masks.shape == (3, 4, 256, 256)
    assert scores.shape == (3, 4)
    for index in range(3):
        mask, score = decode(sessions, embedding, points[index : index + 1], labels[index : index + 1])
        np.testing.assert_allclose(masks[index : index + 1], mask, atol=1e-3)
        np.testing.assert_allclose(scores[index : index + 1], score, atol=1e-4)


def test_mask_input_is_shared_or_per_prompt(sessions):
    embedding = encode(sessions, frame_with_disc()[0])
    points, labels = [[[500, 300]], [[100, 700]]], [[1], [1]]
    mask = decode(sessions, embedding, points[:1], labels[:1])[0][:, :1]
    shared = decode(sessions, embedding, points, labels, mask)
    repeated = decode(sessions, embedding, points, labels, np.repeat(mask, 2, 0))
    np.testing.assert_allclose(shared[0], repeated[0], atol=1e-4)


def test_mask_input_without_has_mask_is_ignored(sessions):
    embedding = encode(sessions, frame_with_disc()[0])
    feed = {"image_embeddings": embedding, "point_coords": np.array([[[500, 300]]], np.float32)}
    feed |= {"point_labels": np.array([[1]], np.float32), "has_mask_input": np.zeros(1, np.float32)}
    empty, full = (
        sessions["decoder"].run(None, {**feed, "mask_input": np.full((1, 1, 256, 256), value, np.float32)})[0]
        for value in (0, 30)
    )
    np.testing.assert_array_equal(empty, full)


@pytest.mark.parametrize(
    ("points", "labels"),
    [([[500, 300]], [1]), ([[350, 150], [650, 450]], [2, 3]), ([[450, 330], [100, 100]], [1, 0])],
    ids=["click", "box", "positive and negative click"],
)
def test_disc_is_segmented(sessions, points, labels):
    image, disc = frame_with_disc()
    masks, scores = decode(sessions, encode(sessions, image), [points], [labels])
    found = np.zeros((1024, 1024), bool)
    found = np.kron(masks[0, 0] > 0, np.ones((4, 4), bool))[:768, :1024]
    assert (found & disc).sum() / (found | disc).sum() > 0.85
    assert scores[0, 0] > 0.7


def test_scores_are_between_zero_and_one(sessions):
    _, scores = decode(sessions, encode(sessions, frame_with_disc()[0]), [[[3, 3]]], [[0]])
    assert ((scores >= 0) & (scores <= 1)).all()


def own_box(mask) -> tuple[float, float, float, float]:
    """Return the box x0, y0, x1, y1 of a mask (256, 256) in pixels of the frame, to the decoder's 128 cells a side."""
    rows, columns = np.nonzero(mask.reshape(128, 2, 128, 2).mean(axis=(1, 3)) > 0)
    return columns.min() * 8, rows.min() * 8, columns.max() * 8 + 8, rows.max() * 8 + 8


def box_iou(one, other) -> float:
    width = max(0, min(one[2], other[2]) - max(one[0], other[0]))
    height = max(0, min(one[3], other[3]) - max(one[1], other[1]))
    areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in (one, other)]
    return float(width * height / (sum(areas) - width * height))


@pytest.mark.parametrize("seed", range(8))
def test_single_box_selects_mask_by_score_and_box_iou(sessions, seed):
    rng = np.random.default_rng(seed)
    embedding = encode(sessions, frame_with_disc(centre_xy=(400 + 20 * seed, 300))[0])
    x0, y0 = rng.uniform(50, 400), rng.uniform(50, 300)
    box = (x0, y0, x0 + rng.uniform(100, 500), y0 + rng.uniform(100, 400))
    masks, scores = decode(sessions, embedding, [[box[:2], box[2:]]], [[2, 3]])
    ranks = [
        score * box_iou(own_box(mask), box) if (mask > 0).any() else 0
        for mask, score in zip(masks[0] > 0, scores[0], strict=True)
    ]
    # Up-sampling from the decoder's 128 cells moves an edge by at most one cell.
    assert ranks[0] >= max(ranks) - 0.05


def test_single_click_selects_mask_by_score(sessions):
    embedding = encode(sessions, frame_with_disc()[0])
    for point in ([500, 300], [100, 700], [620, 320], [900, 50]):
        _, scores = decode(sessions, embedding, [[point]], [[1]])
        assert scores[0, 0] >= scores[0, 1:].max()
