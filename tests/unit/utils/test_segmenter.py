"""The call of Triton, with a stand-in for its client."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from utils import tensors
from utils.errors import InferenceFailed, InferenceTimeout, InferenceUnavailable, RejectedByModel
from utils.prompts import Prompt
from utils.segmenter import Job, TritonSegmenter

PROMPT = Prompt(np.array([[1, 2], [3, 4]], np.float32), np.array([1, 0], np.int32), ("pos_coords[0]", "neg_coords[0]"))
JOB = Job(b"file", PROMPT, True, "png", "none")


class Client:
    """Answers like `tritonclient.http.aio.InferenceServerClient.infer`, and keeps what it was asked."""

    def __init__(self, error: BaseException | None = None, delay: float = 0, **outputs: bytes) -> None:
        self.error, self.delay, self.outputs = error, delay, outputs

    async def infer(self, **call):
        self.call = call
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error
        return self

    def as_numpy(self, name: str):
        return np.array([self.outputs.get(name, b"")], np.object_)


def segment(client: Client):
    return asyncio.run(TritonSegmenter(client.infer, timeout=0.2).segment(JOB))


def test_the_parts_of_the_answer_are_handed_on():
    answer = segment(Client(mask=b"m", picture=b"p", result=b"r"))
    assert (answer.mask, answer.picture, answer.result) == (b"m", b"p", b"r")


def test_no_picture_is_none():
    assert segment(Client(mask=b"m", result=b"r")).picture is None


def test_inputs_are_as_declared():
    client = Client()
    segment(client)
    assert client.call["model_name"] == tensors.MODEL
    sent = {entry.name(): (entry.datatype(), tuple(entry.shape())) for entry in client.call["inputs"]}
    for declared in tensors.INPUTS:
        datatype, shape = sent.pop(declared.name)
        assert datatype == declared.datatype
        assert len(shape) == len(declared.shape)
        assert all(want in {-1, have} for want, have in zip(declared.shape, shape, strict=True))
    assert not sent


def test_a_problem_names_points_as_the_caller_did():
    document = {
        "status": 422,
        "slug": "invalid-request",
        "title": "The request is not valid",
        "detail": "",
        "errors": [{"field": "points[0][1]", "expected": "inside", "got": "outside"}],
    }
    with pytest.raises(RejectedByModel) as caught:
        segment(Client(problem=json.dumps(document).encode()))
    problem = caught.value.problem()
    assert problem.status == 422
    assert problem.errors[0].field == "neg_coords[0]"
    assert problem.detail == "neg_coords[0]: expected inside, got outside"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(aiohttp.ClientConnectionError("127.0.0.1:4711 refused"), InferenceUnavailable, id="refused"),
        pytest.param(ConnectionResetError("secret"), InferenceUnavailable, id="reset"),
        pytest.param(InferenceServerException("/secret/path failed", status="500"), InferenceFailed, id="failed"),
        pytest.param(
            InferenceServerException("Request for unknown model: 'mobile_sam' is not ready", status="400"),
            InferenceUnavailable,
            id="loading",
        ),
    ],
)
def test_tritons_own_words_never_reach_the_caller(error, expected):
    with pytest.raises(expected) as caught:
        segment(Client(error))
    text = caught.value.problem().encode()
    assert b"secret" not in text
    assert b"127.0.0.1" not in text


def test_a_slow_triton_is_a_timeout():
    with pytest.raises(InferenceTimeout, match=r"no answer within 0\.2 s"):
        segment(Client(delay=5))
