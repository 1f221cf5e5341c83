"""examples/ensemble: results, errors of steps, Triton's own commands."""

import re
import shutil
from ctypes.util import find_library
from dataclasses import replace

import pytest

from harness import ROOT, wait_until
from harness.server import serve_expecting_failure
from tests.e2e.examples.conftest import readme, run_open
from tests.e2e.pages import blocks
from tests.skips import PACKAGES

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
INPUTS = {"INPUT0": [1, 2, 3, 4], "INPUT1": [4, 3, 2, 0.5]}


@pytest.fixture(scope="module")
def example(serve, port):
    return serve("ensemble", EXAMPLE_OPEN=str(port))


# Runs first, because the README shows counts since the start.
def test_open_triton_prints_the_output_in_the_readme(example, port, tmp_path):
    *_, commands, shown = readme("ensemble")
    code = commands.code.replace("triton_client.py", "triton_client.py --url 127.0.0.1:8000")
    assert run_open(replace(commands, code=code), tmp_path, example, port) == shown.code


def test_client_prints_the_output_in_the_readme(reader):
    _, client, shown, *_ = readme("ensemble")
    assert reader.run(client) == shown.code


def test_model_that_cannot_be_loaded_ends_the_service_with_one_line(tmp_path):
    repository = tmp_path / "model_repository"
    shutil.copytree(ROOT / "examples" / "ensemble" / "model_repository", repository)
    config = repository / "mul" / "config.pbtxt"
    config.write_text(config.read_text().replace('string_value: "1e12"', 'string_value: "many"'))
    ended = serve_expecting_failure(
        target="examples.ensemble.service:svc", MODEL_REPOSITORY=str(repository)
    )
    assert ended.returncode == 1
    *_, last = ended.stderr.splitlines()
    assert last.startswith("error: model mul cannot be loaded: Internal: ")
    assert last.endswith("could not convert string to float: 'many'")


def test_ensemble_multiplies_sum_and_difference(example):
    assert example.post("/add_sub", **INPUTS).json() == {
        "OUTPUT0": [5, 5, 5, 4.5],
        "OUTPUT1": [-3, -1, 1, 3.5],
    }
    assert example.post("/ensemble", **INPUTS).json() == {"OUTPUT": [-15, -5, 5, 15.75]}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        pytest.param(
            {"INPUT0": [1, 2e6, 3, 4]},
            "OUTPUT: expected products of at most 1e+12 in magnitude",
            id="second step",
        ),
        pytest.param(
            {"INPUT0": [1, 2, 3, 1e39]}, "OUTPUT0: expected finite FP32 numbers", id="first step"
        ),
        pytest.param({"INPUT0": [1, 2, 3]}, "Expected [4], got [3]", id="too few numbers"),
        pytest.param({"INPUT0": ["one"]}, "INPUT0: expected four numbers", id="no numbers"),
    ],
)
def test_invalid_numbers_are_a_400_with_the_reason(example, inputs, message):
    answer = example.post("/ensemble", **{"INPUT0": [0] * 4, "INPUT1": [0] * 4, **inputs})
    assert answer.status_code == 400
    assert message in answer.json()


def test_perf_analyzer_prints_the_throughput_of_each_concurrency(example, port, tmp_path):
    if find_library("b64") is None:
        pytest.skip(f"no libb64: apt-get install {PACKAGES['libb64']}")
    guide = blocks("docs/triton.md", (ROOT / "docs" / "triton.md").read_text())
    (block,) = (block for block in guide if "perf_analyzer -m ensemble" in block.code)
    # By time alone, a window on a busy machine may be without any request.
    options = "--measurement-mode count_windows --measurement-request-count 20 -p 200 -s 999"
    code = block.code.replace(" --concurrency-range", f" {options} --concurrency-range")
    printed = run_open(replace(block, code=code), tmp_path, example, port)
    rows = re.findall(
        r"^Concurrency: (\d+), throughput: ([\d.]+) infer/sec, latency \d+ usec$",
        printed,
        re.MULTILINE,
    )
    assert [concurrency for concurrency, _ in rows] == ["1", "8"]
    assert all(float(throughput) > 0 for _, throughput in rows)


def test_ready_is_logged(example):
    wait_until(lambda: "Ready: " in example.log.read_text())


def test_models_are_finalized_when_the_service_stops(example):
    """Must run last, because it stops the service. On an overloaded machine, Triton's time for a
    stop is too short.
    """
    assert example.stop() == 0
    assert re.search(r"^mul: \d+ executions$", example.log.read_text(), re.MULTILINE)
