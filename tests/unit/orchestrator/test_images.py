"""Decoding, limits and scaling of images."""

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
import simplejpeg
from PIL import Image, ImageOps

from orchestrator import images
from orchestrator.problems import Rejected

MAX_PIXELS = 1_000_000


def encoded(image: Image.Image, file_format: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def decoded(data: bytes) -> np.ndarray:
    pixels, _ = images.decode(images.open_image(data, MAX_PIXELS))
    return pixels


def rejection(data: bytes) -> Rejected:
    with pytest.raises(Rejected) as caught:
        decoded(data)
    assert caught.value.errors[0]["field"] == "input_image"
    return caught.value


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_lossless_formats_are_decoded_exactly(file_format):
    pixels = noise(20, 30)
    assert np.array_equal(
        decoded(encoded(Image.fromarray(pixels), file_format, lossless=True)), pixels
    )
    two_colours = pixels // 128 * 255 * np.array([1, 0, 0], np.uint8)
    palette = Image.fromarray(two_colours).quantize(2)
    assert np.array_equal(decoded(encoded(palette, file_format, lossless=True)), two_colours)


@pytest.mark.parametrize(
    ("mode", "value", "expected"),
    [
        pytest.param("L", 77, (77, 77, 77), id="grey"),
        pytest.param("1", 1, (255, 255, 255), id="1 bit"),
        pytest.param("LA", (77, 10), (77, 77, 77), id="grey with alpha"),
        pytest.param("RGBA", (1, 2, 3, 0), (1, 2, 3), id="transparent"),
        pytest.param("I;16", 0x8040, (0x80, 0x80, 0x80), id="16 bit grey"),
    ],
)
def test_png_modes_become_rgb(mode, value, expected):
    assert decoded(encoded(Image.new(mode, (5, 4), value))).tolist() == [[list(expected)] * 5] * 4


def textured(height: int, width: int) -> np.ndarray:
    """Return an image with all spatial frequencies."""
    y, x = np.mgrid[:height, :width].astype(np.float32)
    waves = [
        128 + 90 * np.sin(x * x / 90 + channel) * np.cos(y / (4 + channel)) for channel in range(3)
    ]
    pixels: np.ndarray = (
        (np.stack(waves, axis=2) + noise(height, width) / 8).clip(0, 255).astype(np.uint8)
    )
    return pixels


def by_pillow(data: bytes) -> np.ndarray:
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


@pytest.fixture
def fast(monkeypatch) -> list[bool]:
    """Success of each call of simplejpeg in a test."""
    calls: list[bool] = []
    decode_jpeg = simplejpeg.decode_jpeg

    def counted(*args, **options):
        calls.append(False)
        pixels = decode_jpeg(*args, **options)
        calls[-1] = True
        return pixels

    monkeypatch.setattr(simplejpeg, "decode_jpeg", counted)
    return calls


JPEG_SIZES = [
    (1, 1),
    (1, 40),
    (40, 1),
    (8, 8),
    (15, 17),
    (16, 16),
    (33, 47),
    (100, 150),
    (301, 203),
]


JPEG_OPTIONS: list[dict[str, Any]] = [
    *(
        {"subsampling": kind, "progressive": both}
        for kind in ("4:4:4", "4:2:2", "4:2:0")
        for both in (False, True)
    ),
    {"keep_rgb": True},
    {"restart_marker_rows": 1},
    {"optimize": True},
    {"comment": b"x" * 60_000, "icc_profile": bytes(300_000)},
]


@pytest.mark.parametrize(
    "encode",
    [
        *(
            lambda pixels, options=options: (
                encoded(Image.fromarray(pixels), "JPEG", quality=20, **options) + b"trailer"
            )
            for options in JPEG_OPTIONS
        ),
        lambda pixels: encoded(Image.fromarray(pixels), "JPEG", quality=95),
        lambda pixels: encoded(
            Image.fromarray(pixels), "MPO", save_all=True, append_images=[Image.new("RGB", (9, 9))]
        ),
        lambda pixels: simplejpeg.encode_jpeg(pixels, colorsubsampling="411"),
        lambda pixels: simplejpeg.encode_jpeg(pixels, colorsubsampling="440"),
    ],
    ids=[
        *(" ".join(map(str, options.items()))[:50] for options in JPEG_OPTIONS),
        "quality 95",
        "MPO",
        "411",
        "440",
    ],
)
def test_fast_jpeg_decoding_matches_pillow(fast, encode):
    for size_hw in JPEG_SIZES:
        data = encode(textured(*size_hw))
        assert np.array_equal(decoded(data), by_pillow(data)), size_hw
    assert fast == [True] * len(JPEG_SIZES)


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_jpegs_other_than_rgb_are_decoded_by_pillow(fast, mode):
    data = encoded(Image.fromarray(textured(40, 50)).convert(mode), "JPEG")
    assert np.array_equal(decoded(data), by_pillow(data))
    assert decoded(encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")).min() > 250
    assert not fast


def answer(data: bytes) -> list:
    """Return the pixels or the rejection."""
    try:
        return [decoded(data).tolist()]
    except Rejected as rejected:
        return [rejected.status, *rejected.errors]


@pytest.mark.slow
@pytest.mark.parametrize("progressive", [False, True])
def test_damaged_jpegs_give_the_same_result_as_with_pillow_alone(fast, progressive, monkeypatch):
    whole = encoded(Image.fromarray(textured(40, 50)), "JPEG", progressive=progressive)
    generator = np.random.default_rng(2)
    files = [whole[:length] for length in range(2, len(whole), 97)]
    files += [whole[:length] + b"\xff\xd9" for length in range(600, len(whole), 97)]
    for _ in range(300):
        damaged = bytearray(whole)
        for offset in generator.integers(2, len(whole), 2):
            damaged[offset] = generator.integers(0, 256)
        files.append(bytes(damaged))
    found = [answer(file) for file in files]
    assert {True, False} == set(fast)

    def refuse(*args, **options):
        raise ValueError

    monkeypatch.setattr(simplejpeg, "decode_jpeg", refuse)
    assert found == [answer(file) for file in files]


def test_jpeg_smaller_than_its_header_is_decoded_by_pillow(monkeypatch):
    data = encoded(Image.fromarray(textured(40, 50)), "JPEG")
    monkeypatch.setattr(simplejpeg, "decode_jpeg", lambda data, buffer: buffer[:30])
    assert np.array_equal(decoded(data), by_pillow(data))


@pytest.mark.parametrize("file_format", ["PNG", "JPEG"])
@pytest.mark.parametrize("orientation", [*range(10), 60_000])
@pytest.mark.parametrize("size_hw", [(6, 10), (1, 5), (33, 20)])
def test_exif_orientation_is_applied_as_by_pillow_and_to_the_size_in_the_header(
    size_hw, orientation, file_format
):
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(Image.fromarray(textured(*size_hw)), file_format, exif=exif)
    assert images.open_image(data, 10**6).size_hw == decoded(data).shape[:2]
    assert decoded(data).shape[:2] == (size_hw[::-1] if orientation in range(5, 9) else size_hw)
    assert np.array_equal(decoded(data), by_pillow(data))


@pytest.mark.parametrize(
    ("data", "status", "got"),
    [
        pytest.param(b"", 422, "0 bytes", id="empty"),
        pytest.param(b"hello, this is text", 422, "19 bytes that are not an image", id="text"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "GIF"), 415, "GIF", id="GIF"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "BMP"), 415, "BMP", id="BMP"),
        pytest.param(encoded(Image.new("RGB", (3, 2)), "TIFF"), 415, "TIFF", id="TIFF"),
        pytest.param(b"\0\0\0\x18ftypheic", 415, "HEIF", id="HEIC"),
        pytest.param(
            encoded(Image.new("RGB", (3, 2)))[:20], 422, "truncated PNG", id="truncated PNG header"
        ),
        pytest.param(b"\xff\xd8\xff\xe0", 422, "truncated JPEG", id="JPEG marker only"),
        pytest.param(b"RIFF\x10\x00\x00\x00WEBPVP8 ", 422, "truncated WEBP", id="WebP header only"),
    ],
)
def test_unsupported_and_invalid_files_are_rejected(data, status, got):
    rejected = rejection(data)
    assert rejected.status == status
    assert got in rejected.errors[0]["got"]


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(pixels: bytes, width: int, height: int, *extra: bytes) -> bytes:
    """Return an 8-bit grey PNG file with extra chunks before its compressed pixels."""
    first = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + first
        + b"".join(extra)
        + chunk(b"IDAT", pixels)
        + chunk(b"IEND", b"")
    )


def test_png_with_missing_or_damaged_pixels_is_rejected():
    rows = zlib.compress((b"\0" + bytes(range(100))) * 100)
    assert decoded(png(rows, 100, 100)).shape == (100, 100, 3)
    zeroed = rows[:60] + bytes(40) + rows[100:]
    for pixels in (rows[:50], b"", zeroed):
        rejected = rejection(png(pixels, 100, 100))
        assert (rejected.status, rejected.slug) == (422, "invalid-image")


@pytest.mark.parametrize("name", [b"zTXt", b"iCCP"])
def test_large_metadata_is_accepted_and_not_decompressed(name):
    metadata = chunk(name, b"profile\0\0" + zlib.compress(bytes(5 * 2**20)))
    opened = images.open_image(
        png(zlib.compress(bytes(101) * 100), 100, 100, *[metadata] * 3), MAX_PIXELS
    )
    assert images.decode(opened)[0].shape == (100, 100, 3)
    assert (
        sum(len(value) for value in opened.image.info.values() if isinstance(value, (bytes, str)))
        == 0
    )


def test_png_with_too_many_chunks_is_rejected():
    parts = [chunk(b"teSt", b"")] * (images.MAX_CHUNKS - 3)
    rows = zlib.compress(bytes(11) * 10)
    assert decoded(png(rows, 10, 10, *parts)).shape == (10, 10, 3)
    rejected = rejection(png(rows, 10, 10, *parts, parts[0]))
    assert rejected.status == 422
    assert rejected.errors[0]["expected"] == f"a PNG file of at most {images.MAX_CHUNKS} chunks"


def repeat_last_scan(count: int) -> bytes:
    """Return a progressive JPEG of 10 scans with `count` more copies of the last one."""
    data = encoded(Image.new("RGB", (40, 30)), "JPEG", progressive=True)
    assert data.count(b"\xff\xda") == 10
    return data[:-2] + data[data.rindex(b"\xff\xda") : -2] * count + b"\xff\xd9"


@pytest.mark.parametrize(
    "trailer", [b"", b"\xff\xda" * 1000], ids=["no trailer", "markers after the end"]
)
def test_jpeg_with_too_many_scans_is_rejected(trailer):
    assert decoded(repeat_last_scan(images.MAX_SCANS - 10) + trailer).shape == (30, 40, 3)
    rejected = rejection(repeat_last_scan(images.MAX_SCANS - 9) + trailer)
    assert rejected.status == 422
    expected = "a JPEG file of at most 1000 segments, 50 scans and 100000 bytes outside them"
    assert rejected.errors[0]["expected"] == expected
    data = encoded(Image.new("RGB", (40, 30)), "JPEG")
    of_one_component = b"\xff\xda\0\x08\1\1\0\0\x3f\0" * 51
    assert (
        rejection(data[: data.index(b"\xff\xda")] + of_one_component + b"\xff\xd9").errors[0]["got"]
        == "more"
    )


@pytest.mark.parametrize(
    "prefix",
    [b"", b"\xff\xd9", b"\xff\xf0\xff\xff", b"\xff\xfe\0\0", b"junk\xff\xff\xff"],
    ids=repr,
)
def test_jpeg_with_too_many_segments_is_rejected(prefix):
    data = encoded(Image.new("RGB", (40, 30)), "JPEG")
    segments = b"\xff\xe1\0\x09Exif\0\0x" * images.MAX_SEGMENTS
    rejected = rejection(data[:20] + prefix + segments + data[20:])
    assert rejected.status == 422
    assert rejected.errors[0]["got"] == "more"


@pytest.mark.parametrize("junk", [b"\0", b"\xff", b"\xff\0", b"\xff\xd0"], ids=repr)
def test_jpeg_with_too_much_junk_is_rejected(junk):
    data = encoded(Image.new("RGB", (40, 30)), "JPEG")
    some, much = (
        junk * (count // len(junk))
        for count in (images.MAX_JUNK_BYTES - 1, images.MAX_JUNK_BYTES + 2)
    )
    assert decoded(data[:20] + some + data[20:]).shape == (30, 40, 3)
    assert decoded(data + much).shape == (30, 40, 3)
    for file in (data[:20] + much + data[20:], data[:20] + much):
        assert rejection(file).errors[0]["got"] == "more"


@pytest.mark.parametrize("size", [(70_000, 1), (1, 70_000)])
def test_image_with_a_side_above_the_limit_is_rejected(size):
    rejected = rejection(encoded(Image.new("1", size)))
    assert rejected.status == 413
    assert rejected.errors[0]["expected"] == "sides of at most 65535 pixels"


@pytest.mark.slow
def test_image_with_too_many_pixels_is_rejected_by_its_header():
    header = encoded(Image.new("1", (30_000, 30_000)))[:200]
    rejected = rejection(header)
    assert (rejected.status, rejected.slug) == (413, "image-too-large")
    assert rejected.errors[0] == {
        "field": "input_image",
        "expected": (
            "at most 1000000 pixels (the client's max_side, or --max-side, scales larger images"
            " down)"
        ),
        "got": "30000 x 30000 = 900000000",
    }


@pytest.mark.parametrize(
    ("size_hw", "frame_hw"),
    [
        ((1, 1), (1024, 1024)),
        ((1200, 1800), (683, 1024)),
        ((4000, 3), (1024, 1)),
        ((1, 5000), (1, 1024)),
    ],
)
def test_longest_side_becomes_1024(size_hw, frame_hw):
    assert images.LONGEST_SIDE.size_in_frame(size_hw) == frame_hw


FRAME_SIZES = [
    (1, 1),
    (1, 5000),
    (5000, 1),
    (7, 5),
    (427, 640),
    (683, 1024),
    (1024, 1023),
    (1024, 1024),
    (1501, 999),
]


@pytest.mark.parametrize("size_hw", FRAME_SIZES)
def test_frame_scaling_matches_pillow(size_hw):
    pixels = textured(size_hw[0] + 1, size_hw[1] + 1)[1:, 1:]  # not contiguous
    frame = images.LONGEST_SIDE.frame(pixels)
    height, width = frame.size_hw
    wanted = Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR)
    assert np.array_equal(frame.pixels[:height, :width], np.asarray(wanted))
    assert not frame.pixels[height:].any()
    assert not frame.pixels[:, width:].any()
    assert not np.shares_memory(frame.pixels, pixels)


@pytest.mark.parametrize("size_hw", FRAME_SIZES)
def test_squashed_image_fills_the_square_and_a_smaller_one_has_the_same_points(size_hw):
    squash, small = images.Preprocessing(side=64, resize="squash"), images.Preprocessing(side=64)
    pixels = textured(*size_hw)
    frame = squash.frame(pixels)
    assert frame.size_hw == (64, 64)
    wanted = Image.fromarray(pixels).resize((64, 64), Image.Resampling.BILINEAR)
    assert np.array_equal(frame.pixels, np.asarray(wanted))
    assert squash.size_in_frame(size_hw) == (1024, 1024)
    assert small.size_in_frame(size_hw) == images.LONGEST_SIDE.size_in_frame(size_hw)
    assert max(small.frame(pixels).size_hw) == 64
    assert small.frame(pixels).pixels.shape == (64, 64, 3)


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_only_the_first_frame_of_an_animation_is_decoded(file_format, monkeypatch):
    frames = [Image.fromarray(noise(20, 30) // divisor) for divisor in (1, 2, 3)]
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:], lossless=True)
    opened = images.open_image(data, 600)
    assert getattr(opened.image, "n_frames", 1) == 3
    monkeypatch.setattr(
        type(opened.image), "seek", lambda *_: pytest.fail("a further frame is asked for")
    )
    pixels, _ = images.decode(opened)
    assert np.array_equal(pixels, np.asarray(frames[0]))


@pytest.mark.parametrize("file_format", ["PNG", "WEBP"])
def test_animation_is_bounded_by_its_canvas(file_format):
    frames = [Image.new("RGB", (1001, 1000), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], file_format, save_all=True, append_images=frames[1:])
    assert rejection(data).errors[0]["got"] == "1001 x 1000 = 1001000"
