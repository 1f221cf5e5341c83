"""Expected outcome of every file in the corpus: read with the right size and orientation, or rejected with a reason."""

import re
from pathlib import Path

import numpy as np
import pytest

from orchestrator import images
from orchestrator.masks import FORMATS, MaskPart, area_and_box, upsample
from orchestrator.pictures import Picture
from orchestrator.problems import Rejected
from tests.fuzz.corpus import BODIES, COLOURS, CORPUS, IMAGES, SIZE_HW
from tests.fuzz.ways_in import MODELS, image_or_refusal, request_or_refusal
from utils.api.errors import ServiceError

MAX_PIXELS = 20_000_000
MAX_GROWTH_KB = 100_000
TOLERANCE = 40
"""Tolerance of colours, which JPEG and WebP change slightly."""


def test_corpus_is_the_files_of_the_table():
    assert {path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file()} == {*IMAGES, *BODIES}


@pytest.mark.parametrize(("name", "outcome"), IMAGES.items(), ids=IMAGES)
def test_image_is_read_correctly_or_rejected(name, outcome):
    data = (CORPUS / name).read_bytes()
    Path("/proc/self/clear_refs").write_text("5")  # the peak falls to what is used now
    memory = peak_kb()
    found = image_or_refusal(data, MAX_PIXELS)
    assert peak_kb() - memory < MAX_GROWTH_KB
    if isinstance(found, Rejected):
        assert found.status == outcome
        return
    assert found.shape[:2] == SIZE_HW
    assert outcome in {"scene", "picture"}
    if outcome == "scene":
        centres = found[6::12, 8::16].reshape(4, 3).astype(int)
        assert np.abs(centres - np.array(COLOURS)).max() < TOLERANCE


def peak_kb() -> int:
    """Return the peak of this process's resident memory."""
    (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak)


@pytest.mark.parametrize(("name", "expected"), BODIES.items(), ids=BODIES)
def test_body_is_accepted_or_rejected_with_the_right_field(name, expected):
    data = (CORPUS / name).read_bytes()
    found = request_or_refusal(data, "mobile_sam")
    if isinstance(found, ServiceError):
        assert (found.status, found.errors[0].field) == expected
    else:
        assert expected == (200, None)
    for path in MODELS:
        request_or_refusal(data, path, size_hw=(1, 1))


@pytest.mark.parametrize("size_hw", [(1, 1), (1, 3000), (3000, 1), (5, 3), (24, 32), (1, 65_535)], ids=str)
@pytest.mark.parametrize("logit", [-1.0, 1.0, None], ids=["empty", "full", "half"])
def test_image_of_any_size_has_masks_and_pictures(size_hw, logit):
    halves = np.where(np.arange(256) < 128, -1.0, 1.0) * np.ones((256, 1))
    logits = (halves if logit is None else np.full((256, 256), logit)).astype(np.float32)
    mask = upsample(logits, images.frame_size_hw(size_hw), size_hw) > 0
    assert mask.shape == size_hw
    # The frame is a square with sides as long as the image's longest; between its halves the logits pass 0.
    longest = max(size_hw)
    right_of_middle = np.arange(size_hw[1]) + 0.5 - longest / 2
    known = np.abs(right_of_middle) > (longest / 256 if logit is None else -1)
    expected = (right_of_middle if logit is None else np.full(size_hw[1], logit)) > 0
    assert (mask == expected)[:, known].all()
    rows, columns = np.nonzero(mask)
    box = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1] if len(rows) else [0, 0, 0, 0]
    assert area_and_box(mask) == (len(rows), box)
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
