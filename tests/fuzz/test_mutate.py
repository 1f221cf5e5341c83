"""Reproducibility and variety of mutated requests."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.fuzz.damage import KINDS, Edit, damaged
from tests.fuzz.mutate import request, requests, unchanged, valid_fields
from tests.fuzz.ways_in import MODELS, check_prompts, request_or_refusal


def test_requests_are_reproducible():
    first = list(requests(7, 300))
    assert list(requests(7, 300)) == first
    assert [request(7, index) for index in range(290, 300)] == first[290:]
    assert list(requests(7, 10, first=290)) == first[290:]
    assert list(requests(8, 300)) != first


def test_requests_differ_in_method_path_headers_and_body():
    some = list(requests(1, 1000))
    assert len({one.method for one in some}) > 8
    assert len({one.path for one in some}) > 20
    assert len({str(one.headers) for one in some}) > 50
    assert len({one.body for one in some}) > 600
    assert max(len(one.body) for one in some) < 2_000_000


@pytest.mark.parametrize("path", [f"/{name}" for name in MODELS])
def test_unchanged_requests_are_valid(path):
    for index in range(50):
        random = Random(index)
        valid = unchanged(random, path, valid_fields(random, path))
        found = request_or_refusal(valid.body, path[1:], size_hw=(64, 64))
        assert isinstance(found, tuple), found
        if found[2] is not None:
            check_prompts(found[2], (64, 64))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
def test_every_edit_works_at_any_place_of_any_data(kind, place):
    for data in (b"", b"a", bytes(range(100))):
        for value in islice(range(0, 2**16, 977), 40):
            assert isinstance(damaged(data, [Edit(kind, place, value)], b"other"), bytes)
