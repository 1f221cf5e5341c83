"""examples/ensemble: results, errors of steps, batches with an invalid request, a crashing step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest
import requests

from benchmarks.service import free_ports
from tests.e2e.answers import problem
from tests.e2e.examples.conftest import consecutive_ports, readme
from tests.e2e.pages import Reader
from tests.e2e.server import ROOT, Server

pytestmark = pytest.mark.e2e
INPUTS = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 0.5]}
CALLERS = 9
INVALID = {3, 6}


@pytest.fixture(scope="module")
def example(serve):
    return serve("ensemble")


def field_error(answer: requests.Response) -> tuple[str, str, str]:
    """Return field, expected and got of the only error in a problem document."""
    assert answer.status_code == 422
    (error,) = problem(answer)["errors"]
    return error["field"], error["expected"], error["got"]


def stub(server: Server, model: str) -> psutil.Process:
    """Return the process of a Python model."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = (process for process in processes if f"/{model}/1/model.py" in " ".join(process.cmdline()))
    return found


def wait_until_ready(server: Server, times: int) -> None:
    """Wait until the watchdog has reported Triton ready `times` times; before that Triton cannot stop cleanly."""
    while server.log.read_text().count("Triton is ready") < times:
        assert server.process.poll() is None
        time.sleep(0.05)


def test_client_prints_the_output_in_the_readme(reader):
    _, client, shown, *_ = readme("ensemble")
    assert reader.run(client) == shown.code


@pytest.fixture
def opened(serve):
    """First port of an open Triton, and its metrics address."""
    port = consecutive_ports(3)
    return port, serve("ensemble", EXAMPLE_OPEN=str(port)).metrics_url


def test_open_triton_prints_the_output_in_the_readme(opened, tmp_path):
    first, metrics_url = opened
    *_, commands, shown = readme("ensemble")
    addresses = {
        "127.0.0.1:8000": f"127.0.0.1:{first}",
        "127.0.0.1:8001": f"127.0.0.1:{first + 1}",
        "127.0.0.1:8002/metrics": metrics_url,
    }
    code = commands.code.replace("triton_client.py", "triton_client.py --grpc 127.0.0.1:8001")
    for default, address in addresses.items():
        code = code.replace(default, address)
    printed = Reader(tmp_path, "").run(replace(commands, code=code))
    assert printed == shown.code


def test_model_that_cannot_be_loaded_ends_the_service_with_one_line(tmp_path):
    repository = tmp_path / "model_repository"
    shutil.copytree(ROOT / "examples" / "ensemble" / "model_repository", repository)
    config = repository / "mul" / "config.pbtxt"
    config.write_text(config.read_text().replace('string_value: "1e12"', 'string_value: "many"'))
    ended = subprocess.run(
        [sys.executable, "-m", "bentoml", "serve", "examples.ensemble.service:svc", "--port", str(free_ports(1)[0])],
        cwd=ROOT,
        env={**os.environ, "MODEL_REPOSITORY": str(repository)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    *_, last = ended.stderr.splitlines()
    assert last.startswith("error: model mul cannot be loaded: Internal: ")
    assert last.endswith("largest: expected a positive number, got 'many'")


def test_ensemble_equals_its_steps_in_sequence(example):
    parts = example.post("/add_sub", **INPUTS).json()
    assert parts == {"SUM": [5, 5, 5, 4.5], "DIFFERENCE": [-3, -1, 1, 3.5]}
    product = example.post("/mul", input0=parts["SUM"], input1=parts["DIFFERENCE"]).json()
    assert example.post("/ensemble", **INPUTS).json() == product == {"OUTPUT": [-15, -5, 5, 15.75]}


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        pytest.param(
            {"input0": [1, 2e6, 3, 4]},
            ("OUTPUT[1]", "a product of at most 1e+12 in magnitude", "2e+06 * 2e+06"),
            id="limit of the second step",
        ),
        pytest.param(
            {"input0": [1, 2, 3, 3e38], "input1": [1, 2, 3, 2e38]},
            ("SUM[3]", "a finite FP32 number", "3e+38 + 2e+38"),
            id="overflow in the first step",
        ),
        pytest.param({"input0": [1e39, 2, 3, 4]}, ("SUM[0]", "a finite FP32 number", "inf + 0"), id="beyond FP32"),
        pytest.param({"input0": [1, 2, 3]}, ("input0", "at least 4 items", "a list of 3"), id="too few numbers"),
    ],
)
def test_error_of_a_step_becomes_a_422_with_its_message(example, inputs, expected):
    zeros = {"input0": [0] * 4, "input1": [0] * 4}
    assert field_error(example.post("/ensemble", **{**zeros, **inputs})) == expected


def test_invalid_request_in_a_batch_does_not_affect_the_others(example):
    def ask(number: int):
        return example.post("/add_sub", input0=[number] * 4, input1=[1e39 if number in INVALID else 1] * 4)

    executed = example.metric("nv_inference_exec_count", "add_sub")
    process = stub(example, "add_sub")
    with ThreadPoolExecutor(CALLERS) as callers:
        # The first request goes to the suspended process; the others queue up.
        process.suspend()
        try:
            answers = callers.map(ask, range(CALLERS))
            while example.metric("nv_inference_pending_request_count", "add_sub") < CALLERS // 2:
                time.sleep(0.05)
        finally:
            process.resume()
        for number, answer in enumerate(answers):
            if number in INVALID:
                assert field_error(answer) == ("SUM[0]", "a finite FP32 number", f"{number} + inf")
            else:
                assert answer.json() == {"SUM": [number + 1] * 4, "DIFFERENCE": [number - 1] * 4}
    assert example.metric("nv_inference_exec_count", "add_sub") - executed < CALLERS


def test_crashed_step_gives_503_until_restarted_and_models_print_statistics(example):
    """Must run last, because it stops the service."""
    wait_until_ready(example, times=1)
    stub(example, "mul").kill()
    statuses: set[int] = set()
    while (answer := example.post("/ensemble", **INPUTS)).status_code != 200 or not statuses:
        if answer.status_code != 200:
            assert problem(answer)["status"] == 503
            assert int(answer.headers["Retry-After"]) > 0
        statuses.add(answer.status_code)
    assert answer.json() == {"OUTPUT": [-15, -5, 5, 15.75]}
    example.post("/mul", input0=[1e9] * 4, input1=[1e9] * 4)
    wait_until_ready(example, times=2)
    assert example.stop() == 0
    assert "\nadd_sub: answered 1, rejected 0\n" in example.log.read_text()
    assert "\nmul: answered 1, rejected 1\n" in example.log.read_text()
