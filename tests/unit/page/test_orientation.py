"""The page reads the orientation of image files as the service does, and nothing else turns its
copies of files.
"""

import io

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps

from orchestrator.orientation import read_orientation
from tests.oriented_files import FILES, JPEG_FILE, PNG_FILE, SIZE_HW, TURNS
from tests.unit.page.formats import decoded_files, encoded, run

COPIES = {"upright": 1, "canonical": 6}
"""Copies that run_formats.js makes, and their orientation; WebP files can only be upright."""


@pytest.fixture(scope="module")
def layouts() -> dict[str, dict]:
    """What the page reads from each file of the table, and its copies."""
    found = run("layouts", files=encoded({name: file for name, (_, file) in FILES.items()}))
    return {layout["path"]: {**layout, **decoded_files(layout, COPIES)} for layout in found}


def test_orientation_is_the_browsers_for_every_file_of_the_table(layouts):
    assert len(layouts) > 250
    found = {name: layout["orientation"] for name, layout in layouts.items()}
    assert found == {name: orientation for name, (orientation, _) in FILES.items()}


def test_size_and_depth_are_the_files(layouts):
    for name, layout in layouts.items():
        assert layout["stored"] == {"width": SIZE_HW[1], "height": SIZE_HW[0]}, name
        assert layout["isDeep"] == (name == "PNG, grey of 16 bits")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")  # about EXIF
def test_copies_have_one_orientation_by_every_rule_and_the_same_pixels(layouts):
    """Pillow and OpenCV read places that browsers do not; none of them turns an upright copy."""
    compared = 0
    for name, layout in layouts.items():
        for copy, expected in COPIES.items():
            file, orientation = layout[copy], 1 if name.startswith("WebP") else expected
            assert read_orientation(file) == orientation, (name, copy)
            try:
                with (
                    Image.open(io.BytesIO(FILES[name][1])) as source,
                    Image.open(io.BytesIO(file)) as opened,
                ):
                    assert np.array_equal(np.asarray(source), np.asarray(opened)), (name, copy)
                    if orientation == 1:
                        assert ImageOps.exif_transpose(opened).size == opened.size, (name, copy)
            except (OSError, SyntaxError):
                continue  # damaged by intention, and refused by Pillow
            if orientation == 1:
                pixels = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_COLOR)
                assert pixels is None or pixels.shape[:2] == SIZE_HW, (name, copy)
            compared += 1
    assert compared > 550


def test_files_without_an_orientation_stay_as_they_are():
    files = {
        "a.jpg": JPEG_FILE,
        "a.png": PNG_FILE,
        "a.gif": b"GIF89a",
        "empty": b"",
        "start": b"\xff\xd8\xff\xe1\0",
    }
    for layout in run("layouts", files=encoded(files)):
        assert layout["orientation"] == 1
        assert decoded_files(layout, COPIES)["upright"] == files[layout["path"]]


def test_page_and_service_agree_on_damaged_files():
    generator = np.random.default_rng(0)
    small = [file for _, file in FILES.values() if len(file) < 10_000]
    files = {}
    for number in range(3000):
        damaged = bytearray(small[generator.integers(len(small))])
        for offset in generator.integers(0, min(len(damaged), 200), 3):
            damaged[offset] = generator.integers(0, 256)
        files[str(number)] = bytes(damaged[: generator.integers(1, len(damaged) + 1)])
    found = run("orientations", files=encoded(files))
    expected = [read_orientation(file) for file in files.values()]
    assert set(expected) == set(range(1, 9))
    assert found == expected


@pytest.mark.parametrize("orientation", TURNS)
def test_pixels_are_turned_as_by_the_service(orientation):
    stored = np.arange(12).reshape(3, 4)
    turned = stored.T if orientation >= 5 else stored
    flips = {2: [1], 3: [0, 1], 4: [0], 6: [1], 7: [0, 1], 8: [0]}
    expected = np.flip(turned, flips.get(orientation, []))
    size = {"width": 4, "height": 3}
    found = run("turn", pixels=stored.ravel().tolist(), size=size, orientation=orientation)
    assert (found["height"], found["width"]) == expected.shape
    assert found["pixels"] == expected.ravel().tolist()
