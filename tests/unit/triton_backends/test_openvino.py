"""What the Python-based openvino backend makes of config.pbtxt."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.unit.triton_backends.graphs import Request, TritonModelException, config, load, write_model, x


class Core:
    """A processor of which only the capabilities are known."""

    def __init__(self, *capabilities):
        self.capabilities = list(capabilities)

    def get_property(self, device, name):
        assert (device, name) == ("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.capabilities


@pytest.fixture
def backend(load_backend):
    return load_backend("openvino")


def parameters(**values) -> dict:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


def test_float32_is_the_precision_also_where_the_processor_has_bfloat16(backend):
    assert backend.properties({}, Core("FP32", "BF16"))["INFERENCE_PRECISION_HINT"] == "f32"


def test_bfloat16_is_used_where_it_is_asked_for(backend):
    asked = parameters(HINT_BF16="YES")
    assert backend.properties(asked, Core("FP32", "BF16"))["INFERENCE_PRECISION_HINT"] == "bf16"
    assert backend.properties(parameters(HINT_BF16="NO"), Core("BF16"))["INFERENCE_PRECISION_HINT"] == "f32"


def test_bfloat16_on_a_processor_without_it_is_an_error_not_float32(backend):
    with pytest.raises(TritonModelException, match="config asks for HINT_BF16, this processor has no bfloat16"):
        backend.properties(parameters(HINT_BF16="YES"), Core("FP32"))


def test_threads_streams_and_hint_are_those_of_the_config(backend):
    given = {"INFERENCE_NUM_THREADS": "3", "NUM_STREAMS": "2", "PERFORMANCE_HINT": "THROUGHPUT"}
    found = backend.properties(parameters(**given), Core())
    assert {key: found[key] for key in given} == given


def test_the_model_runs_with_the_threads_of_the_config(backend, tmp_path):
    write_model(tmp_path)
    model = load(backend, tmp_path, config(**parameters(INFERENCE_NUM_THREADS="1", NUM_STREAMS="1")))
    assert model.compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert str(model.compiled.get_property("INFERENCE_PRECISION_HINT")).endswith("float32'>")


def test_a_gpu_instance_is_an_error(backend, tmp_path):
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match="openvino runs on KIND_CPU, not on GPU"):
        load(backend, tmp_path, config(), kind="GPU")


@pytest.fixture
def fixed_width(backend, tmp_path):
    """A model of which only the batch size is variable."""
    write_model(tmp_path, width=3)
    given = config()
    given["input"][0]["dims"] = given["output"][0]["dims"] = [3]
    return load(backend, tmp_path, given)


def test_items_of_a_batch_run_one_by_one_where_only_the_batch_size_varies(fixed_width):
    rows = x([1, 2, 3], [4, 5, 6], [7, 8, 9])
    (answer,) = fixed_width.execute([Request("y", "n", x=rows)])
    np.testing.assert_array_equal(answer.outputs["y"], 2 * rows)
    np.testing.assert_array_equal(answer.outputs["n"], [1, 1, 1])


def test_requests_with_batches_of_different_sizes_get_their_own_items(fixed_width):
    requests = [Request("y", x=x([1, 2, 3])), Request("y", x=x([4, 5, 6], [7, 8, 9])), Request("y", x=x([0, 1, 0]))]
    answers = fixed_width.execute(requests)
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 2 * request.arrays["x"])


def test_a_shape_not_seen_before_is_run(backend, tmp_path):
    write_model(tmp_path)
    model = load(backend, tmp_path, config())
    for width in (1, 5, 3):
        (answer,) = model.execute([Request("y", x=np.ones((2, width), np.float32))])
        assert answer.outputs["y"].shape == (2, width)
    assert x([1]).shape == (1, 1)


class Compiled:
    """Counts how often memory is released."""

    def __init__(self, compiled):
        self.compiled, self.released = compiled, 0

    def release_memory(self):
        self.released += 1
        self.compiled.release_memory()

    def create_infer_request(self):
        return self.compiled.create_infer_request()


def answers_doubled(model, *widths: int) -> None:
    requests = [Request("y", x=np.ones((1, width), np.float32)) for width in widths]
    for request, answer in zip(requests, model.execute(requests), strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 2 * request.arrays["x"])


def test_the_memory_of_a_large_run_is_given_back_once_there_has_been_none_for_a_while(backend, tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(backend.time, "monotonic", lambda: now[0])
    write_model(tmp_path)
    model = load(backend, tmp_path, config())
    model.compiled = compiled = Compiled(model.compiled)
    for widths, released in (
        ((10,), 0),
        ((70,), 0),  # not large enough
        ((10,), 0),
        ((90, 10), 0),
        ((10, 80), 1),
        ((10,), 2),
        ((10,), 2),
    ):
        answers_doubled(model, *widths)
        assert compiled.released == released, widths
        now[0] += backend.KEPT_S + 1


def test_the_memory_of_a_large_run_is_given_back_where_there_are_no_others(backend, tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "KEPT_S", 0.03)
    write_model(tmp_path)
    model = load(backend, tmp_path, config())
    model.compiled = compiled = Compiled(model.compiled)
    answers_doubled(model, 10, 100)
    over = time.monotonic() + 20
    while not compiled.released and time.monotonic() < over:
        time.sleep(0.01)
    assert compiled.released == 1
    answers_doubled(model, 10, 100)
