"""examples/text_generation and examples/model_store, with one tiny GPT-2: texts, pieces,
batches, errors, READMEs.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec

import psutil
import pytest
import requests

from harness import ROOT, Server
from tests.e2e.examples.conftest import readme, run_open
from tests.e2e.pages import Reader, matches

MISSING = [name for name in ("torch", "transformers") if find_spec(name) is None]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}: make env-text"),
]
TEXT = "the quick brown fox"
CALLERS = 24
RESTART_S = 480
BATCHES = re.compile(r"^bentoml_service_adaptive_batch_size_(sum|count){.*} (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Environment variables with a tiny GPT-2 and an empty model store."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run(
        [sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", folder],
        cwd=ROOT,
        check=True,
        timeout=120,
    )
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TEXT_GENERATION_MODEL": str(folder)}
    return {"BENTOML_HOME": str(tmp_path_factory.mktemp("home")), **settings}


@pytest.fixture(scope="module")
def example(serve, environment, port):
    return serve("text_generation", EXAMPLE_OPEN=str(port), **environment)


@pytest.fixture(scope="module")
def store(serve, environment):
    assert "text_generation:" in run(
        environment, sys.executable, "-m", "examples.model_store.prepare"
    )
    return serve("model_store", **environment)


def run(environment, *command: str) -> str:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout


def when_running(
    send: Callable[[], requests.Response], unavailable: Callable[[requests.Response], bool]
) -> requests.Response:
    """Return the answer to a request, sent again while Triton restarts.

    It restarts if the language model's process misses a second of a busy processor, which may
    happen again while it starts.
    """
    until = time.monotonic() + RESTART_S
    while time.monotonic() < until:
        with suppress(requests.ConnectionError):
            answer = send()
            if not unavailable(answer):
                return answer
            answer.close()
        time.sleep(1)
    pytest.fail(f"unavailable for {RESTART_S} s")


def ask(server: Server, **fields) -> requests.Response:
    """Send a request and return the streamed response."""

    def send() -> requests.Response:
        return requests.post(f"{server.url}/generate", json=fields, stream=True, timeout=60)

    return when_running(send, lambda answer: answer.status_code == 503)


def ask_triton(port: int, path: str, body: Mapping[str, object]) -> requests.Response:
    """Send a request to the open Triton."""

    def send() -> requests.Response:
        return requests.post(f"http://127.0.0.1:{port}/v2/models/{path}", json=body, timeout=60)

    return when_running(
        send, lambda answer: answer.status_code != 200 and "is not healthy" in answer.text
    )


def ask_store(server: Server, text: str) -> str:
    for _ in range(20):  # on a busy machine, some would be answered later than `max_latency_ms`
        answer = requests.post(f"{server.url}/generate", json={"texts": [text]}, timeout=60)
        if answer.status_code != 503:
            break
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()
    return str(found)


def language_model(server: Server) -> psutil.Process:
    """Return the process of the language model."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    (stub,) = (
        one for one in processes if "/text_generation_stream/1/model.py" in " ".join(one.cmdline())
    )
    return stub


def test_open_triton_prints_the_output_in_the_readme(example, port, tmp_path):
    """Runs first, because the README shows counts since the start."""
    *_, commands, shown, _, _ = readme("text_generation")
    assert matches(shown, run_open(commands, tmp_path, example, port))


def test_text_in_pieces_at_once_and_from_the_store_is_the_same(example, store, port):
    request = {"text_input": TEXT, "max_new_tokens": 32}
    pieces = list(ask(example, **request).iter_content(None, decode_unicode=True))
    assert len(pieces) > 1
    answer = ask_triton(port, "text_generation/generate", request)
    assert answer.json()["text_output"] == TEXT + "".join(pieces)
    assert ask_store(store, TEXT) == TEXT + "".join(pieces)


def test_temperature_samples_the_text(example):
    assert (
        len(
            {ask(example, text_input=TEXT, max_new_tokens=24, temperature=1).text for _ in range(4)}
        )
        == 4
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({}, "expected a JSON object with a text_input", id="no text"),
        pytest.param(
            {"text_input": "the " * 3000},
            "expected 1 to 2048 tokens with max_new_tokens, got ",
            id="long",
        ),
        pytest.param(
            {"text_input": TEXT, "max_new_tokens": 0}, "must be greater than 0", id="no tokens"
        ),
        pytest.param(
            {"text_input": TEXT, "temperature": -1}, "strictly positive", id="negative temperature"
        ),
    ],
)
def test_invalid_request_is_a_400_with_the_reason(example, fields, message):
    answer = ask(example, **fields)
    assert answer.status_code == 400
    assert message in answer.json()


def test_model_of_the_article_s_name_answers_as_in_the_article(example, port):
    body = {
        "inputs": [
            {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["How can you be"]}
        ]
    }
    answers = []
    for model in ("falcon7b", "text_generation"):
        answer = ask_triton(port, f"{model}/infer", body)
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())
    assert (answers[0]["model_name"], answers[0]["model_version"]) == ("falcon7b", "1")
    assert answers[0]["outputs"] == answers[1]["outputs"]
    (output,) = answers[0]["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("text_output", "BYTES", [1])
    assert output["data"][0].startswith("How can you be")
    assert len(output["data"][0]) > len("How can you be")


def test_error_of_the_language_model_reaches_the_caller_of_the_plain_model(example, port):
    body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [""]}]}
    answer = ask_triton(port, "text_generation/infer", body)
    assert answer.status_code == 400
    assert (
        "invalid request: expected 1 to 2048 tokens with max_new_tokens, got 0 + 64"
        in answer.json()["error"]
    )


def test_restart_of_triton_is_a_503(example):
    stub = language_model(example)
    stub.suspend()
    try:
        answer = requests.post(f"{example.url}/generate", json={"text_input": TEXT}, timeout=60)
    finally:
        with suppress(psutil.NoSuchProcess):  # the watchdog has ended it already
            stub.resume()
    assert answer.status_code == 503
    assert ask(example, text_input=TEXT, max_new_tokens=8).text


def test_long_text_blocks_nobody_and_is_cancelled_on_disconnect(example):
    stub = language_model(example)

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
        time.sleep(1)
    assert before - start - whole_text < 0.7 * whole_text


def test_client_prints_the_continuation(reader):
    client, *_ = readme("text_generation")
    text = reader.run(client)
    assert text.startswith("Once upon a time")
    assert len(text) > len("Once upon a time\n")


def test_commands_of_the_store_s_readme(store, environment, tmp_path):
    listing, online, offline, metrics = readme("model_store")[-4:]
    reader = Reader(tmp_path, store.url)
    assert "text_generation" in run(environment, "bash", "-ec", listing.code)
    (answer,) = json.loads(reader.run(online))
    assert answer.startswith("Once upon a time")
    assert (
        run(environment, sys.executable, "-c", offline.code)
        .splitlines()[-1]
        .startswith(str([answer])[:-1])
    )
    assert "bentoml_service_adaptive_batch_size" in reader.run(metrics)


def test_requests_of_several_callers_are_batched_by_the_store(store):
    texts = [f"caller {number} says" for number in range(CALLERS)]
    with ThreadPoolExecutor(CALLERS) as threads:
        answers = list(threads.map(lambda text: ask_store(store, text), texts))
    assert all(answer.startswith(text) for answer, text in zip(answers, texts, strict=True))
    found = BATCHES.findall(requests.get(f"{store.url}/metrics", timeout=60).text)
    taken, batches = (
        sum(float(value) for name, value in found if name == wanted) for wanted in ("sum", "count")
    )
    assert taken > batches
