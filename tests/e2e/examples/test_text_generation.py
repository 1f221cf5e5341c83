"""examples/text_generation: streamed and whole texts, errors, cancellation.

The model is a tiny GPT-2 if PyTorch and transformers are installed, or else a replacement of the language module only.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from tests.e2e.answers import problem
from tests.e2e.examples.conftest import readme
from tests.e2e.server import ROOT, Server, base_environment
from tests.unit.examples.models import load

EXAMPLE = ROOT / "examples" / "text_generation"
CHECK = EXAMPLE / "model_repository" / "text_generation_stream" / "1" / "text_generation_check.py"
LANGUAGE = "text_generation_stream/1/text_generation_language.py"
MISSING = [name for name in ("torch", "transformers") if find_spec(name) is None]
with_torch = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (`make text-test`)")
TEXT = "the quick brown fox"
MAX_TOKENS = 1024


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tiny GPT-2."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", folder], cwd=ROOT, check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def example(request, serve, tmp_path_factory):
    if not MISSING:
        model = str(request.getfixturevalue("model"))
        return serve("text_generation", HF_HUB_OFFLINE="1", TEXT_GENERATION_MODEL=model)
    repository = shutil.copytree(EXAMPLE / "model_repository", tmp_path_factory.mktemp("text_generation") / "models")
    shutil.copy(Path(__file__).with_name("stand_in_language.py"), repository / LANGUAGE)
    return serve("text_generation", MODEL_REPOSITORY=str(repository))


def ask(server: Server, **fields) -> requests.Response:
    """Send a request and return the streamed response."""
    return requests.post(f"{server.url}/generate", json=fields, stream=True, timeout=60)


def pieces(answer: requests.Response) -> list[str]:
    """Return the pieces of a complete answer."""
    assert answer.status_code == 200
    *lines, last = (json.loads(line) for line in answer.iter_lines())
    assert last == {"done": True}
    return [line["text_output"] for line in lines]


def triton_url(server: Server) -> str:
    """Return Triton's URL from the service's log."""
    (url,) = re.findall(r"Triton's own HTTP: (\S+)", server.log.read_text())
    return str(url)


def ends(server: Server) -> dict[str, int]:
    """Return the number of texts per outcome."""
    counted = requests.get(server.metrics_url, timeout=10).text
    found = re.findall(r'^text_generation_texts_total\{end="(\w+)"\} (\d+)', counted, re.MULTILINE)
    return {end: int(count) for end, count in found}


def ask_triton(example, inputs):
    url = f"{triton_url(example)}/v2/models/text_generation/infer"
    return requests.post(url, json={"inputs": inputs}, timeout=60).json()


@pytest.mark.e2e
def test_streamed_pieces_equal_the_whole_text_of_triton(example):
    streamed = pieces(ask(example, text_input=TEXT, max_new_tokens=24, seed=5))
    inputs = [
        {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": [TEXT]},
        {"name": "max_new_tokens", "datatype": "INT32", "shape": [1], "data": [24]},
        {"name": "seed", "datatype": "INT64", "shape": [1], "data": [5]},
    ]
    try:
        whole = ask_triton(example, inputs)
    except requests.ConnectionError:
        # A stub process of the wheel's Triton occasionally dies at start, and the watchdog restarts Triton. Callers of
        # the service do not notice, but this test calls Triton directly.
        time.sleep(2)  # until the watchdog notices
        whole = ask_triton(example.wait_until_ready(), inputs)
    assert len(streamed) > 1
    assert [output["data"] for output in whole["outputs"]] == [["".join(streamed)]]


@pytest.mark.e2e
def test_seed_determines_the_text_except_with_greedy_decoding(example):
    def text(**fields) -> str:
        return "".join(pieces(ask(example, text_input=TEXT, max_new_tokens=24, **fields)))

    assert text(seed=5) == text(seed=5)
    assert len({text(seed=5), text(seed=6), text(), text()}) == 4
    assert text(seed=5, temperature=0) == text(seed=6, temperature=0) == text(temperature=0)


@with_torch
@pytest.mark.e2e
def test_greedy_text_equals_that_of_transformers(example, model):
    command = [sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", model, TEXT, "24"]
    written = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=120)
    assert "".join(pieces(ask(example, text_input=TEXT, max_new_tokens=24, temperature=0))) + "\n" == written.stdout


@pytest.mark.e2e
def test_long_text_blocks_nobody_and_is_cancelled_on_disconnect(example):
    before = ends(example)
    with ask(example, text_input=TEXT, max_new_tokens=MAX_TOKENS) as long:
        lines = long.iter_lines()
        assert "text_output" in json.loads(next(lines))
        pieces(ask(example, text_input=TEXT, max_new_tokens=8))
        meanwhile = {**before, "complete": before["complete"] + 1}
        assert ends(example) == meanwhile
    while (after := ends(example)) == meanwhile:
        time.sleep(0.05)
    assert after == {**meanwhile, "left": before["left"] + 1}


@pytest.mark.e2e
def test_text_beyond_the_context_is_rejected(example):
    answer = ask(example, text_input="the " * 3000)
    assert answer.status_code == 422
    assert problem(answer)["detail"].startswith("text_input: expected at most 1984 tokens")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("body", "error"),
    [
        pytest.param(
            b'{"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["\xff"]}]}',
            "text_input: expected UTF-8, got byte 0xff at 0",
            id="not UTF-8",
        ),
        pytest.param(
            b'{"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["a"]},'
            b'{"name": "temperature", "datatype": "FP32", "shape": [1], "data": [2.5]}]}',
            "temperature: expected 0 to 2, got 2.5",
            id="temperature too high",
        ),
    ],
)
def test_triton_rejects_invalid_requests(example, body, error):
    answer = requests.post(f"{triton_url(example)}/v2/models/text_generation/infer", body, timeout=60)
    assert (answer.status_code, answer.json()) == (400, {"error": error})


@pytest.mark.e2e
def test_openapi_bounds_equal_those_of_the_model(example):
    bounds = load("text_generation", "text_generation_stream", "text_generation_request")
    schemas = requests.get(f"{example.url}/docs.json", timeout=10).json()["components"]["schemas"]
    fields = schemas["Request"]["properties"]
    assert fields["text_input"]["maxLength"] == bounds.MAX_CHARACTERS
    assert fields["max_new_tokens"]["maximum"] == bounds.MAX_NEW_TOKENS
    assert fields["max_new_tokens"]["default"] == bounds.DEFAULT_NEW_TOKENS
    assert fields["temperature"]["maximum"] == bounds.MAX_TEMPERATURE
    assert fields["temperature"]["default"] == bounds.DEFAULT_TEMPERATURE
    assert [kind.get("maximum") for kind in fields["seed"]["anyOf"]] == [bounds.MAX_SEED, None]


@pytest.mark.e2e
def test_readme_commands_run(example, reader, monkeypatch):
    monkeypatch.setenv("TRITON", triton_url(example))
    client, whole, _ = readme("text_generation")
    text = reader.run(client)
    assert text.startswith("Once upon a time")
    assert len(text) > len("Once upon a time")
    (output,) = json.loads(reader.run(whole))["outputs"]
    assert output["name"] == "text_output"


@pytest.mark.e2e
def test_client_prints_errors_in_one_line(reader):
    command = [sys.executable, "examples/text_generation/client.py", "the " * 3000]
    with pytest.raises(AssertionError, match="\nerror: text_input: expected at most 1984 tokens") as failure:
        reader.run_command(command, "client.py")
    assert "Traceback" not in str(failure.value)


@pytest.mark.e2e
def test_service_does_not_start_with_invalid_settings():
    bentoml = Path(sys.executable).parent / "bentoml"
    lines = run_to_failure(
        [bentoml, "serve", "examples.text_generation.service:svc", "--port", "1"], TEXT_GENERATION_DTYPE="int3"
    )
    assert lines[-1] == "error: TEXT_GENERATION_DTYPE: expected one of auto, float32, bfloat16, float16, got 'int3'"


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        pytest.param("DEVICE", "moon", "auto, cpu, cuda or cuda:N", id="device"),
        pytest.param("DEVICE", "cuda:99", "one of the", id="no such GPU", marks=with_torch),
        pytest.param("MODEL", "no/such", "the name or folder", id="no such model", marks=with_torch),
    ],
)
def test_check_reports_invalid_settings_in_one_line(variable, value, expected):
    (line,) = run_to_failure([sys.executable, CHECK], **{f"TEXT_GENERATION_{variable}": value})
    assert re.match(f"error: TEXT_GENERATION_{variable}: expected {expected}.*, got '{value}'", line)


@pytest.mark.skipif(not MISSING, reason="nothing is missing")
def test_check_reports_missing_packages_in_one_line():
    assert run_to_failure([sys.executable, CHECK]) == [
        f"error: {MISSING[0]} is not installed; install it with `make env-text`"
    ]


def run_to_failure(command: Sequence[str | Path], **environment: str) -> list[str]:
    """Run a command that must fail, and return its error lines."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**base_environment(), "BENTOML_DO_NOT_TRACK": "True", "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    return done.stderr.strip().splitlines()
