"""examples/classification with an untrained narrow network: classes, damaged files, batches,
Triton's own commands.
"""

import io
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from PIL import Image

from examples.classification.prepare import NET, REPOSITORY, prepare
from harness import ROOT, wait_until
from tests.e2e.examples.conftest import readme, run_open
from tests.e2e.pages import SAMPLES, matches
from tests.unit.examples.classification.pixels import pixels_model, pixels_module
from tests.unit.triton_backends.graphs import write_model
from utils.triton.machine import this_machine

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PHOTO = (ROOT / SAMPLES / "balloons.jpg").read_bytes()
CALLERS = 9
INVALID = {3, 6}
PROCESSES = 2
"""Processes of classification_pixels."""
BATCHED = {
    "max_batch_size": 4,
    "input": [("x", "TYPE_FP32", [-1])],
    "output": [("y", "TYPE_FP32", [-1])],
}
UNBATCHED = {
    "max_batch_size": 0,
    "input": [("x", "TYPE_FP32", [-1, -1])],
    "output": [("y", "TYPE_FP32", [-1, -1]), ("n", "TYPE_INT64", [-1])],
}
OPENVINO = (
    'backend: "openvino" default_model_filename: "model.onnx" instance_group { kind: KIND_CPU }'
)
X = 'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, -1 ] } ]'
ADDED = {
    "no-config": ("", "onnxruntime", BATCHED),
    "backend-only": (OPENVINO, "openvino", BATCHED),
    "batch-size": (
        'backend: "onnxruntime" max_batch_size: 8',
        "onnxruntime",
        {**BATCHED, "max_batch_size": 8},
    ),
    "openvino-batch-size": (
        f"{OPENVINO} max_batch_size: 8",
        "openvino",
        {**BATCHED, "max_batch_size": 8},
    ),
    "declared-inputs": (f"{OPENVINO} {X}", "openvino", UNBATCHED),
    "single-numbers": ('backend: "onnxruntime"', "onnxruntime", UNBATCHED),
}
"""Models beside the example's: config.pbtxt, and what the backend makes of it."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification") / "models"
    shutil.copytree(
        REPOSITORY, folder, ignore=shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json")
    )
    prepare("random", None, folder)
    for name, (config, _, completed) in ADDED.items():
        write_model(folder / name, count=completed is UNBATCHED)
        if config:
            (folder / name / "config.pbtxt").write_text(config)
    return folder


@pytest.fixture(scope="module")
def example(serve, models, port):
    return serve("classification", MODEL_REPOSITORY=str(models), EXAMPLE_OPEN=str(port))


@pytest.fixture(scope="module")
def image():
    """The photo as the network's input, (1, 3, 224, 224) float32."""
    return pixels_module().normalise(pixels_model().crop(PHOTO))[None]


@pytest.fixture(scope="module")
def expected(models, image):
    """The five best classes of the photo with their scores, computed without Triton."""
    session = onnxruntime.InferenceSession(models / NET, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["output_1"], {"actual_input_1": image})[0]
    scores = np.exp(logits) / np.exp(logits).sum()
    return {f"class {number} (untrained)": scores[number] for number in np.argsort(-scores)[:5]}


def large_picture() -> bytes:
    """Return a PNG file of 30 megapixels, which takes a while to decode."""
    file = io.BytesIO()
    Image.new("RGB", (6000, 5000)).save(file, "PNG", compress_level=1)
    return file.getvalue()


def classify(example, file: bytes) -> requests.Response:
    return requests.post(f"{example.url}/classify", files={"image": file}, timeout=60)


def tensor(*files: bytes):
    images = triton_grpc.InferInput("image", [len(files), 1], "BYTES")
    images.set_data_from_numpy(np.array([[file] for file in files], np.object_))
    return [images]


# Runs first, because the README shows counts since the start.
def test_open_triton_prints_the_output_in_the_readme(example, port, tmp_path):
    *_, commands, shown, _, _, _ = readme("classification")
    assert matches(shown, run_open(commands, tmp_path, example, port))


def test_clients_print_the_output_in_the_readme(reader, expected):
    commands, shown, *_ = readme("classification")
    printed = reader.run(commands)
    assert printed.splitlines()[:5] == [
        f"{score:.4f}  {label}" for label, score in expected.items()
    ]
    assert matches(shown, printed)


@pytest.mark.parametrize("file", [b"no image", PHOTO[:9000]], ids=["text", "truncated"])
def test_damaged_file_is_a_400_with_the_message_of_the_step(example, file):
    answer = classify(example, file)
    assert answer.status_code == 400
    assert "image: expected an undamaged PNG, JPEG or WebP file" in answer.json()


@pytest.mark.parametrize("protocol", [triton_http, triton_grpc], ids=["HTTP", "gRPC"])
def test_client_that_normalises_itself_asks_the_network_alone(protocol, port, image, expected):
    address, encoding = f"localhost:{port + 1}", {}
    if protocol is triton_http:
        address, encoding = f"localhost:{port}", {"binary_data": False}
    version = {"model_name": "onnx_model", "model_version": "1"}
    tensor = protocol.InferInput("actual_input_1", (1, 3, 224, 224), "FP32")
    tensor.set_data_from_numpy(image, **encoding)
    output = protocol.InferRequestedOutput("output_1", **encoding)
    with protocol.InferenceServerClient(url=address) as triton:
        assert triton.get_model_metadata(**version)
        assert triton.get_model_config(**version)
        logits = triton.infer(**version, inputs=[tensor], outputs=[output]).as_numpy("output_1")
    assert f"class {logits.argmax()} (untrained)" == next(iter(expected))


def test_several_images_in_one_request(port, expected):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{port + 1}") as triton:
        answer = triton.infer("classification", tensor(PHOTO, PHOTO, PHOTO))
    assert answer.as_numpy("labels").tolist() == [[label.encode() for label in expected]] * 3
    tolerance = 1e-3 if this_machine().gpu_memory_bytes else 1e-4  # TF32 on a GPU
    np.testing.assert_allclose(
        answer.as_numpy("scores"), [list(expected.values())] * 3, rtol=tolerance
    )


def test_callers_are_batched_and_a_damaged_file_does_not_affect_the_others(example):
    def counted():
        return {
            (model, what): example.count(f'nv_inference_{what}{{model="{model}",version="1"}}')
            for model in ("classification_pixels", "onnx_model")
            for what in ("count", "exec_count")
        }

    # Each process takes one of the large pictures first; the other requests queue up.
    files = [large_picture()] * PROCESSES
    files += [b"no image" if number in INVALID else PHOTO for number in range(CALLERS)]
    statuses = [400 if file == b"no image" else 200 for file in files]
    batched = set()
    with ThreadPoolExecutor(len(files)) as callers:
        for _ in range(20):  # batching depends on timing, especially on a busy machine
            before = counted()
            assert [
                answer.status_code for answer in callers.map(partial(classify, example), files)
            ] == statuses
            # Triton may count after it has answered, also what earlier tests have asked for.

            def all_are_counted(before=before):
                runs = counted()["onnx_model", "count"] - before["onnx_model", "count"]
                return runs >= statuses.count(200)

            wait_until(all_are_counted)
            runs = {
                model: counted()[model, "exec_count"] - before[model, "exec_count"]
                for model, _ in before
            }
            batched |= {model for model in runs if runs[model] < statuses.count(200)}
            if len(batched) == len(runs):
                return
    pytest.fail(f"in 20 attempts batched by {batched} only")


@pytest.mark.parametrize(
    ("model", "backend", "completed"), [(name, *found) for name, (_, *found) in ADDED.items()]
)
@pytest.mark.usefixtures("example")
def test_config_is_completed_from_the_graph(port, model, backend, completed):
    url = f"http://127.0.0.1:{port}/v2/models/{model}"
    config = requests.get(f"{url}/config", timeout=60).json()
    assert config["backend"] == backend
    found: dict[str, object] = {"max_batch_size": config["max_batch_size"]}
    for side in ("input", "output"):
        found[side] = [
            (tensor["name"], tensor["data_type"], tensor["dims"]) for tensor in config[side]
        ]
    assert found == completed
    assert ("dynamic_batching" in config) == (config["max_batch_size"] > 1)
    body = {
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6]}]
    }
    answer = requests.post(f"{url}/infer", json=body, timeout=60).json()
    assert "outputs" in answer, answer
    outputs = {output["name"]: output["data"] for output in answer["outputs"]}
    assert outputs["y"] == [2, 4, 6, 8, 10, 12]
