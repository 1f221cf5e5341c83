"""16-bit images: their samples, the range that is shown, and its 8 bits, in the service and in
the client.
"""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from mobile_sam_client import _depth as clients
from mobile_sam_client._images import displayed_pixels
from orchestrator import depth, images
from orchestrator.problems import Rejected
from tests.deep_files import CHANNELS, GREY, GREY_ALPHA, RGB, RGB_ALPHA, deep_png
from tests.oriented_files import chunk

MAX_PIXELS = 10_000_000
PHOTO = Path(__file__).parents[3] / "page" / "samples" / "balloons.jpg"
KINDS = {"grey": GREY, "RGB": RGB, "grey with alpha": GREY_ALPHA, "RGB with alpha": RGB_ALPHA}


def random_samples(
    colour_type: int, low: int = 0, high: int = 65_536, size_hw: tuple[int, int] = (23, 37)
) -> np.ndarray:
    shape = (*size_hw, CHANNELS[colour_type])
    return np.random.default_rng(1).integers(low, high, shape, dtype=np.uint16)


def colours(samples: np.ndarray, colour_type: int) -> np.ndarray:
    """Return the samples without alpha, (H, W, 3) or (H, W)."""
    return samples[..., :3] if colour_type in {RGB, RGB_ALPHA} else samples[..., 0]


def decoded(file: bytes) -> tuple[np.ndarray, tuple[int, int] | None]:
    """Return the pixels and the range of a file, after checking that the client shows the same
    pixels.
    """
    pixels, sample_range = images.decode(images.open_image(file, MAX_PIXELS))
    np.testing.assert_array_equal(displayed_pixels(file), pixels)
    return pixels, sample_range


def grey_file(samples: np.ndarray) -> bytes:
    return deep_png(samples[..., None], GREY)


EXTRAS = {
    "nothing else": (),
    "gamma": (chunk(b"gAMA", struct.pack(">I", 100_000)),),
    "12 significant bits": (chunk(b"sBIT", bytes([12, 12, 12])),),
    "sRGB": (chunk(b"sRGB", b"\0"),),
}


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("chunks", EXTRAS.values(), ids=EXTRAS)
@pytest.mark.parametrize("colour_type", KINDS.values(), ids=KINDS)
def test_samples_are_read_exactly_whatever_else_the_file_has(colour_type, chunks, interlaced):
    samples = random_samples(colour_type)
    file = deep_png(samples, colour_type, *chunks, interlaced=interlaced)
    with Image.open(io.BytesIO(file)) as image:
        assert depth.is_16_bit(image)
        assert clients.is_16_bit(image)
    for read in (depth.read_samples, clients.read_samples):
        np.testing.assert_array_equal(read(file), colours(samples, colour_type), strict=True)


@pytest.mark.parametrize(
    ("colour_type", "values"), [(GREY, (5,)), (RGB, (5, 6, 7))], ids=["grey", "RGB"]
)
def test_a_transparent_colour_changes_no_sample(colour_type, values):
    samples = random_samples(colour_type)
    samples[3, 4] = values
    file = deep_png(samples, colour_type, chunk(b"tRNS", struct.pack(f">{len(values)}H", *values)))
    for read in (depth.read_samples, clients.read_samples):
        np.testing.assert_array_equal(read(file), colours(samples, colour_type), strict=True)


def test_rows_of_large_images_are_read_in_strips(monkeypatch):
    samples = random_samples(RGB, size_hw=(50, 20))
    for pixels in (1, 20, 39, 60, 1000):
        monkeypatch.setattr(depth, "STRIP_PIXELS", pixels)
        file = deep_png(samples, RGB)
        np.testing.assert_array_equal(depth.read_samples(file), samples)
        assert decoded(file)[1] == (0, 65_535)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_8_bit_images_have_no_range_and_their_pixels_unchanged(mode):
    pixels = np.random.default_rng(0).integers(0, 100, (20, 30, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels).convert("L" if mode == "LA" else "RGB").convert(mode)
    file = io.BytesIO()
    picture.save(file, "PNG")
    found, sample_range = decoded(file.getvalue())
    assert sample_range is None
    np.testing.assert_array_equal(found, np.asarray(picture.convert("RGB")))


def by_definition(samples: np.ndarray) -> tuple[int, int]:
    """Return the range of samples by sorting them."""
    ordered = np.sort(samples, axis=None)
    low, high = (int(ordered[-(-samples.size * share // 1000) - 1]) for share in (1, 999))
    return (0, 65_535) if low == high or high - low >= 32_768 else (low, high)


@pytest.mark.parametrize("high", [2, 255, 2048, 4096, 32_000, 40_000, 65_536])
@pytest.mark.parametrize("size_hw", [(1, 1), (1, 7), (30, 33), (50, 60)])
def test_range_is_the_percentiles_or_the_full_one(high, size_hw):
    samples = random_samples(RGB, 0, high, size_hw)
    assert depth.sample_range(samples) == clients.sample_range(samples) == by_definition(samples)


def test_range_of_a_single_value_is_the_full_one():
    assert decoded(grey_file(np.full((5, 4), 3000, np.uint16)))[1] == (0, 65_535)
    assert (
        decoded(grey_file(np.full((5, 4), 0x8040, np.uint16)))[0].tolist() == [[[128] * 3] * 4] * 5
    )


@pytest.mark.parametrize(("width", "shown"), [(32_767, "its own"), (32_768, "the full one")])
def test_half_of_the_full_range_is_enough_for_the_full_one(width, shown):
    samples = np.where(np.arange(100).reshape(10, 10) % 2, 1000, 1000 + width).astype(np.uint16)
    assert depth.sample_range(samples) == (
        (1000, 1000 + width) if shown == "its own" else (0, 65_535)
    )


def test_dead_pixels_do_not_decide_the_range():
    samples = random_samples(GREY, 0, 4096, (100, 100))[..., 0]
    samples[0, :5] = 65_535
    low, high = depth.sample_range(samples)
    assert low < 20
    assert 4080 < high < 4096


@pytest.mark.parametrize("shown", [(0, 65_535), (0, 1), (17, 4095), (1000, 1510), (65_534, 65_535)])
def test_8_bits_are_rounded_half_up_and_clipped(shown):
    low, high = shown
    samples = np.arange(65_536, dtype=np.uint16).reshape(256, 256)
    exact = 255 * ((samples.astype(np.float64) - low) / (high - low)).clip(0, 1)
    expected = np.floor(exact + 0.5 + 1e-9).astype(np.uint8)
    np.testing.assert_array_equal(depth.to_8_bits(samples, shown), expected, strict=True)
    np.testing.assert_array_equal(clients.to_8_bits(samples, shown), expected, strict=True)


def photo(channels: int = 3) -> np.ndarray:
    """Return a photograph in 8 bits that spans its range, (H, W, channels)."""
    with Image.open(PHOTO) as picture:
        pixels = np.asarray(picture.resize((320, 213)))[..., :channels].astype(float)
    low, high = np.percentile(pixels, [0.5, 99.5])
    spread: np.ndarray = np.round(255 * ((pixels - low) / (high - low)).clip(0, 1)).astype(np.uint8)
    return spread


def gradient() -> np.ndarray:
    return np.arange(256, dtype=np.uint8).repeat(12).reshape(32, 96)[..., None].repeat(3, axis=2)


def noise() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (60, 80, 3), dtype=np.uint8)


@pytest.mark.parametrize("make", [photo, gradient, noise])
def test_images_that_use_the_full_range_are_not_stretched(make):
    pixels = make()
    found, sample_range = decoded(deep_png(pixels * np.uint16(257), RGB))
    assert sample_range == (0, 65_535)
    np.testing.assert_array_equal(found, pixels)


@pytest.mark.parametrize("bits", [8, 10, 11, 12, 14])
@pytest.mark.parametrize("colour_type", [GREY, RGB], ids=["grey", "RGB"])
def test_photograph_of_fewer_bits_looks_as_in_8_bits(bits, colour_type):
    pixels = photo(CHANNELS[colour_type])
    samples = np.round(pixels * ((2**bits - 1) / 255)).astype(np.uint16)
    found, sample_range = decoded(deep_png(samples, colour_type))
    assert sample_range == (0, 2**bits - 1)
    assert np.abs(found.astype(int) - pixels).max() <= 1


def test_stretched_images_are_turned():
    samples = random_samples(RGB, 0, 4096, (20, 30))
    exif = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    upright, _ = decoded(deep_png(samples, RGB))
    turned, _ = decoded(deep_png(samples, RGB, chunk(b"eXIf", exif)))
    np.testing.assert_array_equal(turned, np.rot90(upright, -1))


@pytest.mark.parametrize("colour_type", KINDS.values(), ids=KINDS)
def test_truncated_files_are_refused(colour_type):
    file = deep_png(random_samples(colour_type), colour_type)
    with pytest.raises(Rejected) as caught:
        images.decode(images.open_image(file[: len(file) // 2], MAX_PIXELS))
    assert caught.value.slug == "invalid-image"


def test_file_without_pixels_is_refused_in_words():
    file = deep_png(random_samples(RGB), RGB)
    end = file[:33] + chunk(b"IEND", b"")
    with pytest.raises(Rejected) as caught:
        images.decode(images.open_image(end, MAX_PIXELS))
    assert "index" not in caught.value.errors[0]["got"]
    with pytest.raises(ValueError, match="Pillow"):
        displayed_pixels(end)
