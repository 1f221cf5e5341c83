"""PNG files with samples of 16 bits: the page shows them with the values that the service sees."""

import base64
import io
import struct
import zlib

import cv2
import numpy as np
import pytest
from PIL import Image

from orchestrator import images
from tests.oriented_files import chunk
from tests.unit.page.formats import FormatError, run

SIZE_HW = (37, 53)
KINDS = {1: 0, 2: 4, 3: 2, 4: 6}
"""PNG's colour type by number of samples."""
PASSES = [
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
]


def paeth(left: int, above: int, corner: int) -> int:
    guess = left + above - corner
    return min((left, above, corner), key=lambda neighbour: abs(guess - neighbour))


def filtered(row: bytes, above: bytes, step: int, kind: int) -> bytes:
    """Return a row of a PNG file after a filter."""
    made = bytearray([kind])
    for at, value in enumerate(row):
        left, corner = (row[at - step], above[at - step]) if at >= step else (0, 0)
        expected = (0, left, above[at], (left + above[at]) // 2, paeth(left, above[at], corner))[
            kind
        ]
        made.append((value - expected) % 256)
    return bytes(made)


def rows_of(values: np.ndarray) -> bytes:
    """Return the rows of pixels, (H, W, C) uint16, with every filter of PNG in turn."""
    height, width, samples = values.shape
    rows = [values[y].astype(">u2").tobytes() for y in range(height)]
    above = [bytes(2 * width * samples), *rows]
    return b"".join(filtered(row, above[y], 2 * samples, y % 5) for y, row in enumerate(rows))


def png16(values: np.ndarray, *, interlaced: bool = False) -> bytes:
    """Return a PNG file of pixels, (H, W, C) uint16."""
    height, width, samples = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, KINDS[samples], 0, 0, int(interlaced))
    parts = [values]
    if interlaced:
        parts = [values[top::down, left::right] for left, top, right, down in PASSES]
    pixels = zlib.compress(b"".join(rows_of(part) for part in parts if part.size))
    chunks = [chunk(b"IHDR", header), chunk(b"IDAT", pixels), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def seen(file: bytes) -> tuple[np.ndarray, list[int]]:
    """Return the picture that the service sees, (H, W, 3) uint8 RGB, and its range."""
    picture, limits = images.decode(images.open_image(file, 10_000))
    assert limits is not None
    return picture, list(limits)


def stretch(file: bytes, orientation: int = 1, **given) -> tuple[dict, np.ndarray]:
    """Return what the page makes of a file, and its picture, (H, W, 4) uint8 RGBA."""
    found = run(
        "stretch", content=base64.b64encode(file).decode(), orientation=orientation, **given
    )
    pixels = np.frombuffer(base64.b64decode(found["picture"]), np.uint8)
    return found, pixels.reshape(found["height"], found["width"], 4)


def noise(samples: int, low: int, high: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(
        low, high, (*SIZE_HW, samples), np.uint16, endpoint=True
    )


def bell(samples: int, centre: float, spread: float) -> np.ndarray:
    values = np.random.default_rng(samples).normal(centre, spread, (*SIZE_HW, samples))
    return values.clip(0, 65535).astype(np.uint16)


def two_values(low: int, high: int, share: float) -> np.ndarray:
    """Return an image in which a share of the pixels has the higher value."""
    values = np.full((*SIZE_HW, 1), low, np.uint16)
    values.reshape(-1)[: round(share * values.size)] = high
    return values


IMAGES = {
    "12 bits": noise(1, 0, 4095),
    "11 bits with alpha": noise(2, 100, 2047),
    "8 bits in 16": noise(3, 0, 255),
    "RGBA around a value": bell(4, 9000, 300),
    "bell": bell(1, 2000, 900),
    "wide": bell(3, 30000, 9000),
    "all values": noise(1, 0, 65535),
    "one value": two_values(700, 700, 0),
    "two values that are neighbours": two_values(700, 701, 0.4),
    "few bright pixels": two_values(10, 40000, 0.0015),
    "range at the limit": two_values(0, 32768, 0.5),
    "range below the limit": two_values(0, 32767, 0.5),
    "single pixel": np.full((1, 1, 1), 77, np.uint16),
    "single row": noise(1, 0, 999)[:1],
}


@pytest.mark.parametrize("interlaced", [False, True], ids=["rows", "interlaced"])
@pytest.mark.parametrize("name", IMAGES)
def test_picture_and_range_are_the_services(name, interlaced):
    file = png16(IMAGES[name], interlaced=interlaced)
    expected, limits = seen(file)
    found, picture = stretch(file)
    assert found["range"] == limits
    assert np.array_equal(picture[..., :3], expected)
    assert (picture[..., 3] == 255).all()


def test_images_of_other_writers_are_read():
    saved = io.BytesIO()
    Image.fromarray(noise(1, 0, 4095)[..., 0]).save(saved, "PNG")
    file = saved.getvalue()
    expected, limits = seen(file)
    found, picture = stretch(file)
    assert (found["samples"], found["range"]) == (1, limits)
    assert np.array_equal(picture[..., :3], expected)


def test_services_without_a_range_see_the_upper_byte():
    values = noise(3, 0, 65535)
    _, picture = stretch(png16(values), range=None)
    assert np.array_equal(picture[..., :3], values >> 8)


def test_halves_are_rounded_up():
    values = np.arange(511, dtype=np.uint16).reshape(1, 511, 1)
    _, picture = stretch(png16(values), range=[0, 510])
    assert np.array_equal(picture[..., 0], (np.arange(511) + 1)[None] // 2)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("samples", [1, 3, 4])
def test_turned_copy_keeps_all_bits(samples, orientation):
    values = noise(samples, 0, 65535)
    found, _ = stretch(png16(values), orientation)
    file = np.frombuffer(base64.b64decode(found["file"]), np.uint8)
    decoded = cv2.imdecode(file, cv2.IMREAD_UNCHANGED)
    turned = values.transpose(1, 0, 2) if orientation >= 5 else values
    flipped = {2: [1], 3: [0, 1], 4: [0], 6: [1], 7: [0, 1], 8: [0]}.get(orientation, [])
    expected = np.flip(turned, flipped)
    # OpenCV returns blue first.
    expected = expected[..., [2, 1, 0, 3][:samples]] if samples > 1 else expected[..., 0]
    assert decoded.dtype == np.uint16
    assert np.array_equal(decoded, expected)


def test_damaged_files_are_refused():
    file = png16(noise(1, 0, 4095))
    start = file.index(b"IDAT") - 4
    with pytest.raises(FormatError, match=r"should have .* bytes"):
        stretch(file[:start] + chunk(b"IDAT", zlib.compress(bytes(99))) + chunk(b"IEND", b""))
    with pytest.raises(FormatError, match="the compressed data is damaged"):
        stretch(file[:start] + chunk(b"IDAT", b"no pixels" * 99) + chunk(b"IEND", b""))
    bad_filter = zlib.compress(bytes([9]) * (SIZE_HW[0] * (2 * SIZE_HW[1] + 1)))
    with pytest.raises(FormatError, match="the PNG image is damaged"):
        stretch(file[:start] + chunk(b"IDAT", bad_filter) + chunk(b"IEND", b""))
