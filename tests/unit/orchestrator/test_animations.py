"""Animations of 25 megapixels: the first frame is the image, and no other one is decoded."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin, _webp

from orchestrator.images import decode, open_image
from orchestrator.problems import Rejected

SIDE = 5000
MAX_PIXELS = SIDE * SIDE
FRAMES = 300
FIRST, LATER = (200, 30, 30), (30, 200, 30)


def riff_chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def u24(number: int) -> bytes:
    return struct.pack("<I", number)[:3]


def webp(frame_side: int, side: int = SIDE) -> bytes:
    """Return an animated WebP with a large canvas and square frames."""
    frames = b""
    for colour in (FIRST, LATER):
        still = io.BytesIO()
        Image.new("RGB", (frame_side, frame_side), colour).save(still, "WEBP", lossless=True)
        head = u24(0) * 2 + u24(frame_side - 1) * 2 + u24(100) + b"\0"
        frame = riff_chunk(b"ANMF", head + still.getvalue()[12:])
        frames += frame if colour == FIRST else frame * (FRAMES - 1)
    canvas = riff_chunk(b"VP8X", bytes([2, 0, 0, 0]) + u24(side - 1) * 2)
    body = b"WEBP" + canvas + riff_chunk(b"ANIM", bytes(6)) + frames
    return b"RIFF" + struct.pack("<I", len(body)) + body


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def apng(side: int = SIDE, *, bits: int = 8) -> bytes:
    """Return an animated PNG whose frames have the size of the canvas."""

    def pixels(colour: tuple[int, int, int]) -> bytes:
        line = (
            b"\0" + bytes(colour) * side
            if bits == 8
            else b"\0" + np.full(side * 3, 700, ">u2").tobytes()
        )
        return zlib.compress(line * side, 1)

    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, bits, 2, 0, 0, 0))
    parts = [b"\x89PNG\r\n\x1a\n", header, png_chunk(b"acTL", struct.pack(">II", FRAMES, 0))]
    control = struct.pack(">IIIIHHBB", side, side, 0, 0, 1, 10, 0, 0)
    parts += [png_chunk(b"fcTL", struct.pack(">I", 0) + control), png_chunk(b"IDAT", pixels(FIRST))]
    later = pixels(LATER)
    for number in range(1, 2 * FRAMES - 1, 2):
        parts.append(png_chunk(b"fcTL", struct.pack(">I", number) + control))
        parts.append(png_chunk(b"fdAT", struct.pack(">I", number + 1) + later))
    return b"".join([*parts, png_chunk(b"IEND", b"")])


@pytest.fixture
def decoded_frames(monkeypatch) -> list[str]:
    """Formats of the frames that are decoded, in their order."""
    frames: list[str] = []
    decoder = _webp.WebPAnimDecoder

    class Counting:
        def __init__(self, data: bytes) -> None:
            self._decoder = decoder(data)

        def get_next(self) -> object:
            frames.append("WEBP")
            return self._decoder.get_next()

        def __getattr__(self, name: str) -> object:
            return getattr(self._decoder, name)

    monkeypatch.setattr(_webp, "WebPAnimDecoder", Counting)
    prepare = PngImagePlugin.PngImageFile.load_prepare

    def counted(image: PngImagePlugin.PngImageFile) -> None:
        frames.append("PNG")
        prepare(image)

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load_prepare", counted)
    return frames


@pytest.mark.parametrize(
    ("make", "kind"),
    [(lambda: webp(SIDE), "WEBP"), (lambda: webp(16), "WEBP"), (apng, "PNG")],
    ids=["webp", "webp with small frames", "png"],
)
def test_first_frame_is_the_image_and_the_only_one_that_is_decoded(make, kind, decoded_frames):
    file = make()
    pixels, sample_range = decode(open_image(file, MAX_PIXELS))
    assert pixels.shape == (SIDE, SIDE, 3)
    assert tuple(pixels[0, 0]) == FIRST
    assert sample_range is None
    assert decoded_frames == [kind]


def test_first_frame_of_16_bits_is_the_image():
    pixels, sample_range = decode(open_image(apng(64, bits=16), MAX_PIXELS))
    assert pixels.shape == (64, 64, 3)
    assert sample_range is not None


def test_canvas_counts_not_the_frame():
    file = webp(16, 65)
    assert open_image(file, 65 * 65).size_hw == (65, 65)
    with pytest.raises(Rejected, match="image-too-large"):
        open_image(file, 65 * 65 - 1)


def test_gif_is_refused():
    file = io.BytesIO()
    frames = [Image.new("P", (SIDE, SIDE), number) for number in range(2)]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    with pytest.raises(Rejected, match=r"unsupported-image-format.*GIF"):
        open_image(file.getvalue(), MAX_PIXELS)
