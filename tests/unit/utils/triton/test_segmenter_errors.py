"""Inputs of inference requests to Triton, and the translation of their failures."""

import asyncio
from unittest.mock import Mock

import aiohttp
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from utils.api.errors import InferenceFailed, InferenceTimeout, InferenceUnavailable, NotLoaded, ServiceError
from utils.triton import tensors
from utils.triton.segmenter import infer_input, service_errors


def test_input_has_the_binary_data_of_its_array():
    made = infer_input(tensors.INPUT_IMAGE, np.array([b"one"], np.object_))
    assert (made.name(), made.datatype(), made.shape()) == ("input_image", "BYTES", [1])
    assert made._get_binary_data() == b"\x03\0\0\0one"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("unexpected shape for input 'NUMBERS' at /secret: expected [1], got [2]", InferenceFailed),
        ("KeyError: /secret", InferenceFailed),
        ("Failed to process: Stub process '/secret' is not healthy.", InferenceUnavailable),
        ("Request for unknown model: '/secret' is not ready", NotLoaded),
        ("/secret: Request for unknown model: 'mobile_sam_encoder' is not found", InferenceUnavailable),
        ("'/secret' is not ready", InferenceUnavailable),
        ("Failed to increase the shared memory pool of /secret", InferenceUnavailable),
        ("request cancelled: /secret", InferenceTimeout),
        (aiohttp.ClientConnectionError("/secret"), InferenceUnavailable),
        (ConnectionResetError("/secret"), InferenceUnavailable),
    ],
    ids=str,
)
def test_unknown_triton_errors_become_5xx_without_leaking_text(error, expected, caplog):
    if isinstance(error, str):
        error = InferenceServerException(error, "500")
    report_fault = Mock()
    with pytest.raises(ServiceError) as caught, service_errors(30, report_fault):
        raise error
    assert report_fault.call_count == ("Stub process" in str(error))
    assert type(caught.value) is expected
    assert caught.value.status >= 500
    assert "secret" not in caught.value.detail
    assert str(error).rpartition("] ")[2] in caplog.text


def test_slow_response_is_a_timeout():
    with pytest.raises(InferenceTimeout, match=r"no response within 0\.01 s"), service_errors(0.01, Mock()):
        raise asyncio.TimeoutError
