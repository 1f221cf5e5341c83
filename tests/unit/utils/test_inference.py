"""Asking Triton, with a stand-in for its client."""

from __future__ import annotations

import asyncio

import aiohttp
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from utils.errors import FieldError, InferenceFailed, InferenceTimeout, InferenceUnavailable, InvalidRequest
from utils.inference import UNCOMPRESSED, infer

NUMBERS = np.array([[1, 2, 3]], np.float32)
TEXTS = np.array([[b"one"]], np.object_)


class Answer:
    """Like `tritonclient.http.InferResult`."""

    def as_numpy(self, name: str):
        return np.array([len(name)])


class Runner:
    """Answers like a `bentoml.triton.Runner`, and keeps what it was asked."""

    def __init__(self, error: BaseException | None = None, seconds: float = 0) -> None:
        self.error, self.seconds = error, seconds
        self.calls: list[dict] = []

    async def infer(self, **call):
        self.calls.append(call)
        await asyncio.sleep(self.seconds)
        if self.error:
            raise self.error
        return Answer()


def asked(runner: Runner, timeout: float = 30):
    return asyncio.run(infer(runner, "a_model", {"NUMBERS": NUMBERS, "TEXTS": TEXTS}, ["ONE", "THREE"], timeout))


def refusal(message: str, status: str = "400") -> InferenceServerException:
    return InferenceServerException(message, status)


def test_inputs_are_sent_as_they_are_and_outputs_come_by_name():
    runner = Runner()
    assert asked(runner) == {"ONE": np.array([3]), "THREE": np.array([5])}
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
def test_a_models_refusal_is_told_to_the_caller_in_its_words(message, field):
    with pytest.raises(InvalidRequest) as caught:
        asked(Runner(refusal(message)))
    assert caught.value.errors == (FieldError(*field),)


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (refusal("image: expected a JPEG, got 3 bytes", "500"), InferenceFailed),
        (refusal("unexpected shape for input 'NUMBERS' at /secret: expected [1], got [2]"), InferenceFailed),
        (refusal("in ensemble 'a_pipe', KeyError: /secret"), InferenceFailed),
        (refusal("Failed to process: Stub process '/secret' is not healthy.", "500"), InferenceUnavailable),
        (refusal("Request for unknown model: '/secret' is not ready", "400"), InferenceUnavailable),
        (refusal("Failed to increase the shared memory pool of /secret", "500"), InferenceUnavailable),
        (aiohttp.ClientConnectionError("/secret"), InferenceUnavailable),
        (ConnectionResetError("/secret"), InferenceUnavailable),
    ],
    ids=[
        "a model's failure that looks like a refusal",
        "Triton's own refusal",
        "a failure in an ensemble",
        "a dead process",
        "a model that is being loaded",
        "no shared memory",
        "no Triton",
        "a lost connection",
    ],
)
def test_what_else_goes_wrong_is_ours_and_tritons_text_is_for_the_log_alone(error, wanted, caplog):
    with pytest.raises(wanted) as caught:
        asked(Runner(error))
    assert caught.value.status >= 500
    assert "secret" not in caught.value.detail
    assert str(error).rpartition("] ")[2] in caplog.text


def test_no_answer_in_time_is_a_timeout():
    with pytest.raises(InferenceTimeout, match=r"no response within 0\.01 s"):
        asked(Runner(seconds=30), timeout=0.01)
