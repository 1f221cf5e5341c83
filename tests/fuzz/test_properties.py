"""Damaged images and hostile requests are accepted, or rejected with a reason.

Takes a few seconds by default. To run many random examples:
`FUZZ_EXAMPLES=20000 pytest tests/fuzz/test_properties.py`.
"""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.corpus import CORPUS, IMAGES
from tests.fuzz.entry_points import check_prompts, image_or_refusal, request_or_refusal
from tests.fuzz.hostile_requests import (
    DAMAGED_IMAGES,
    OPTIONS,
    damaged,
    hostile_bodies,
    valid_fields,
)
from utils.inference.request import InferenceRequest

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 100,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
FILES = [(CORPUS / name).read_bytes() for name in IMAGES]
BEGINNINGS = (b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF")

pytestmark = pytest.mark.timeout(7200)
each_path = pytest.mark.parametrize("path", OPTIONS)


@SETTINGS
@given(
    DAMAGED_IMAGES | st.sampled_from(FILES).flatmap(damaged) | st.binary(max_size=300),
    st.sampled_from(BEGINNINGS),
)
def test_damaged_image_is_read_or_rejected(data, beginning):
    image_or_refusal(beginning + data[len(beginning) :])


@each_path
@SETTINGS
@given(data=st.data())
def test_hostile_body_is_accepted_or_rejected(path, data):
    request_or_refusal(data.draw(hostile_bodies(path)), path)


@each_path
@SETTINGS
@given(data=st.data())
def test_fields_of_the_fuzzer_are_valid(path, data):
    request = request_or_refusal(
        json.dumps(data.draw(valid_fields(path))).encode(), path, size_hw=(64, 64)
    )
    if path == "mobile_sam":
        assert isinstance(request, InferenceRequest), request
        check_prompts(request, (64, 64))
    else:
        assert request is None, request
