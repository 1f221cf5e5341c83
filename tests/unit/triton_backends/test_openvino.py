"""Options, batches and memory of the Python-based openvino backend."""

import os
import subprocess
import sys
import time
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pytest

from tests.unit.triton_backends.conftest import BACKENDS
from tests.unit.triton_backends.graphs import Request, TritonModelException, config, load, write_model, x
from tests.waiting import wait_until


def core(*capabilities):
    """Return a stand-in for `openvino.Core` with these capabilities."""
    return SimpleNamespace(get_property=lambda *asked: {("CPU", "OPTIMIZATION_CAPABILITIES"): capabilities}[asked])


@pytest.fixture
def backend(load_backend):
    return load_backend("openvino")


def parameters(**values) -> dict:
    return {"parameters": {key: {"string_value": value} for key, value in values.items()}}


@pytest.mark.parametrize(
    ("hint", "precision"), [({}, "f32"), ({"HINT_BF16": "YES"}, "bf16"), ({"HINT_BF16": "NO"}, "f32")], ids=str
)
def test_bfloat16_is_used_if_requested(backend, hint, precision):
    found = backend.properties(parameters(**hint), core("FP32", "BF16"))
    assert found["INFERENCE_PRECISION_HINT"] == precision


def test_bfloat16_without_processor_support_is_an_error(backend):
    with pytest.raises(TritonModelException, match="config asks for HINT_BF16, this processor has no bfloat16"):
        backend.properties(parameters(HINT_BF16="YES"), core("FP32"))


def test_model_is_compiled_with_the_properties_of_the_config(backend, tmp_path):
    write_model(tmp_path)
    given = parameters(INFERENCE_NUM_THREADS="1", NUM_STREAMS="1", PERFORMANCE_HINT="THROUGHPUT")
    compiled = load(backend, tmp_path, config(**given)).compiled
    assert compiled.get_property("INFERENCE_NUM_THREADS") == 1
    assert compiled.get_property("PERFORMANCE_HINT") == "THROUGHPUT"
    assert str(compiled.get_property("INFERENCE_PRECISION_HINT")).endswith("float32'>")


@pytest.fixture
def other_thread():
    """Return the id of a thread that waits."""
    end = Event()
    thread = Thread(target=end.wait)
    thread.start()
    yield thread.native_id
    end.set()
    thread.join()


def test_run_after_a_pause_keeps_other_threads_off_the_callers_core(backend, other_thread, tmp_path, monkeypatch):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(backend, "libc", lambda function, *_: min(cores) if function == "sched_getcpu" else None)
    write_model(tmp_path)
    model = load(backend, tmp_path, config())
    infer, found = model.requests[0].infer, []

    def recorded(*arguments, **options):
        found.append(os.sched_getaffinity(other_thread))
        return infer(*arguments, **options)

    model.requests[0] = SimpleNamespace(infer=recorded)
    for _ in range(2):
        model.execute([Request("y", x=x([1]))])
        assert os.sched_getaffinity(other_thread) == os.sched_getaffinity(0) == cores
    model.last_run -= 2 * backend.PAUSE_S
    model.execute([Request("y", x=x([1]))])
    assert os.sched_getaffinity(other_thread) == cores
    apart = cores - {min(cores)} or cores
    assert found == [apart, cores, apart]


def test_gpu_instance_is_an_error(backend, tmp_path):
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match="openvino runs on KIND_CPU, not on GPU"):
        load(backend, tmp_path, config(), kind="GPU")


@pytest.fixture
def fixed_width(backend, tmp_path):
    """Model with a variable batch size only."""
    write_model(tmp_path, width=3)
    given = config()
    given["input"][0]["dims"] = given["output"][0]["dims"] = [3]
    return load(backend, tmp_path, given)


def test_model_with_a_variable_batch_size_only_runs_item_by_item(fixed_width):
    requests = [Request("y", "n", x=x([1, 2, 3])), Request("y", "n", x=x([4, 5, 6], [7, 8, 9], [0, 1, 0]))]
    for request, answer in zip(requests, fixed_width.execute(requests), strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 2 * request.arrays["x"])
        assert set(answer.outputs["n"]) == {1}


def run(model, *widths: int) -> None:
    """Run one request for each width, and check the answers."""
    requests = [Request("y", x=np.ones((1, width), np.float32)) for width in widths]
    for request, answer in zip(requests, model.execute(requests), strict=True):
        np.testing.assert_array_equal(answer.outputs["y"], 2 * request.arrays["x"])


@pytest.fixture
def model(backend, tmp_path, monkeypatch):
    """Model that releases memory after 0.03 s."""
    monkeypatch.setattr(backend, "MEMORY_KEPT_S", 0.03)
    write_model(tmp_path)
    return load(backend, tmp_path, config())


def test_runs_of_the_first_shapes_release_no_memory(model):
    first = model.compiled
    run(model, 10, 10)
    time.sleep(0.3)
    assert model.compiled is first


def test_model_is_renewed_after_runs_of_other_shapes(model):
    first = model.compiled
    run(model, 10, 20)
    wait_until(lambda: model.compiled is not first)
    second = model.compiled
    time.sleep(0.3)
    assert model.compiled is second
    run(model, 10, 20)
    wait_until(lambda: model.compiled is not second)


def test_model_in_use_is_renewed_only_after_large_runs(backend, model, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(backend, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep))
    first = model.compiled

    def renewed_by(*widths: int) -> bool:
        """Run a request soon after the last one, and return whether the model is renewed."""
        clock.now += 0.6 * backend.MEMORY_KEPT_S
        run(model, *widths)
        time.sleep(backend.MEMORY_KEPT_S)  # time for checks
        return model.compiled is not first

    assert not any(renewed_by(10, 11) for _ in range(10))
    renewed_by(80)
    wait_until(lambda: renewed_by(10, 11))


def test_outputs_outlive_a_renewal(model):
    first = model.compiled
    run(model, 10)
    request = Request("y", x=np.arange(100_000, dtype=np.float32)[None])
    (answer,) = model.execute([request])
    wait_until(lambda: model.compiled is not first)
    run(model, 100_000)
    np.testing.assert_array_equal(answer.outputs["y"], 2 * request.arrays["x"])


def test_model_that_cannot_be_renewed_stays_as_it_is(backend, model, monkeypatch):
    warned: list[str] = []
    monkeypatch.setattr(backend.pb_utils, "Logger", SimpleNamespace(log_warn=warned.append), raising=False)

    def compile_model():
        raise MemoryError

    with monkeypatch.context() as fails:
        fails.setattr(model, "compile", compile_model)
        run(model, 1, 100)
        wait_until(lambda: warned)
    assert warned[0] == "openvino: memory is not released: MemoryError"
    run(model, 1, 100)


@pytest.mark.slow
def test_requests_of_many_shapes_do_not_grow_an_idle_decoder(tmp_path):
    program = f"""
import sys, time, types
import numpy as np, onnx, psutil
from pathlib import Path
from mobile_sam_onnx.model import builtin
sys.modules["triton_python_backend_utils"] = types.SimpleNamespace(TritonModelException=Exception)
sys.path.append({str(BACKENDS / "openvino")!r})
import model as backend
backend.MEMORY_KEPT_S = 6  # longer than between two large runs, also on a busy machine
onnx.save(builtin()[1], {str(tmp_path / "decoder.onnx")!r})
model = backend.TritonPythonModel()
model.load(Path({str(tmp_path / "decoder.onnx")!r}), {{}}, {{"model_instance_kind": "CPU"}})
model.inputs = ["image_embeddings"]
def run(prompts, points):
    with model.lock:
        model.used = 0
        model.run({{
            "image_embeddings": np.zeros((1, 64, 64, 256), np.float16),
            "point_coords": np.zeros((prompts, points, 2), np.float32),
            "point_labels": np.ones((prompts, points), np.float32),
            "mask_input": np.zeros((1, 1, 256, 256), np.float32),
            "has_mask_input": np.zeros(1, np.float32),
        }}, ["iou_predictions"])
def memory():
    return psutil.Process().memory_info().rss // 2**20
run(1, 2)
first = model.compiled
before = memory()
for number in range(400):
    run(1 + number % 8, 1 + number * 7 % 61)
grown = memory() - before
deadline = time.monotonic() + 40
while model.compiled is first and time.monotonic() < deadline:
    time.sleep(0.1)
first = None
with model.lock:
    print(grown, memory() - before)
"""
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, cwd=BACKENDS.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    busy, idle = map(int, ran.stdout.split())
    assert busy < 500  # 434 here; 647 if OpenVINO keeps 5,000 primitives, its default
    assert idle < 30  # 434 without the renewal


def test_openvino_leaves_no_id_for_usage_data(tmp_path):
    program = f"""
import runpy, sys, types
sys.modules["triton_python_backend_utils"] = types.ModuleType("stand-in")
runpy.run_path({str(BACKENDS / "openvino" / "model.py")!r})
"""
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {"HOME": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
