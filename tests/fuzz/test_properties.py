"""Damaged images and hostile requests are accepted, or rejected with a reason.

Takes a few seconds by default. To run many random examples:
`FUZZ_EXAMPLES=20000 pytest tests/fuzz/test_properties.py`.
"""

import json
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.problems import Rejected
from tests.fuzz.corpus import CORPUS, IMAGES
from tests.fuzz.hostile_requests import (
    BATCH,
    damaged,
    damaged_images,
    hostile_requests,
    requests_of_batch,
    valid_fields,
)
from tests.fuzz.ways_in import MODELS, check_prompts, image_or_refusal, request_or_refusal

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


@SETTINGS
@given(damaged_images() | st.sampled_from(FILES).flatmap(damaged), st.sampled_from(BEGINNINGS))
def test_damaged_image_is_read_or_rejected(data, beginning):
    image_or_refusal(beginning + data[len(beginning) :])


@SETTINGS
@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(data):
    assert isinstance(image_or_refusal(data), Rejected)


@settings(SETTINGS, max_examples=EXAMPLES or 400)
@given(hostile_requests(), st.sampled_from(sorted(MODELS)))
def test_hostile_body_is_accepted_or_rejected(request_, other):
    path = request_.path.strip("/")
    request_or_refusal(request_.body, path if path in MODELS else other)


@SETTINGS
@given(st.sampled_from(sorted(MODELS)).flatmap(lambda path: st.tuples(st.just(path), valid_fields(f"/{path}"))))
def test_fields_of_the_fuzzer_are_valid(path_and_fields):
    path, fields = path_and_fields
    found = request_or_refusal(json.dumps(fields).encode(), path, size_hw=(64, 64))
    assert isinstance(found, tuple), found
    if found[2] is not None:
        check_prompts(found[2], (64, 64))


def test_requests_of_a_batch_are_reproducible_and_differ():
    found = requests_of_batch(seed=1, batch=0)
    assert len(found) == BATCH
    assert requests_of_batch(seed=1, batch=0) == found
    assert requests_of_batch(seed=1, batch=1) != found
    assert len({one.body for one in found}) > 500
    assert len({one.method for one in found}) > 3
    assert len({one.path for one in found}) > 10
    assert len({one.headers for one in found}) > 20
    assert max(len(one.body) for one in found) < 3_000_000
