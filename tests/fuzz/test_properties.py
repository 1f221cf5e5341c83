"""Damaged images and bodies are accepted, or rejected with a reason.

Takes a few seconds by default. To run many random examples:
`FUZZ_EXAMPLES=20000 pytest tests/fuzz/test_properties.py`.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import images
from orchestrator.problems import Rejected
from tests.fuzz.body_parts import FLOAT32, IMAGE, npy
from tests.fuzz.damage import KINDS, Edit, damaged
from tests.fuzz.make_corpus import odd_images
from tests.fuzz.odd_bodies import odd_bodies
from tests.fuzz.ways_in import MODELS, image_or_refusal, request_or_refusal
from utils.api.errors import ServiceError

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
SETTINGS = settings(
    max_examples=EXAMPLES or 60,
    derandomize=not EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
VALID_IMAGES = [odd.data for odd in odd_images().values() if odd.size_hw]
VALID_BODIES = [(name.split("/")[0], odd.data) for name, odd in odd_bodies().items() if odd.status == 200]
MASKS = [npy(FLOAT32), npy(FLOAT32, bytes(4 * 256 * 256))]

pytestmark = pytest.mark.timeout(7200)


@st.composite
def edits(draw: st.DrawFn) -> list[Edit]:
    place = st.floats(0, 1)
    edit = st.builds(Edit, st.sampled_from(KINDS), place | place.map(lambda near: near**3), st.integers(0, 2**16))
    return draw(st.lists(edit, min_size=1, max_size=6))


@SETTINGS
@given(st.sampled_from(VALID_IMAGES), edits(), st.sampled_from(VALID_IMAGES))
def test_damaged_image_is_read_or_rejected(data, changes, other):
    image_or_refusal(damaged(data, changes, other))


@SETTINGS
@given(st.sampled_from(VALID_IMAGES), edits(), st.sampled_from([b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF"]))
def test_data_with_an_image_signature_is_read_or_rejected(data, changes, beginning):
    image_or_refusal(beginning + damaged(data, changes)[len(beginning) :])


@SETTINGS
@given(st.binary(max_size=300))
def test_random_bytes_are_rejected(data):
    assert isinstance(image_or_refusal(data), Rejected)


@SETTINGS
@given(st.integers(1, 70_000), st.integers(1, 70_000))
def test_frame_sides_are_positive(height, width):
    frame_hw = images.frame_size_hw((height, width))
    assert max(frame_hw) == images.FRAME
    assert min(frame_hw) >= 1


@SETTINGS
@given(st.sampled_from(VALID_BODIES), edits(), st.sampled_from(VALID_BODIES))
def test_damaged_body_is_accepted_or_rejected(body, changes, other):
    request_or_refusal(damaged(body[1], changes, other[1]), body[0])


TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
TEXTS = TEXT | st.sampled_from([IMAGE, f"data:image/png;base64,{IMAGE}", *MASKS, "A" * 5000, "overlay"])
NUMBERS = (
    st.integers()
    | st.integers(-2, 300)
    | st.floats()
    | st.floats(0, 700)
    | st.sampled_from([2**63, -(2**63), 10**400, 5e-324, -0.0])
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
POINTS = st.lists(st.lists(NUMBERS, min_size=1, max_size=3), max_size=5)
OBJECTS: dict[str, st.SearchStrategy[Any]] = {
    "pos_coords": POINTS | VALUES,
    "labels": st.lists(st.integers(-1, 4), max_size=5) | VALUES,
    "neg_coords": POINTS | VALUES,
    "box": st.lists(NUMBERS, min_size=3, max_size=5) | VALUES,
    "mask_input": TEXTS | VALUES,
}
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **{name: VALUES for model in MODELS.values() for name in model.model_fields},
    **OBJECTS,
    "prompts": st.lists(st.fixed_dictionaries({}, optional=OBJECTS), max_size=4) | VALUES,
    "": VALUES,
}


@SETTINGS
@given(
    st.sampled_from(sorted(MODELS)),
    st.fixed_dictionaries({}, optional=FIELDS),
    st.booleans(),
    st.dictionaries(TEXT, VALUES, max_size=2),
)
def test_fields_with_any_values_are_accepted_or_rejected(path, fields, with_image, unknown):
    image = {"input_image": IMAGE} if with_image else {}
    try:
        body = json.dumps(fields | image | unknown).encode()
    except ValueError:  # integer with more digits than Python allows
        return
    request_or_refusal(body, path)


NEAR = st.floats(0, 640, width=32)


@SETTINGS
@given(st.lists(st.tuples(NEAR, NEAR.map(lambda y: y * 0.75), st.integers(0, 1)), min_size=1, max_size=40))
def test_clicks_on_the_image_are_passed_on_unchanged(clicks):
    fields = {"pos_coords": [click[:2] for click in clicks], "labels": [click[2] for click in clicks]}
    found = request_or_refusal(json.dumps({"input_image": IMAGE, **fields}).encode(), "mobile_sam")
    assert not isinstance(found, (ServiceError, Rejected))
    _, _, prompts = found
    assert prompts is not None
    assert np.array_equal(prompts.points_xy[0], np.array([click[:2] for click in clicks], np.float32))
    assert prompts.labels[0].tolist() == fields["labels"]
