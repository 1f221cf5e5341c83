"""What Triton hands over is checked, and has the bounds that the service tells of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.examples.text_generation.modules import load

request = load("text_generation_request")


def asked(text=b"a text", **numbers):
    """Of a request with these inputs."""
    return request.Asked.of(
        {"text_input": np.array([text], np.object_), **{n: np.array([v]) for n, v in numbers.items()}}
    )


def test_what_is_asked_for_is_taken():
    assert asked(max_new_tokens=1, temperature=0, seed=2**32 - 1) == request.Asked("a text", 1, 0.0, 2**32 - 1)


def test_what_is_left_out_is_as_told_but_for_the_seed_which_is_another_each_time():
    first, second = asked(), asked()
    assert (first.max_new_tokens, first.temperature) == (64, 1.0)
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("inputs", "refusal"),
    [
        pytest.param({"text": b""}, "text_input: expected 1 to 100000 characters, got 0", id="no text"),
        pytest.param({"text": b"a" * 100_001}, "text_input: expected 1 to 100000 characters, got 100001", id="long"),
        pytest.param({"text": b"ab\xff"}, "text_input: expected UTF-8, got byte 0xff at 2", id="no UTF-8"),
        pytest.param({"max_new_tokens": 0}, "max_new_tokens: expected 1 to 1024, got 0", id="nothing wanted"),
        pytest.param({"temperature": np.float32("nan")}, "temperature: expected 0 to 2, got nan", id="no number"),
        pytest.param({"temperature": -0.5}, "temperature: expected 0 to 2, got -0.5", id="too cold"),
        pytest.param({"seed": 2**32}, "seed: expected 0 to 4294967295, got 4294967296", id="a large seed"),
    ],
)
def test_what_cannot_be_used_is_refused_by_its_name(inputs, refusal):
    with pytest.raises(request.Refused) as caught:
        asked(**inputs)
    assert str(caught.value) == refusal
