"""Orientation of image files: the service turns them as a browser does, and so does the client."""

import numpy as np
import pytest

from mobile_sam_client import _orientation as clients
from mobile_sam_client._images import displayed_pixels, displayed_wh
from orchestrator import images, orientation
from orchestrator.problems import Rejected
from tests.oriented_files import (
    FILES,
    SIX_CHUNK,
    chunk,
    entry,
    exif,
    ifd,
    jpeg,
    orientations_shown,
    png,
    tiff,
)

MAX_PIXELS = 10_000
UNREADABLE = {
    "JPEG, a marker without a length before",
    "PNG, wrong checksum",
    "PNG, wrong checksum and 3",
    "PNG, wrong checksum of another chunk",
}
"""Files that Pillow refuses, unlike a browser."""
READABLE = {name: case for name, case in FILES.items() if name not in UNREADABLE}


@pytest.mark.parametrize(("expected", "file"), FILES.values(), ids=FILES)
def test_orientation_is_the_browsers_in_service_and_client(expected, file):
    assert orientation.read_orientation(file) == expected
    assert clients.read_orientation(file) == expected


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # about EXIF
@pytest.mark.parametrize(("expected", "file"), READABLE.values(), ids=READABLE)
def test_pixels_and_size_are_turned_alike_in_service_and_client(expected, file):
    opened = images.open_image(file, MAX_PIXELS)
    pixels, _ = images.decode(opened)
    assert orientations_shown(pixels) == [expected]
    assert opened.orientation == expected
    assert opened.size_hw == pixels.shape[:2]
    np.testing.assert_array_equal(displayed_pixels(file), pixels)
    assert displayed_wh(file) == opened.size_hw[::-1]


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_files_that_pillow_refuses_are_refused_and_not_turned_otherwise(name):
    with pytest.raises(Rejected):
        images.open_image(FILES[name][1], MAX_PIXELS)
    with pytest.raises(ValueError, match="Pillow"):
        displayed_pixels(FILES[name][1])


def random_damage(file: bytes, generator: np.random.Generator) -> bytes:
    """Return a file with some of its first 200 bytes changed, or cut."""
    damaged = bytearray(file)
    for offset in generator.integers(0, min(len(file), 200), 3):
        damaged[offset] = generator.integers(0, 256)
    return bytes(damaged[: generator.integers(1, len(damaged) + 1)])


def test_service_and_client_agree_on_damaged_files():
    generator = np.random.default_rng(0)
    small = [file for _, file in FILES.values() if len(file) < 10_000]
    found = set()
    for _ in range(5000):
        file = random_damage(small[generator.integers(len(small))], generator)
        read = orientation.read_orientation(file)
        assert read == clients.read_orientation(file)
        found.add(read)
    assert found == set(range(1, 9))


@pytest.mark.parametrize(
    "file", [b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe1", b"GIF89a", SIX_CHUNK]
)
def test_files_without_an_image_have_the_normal_orientation(file):
    assert orientation.read_orientation(file) == 1


def test_directories_that_name_each_other_are_read_once():
    names_itself = ifd([entry(0x8769, 8, 4)] * 65_000)
    assert orientation.read_orientation(png(chunk(b"eXIf", tiff(names_itself)))) == 1
    assert orientation.read_orientation(jpeg(exif(tiff(names_itself[:60_000])))) == 1
