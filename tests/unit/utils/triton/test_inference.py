"""Inference requests to Triton, with a fake runner."""

from __future__ import annotations

import asyncio

import aiohttp
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from utils.api.errors import FieldError, InferenceFailed, InferenceTimeout, InferenceUnavailable, InvalidRequest
from utils.triton.inference import UNCOMPRESSED, infer

NUMBERS = np.array([[1, 2, 3]], np.float32)
TEXTS = np.array([[b"one"]], np.object_)


class Result:
    """Like `tritonclient.http.InferResult`."""

    def as_numpy(self, name: str):
        return np.array([len(name)])


class Runner:
    """Fake of a `bentoml.triton.Runner` that stores the calls."""

    def __init__(self, error: BaseException | None = None, seconds: float = 0) -> None:
        self.error, self.seconds = error, seconds
        self.calls: list[dict] = []

    async def infer(self, **call):
        self.calls.append(call)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return Result()


def run_model(runner: Runner, timeout: float = 30):
    return asyncio.run(infer(runner, "a_model", {"NUMBERS": NUMBERS, "TEXTS": TEXTS}, ["ONE", "THREE"], timeout))


def triton_error(message: str, status: str = "400") -> InferenceServerException:
    return InferenceServerException(message, status)


def test_infer_sends_inputs_and_returns_outputs_by_name():
    runner = Runner()
    assert run_model(runner) == {"ONE": np.array([3]), "THREE": np.array([5])}
    (call,) = runner.calls
    assert (call["model_name"], call["headers"]) == ("a_model", UNCOMPRESSED)
    sent = [(made.name(), made.datatype(), made.shape(), made._get_binary_data()) for made in call["inputs"]]
    assert sent == [
        ("NUMBERS", "FP32", [1, 3], NUMBERS.tobytes()),
        ("TEXTS", "BYTES", [1, 1], b"\x03\0\0\0one"),
    ]
    assert [output.name() for output in call["outputs"]] == ["ONE", "THREE"]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("image: expected a JPEG, got 3 bytes", ("image", "a JPEG", "3 bytes")),
        ("in ensemble 'a_pipe', OUT[2]: expected at most 1, got 2 * 3", ("OUT[2]", "at most 1", "2 * 3")),
    ],
    ids=["from a model", "through an ensemble"],
)
def test_invalid_input_message_of_a_model_reaches_the_caller(message, field):
    with pytest.raises(InvalidRequest) as caught:
        run_model(Runner(triton_error(message)))
    assert caught.value.errors == (FieldError(*field),)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (triton_error("image: expected a JPEG, got 3 bytes", "500"), InferenceFailed),
        (triton_error("unexpected shape for input 'NUMBERS' at /secret: expected [1], got [2]"), InferenceFailed),
        (triton_error("in ensemble 'a_pipe', KeyError: /secret"), InferenceFailed),
        (triton_error("Failed to process: Stub process '/secret' is not healthy.", "500"), InferenceUnavailable),
        (triton_error("Request for unknown model: '/secret' is not ready", "400"), InferenceUnavailable),
        (triton_error("Failed to increase the shared memory pool of /secret", "500"), InferenceUnavailable),
        (aiohttp.ClientConnectionError("/secret"), InferenceUnavailable),
        (ConnectionResetError("/secret"), InferenceUnavailable),
    ],
    ids=[
        "server error with an invalid-input message",
        "invalid shape",
        "failure in an ensemble",
        "dead process",
        "loading model",
        "no shared memory",
        "no Triton",
        "lost connection",
    ],
)
def test_unknown_triton_errors_become_5xx_without_leaking_text(error, expected, caplog):
    with pytest.raises(expected) as caught:
        run_model(Runner(error))
    assert caught.value.status >= 500
    assert "secret" not in caught.value.detail
    assert str(error).rpartition("] ")[2] in caplog.text


def test_slow_response_is_a_timeout():
    with pytest.raises(InferenceTimeout, match=r"no response within 0\.01 s"):
        run_model(Runner(seconds=30), timeout=0.01)
