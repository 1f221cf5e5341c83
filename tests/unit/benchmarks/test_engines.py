"""Networks in float16, as the gate compares them."""

import numpy as np
import onnx

from benchmarks.engines import ONNX_RUNTIME, ONNX_RUNTIME_F16, half_precision, load

PROMPT: dict[str, np.ndarray] = {
    "point_coords": np.array([[[300, 200], [0, 0]], [[700, 600], [0, 0]]], np.float32),
    "point_labels": np.array([[1, -1], [1, -1]], np.float32),
    "mask_input": np.zeros((1, 1, 256, 256), np.float32),
    "has_mask_input": np.zeros(1, np.float32),
}


def test_networks_in_float16_have_nearly_the_same_masks(builtin_repository):
    pixels = np.random.default_rng(0).integers(0, 256, (1, 1024, 1024, 3), dtype=np.uint8)
    image: dict[str, np.ndarray] = {"images": pixels, "sizes_hw": np.array([[700, 1024]], np.int32)}
    masks = []
    for engine in (ONNX_RUNTIME, ONNX_RUNTIME_F16):
        (embedding,) = load(builtin_repository, "encoder", engine)(["image_embeddings"], image)
        assert embedding.dtype == np.float16
        decode = load(builtin_repository, "decoder", engine)
        (logits,) = decode(["low_res_masks"], {"image_embeddings": embedding, **PROMPT})
        assert logits.dtype == np.float32
        masks.append(logits > 0)
    assert 0 < np.mean(masks[0] != masks[1]) < 0.02


def test_weights_in_float16_take_little_more_than_half(builtin_repository):
    path = builtin_repository / "mobile_sam_decoder" / "1" / "model.onnx"
    before, after = onnx.load(path), half_precision(onnx.load(path))
    names = [[value.name for value in network.graph.input] for network in (before, after)]
    assert names[0] == names[1]
    assert after.ByteSize() < 0.7 * before.ByteSize()
