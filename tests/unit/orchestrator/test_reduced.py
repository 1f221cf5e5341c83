"""Images above the pixel limit: what is accepted, how it is decoded, and masks of cells in
pixels of the image.
"""

import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from orchestrator import images, reduced
from orchestrator.depth import SampleRange
from orchestrator.masks import area_and_box, rle
from orchestrator.polygons import polygons
from orchestrator.problems import Rejected
from orchestrator.reduced import DECODING_BYTES, Reduction
from tests.deep_files import CHANNELS, deep_png
from tests.unit.orchestrator.test_images import encoded

LIMIT = 3000
GROWTH = """
import threading, time

peak, done = [0], threading.Event()

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def watch():
    while not done.is_set():
        peak[0] = max(peak[0], resident())
        time.sleep(0.001)

def begin():
    global before, thread
    before, thread = resident(), threading.Thread(target=watch, daemon=True)
    thread.start()

def growth():
    done.set()
    thread.join()
    return peak[0] - before
"""
"""Start of a program that measures by how many bytes its resident memory grows after `begin`."""


def numbers_of(program: str, *arguments: str) -> list[int]:
    """Return the whole numbers that a program prints, which begins with `GROWTH`."""
    command = [sys.executable, "-c", GROWTH + program, *arguments]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    return [int(number) for number in done.stdout.split()]


def photo(height: int, width: int, mode: str = "RGB") -> Image.Image:
    """Return a smooth picture, as JPEG files keep it nearly as it is."""
    x, y = np.linspace(0, 255, width), np.linspace(0, 255, height)[:, None]
    pixels = np.stack([x + 0 * y, 0 * x + y, (x + y) / 2], axis=2).astype(np.uint8)
    return Image.fromarray(pixels).convert(mode)


def decoded_with_range(
    file: bytes, max_pixels: int = LIMIT
) -> tuple[np.ndarray, SampleRange | None]:
    opened = reduced.open_image(file, max_pixels)
    factor = reduced.factor(opened.size_hw, max_pixels)
    assert factor
    return images.decode(opened, Reduction(opened.size_hw, factor).load)


def decoded(file: bytes, max_pixels: int = LIMIT) -> np.ndarray:
    return decoded_with_range(file, max_pixels)[0]


def enlarged_by_definition(mask: np.ndarray, reduction: Reduction) -> np.ndarray:
    """Return the mask of the image in which each pixel has the value of the cell that its centre
    lies in.
    """
    (height, width), (rows, columns) = reduction.size_hw, reduction.grid_hw
    y = ((np.arange(height) + 0.5) * rows / height).astype(int)
    x = ((np.arange(width) + 0.5) * columns / width).astype(int)
    enlarged: np.ndarray = mask[y][:, x]
    return enlarged


@pytest.mark.parametrize(
    ("size_hw", "factor"),
    [
        ((50, 60), 1),
        ((50, 61), 2),
        ((100, 120), 2),
        ((101, 120), 4),
        ((200, 240), 4),
        ((200, 241), None),
        ((1, 3001), 2),
        ((1, 12000), 4),
        ((1, 12001), None),
    ],
)
def test_factor_is_the_least_that_fits(size_hw, factor):
    assert reduced.factor(size_hw, LIMIT) == factor
    if factor:
        height, width = Reduction(size_hw, factor).grid_hw
        assert height * width <= LIMIT


@pytest.mark.parametrize("size_hw", [(79, 101), (80, 100), (119, 141), (120, 140)])
@pytest.mark.parametrize(
    ("file_format", "mode", "options"),
    [
        ("JPEG", "RGB", {"quality": 95}),
        ("JPEG", "RGB", {"quality": 95, "progressive": True}),
        ("JPEG", "L", {"quality": 95}),
        ("JPEG", "CMYK", {"quality": 95}),
        ("PNG", "RGB", {}),
        ("PNG", "L", {}),
        ("PNG", "RGBA", {}),
        ("PNG", "LA", {}),
        ("WEBP", "RGB", {"lossless": True}),
    ],
)
def test_smaller_image_is_the_image_scaled_down(size_hw, file_format, mode, options):
    height, width = size_hw
    picture = photo(height, width, mode)
    limit = size_hw[0] * size_hw[1] - 1 if file_format == "WEBP" else LIMIT
    pixels = decoded(encoded(picture, file_format, **options), limit)
    rows, columns = pixels.shape[:2]
    factor = round(size_hw[0] / rows)
    assert (rows, columns) == (-(-size_hw[0] // factor), -(-size_hw[1] // factor))
    wanted = np.asarray(picture.convert("RGB").reduce(factor), int)
    assert np.abs(wanted - pixels).mean() < 1.5
    assert np.abs(wanted - pixels).max() < 12


def test_strips_leave_no_seam(monkeypatch):
    monkeypatch.setattr(reduced, "STRIP_ROWS", 8)
    picture = photo(119, 141)
    assert np.array_equal(decoded(encoded(picture)), np.asarray(picture.reduce(4)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_smaller_image_is_turned_as_the_image_is(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(photo(79, 101), "JPEG", exif=exif, quality=95)
    whole, _ = images.decode(images.open_image(file, 10**6))
    pixels = decoded(file)
    assert pixels.shape[:2] == ((51, 40) if orientation > 4 else (40, 51))
    rows, columns = pixels.shape[:2]
    wanted = np.asarray(Image.fromarray(whole).resize((columns, rows), Image.Resampling.BOX))
    assert np.abs(wanted.astype(int) - pixels).mean() < 2.5


@pytest.mark.parametrize("colour_type", CHANNELS)
@pytest.mark.parametrize("top", [4095, 65_535])
def test_16_bit_image_has_the_range_of_the_whole_image(colour_type, top):
    ramp = (
        np.linspace(0, top, 101)[None, :, None] + np.zeros((79, 1, CHANNELS[colour_type]))
    ).astype(np.uint16)
    file = deep_png(ramp, colour_type)
    whole, whole_range = images.decode(images.open_image(file, 10**6))
    pixels, sample_range = decoded_with_range(file, 4000)
    assert pixels.shape == (40, 51, 3)
    assert sample_range == whole_range
    assert np.abs(np.asarray(Image.fromarray(whole).reduce(2), int) - pixels).max() <= 1


def test_palette_and_bilevel_images_are_converted_before_they_are_scaled_down():
    palette = Image.new("P", (101, 79))
    palette.putpalette([255, 0, 0, 0, 0, 255])
    palette.paste(1, (0, 0, 50, 79))
    pixels = decoded(encoded(palette))
    assert pixels[0, 0].tolist() == [0, 0, 255]
    assert pixels[0, 50].tolist() == [255, 0, 0]
    assert decoded(encoded(Image.new("1", (101, 79), 1))).min() == 255


def test_damaged_file_is_rejected():
    for file in (encoded(photo(79, 101), "JPEG"), encoded(photo(79, 101))):
        with pytest.raises(Rejected, match="a complete image file"):
            decoded(file[:-100])


def test_jpeg_file_with_a_flaw_that_pillow_tolerates_is_decoded():
    file = encoded(photo(79, 101), "JPEG", quality=95)
    start_of_scan = file.index(b"\xff\xda")
    assert decoded(file[:start_of_scan] + b"\x00\x00\x00" + file[start_of_scan:]).shape == (
        40,
        51,
        3,
    )


def png_header(width: int, height: int, colour: int = 2) -> bytes:
    """Return a PNG file that announces this size and has a few zeros as pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    pixels = zlib.compress(bytes(1000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


@pytest.mark.parametrize(
    ("file", "limit", "kind"),
    [
        pytest.param(png_header(65_535, 65_535), 150_000_000, "PNG", id="png"),
        pytest.param(png_header(65_535, 65_535, colour=0), 400_000_000, "PNG", id="grey png"),
        pytest.param(png_header(15_001, 10_000), 150_000_000, "PNG", id="png just above"),
    ],
)
def test_hostile_png_file_is_refused_before_it_is_decoded(file, limit, kind, monkeypatch):
    monkeypatch.setattr(images, "decode", pytest.fail)
    with pytest.raises(Rejected) as caught:
        reduced.open_image(file, 25_000_000)
    (error,) = caught.value.errors
    assert (caught.value.status, error["field"]) == (413, "input_image")
    assert error["expected"].startswith(
        f"at most {limit} pixels in a {kind} file: replace the image by a smaller one"
    )
    assert " x " in error["got"]


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"progressive": True, "subsampling": 0}, LIMIT * DECODING_BYTES // 6),
        ({"progressive": True, "subsampling": 2}, LIMIT * DECODING_BYTES // 3),
        ({}, LIMIT * 16),
    ],
    ids=["progressive 4:4:4", "progressive 4:2:0", "sequential"],
)
def test_jpeg_file_is_limited_by_the_memory_for_its_coefficients(options, limit):
    fits = photo(100, limit // 100)
    reduced.open_image(encoded(fits, "JPEG", **options), LIMIT)
    with pytest.raises(Rejected, match=f"at most {limit} pixels in a (progressive )?JPEG file"):
        reduced.open_image(encoded(photo(100, limit // 100 + 1), "JPEG", **options), LIMIT)


def test_jpeg_file_whose_first_scan_lacks_a_component_counts_as_progressive():
    file = bytearray(encoded(photo(100, 400), "JPEG", subsampling=0))
    reduced.open_image(bytes(file), LIMIT)
    file[file.index(b"\xff\xda") + 4] = 1
    with pytest.raises(Rejected, match="at most 12000 pixels in a progressive JPEG file"):
        reduced.open_image(bytes(file), LIMIT)


def test_jpeg_file_that_ends_with_its_header_is_rejected():
    file = encoded(photo(79, 101), "JPEG")
    for end in range(2, 6):
        with pytest.raises(Rejected):
            decoded(file[: file.index(b"\xff\xda") + end])


SIZES = [
    ((79, 101), 2),
    ((80, 100), 2),
    ((81, 99), 4),
    ((7, 5), 2),
    ((5, 7), 4),
    ((1, 9), 4),
    ((3, 3), 2),
]


@pytest.fixture(params=SIZES, ids=str)
def reduction(request) -> Reduction:
    return Reduction(*request.param)


def masks_of(reduction: Reduction) -> list[np.ndarray]:
    """Return masks of cells: noise of several densities, nothing, and everything."""
    rng = np.random.default_rng(0)
    noise = [rng.random(reduction.grid_hw) < share for share in (0.02, 0.1, 0.5, 0.9)]
    stripes = np.zeros(reduction.grid_hw, bool)
    stripes[:, ::2] = True
    return [
        *noise,
        stripes,
        stripes.T.copy().reshape(-1)[: stripes.size].reshape(stripes.shape),
        np.zeros(reduction.grid_hw, bool),
        np.ones(reduction.grid_hw, bool),
    ]


def test_mask_of_the_image_has_each_pixel_of_its_cell(reduction):
    height, width = reduction.size_hw
    for mask in masks_of(reduction):
        wanted = enlarged_by_definition(mask, reduction)
        cells = mask.view(np.uint8)
        assert np.array_equal(reduction.enlarged(cells, (0, 0, width, height)), wanted)
        _, box = area_and_box(mask)
        assert (reduction.area(mask), reduction.box(box)) == area_and_box(wanted)
        assert reduction.rle(cells) == rle(wanted)
        left, top, right, bottom = box
        inside = np.ascontiguousarray(mask[top:bottom, left:right])
        assert reduction.area(inside, (left, top)) == area_and_box(wanted)[0]
        edges = np.flatnonzero(np.diff(wanted.ravel(), prepend=False, append=False))
        expected = np.diff(edges, prepend=0, append=wanted.size).tolist()
        expected = expected[:-1] if wanted[-1, -1] else expected
        assert reduction.runs(cells).tolist() == expected


def test_polygons_outline_the_mask_of_the_image(reduction):
    height, width = reduction.size_hw
    mask = np.ones(reduction.grid_hw, bool)
    (rings,) = reduction.polygons(polygons(mask, tolerance=0))
    assert np.min(rings[0], axis=0).tolist() == [0, 0]
    assert np.max(rings[0], axis=0).tolist() == pytest.approx([width, height])


def test_box_covers_at_least_one_cell(reduction):
    (height, width), (rows, columns) = reduction.size_hw, reduction.grid_hw
    assert reduction.cells((0, 0, width, height)) == (0, 0, columns, rows)
    for x in range(width):
        for y in range(height):
            x0, y0, x1, y1 = reduction.cells((x, y, x + 1, y + 1))
            assert 0 <= x0 < x1 <= columns
            assert 0 <= y0 < y1 <= rows


def test_grid_of_factor_1_is_the_image():
    whole = Reduction((79, 101), 1)
    mask = np.random.default_rng(0).random((79, 101)) < 0.3
    assert (whole.grid_hw, whole.cells((3, 4, 50, 60)), whole.box((3, 4, 50, 60))) == (
        (79, 101),
        (3, 4, 50, 60),
        [3, 4, 50, 60],
    )
    assert whole.rle(mask.view(np.uint8)) == rle(mask)


def test_runs_of_a_large_image_take_no_memory_for_its_pixels():
    # 400 megapixels in 25 million cells; a high-water mark of this process would be that of earlier
    # tests.
    program = """
import numpy as np
from orchestrator.reduced import Reduction

mask = np.zeros((5000, 5000), np.uint8)
mask[1000:4000, 1000:4000] = 1
reduction = Reduction((20000, 20000), 4)
begin()
runs = reduction.runs(mask)
rle = reduction.rle(mask)
print(growth(), int(runs[1::2].sum()))
"""
    grown, area = numbers_of(program)
    assert area == 12_000**2
    assert 0 < grown < 200_000_000


def test_rle_is_read_by_the_coco_api(reduction):
    mask = masks_of(reduction)[2]
    answer = reduction.rle(mask.view(np.uint8))
    read = coco.decode({"size": answer["size"], "counts": str(answer["counts"]).encode()})
    assert np.array_equal(read, enlarged_by_definition(mask, reduction))


PEAK = """
import sys
from orchestrator import images, reduced
from orchestrator.memory import return_large_blocks_on_free

return_large_blocks_on_free()
file = open(sys.argv[1], "rb").read()
max_pixels = int(sys.argv[2])
begin()
opened = reduced.open_image(file, max_pixels)
reduction = reduced.Reduction(opened.size_hw, reduced.factor(opened.size_hw, max_pixels))
pixels, _ = images.decode(opened, reduction.load)
print(growth(), *pixels.shape)
"""


def peak_to_decode(file: Path, max_pixels: int) -> tuple[int, tuple[int, ...]]:
    """Return the bytes by which a process grows while it decodes an image, and the shape of its
    pixels.
    """
    grown, *shape = numbers_of(PEAK, str(file), str(max_pixels))
    return grown, tuple(shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file_format", "bytes_per_pixel"), [("JPEG", 1.5), ("PNG", 5.5)], ids=["jpeg", "png"]
)
def test_memory_to_decode_a_large_image_is_bounded(tmp_path, file_format, bytes_per_pixel):
    """All pixels of 36 megapixels take 108 MB, in Pillow 144 MB, before they are scaled down to
    9 megapixels.
    """
    file = tmp_path / "image"
    photo(6000, 6000).save(
        file, file_format, **({"compress_level": 1} if file_format == "PNG" else {})
    )
    grown, shape = peak_to_decode(file, 9_000_000)
    assert shape == (3000, 3000, 3)
    assert 13_500_000 < grown < bytes_per_pixel * 6000**2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "bytes_per_pixel"),
    [
        (1, reduced.GREY_16_BIT_BYTES_PER_PIXEL),
        (3, reduced.DEEP_BYTES_PER_PIXEL),
        (4, reduced.DEEP_BYTES_PER_PIXEL),
    ],
    ids=["grey", "rgb", "rgba"],
)
def test_memory_to_decode_a_large_16_bit_image_is_what_its_limit_counts(
    tmp_path, channels, bytes_per_pixel
):
    file = tmp_path / "image.png"
    row = np.linspace(0, 4095, 4000).astype(np.uint16)
    samples = np.broadcast_to(row[None, :, None], (4000, 4000, channels))
    assert cv2.imwrite(str(file), np.ascontiguousarray(samples), [cv2.IMWRITE_PNG_COMPRESSION, 1])
    grown, shape = peak_to_decode(file, 8_000_000)
    assert shape == (2000, 2000, 3)
    assert 0.75 * 4000**2 <= grown < (bytes_per_pixel + 1) * 4000**2
