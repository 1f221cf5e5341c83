"""Inputs of inference requests to Triton, and the translation of their failures."""

from __future__ import annotations

import asyncio

import aiohttp
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from utils.api.errors import InferenceFailed, InferenceTimeout, InferenceUnavailable
from utils.triton.inference import infer_input, service_errors


def triton_error(message: str, status: str = "400") -> InferenceServerException:
    return InferenceServerException(message, status)


def test_input_has_the_binary_data_of_its_array():
    made = infer_input("TEXTS", "BYTES", np.array([[b"one"]], np.object_))
    assert (made.name(), made.datatype(), made.shape()) == ("TEXTS", "BYTES", [1, 1])
    assert made._get_binary_data() == b"\x03\0\0\0one"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (triton_error("unexpected shape for input 'NUMBERS' at /secret: expected [1], got [2]"), InferenceFailed),
        (triton_error("KeyError: /secret", "500"), InferenceFailed),
        (triton_error("Failed to process: Stub process '/secret' is not healthy.", "500"), InferenceUnavailable),
        (triton_error("Request for unknown model: '/secret' is not ready", "400"), InferenceUnavailable),
        (triton_error("Failed to increase the shared memory pool of /secret", "500"), InferenceUnavailable),
        (aiohttp.ClientConnectionError("/secret"), InferenceUnavailable),
        (ConnectionResetError("/secret"), InferenceUnavailable),
    ],
    ids=[
        "invalid shape",
        "failure of a model",
        "dead process",
        "loading model",
        "no shared memory",
        "no Triton",
        "lost connection",
    ],
)
def test_unknown_triton_errors_become_5xx_without_leaking_text(error, expected, caplog):
    with pytest.raises(expected) as caught, service_errors(30):
        raise error
    assert caught.value.status >= 500
    assert "secret" not in caught.value.detail
    assert str(error).rpartition("] ")[2] in caplog.text


def test_slow_response_is_a_timeout():
    with pytest.raises(InferenceTimeout, match=r"no response within 0\.01 s"), service_errors(0.01):
        raise asyncio.TimeoutError
