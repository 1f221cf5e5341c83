"""examples/model_store: import, online and offline prediction, batches of several callers."""

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import pytest
import requests

from tests.e2e.examples.conftest import readme
from tests.e2e.server import ROOT

MISSING = [name for name in ("torch", "transformers") if find_spec(name) is None]
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}: make env-text"),
]
CALLERS = 24
BATCHES = re.compile(r"^bentoml_service_adaptive_batch_size_(sum|count){.*} (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Environment with a tiny GPT-2 and an empty model store."""
    folder = tmp_path_factory.mktemp("tiny")
    subprocess.run([sys.executable, "-m", "tests.e2e.examples.tiny_gpt2", folder], cwd=ROOT, check=True, timeout=120)
    home = tmp_path_factory.mktemp("home")
    settings = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return {"BENTOML_HOME": str(home), "TEXT_GENERATION_MODEL": str(folder), **settings}


def run(environment, *command: str) -> str:
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=True, timeout=120
    ).stdout


@pytest.fixture(scope="module")
def example(environment, serve):
    first = run(environment, sys.executable, "-m", "examples.model_store.prepare")
    assert run(environment, sys.executable, "-m", "examples.model_store.prepare") == first
    return serve("model_store", **environment)


def test_commands_of_the_readme(example, environment, reader):
    store, online, offline, metrics = readme("model_store")[-4:]
    listed, shown = run(environment, "bash", "-ec", store.code).split("\n", 1)
    assert "text_generation" in listed + shown
    (answer,) = json.loads(reader.run(online))
    assert answer.startswith("Once upon a time")
    assert len(answer) > len("Once upon a time")
    printed = run(environment, sys.executable, "-c", offline.code)
    assert printed.splitlines()[-1].startswith(str([answer])[:-1])
    assert "bentoml_service_adaptive_batch_size" in reader.run(metrics)


def test_requests_of_several_callers_are_batched(example):
    def ask(number: int) -> str:
        body = {"texts": [f"caller {number} says"]}
        for _ in range(20):  # on a busy machine, some would be answered later than `max_latency_ms`
            answer = requests.post(f"{example.url}/generate", json=body, timeout=60)
            if answer.status_code != 503:
                break
        assert answer.status_code == 200, answer.text
        (text,) = answer.json()
        return str(text)

    with ThreadPoolExecutor(CALLERS) as threads:
        answers = list(threads.map(ask, range(CALLERS)))
    assert all(text.startswith(f"caller {number} says") for number, text in enumerate(answers))
    found = BATCHES.findall(requests.get(f"{example.url}/metrics", timeout=60).text)
    texts, batches = (sum(float(value) for name, value in found if name == wanted) for wanted in ("sum", "count"))
    assert texts > batches
