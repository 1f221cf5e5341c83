"""Modules of examples/text_generation that need neither Triton nor PyTorch."""

from __future__ import annotations

import sys
from collections import Counter
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.examples import models

load = partial(models.load, "text_generation", "text_generation_stream")
Pieces = load("text_generation_pieces").Pieces
request = load("text_generation_request")
settings = load("text_generation_settings")


def decode_bytes(tokens) -> str:
    """Decode the tokens of a byte tokenizer."""
    return bytes(tokens).decode(errors="replace")


def decode_words(tokens) -> str:
    """Decode the tokens of a word tokenizer that drops the space of the first word."""
    return "".join(f" word{token}" for token in tokens).removeprefix(" ")


def decode_digits(tokens) -> str:
    """Decode the tokens of a tokenizer whose token 0 has no text."""
    return "".join("" if token == 0 else str(token) for token in tokens)


@pytest.mark.parametrize(
    ("decode", "prompt", "tokens", "sent"),
    [
        pytest.param(decode_bytes, b"so far: ", b"ab", ["a", "b"], id="one byte per character"),
        pytest.param(decode_bytes, b"so far: ", "é🙂".encode(), ["é", "🙂"], id="several bytes per character"),
        pytest.param(decode_bytes, b"so far: ", b"a\xc3", ["a", "\ufffd"], id="incomplete character at the end"),
        pytest.param(decode_words, [1], [8, 9], [" word8", " word9"], id="space of the first word"),
        pytest.param(decode_words, [1, 2, 3, 4, 5, 6, 7], [8, 9], [" word8", " word9"], id="prompt beyond the context"),
        pytest.param(decode_digits, [1], [0, 2, 0], ["2"], id="token without text"),
    ],
)
def test_tokens_are_sent_as_pieces_of_text(decode, prompt, tokens, sent):
    found: list[str] = []
    pieces = Pieces(decode, found.append)
    pieces.put(np.array([list(prompt)]))
    for token in tokens:
        pieces.put(np.array([token]))
    pieces.end()
    assert found == sent


def parse(text=b"a text", **numbers):
    """Parse a request with these inputs."""
    return request.GenerationRequest.of(
        {"text_input": np.array([text], np.object_), **{n: np.array([v]) for n, v in numbers.items()}}
    )


def test_request_has_the_given_values_and_defaults_with_a_random_seed():
    expected = request.GenerationRequest("a text", 1, 0.0, 2**32 - 1)
    assert parse(max_new_tokens=1, temperature=0, seed=2**32 - 1) == expected
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


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({"MODEL": "", "DTYPE": ""}, ("gpt2", "auto", "auto"), id="empty or unset"),
        pytest.param(
            {"MODEL": "tiiuae/falcon-7b", "DTYPE": "bfloat16", "DEVICE": "cuda:1"},
            ("tiiuae/falcon-7b", "bfloat16", "cuda:1"),
            id="set",
        ),
    ],
)
def test_settings_are_read_from_the_environment(environment, expected):
    variables = {f"TEXT_GENERATION_{name}": value for name, value in environment.items()}
    assert settings.Settings.of(variables) == settings.Settings(*expected)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        pytest.param("DTYPE", "int8", "expected one of auto, float32, bfloat16, float16, got 'int8'", id="dtype"),
        pytest.param("DEVICE", "cuda:", "expected auto, cpu, cuda or cuda:N, got 'cuda:'", id="device"),
    ],
)
def test_invalid_setting_is_rejected_and_named(name, value, error):
    with pytest.raises(settings.SettingsError) as caught:
        settings.Settings.of({f"TEXT_GENERATION_{name}": value})
    assert str(caught.value) == f"TEXT_GENERATION_{name}: {error}"


class FailingLanguage:
    """Language model that fails after one piece."""

    def __init__(self, _) -> None:
        pass

    def write(self, request, send, stop) -> None:
        send(f"after {request.text}")
        raise RuntimeError("out of memory at 0x1234")


class Request(dict[str, Any]):
    """Request that is its own response sender and records texts, errors and the final flag."""

    def get_response_sender(self):
        self.sent: list[Any] = []
        return self

    def send(self, response=None, flags=None) -> None:
        self.sent.append(flags if response is None else response.error or response.outputs["text_output"][0].decode())


def test_failure_during_generation_sends_an_error_and_logs_the_cause(monkeypatch):
    utils, language = models.fake_utils(), ModuleType("text_generation_language")
    counted: Counter[str] = Counter()
    logged: list[str] = []

    class Family:
        COUNTER = "counter"

        def __init__(self, *_) -> None:
            pass

        def Metric(self, labels):  # noqa: N802
            return SimpleNamespace(increment=lambda by: counted.update({labels["end"]: by}))

    utils.MetricFamily, utils.Logger = Family, SimpleNamespace(log_error=logged.append)
    utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL = "final"
    monkeypatch.setattr(language, "Language", FailingLanguage, raising=False)
    for module in (utils, language):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    model = load("model").TritonPythonModel()
    model.initialize({})
    text = Request(text_input=np.array([b"a text"], np.object_))
    model.execute([text])
    model.threads.shutdown()
    assert text.sent == ["after a text", "text generation failed", "final"]
    assert counted == {"failed": 1}
    assert logged == ["text generation failed: RuntimeError('out of memory at 0x1234')"]
