"""examples/text_generation with a tiny GPT-2: streamed and whole texts, errors, cancellation, Triton's own commands."""

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import requests

from tests.e2e.examples.conftest import consecutive_ports, readme, run_open
from tests.e2e.pages import matches
from tests.e2e.server import ROOT, Server

MISSING = [name for name in ("torch", "transformers") if find_spec(name) is None]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}: make env-text"),
]
TEXT = "the quick brown fox"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny GPT-2."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", folder], cwd=ROOT, check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def port() -> int:
    """First port of the open Triton."""
    return consecutive_ports(3)


@pytest.fixture(scope="module")
def example(serve, model, port):
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TEXT_GENERATION_MODEL": str(model)}
    return serve("text_generation", EXAMPLE_OPEN=str(port), **environment)


def ask(server: Server, **fields) -> requests.Response:
    """Send a request and return the streamed response."""
    return requests.post(f"{server.url}/generate", json=fields, stream=True, timeout=60)


def test_open_triton_prints_the_output_in_the_readme(example, port, tmp_path):
    """Runs first, because the README shows counts since the start."""
    *_, commands, shown, _ = readme("text_generation")
    assert matches(shown, run_open(commands, tmp_path, example, port))


def test_streamed_text_equals_that_of_transformers_and_of_one_response(example, model, port):
    command = [sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", model, TEXT, "200"]
    expected = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120).stdout
    request = {"text_input": TEXT, "max_new_tokens": 200}
    streamed = list(ask(example, **request).iter_content(None, decode_unicode=True))
    assert len(streamed) > 1
    assert "".join(streamed) + "\n" == expected
    url = f"http://127.0.0.1:{port}/v2/models/text_generation/generate"
    assert requests.post(url, json=request, timeout=60).json()["text_output"] + "\n" == TEXT + expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", "invalid request: expected 1 to 2048 tokens with max_new_tokens, got 0 + 64", id="empty"),
        pytest.param("the " * 3000, "invalid request: expected 1 to 2048 tokens with max_new_tokens, got ", id="long"),
    ],
)
def test_error_of_the_language_model_reaches_the_caller_of_the_plain_model(example, port, text, message):
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [text]}]}
    answer = requests.post(f"http://127.0.0.1:{port}/v2/models/text_generation/infer", json=body, timeout=60)
    assert answer.status_code == 400
    assert message in answer.json()["error"]


def test_temperature_samples_the_text(example):
    texts = {ask(example, text_input=TEXT, max_new_tokens=24, temperature=1).text for _ in range(4)}
    assert len(texts) == 4


def test_long_text_blocks_nobody_and_is_cancelled_on_disconnect(example):
    (stub,) = (
        process
        for process in psutil.Process(example.process.pid).children(recursive=True)
        if "/text_generation_stream/1/model.py" in " ".join(process.cmdline())
    )

    def used() -> float:
        """Return the CPU time of the model's process."""
        return float(sum(stub.cpu_times()[:2]))

    request = {"text_input": TEXT, "max_new_tokens": 1900, "temperature": 1}
    start = used()
    assert ask(example, **request).text
    whole_text = used() - start
    with ask(example, **request) as long:
        assert next(long.iter_content(None))
        assert ask(example, text_input=TEXT, max_new_tokens=8).text
    before = -1.0
    while before != (before := used()):  # until it is idle
        time.sleep(3)
    assert before - start - whole_text < 0.7 * whole_text


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({}, "expected a JSON object with a text_input", id="no text"),
        pytest.param({"text_input": ""}, "expected 1 to 2048 tokens with max_new_tokens, got 0 + 64", id="empty"),
        pytest.param({"text_input": "the " * 3000}, "expected 1 to 2048 tokens with max_new_tokens, got ", id="long"),
        pytest.param({"text_input": TEXT, "max_new_tokens": 0}, "must be greater than 0", id="no tokens"),
        pytest.param({"text_input": TEXT, "temperature": -1}, "strictly positive", id="negative temperature"),
    ],
)
def test_invalid_request_is_a_400_with_the_reason(example, fields, message):
    answer = ask(example, **fields)
    assert answer.status_code == 400
    assert message in answer.json()


def test_client_prints_the_continuation(reader):
    client, *_ = readme("text_generation")
    text = reader.run(client)
    assert text.startswith("Once upon a time")
    assert len(text) > len("Once upon a time\n")
