"""Validation of requests in Triton."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.examples.text_generation.modules import load

request = load("text_generation_request")


def parse(text=b"a text", **numbers):
    """Parse a request with these inputs."""
    return request.GenerationRequest.of(
        {"text_input": np.array([text], np.object_), **{n: np.array([v]) for n, v in numbers.items()}}
    )


def test_given_values_are_used():
    expected = request.GenerationRequest("a text", 1, 0.0, 2**32 - 1)
    assert parse(max_new_tokens=1, temperature=0, seed=2**32 - 1) == expected


def test_missing_values_have_defaults_and_the_seed_is_random():
    first, second = parse(), parse()
    assert (first.max_new_tokens, first.temperature) == (64, 1.0)
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param({"text": b""}, "text_input: expected 1 to 100000 characters, got 0", id="empty"),
        pytest.param({"text": b"a" * 100_001}, "text_input: expected 1 to 100000 characters, got 100001", id="long"),
        pytest.param({"text": b"ab\xff"}, "text_input: expected UTF-8, got byte 0xff at 2", id="not UTF-8"),
        pytest.param({"max_new_tokens": 0}, "max_new_tokens: expected 1 to 1024, got 0", id="zero tokens"),
        pytest.param({"temperature": np.float32("nan")}, "temperature: expected 0 to 2, got nan", id="NaN"),
        pytest.param({"temperature": -0.5}, "temperature: expected 0 to 2, got -0.5", id="negative temperature"),
        pytest.param({"seed": 2**32}, "seed: expected 0 to 4294967295, got 4294967296", id="large seed"),
    ],
)
def test_invalid_value_is_rejected_and_named(inputs, message):
    with pytest.raises(request.RequestError) as caught:
        parse(**inputs)
    assert str(caught.value) == message
