"""Expected result of every file in the corpus: read with the right size and orientation, or rejected with a reason."""

from __future__ import annotations

import resource
import time

import numpy as np
import pytest

from orchestrator import images
from orchestrator.masks import FORMATS, MaskPart, area_and_box, upsample
from orchestrator.pictures import Picture
from orchestrator.problems import Rejected
from tests.fuzz.make_corpus import BODIES, CORPUS, IMAGES, odd_images
from tests.fuzz.odd_bodies import odd_bodies
from tests.fuzz.odd_images import COLOURS, OddImage
from tests.fuzz.ways_in import MODELS, image_or_refusal, request_or_refusal
from utils.api.errors import ServiceError

ODD_IMAGES, ODD_BODIES = odd_images(), odd_bodies()
MAX_PIXELS = 20_000_000
MAX_SECONDS, MAX_GROWTH_KB = 1.0, 100_000
BRIGHTNESS = np.array([0.299, 0.587, 0.114])
TOLERANCE = 40
"""Tolerance of colours, which JPEG and WebP change slightly."""


def test_corpus_matches_its_definitions():
    assert {path.relative_to(IMAGES).as_posix() for path in IMAGES.rglob("*") if path.is_file()} == set(ODD_IMAGES)
    assert {path.relative_to(BODIES).as_posix() for path in BODIES.rglob("*") if path.is_file()} == set(ODD_BODIES)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 300_000


@pytest.mark.parametrize("name", ODD_IMAGES)
def test_image_is_read_correctly_or_rejected(name):
    odd = ODD_IMAGES[name]
    began, memory = time.process_time(), peak_kb()
    found = image_or_refusal((IMAGES / name).read_bytes(), MAX_PIXELS)
    assert time.process_time() - began < MAX_SECONDS
    assert peak_kb() - memory < MAX_GROWTH_KB
    if isinstance(found, Rejected):
        assert (None, found.status) == (odd.size_hw, odd.status)
        return
    assert (found.shape[:2], None) == (odd.size_hw, odd.status)
    check_quarters(found, odd)


def check_quarters(pixels: np.ndarray, odd: OddImage) -> None:
    """Assert that the four quarters have their colours."""
    if odd.look == "any":
        return
    height, width = pixels.shape[:2]
    centres = pixels[height // 4 :: height // 2, width // 4 :: width // 2].reshape(4, 3).astype(int)
    colours = np.array(COLOURS)
    wanted = colours if odd.look == "colour" else np.repeat(colours @ BRIGHTNESS, 3).reshape(4, 3)
    assert np.abs(centres - wanted).max() < TOLERANCE


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("name", ODD_BODIES)
def test_body_is_accepted_or_rejected_with_the_right_field(name):
    odd, data = ODD_BODIES[name], (BODIES / name).read_bytes()
    found = request_or_refusal(data, name.split("/")[0])
    if isinstance(found, ServiceError):
        assert (found.status, found.errors[0].field) == (odd.status, odd.field)
    else:
        assert (odd.status, odd.field) == (200, None)
    for path in MODELS:
        request_or_refusal(data, path, size_hw=(1, 1))


SIZES = sorted({odd.size_hw for odd in ODD_IMAGES.values() if odd.size_hw and odd.size_hw[0] * odd.size_hw[1] < 10**6})


@pytest.mark.parametrize("size_hw", SIZES, ids=str)
@pytest.mark.parametrize("logit", [-1.0, 1.0, None], ids=["empty", "full", "half"])
def test_image_of_any_size_has_masks_and_pictures(size_hw, logit):
    halves = np.where(np.arange(256) < 128, -1.0, 1.0) * np.ones((256, 1))
    logits = (halves if logit is None else np.full((256, 256), logit)).astype(np.float32)
    mask = upsample(logits, images.frame_size_hw(size_hw), size_hw) > 0
    assert mask.shape == size_hw
    area, (left, top, right, bottom) = area_and_box(mask)
    assert 0 <= area <= (right - left) * (bottom - top) <= mask.size
    for mask_format in FORMATS:
        part = MaskPart(mask_format, size_hw, None)
        part.add(mask)
        assert part.encode()
    for style in ("overlay", "cutout"):
        picture = Picture(np.zeros((*size_hw, 3), np.uint8), style)
        picture.add(mask)
        found = image_or_refusal(picture.encode())
        assert isinstance(found, np.ndarray)
        assert found.shape[:2] == size_hw
