"""Expected outcome of every file in the corpus: read with the right size and orientation, or
rejected with a reason.
"""

import re
from pathlib import Path

import numpy as np
import pytest

from orchestrator.problems import Rejected
from tests.fuzz.corpus import BODIES, COLOURS, CORPUS, IMAGES, SIZE_HW
from tests.fuzz.entry_points import MODELS, image_or_refusal, request_or_refusal
from utils.errors import ServiceError

MAX_PIXELS = 20_000_000
MAX_GROWTH_KB = 100_000
TOLERANCE = 40
"""Tolerance of colours, which JPEG and WebP change slightly."""


def test_corpus_is_the_files_of_the_table():
    assert {
        path.relative_to(CORPUS).as_posix() for path in CORPUS.rglob("*") if path.is_file()
    } == {*IMAGES, *BODIES}


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
    assert outcome in {"scene", "on its side", "picture"}
    if outcome == "on its side":
        found = np.rot90(found, -1)
    assert found.shape[:2] == SIZE_HW
    if outcome != "picture":
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
    assert expected == (
        (found.status, found.errors[0].field) if isinstance(found, ServiceError) else (200, None)
    )
    for path in MODELS:
        request_or_refusal(data, path, size_hw=(1, 1))
