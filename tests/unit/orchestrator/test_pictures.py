"""The picture part of an answer, and PNG files read back by Pillow and OpenCV."""

import io
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from orchestrator import pictures
from orchestrator.pictures import (
    Picture,
    Strip,
    bilevel_rows,
    encode_bilevel_png,
    encode_png,
    overlay,
)

IMAGE = np.full((40, 60, 3), (100, 150, 200), np.uint8)
IMAGE.flags.writeable = False


def box(x0: int, y0: int, x1: int, y1: int, size_hw: tuple[int, int] = (40, 60)) -> np.ndarray:
    """Return a mask that is true inside a box."""
    mask = np.zeros(size_hw, bool)
    mask[y0:y1, x0:x1] = True
    return mask


MASK = box(10, 10, 30, 30)


def drawn(style: str, *masks: np.ndarray, image: np.ndarray = IMAGE) -> Image.Image:
    picture = Picture(image, style)
    for mask in masks:
        picture.add(mask)
    return Image.open(io.BytesIO(picture.encode()))


def overlaid(*masks: np.ndarray, image: np.ndarray = IMAGE) -> np.ndarray:
    return np.asarray(drawn("overlay", *masks, image=image))


def test_overlay_tints_only_the_object():
    picture = drawn("overlay", MASK)
    assert (picture.format, picture.mode, picture.size) == ("PNG", "RGB", (60, 40))
    pixels = np.asarray(picture).astype(int)
    tint = (np.array(pictures.COLOURS[0]) + IMAGE[0, 0]) / 2
    assert np.abs(pixels[20, 20] - tint).max() <= 1
    assert np.array_equal(pixels[35:, 35:], IMAGE[35:, 35:])


def test_overlay_changes_only_pixels_near_the_mask_and_returns_their_rows():
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    picture, mask = image.copy(), box(40, 30, 70, 50, (90, 120))
    rows = overlay(picture, mask, (255, 0, 0))
    changed = (picture != image).any(axis=2)
    assert changed[mask].all()
    assert (changed & ~mask).any()
    assert not (changed & ~box(38, 28, 72, 52, (90, 120))).any()
    changed[rows] = False
    assert not changed.any()


def test_object_colours_repeat_after_the_last():
    places = range(0, 20 * (len(pictures.COLOURS) + 1), 20)
    masks = [box(x + 5, 5, x + 15, 15, (20, 200)) for x in places]
    pixels = overlaid(*masks, image=np.zeros((20, 200, 3), np.uint8))
    shades = [tuple(pixels[10, x + 10].tolist()) for x in places]
    assert len(set(shades)) == len(pictures.COLOURS)
    assert shades[0] == shades[-1]
    # The later one is on top.
    assert overlaid(MASK, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()


def test_cutout_is_transparent_outside_all_objects():
    other = box(40, 25, 55, 38)
    picture = drawn("cutout", MASK, other)
    assert picture.mode == "RGBA"
    pixels = np.asarray(picture)
    assert np.array_equal(pixels[..., 3], np.where(MASK | other, 255, 0))
    assert np.array_equal(pixels[..., :3], IMAGE)


def test_empty_mask_draws_nothing_but_uses_a_colour():
    empty = np.zeros_like(MASK)
    assert np.array_equal(overlaid(empty), IMAGE)
    assert not np.asarray(drawn("cutout", empty))[..., 3].any()
    assert overlaid(empty, MASK)[20, 20].tolist() != overlaid(MASK)[20, 20].tolist()


def test_outline_does_not_follow_the_image_edge():
    pixels = overlaid(box(0, 0, 30, 40))
    changed = (pixels != IMAGE).any(axis=2)
    assert changed[:, 30].all()
    assert not changed[:, 35:].any()
    assert {(255, 255, 255), pictures.COLOURS[0]} <= {tuple(pixel) for pixel in pixels[20].tolist()}
    assert pixels[0, 5].tolist() == pixels[20, 5].tolist()


@pytest.mark.parametrize("style", ["overlay", "cutout"])
def test_picture_of_one_pixel(style):
    for value in (False, True):
        assert drawn(style, np.full((1, 1), value), image=IMAGE[:1, :1]).size == (1, 1)


@pytest.mark.parametrize("limit", [0, 10**6], ids=["image too large to keep strips", "strips kept"])
def test_overlays_of_one_image_share_its_compressed_strips(monkeypatch, limit):
    monkeypatch.setattr(pictures, "STRIP_BYTES", 5 * 60 * 3)
    monkeypatch.setattr(pictures, "MAX_KEPT_PIXELS", limit)
    image, strips = (
        np.random.default_rng(0).integers(0, 256, IMAGE.shape, np.uint8),
        dict[int, Strip](),
    )
    for masks in ([MASK], [box(0, 0, 5, 5), box(50, 35, 60, 40)], [], [np.ones_like(MASK)], [MASK]):
        picture = Picture(image, "overlay", strips)
        for mask in masks:
            picture.add(mask)
        assert np.array_equal(
            np.asarray(Image.open(io.BytesIO(picture.encode()))), overlaid(*masks, image=image)
        )
    assert sorted(strips) == (list(range(0, 40, 5)) if limit else [])


SIZES = [(1, 1), (1, 37), (41, 1), (13, 17), (333, 501)]


def noise(size_hw: tuple[int, int], channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (*size_hw, channels), dtype=np.uint8)


@pytest.mark.parametrize(("channels", "mode"), [(3, "RGB"), (4, "RGBA")])
@pytest.mark.parametrize("size_hw", SIZES)
@pytest.mark.parametrize("kind", ["noise", "gradient", "white"])
def test_png_round_trip_is_exact(kind, size_hw, channels, mode):
    wanted = noise(size_hw, channels)
    if kind != "noise":
        wanted = np.indices(wanted.shape).sum(axis=0).astype(np.uint8) | np.uint8(
            255 * (kind == "white")
        )
    data = encode_png(np.pad(wanted, ((1, 2), (3, 4), (0, 0)))[1:-2, 3:-4])  # not contiguous
    picture = Image.open(io.BytesIO(data))
    assert (picture.format, picture.mode, picture.size) == ("PNG", mode, size_hw[::-1])
    assert np.array_equal(np.asarray(picture), wanted)
    order = [2, 1, 0, 3][:channels]  # OpenCV's channel order
    found = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert np.array_equal(found, wanted[:, :, order])
    assert kind == "noise" or len(data) < 500 + wanted.size / 10


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    height=st.integers(1, 300),
    width=st.integers(1, 50),
    drawn=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=4),
)
def test_png_with_kept_strips_is_the_same_file(height, width, drawn):
    """Pictures drawn one after another on the same rows of a common image, with strips of a few
    rows.
    """
    image, kept = noise((height, width)), dict[int, Strip]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pictures, "STRIP_BYTES", 2000)
        for top, bottom in drawn:
            changed = np.zeros(height, bool)
            changed[top:bottom] = True
            picture = np.where(changed[:, None, None], 255 - image, image)
            assert encode_png(picture, changed, kept) == encode_png(picture)


def test_kept_strips_are_those_without_changed_rows_and_are_used(monkeypatch):
    monkeypatch.setattr(pictures, "STRIP_BYTES", 10 * 3 * 10)
    image, changed = noise((100, 10)), np.zeros(100, bool)
    changed[35:40] = True
    kept: dict[int, Strip] = {}
    encode_png(image, changed, kept)
    # Rows 40 to 49 are stored as differences from row 39.
    assert sorted(kept) == [
        0,
        10,
        20,
        50,
        60,
        70,
        80,
        90,
    ]
    encode_png(image, np.zeros(100, bool), kept)
    assert encode_png(np.zeros_like(image), np.zeros(100, bool), kept) == encode_png(image)


@pytest.mark.parametrize(
    "data",
    [
        encode_png(noise((9, 7))),
        encode_bilevel_png([bilevel_rows(np.packbits(np.eye(9, dtype=bool), axis=1))], 9),
    ],
    ids=["RGB", "bilevel"],
)
def test_png_chunks_and_their_stream_have_valid_checksums(data):
    chunks, place = [], 8
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        body, checksum = (
            data[place + 4 : place + 8 + length],
            data[place + 8 + length : place + 12 + length],
        )
        assert zlib.crc32(body) == int.from_bytes(checksum, "big")
        chunks.append((body[:4], body[4:]))
        place += 12 + length
    assert place == len(data)
    kinds = [kind for kind, _ in chunks]
    assert kinds == [b"IHDR", *[b"IDAT"] * (len(chunks) - 2), b"IEND"]
    # Verifies Adler-32.
    assert zlib.decompress(b"".join(body for kind, body in chunks if kind == b"IDAT"))
