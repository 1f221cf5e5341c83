"""PNG files, read back by Pillow and OpenCV."""

import io
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from orchestrator import png
from orchestrator.png import Strip, encode_bilevel_png, encode_png, pack_mask

SIZES = [(1, 1), (1, 37), (41, 1), (13, 17), (333, 501)]


def noise(size_hw: tuple[int, int], channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*size_hw, channels), dtype=np.uint8)


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("size_hw", SIZES)
@pytest.mark.parametrize("kind", ["noise", "gradient", "white"])
def test_png_round_trip_is_exact(kind, size_hw, channels, mode):
    wanted = noise(size_hw, channels)
    if kind != "noise":
        wanted = np.indices(wanted.shape).sum(axis=0).astype(np.uint8) | np.uint8(255 * (kind == "white"))
    data = encode_png(np.pad(wanted, ((1, 2), (3, 4), (0, 0)))[1:-2, 3:-4])  # not contiguous
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", mode, size_hw[::-1])
    assert np.array_equal(np.asarray(picture), wanted)
    order = [2, 1, 0, 3][:channels]  # OpenCV's channel order
    found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(found, wanted[:, :, order])
    assert kind == "noise" or len(data) < 500 + wanted.size / 10


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    height=st.integers(1, 300),
    width=st.integers(1, 50),
    drawn=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4),
)
def test_png_with_kept_strips_is_the_same_file(height, width, drawn):
    """Pictures drawn one after another on the same rows of a common image, with strips of a few rows."""
    image, kept = noise((height, width)), dict[int, Strip]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(png, "STRIP_BYTES", 2000)
        for top, bottom in drawn:
            changed = np.zeros(height, bool)
            changed[top:bottom] = True
            picture = np.where(changed[:, None, None], 255 - image, image)
            assert encode_png(picture, changed, kept) == encode_png(picture)


def test_kept_strips_are_those_without_changed_rows_and_are_used(monkeypatch):
    monkeypatch.setattr(png, "STRIP_BYTES", 10 * 3 * 10)
    image, changed = noise((100, 10)), np.zeros(100, bool)
    changed[35:40] = True
    kept: dict[int, Strip] = {}
    encode_png(image, changed, kept)
    assert sorted(kept) == [0, 10, 20, 50, 60, 70, 80, 90]  # rows 40 to 49 are stored as differences from row 39
    encode_png(image, np.zeros(100, bool), kept)
    assert encode_png(np.zeros_like(image), np.zeros(100, bool), kept) == encode_png(image)


@pytest.mark.parametrize(
    "data",
    [encode_png(noise((9, 7))), encode_bilevel_png([pack_mask(np.eye(9, dtype=bool))], 9)],
    ids=["RGB", "bilevel"],
)
def test_png_chunks_and_their_stream_have_valid_checksums(data):
    chunks, place = [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        body, checksum = data[place + 4 : place + 8 + length], data[place + 8 + length : place + 12 + length]
        assert zlib.crc32(body) == int.from_bytes(checksum, "big")
        chunks.append((body[:4], body[4:]))
        place += 12 + length
    assert place == len(data)
    kinds = [kind for kind, _ in chunks]
    assert kinds == [b"IHDR", *[b"IDAT"] * (len(chunks) - 2), b"IEND"]
    assert zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))  # verifies Adler-32
