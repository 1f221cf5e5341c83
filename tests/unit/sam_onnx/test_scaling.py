"""Scaling in a graph: the same pixels as Pillow's."""

import numpy as np
import pytest
import spox
from PIL import Image

from orchestrator.images import LONGEST_SIDE, Preprocessing
from sam_onnx import model as networks
from sam_onnx.scaling import scaled_frame, with_scaling
from tests.unit.sam_onnx.conftest import session

SIDE = 64
"""Side of the frame in most tests: the graph does not depend on it, but its time does."""
SQUASHED = Preprocessing(SIDE, "squash")


@pytest.fixture(scope="module")
def scale():
    return session(spox.build(*scaled_frame(SIDE)))


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height * 7919 + width).integers(
        0, 256, (height, width, 3), dtype=np.uint8
    )


def scaled(scale, pixels, size_hw, box_xyxy=None) -> np.ndarray:
    height, width, _ = pixels.shape
    (frame,) = scale(
        pixels=pixels,
        box_xyxy=np.array(box_xyxy or (0, 0, width, height), np.float32),
        frame_hw=np.array(size_hw, np.int32),
    )
    return np.asarray(frame[0])


def test_200_sizes_have_pillows_pixels(scale):
    random = np.random.default_rng(0)
    sizes = [(1, 1), (1, 300), (300, 1), (2, 3), (SIDE, SIDE), (SIDE, SIDE - 1), (63, 65)]
    sizes += [tuple(size) for size in (10 ** random.uniform(0, 2.9, (193, 2))).astype(int)]
    for preprocessing in (Preprocessing(SIDE), SQUASHED):
        for size_hw in sizes:
            pixels = noise(*size_hw)
            frame = preprocessing.frame(pixels)
            found = scaled(scale, pixels, frame.size_hw)
            assert np.array_equal(found, frame.pixels), (size_hw, preprocessing)


@pytest.mark.parametrize(
    "box_xyxy", [(10.3, 20.7, 190.2, 133.9), (0, 0, 1, 1), (1.5, 2, 199, 150), (99, 0, 200, 75.25)]
)
def test_part_of_an_image_has_pillows_pixels(scale, box_xyxy):
    pixels = noise(150, 200)
    for size_hw in ((SIDE, SIDE), (20, SIDE), (SIDE, 1)):
        found = scaled(scale, pixels, size_hw, box_xyxy)
        resized = Image.fromarray(pixels).resize(size_hw[::-1], Image.Resampling.BILINEAR, box_xyxy)
        height, width = size_hw
        assert np.array_equal(found[:height, :width], np.asarray(resized))
        assert not found[height:].any()
        assert not found[:, width:].any()


@pytest.mark.slow
@pytest.mark.parametrize("size_hw", [(1200, 1800), (5000, 5000), (700, 1024)], ids=str)
def test_photograph_has_pillows_pixels_in_a_full_frame(size_hw):
    pixels = noise(*size_hw)
    frame = LONGEST_SIDE.frame(pixels)
    found = scaled(session(spox.build(*scaled_frame(1024))), pixels, frame.size_hw)
    assert np.array_equal(found, frame.pixels)


def test_encoder_with_scaling_makes_the_embedding_of_the_frame():
    encoder = networks.builtin()[1][0]
    pixels = noise(90, 120)
    frame = LONGEST_SIDE.frame(pixels)
    (expected,) = session(encoder)(
        images=frame.pixels[None], sizes_hw=np.array([frame.size_hw], np.int32)
    )
    (found,) = session(with_scaling(encoder))(
        pixels=pixels,
        box_xyxy=np.array([0, 0, 120, 90], np.float32),
        frame_hw=np.array(frame.size_hw, np.int32),
    )
    np.testing.assert_allclose(found, expected, atol=0.01)  # of up to 15, in float16
