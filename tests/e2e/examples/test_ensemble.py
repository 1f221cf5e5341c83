"""examples/ensemble: results, errors of steps, batches with an invalid request, a crashing step."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest
import requests
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from benchmarks.service import Service
from tests.e2e.pages import Reader, blocks
from tests.e2e.server import ROOT, Server, start_server

EXAMPLE = "examples/ensemble"
INPUTS = {"input0": [1, 2, 3, 4], "input1": [4, 3, 2, 0.5]}
CALLERS = 9
INVALID = {3, 6}


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("ensemble") / "log", target="examples.ensemble.service:svc")
    yield running
    running.stop()


def field_errors(answer: requests.Response, status: int = 422) -> list[tuple[str, str, str]]:
    """Return field, expected and got of each error in a problem document."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["status"] == status
    return [(error["field"], error["expected"], error["got"]) for error in problem["errors"]]


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


@pytest.mark.e2e
def test_client_prints_the_output_in_the_readme(example, tmp_path):
    page = f"{EXAMPLE}/README.md"
    _, start, client, shown = blocks(page, (ROOT / page).read_text())
    assert start.only_make
    assert Reader(tmp_path, example.url).run(client) == shown.code


@pytest.mark.e2e
def test_ensemble_equals_its_steps_in_sequence(example):
    parts = example.post("/add_sub", **INPUTS).json()
    assert parts == {"SUM": [5, 5, 5, 4.5], "DIFFERENCE": [-3, -1, 1, 3.5]}
    product = example.post("/mul", input0=parts["SUM"], input1=parts["DIFFERENCE"]).json()
    assert example.post("/ensemble", **INPUTS).json() == product == {"OUTPUT": [-15, -5, 5, 15.75]}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("path", "inputs", "expected"),
    [
        pytest.param(
            "/ensemble",
            {"input0": [1, 2e6, 3, 4]},
            ("OUTPUT[1]", "a product of at most 1e+12 in magnitude", "2e+06 * 2e+06"),
            id="limit of the second step",
        ),
        pytest.param(
            "/mul",
            {"input0": [1, 2, 3e38, 4], "input1": [1, 1, -3e38, 1]},
            ("OUTPUT[2]", "a product of at most 1e+12 in magnitude", "3e+38 * -3e+38"),
            id="overflowing product",
        ),
        pytest.param(
            "/ensemble",
            {"input0": [1, 2, 3, 3e38], "input1": [1, 2, 3, 2e38]},
            ("SUM[3]", "a finite FP32 number", "3e+38 + 2e+38"),
            id="overflowing sum",
        ),
        pytest.param(
            "/add_sub",
            {"input0": [1, 2, 3, 3e38], "input1": [1, 2, 3, -2e38]},
            ("DIFFERENCE[3]", "a finite FP32 number", "3e+38 - -2e+38"),
            id="overflowing difference",
        ),
        pytest.param(
            "/ensemble",
            {"input0": [1e39, 2, 3, 4]},
            ("SUM[0]", "a finite FP32 number", "inf + 0"),
            id="input beyond FP32",
        ),
    ],
)
def test_error_of_a_step_becomes_a_422_with_its_message(example, path, inputs, expected):
    zeros = {"input0": [0] * 4, "input1": [0] * 4}
    assert field_errors(example.post(path, **{**zeros, **inputs})) == [expected]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        pytest.param(b"four numbers", 400, ("body", "a JSON object in UTF-8"), id="not JSON"),
        pytest.param(b"[1, 2, 3, 4]", 422, ("body", "a JSON object", "a list of 4"), id="list"),
        pytest.param(
            b'{"input0": [1, 2, 3], "input1": [1, 2, 3, 4]}',
            422,
            ("input0", "at least 4 items", "a list of 3"),
            id="too few",
        ),
        pytest.param(
            b'{"input0": [1, 2, 3, 4, 5], "input1": [1, 2, 3, 4]}',
            422,
            ("input0", "at most 4 items", "a list of 5"),
            id="too many",
        ),
        pytest.param(
            b'{"input0": [1, 2, 3, "4"], "input1": [1, 2, 3, 4]}',
            422,
            ("input0[3]", "a valid number", "'4'"),
            id="string",
        ),
        pytest.param(
            b'{"input0": [NaN, 2, 3, 4], "input1": [1, 2, 3, 4]}',
            422,
            ("SUM[0]", "a finite FP32 number", "nan + 1"),
            id="NaN",
        ),
        pytest.param(b'{"input0": [1, 2, 3, 4]}', 422, ("input1", "a value", "nothing"), id="missing input"),
        pytest.param(
            b'{"input0": [1, 2, 3, 4], "input1": [1, 2, 3, 4], "input2": [1]}',
            422,
            ("input2", "one of the fields input0, input1", "an unknown field"),
            id="unknown input",
        ),
    ],
)
def test_invalid_body_is_rejected(example, body, status, expected):
    answer = requests.post(f"{example.url}/ensemble", body, headers={"Content-Type": "application/json"}, timeout=60)
    assert [error[: len(expected)] for error in field_errors(answer, status)] == [expected]


@pytest.mark.e2e
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
                assert field_errors(answer) == [("SUM[0]", "a finite FP32 number", f"{number} + inf")]
            else:
                assert answer.json() == {"SUM": [number + 1] * 4, "DIFFERENCE": [number - 1] * 4}
    assert example.metric("nv_inference_exec_count", "add_sub") - executed < CALLERS


@pytest.mark.e2e
def test_auto_complete_config_adds_the_tensors_of_add_sub(example):
    text = (ROOT / EXAMPLE / "model_repository/add_sub/config.pbtxt").read_text()
    config = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert (list(config.input), list(config.output), config.max_batch_size) == ([], [], 0)
    service = Service(psutil.Process(example.process.pid), 0, example.metrics_url)
    metadata = requests.get(f"http://127.0.0.1:{service.triton_port()}/v2/models/add_sub", timeout=60).json()
    four = {"datatype": "FP32", "shape": [-1, 4]}
    assert metadata["inputs"] == [{"name": "INPUT0", **four}, {"name": "INPUT1", **four}]
    assert metadata["outputs"] == [{"name": "SUM", **four}, {"name": "DIFFERENCE", **four}]


@pytest.mark.e2e
def test_crashed_step_gives_503_until_restarted_and_models_print_statistics(example):
    """Must run last, because it stops the service."""
    wait_until_ready(example, times=1)
    stub(example, "mul").kill()
    statuses: set[int] = set()
    while (answer := example.post("/ensemble", **INPUTS)).status_code != 200 or not statuses:
        if answer.status_code != 200:
            assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
            assert int(answer.headers["Retry-After"]) > 0
        statuses.add(answer.status_code)
    assert answer.json() == {"OUTPUT": [-15, -5, 5, 15.75]}
    example.post("/mul", input0=[1e9] * 4, input1=[1e9] * 4)
    wait_until_ready(example, times=2)
    assert example.stop() == 0
    assert "\nadd_sub: answered 1, rejected 0\n" in example.log.read_text()
    assert "\nmul: answered 1, rejected 1\n" in example.log.read_text()
