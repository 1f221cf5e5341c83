"""Options, batches and memory of OpenVINO's engine."""

import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace

import numpy as np
import pytest

from harness import wait_until
from tests.unit.triton_backends.graphs import TritonModelException, config, load, write_model, x
from triton_backends.common import openvino_engine
from triton_backends.common.openvino_engine import Engine

ROOT = Path(__file__).resolve().parents[3]


def core(*capabilities):
    """Return a stand-in for `openvino.Core` with these capabilities."""
    return SimpleNamespace(
        get_property=lambda *asked: {("CPU", "OPTIMIZATION_CAPABILITIES"): capabilities}[asked]
    )


def engine(folder: Path, width: int | str = "W", **parameters: str) -> Engine:
    """Return an engine of the small graph."""
    return Engine(write_model(folder, width=width), parameters, batched=True)


@pytest.mark.parametrize(
    ("hint", "precision"),
    [({}, "f32"), ({"HINT_BF16": "YES"}, "bf16"), ({"HINT_BF16": "NO"}, "f32")],
    ids=str,
)
def test_bfloat16_is_used_if_requested(hint, precision):
    assert (
        openvino_engine.properties(hint, core("FP32", "BF16"))["INFERENCE_PRECISION_HINT"]
        == precision
    )


def test_bfloat16_without_processor_support_is_an_error():
    with pytest.raises(
        ValueError, match="config asks for HINT_BF16, this processor has no bfloat16"
    ):
        openvino_engine.properties({"HINT_BF16": "YES"}, core("FP32"))


def test_model_is_compiled_with_the_properties_of_the_config(tmp_path):
    given = {
        "INFERENCE_NUM_THREADS": "1",
        "NUM_STREAMS": "1",
        "PERFORMANCE_HINT": "THROUGHPUT",
        "nice": "5",
    }
    compiled = engine(tmp_path, **given).compile()
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


def test_run_after_a_pause_keeps_other_threads_off_the_callers_core(
    other_thread, tmp_path, monkeypatch
):
    cores = os.sched_getaffinity(0)
    monkeypatch.setattr(
        openvino_engine, "libc", lambda name, *_: min(cores) if name == "sched_getcpu" else None
    )
    # The second run must follow the first without a pause, whatever else the processor does.
    monkeypatch.setattr(openvino_engine, "PAUSE_S", 600)
    model = engine(tmp_path)
    infer, found = model.request.infer, []

    def recorded(*arguments, **options):
        found.append(os.sched_getaffinity(other_thread))
        return infer(*arguments, **options)

    model.request = SimpleNamespace(infer=recorded)
    for _ in range(2):
        run(model, 1)
        assert os.sched_getaffinity(other_thread) == os.sched_getaffinity(0) == cores
    model.last_run -= 2 * openvino_engine.PAUSE_S
    run(model, 1)
    assert os.sched_getaffinity(other_thread) == cores
    apart = cores - {min(cores)} or cores
    assert found == [apart, cores, apart]


def test_gpu_instance_is_an_error(load_backend, tmp_path):
    write_model(tmp_path)
    with pytest.raises(TritonModelException, match="openvino runs on KIND_CPU, not on GPU"):
        load(load_backend("openvino"), tmp_path, config(), kind="GPU")


def test_model_with_a_variable_batch_size_only_runs_item_by_item(tmp_path):
    model, rows = engine(tmp_path, width=3), x([1, 2, 3], [4, 5, 6])
    doubled, items = model.run({"x": rows}, ["y", "n"])
    np.testing.assert_array_equal(doubled, 2 * rows)
    assert model.one_by_one
    assert items.tolist() == [1, 1]


def run(model: Engine, *widths: int) -> None:
    """Run one request for each width, and check the answers."""
    for width in widths:
        rows = np.arange(width, dtype=np.float32)[None]
        np.testing.assert_array_equal(model.run({"x": rows}, ["y"])[0], 2 * rows)


@pytest.fixture
def model(tmp_path, monkeypatch) -> Engine:
    """Engine that releases memory after 0.03 s."""
    monkeypatch.setattr(openvino_engine, "MEMORY_KEPT_S", 0.03)
    return engine(tmp_path)


def test_runs_of_the_first_shapes_release_no_memory(model):
    first = model.request
    run(model, 10, 10)
    time.sleep(0.3)
    assert model.request is first


def test_model_is_renewed_after_runs_of_other_shapes(model):
    first = model.request
    run(model, 10, 20)
    wait_until(lambda: model.request is not first)
    second = model.request
    time.sleep(0.3)
    assert model.request is second
    run(model, 10, 20)
    wait_until(lambda: model.request is not second)


def test_model_in_use_is_renewed_only_after_large_runs(model, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(
        openvino_engine, "time", SimpleNamespace(monotonic=lambda: clock.now, sleep=time.sleep)
    )
    first = model.request

    def renewed_by(*widths: int) -> bool:
        """Run a request soon after the last one, and return whether the model is renewed."""
        clock.now += 0.6 * openvino_engine.MEMORY_KEPT_S
        run(model, *widths)
        time.sleep(openvino_engine.MEMORY_KEPT_S)  # time for checks
        return model.request is not first

    assert not any(renewed_by(10, 11) for _ in range(10))
    renewed_by(80)
    wait_until(lambda: renewed_by(10, 11))


def test_outputs_outlive_the_next_run_and_a_renewal(model):
    first, rows = model.request, np.ones((1, 100_000), np.float32)
    (doubled,) = model.run({"x": rows}, ["y"])
    run(model, 10, 100_000)
    wait_until(lambda: model.request is not first)
    run(model, 100_000)
    np.testing.assert_array_equal(doubled, 2 * rows)


def test_model_that_cannot_be_renewed_stays_as_it_is(model, monkeypatch, caplog):
    def compile_model():
        raise MemoryError

    with monkeypatch.context() as fails:
        fails.setattr(model, "compile", compile_model)
        run(model, 1, 100)
        wait_until(lambda: caplog.messages)
    assert caplog.messages[0] == "OpenVINO's memory is not released: MemoryError()"
    run(model, 1, 100)


@pytest.mark.slow
def test_requests_of_many_shapes_do_not_grow_an_idle_decoder(tmp_path):
    program = f"""
import time
import numpy as np, onnx, psutil
from pathlib import Path
from sam_onnx.model import builtin
from triton_backends.common import openvino_engine
openvino_engine.MEMORY_KEPT_S = 15  # longer than between two large runs, also on a busy machine
onnx.save(builtin()[1][1], {str(tmp_path / "decoder.onnx")!r})
model = openvino_engine.Engine(Path({str(tmp_path / "decoder.onnx")!r}), {{}})
def run(prompts, points):
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
first = model.request
before = memory()
for number in range(199):
    run(1, 1 + number * 7 % 199)
grown = memory() - before
deadline = time.monotonic() + 240
while model.request is first and time.monotonic() < deadline:
    time.sleep(0.1)
first = None
with model._lock:
    print(grown, memory() - before)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    busy, idle = map(int, ran.stdout.split())
    assert busy < 310  # 222 to 240 here; 416 to 418 if OpenVINO keeps 5,000 primitives, its default
    assert idle < 60  # 12 to 19 here; as above without the renewal


def test_openvino_leaves_no_id_for_usage_data(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | {
        "HOME": str(tmp_path)
    }
    program = "import triton_backends.common.openvino_engine"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
    assert list(tmp_path.iterdir()) == []
