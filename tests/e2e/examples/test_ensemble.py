"""examples/ensemble: the pipe and its parts, a step's refusal, a batch with a bad request, a step that dies."""

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
AT_ONCE = 9
"""Requests."""
BAD = {3, 6}
"""Those of them that are refused."""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = start_server(tmp_path_factory.mktemp("ensemble") / "log", target="examples.ensemble.service:svc")
    yield running
    running.stop()


def refusal(answer: requests.Response, status: int = 422) -> list[tuple[str, str, str]]:
    """What a problem says of each field."""
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
    problem = answer.json()
    assert problem["status"] == status
    return [(error["field"], error["expected"], error["got"]) for error in problem["errors"]]


def stub(server: Server, model: str) -> psutil.Process:
    """The process that a model in Python runs in."""
    processes = psutil.Process(server.process.pid).children(recursive=True)
    (found,) = (process for process in processes if f"/{model}/1/model.py" in " ".join(process.cmdline()))
    return found


def wait_until_ready(server: Server, times: int) -> None:
    """Until Triton's watchdog has found it ready so often: one told to stop before ends without a word."""
    while server.log.read_text().count("Triton is ready") < times:
        assert server.process.poll() is None
        time.sleep(0.05)


@pytest.mark.e2e
def test_the_client_prints_what_the_readme_shows(example, tmp_path):
    page = f"{EXAMPLE}/README.md"
    _, start, client, shown = blocks(page, (ROOT / page).read_text())
    assert start.only_make
    assert Reader(tmp_path, example.url).run(client) == shown.code


@pytest.mark.e2e
def test_the_ensemble_answers_what_its_steps_answer_one_after_the_other(example):
    parts = example.post("/add_sub", **INPUTS).json()
    assert parts == {"SUM": [5, 5, 5, 4.5], "DIFFERENCE": [-3, -1, 1, 3.5]}
    by_hand = example.post("/mul", input0=parts["SUM"], input1=parts["DIFFERENCE"]).json()
    assert example.post("/ensemble", **INPUTS).json() == by_hand == {"OUTPUT": [-15, -5, 5, 15.75]}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("path", "inputs", "expected"),
    [
        pytest.param(
            "/ensemble",
            {"input0": [1, 2e6, 3, 4]},
            ("OUTPUT[1]", "a product of at most 1e+12 in magnitude", "2e+06 * 2e+06"),
            id="the second step's limit",
        ),
        pytest.param(
            "/mul",
            {"input0": [1, 2, 3e38, 4], "input1": [1, 1, -3e38, 1]},
            ("OUTPUT[2]", "a product of at most 1e+12 in magnitude", "3e+38 * -3e+38"),
            id="a product that overflows",
        ),
        pytest.param(
            "/ensemble",
            {"input0": [1, 2, 3, 3e38], "input1": [1, 2, 3, 2e38]},
            ("SUM[3]", "a number that FP32 can hold", "3e+38 + 2e+38"),
            id="a sum that overflows",
        ),
        pytest.param(
            "/add_sub",
            {"input0": [1, 2, 3, 3e38], "input1": [1, 2, 3, -2e38]},
            ("DIFFERENCE[3]", "a number that FP32 can hold", "3e+38 - -2e+38"),
            id="a difference that overflows",
        ),
        pytest.param(
            "/ensemble",
            {"input0": [1e39, 2, 3, 4]},
            ("SUM[0]", "a number that FP32 can hold", "inf + 0"),
            id="a number beyond FP32",
        ),
    ],
)
def test_what_a_step_refuses_reaches_the_caller_as_a_422_in_its_words(example, path, inputs, expected):
    zeros = {"input0": [0] * 4, "input1": [0] * 4}
    assert refusal(example.post(path, **{**zeros, **inputs})) == [expected]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("body", "status", "expected"),
    [
        pytest.param(b"four numbers", 400, ("body", "a JSON object in UTF-8"), id="no JSON"),
        pytest.param(b"[1, 2, 3, 4]", 422, ("body", "a JSON object", "a list of 4"), id="a list"),
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
            id="a text",
        ),
        pytest.param(
            b'{"input0": [NaN, 2, 3, 4], "input1": [1, 2, 3, 4]}',
            422,
            ("SUM[0]", "a number that FP32 can hold", "nan + 1"),
            id="no number",
        ),
        pytest.param(b'{"input0": [1, 2, 3, 4]}', 422, ("input1", "a value", "nothing"), id="an input missing"),
        pytest.param(
            b'{"input0": [1, 2, 3, 4], "input1": [1, 2, 3, 4], "input2": [1]}',
            422,
            ("input2", "one of the fields input0, input1", "an unknown field"),
            id="an input too many",
        ),
    ],
)
def test_a_body_that_is_not_two_times_four_numbers_is_refused_in_words(example, body, status, expected):
    answer = requests.post(f"{example.url}/ensemble", body, headers={"Content-Type": "application/json"}, timeout=60)
    assert [error[: len(expected)] for error in refusal(answer, status)] == [expected]


@pytest.mark.e2e
def test_a_bad_request_does_not_touch_those_that_triton_hands_over_with_it(example):
    def ask(number: int):
        return example.post("/add_sub", input0=[number] * 4, input1=[1e39 if number in BAD else 1] * 4)

    executed = example.metric("nv_inference_exec_count", "add_sub")
    process = stub(example, "add_sub")
    with ThreadPoolExecutor(AT_ONCE) as callers:
        # What comes first goes to the process that has been stopped, and the rest waits.
        process.suspend()
        try:
            answers = callers.map(ask, range(AT_ONCE))
            while example.metric("nv_inference_pending_request_count", "add_sub") < AT_ONCE // 2:
                time.sleep(0.05)
        finally:
            process.resume()
        for number, answer in enumerate(answers):
            if number in BAD:
                assert refusal(answer) == [("SUM[0]", "a number that FP32 can hold", f"{number} + inf")]
            else:
                assert answer.json() == {"SUM": [number + 1] * 4, "DIFFERENCE": [number - 1] * 4}
    assert example.metric("nv_inference_exec_count", "add_sub") - executed < AT_ONCE


@pytest.mark.e2e
def test_what_the_config_pbtxt_of_add_sub_leaves_out_triton_knows_from_the_model(example):
    text = (ROOT / EXAMPLE / "model_repository/add_sub/config.pbtxt").read_text()
    left_short = text_format.Parse(text, model_config_pb2.ModelConfig())
    assert (list(left_short.input), list(left_short.output), left_short.max_batch_size) == ([], [], 0)
    service = Service(psutil.Process(example.process.pid), 0, example.metrics_url)
    told = requests.get(f"http://127.0.0.1:{service.triton_port()}/v2/models/add_sub", timeout=60).json()
    four = {"datatype": "FP32", "shape": [-1, 4]}
    assert told["inputs"] == [{"name": "INPUT0", **four}, {"name": "INPUT1", **four}]
    assert told["outputs"] == [{"name": "SUM", **four}, {"name": "DIFFERENCE", **four}]


@pytest.mark.e2e
def test_a_step_that_dies_is_a_503_until_it_is_back_and_each_says_at_the_end_what_it_did(example):
    """The last test: it stops the service."""
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
    assert "\nadd_sub: answered 1, refused 0\n" in example.log.read_text()
    assert "\nmul: answered 1, refused 1\n" in example.log.read_text()
