"""examples/classification with an untrained narrow network: labels, errors of steps, batches, gRPC."""

from __future__ import annotations

import asyncio
import base64
import shutil
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
from tritonclient.utils import InferenceServerException

from benchmarks.service import free_ports
from examples.classification.prepare import NET, REPOSITORY, prepare
from tests.e2e.answers import problem
from tests.e2e.examples.conftest import readme
from tests.e2e.pages import SAMPLES, matches
from tests.e2e.server import ROOT
from tests.unit.examples.models import load

pytestmark = pytest.mark.e2e

PHOTO = (ROOT / SAMPLES / "balloons.jpg").read_bytes()
LABELS = [f"class {number}" for number in range(1000)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification") / "models"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json"))
    prepare("random", None, folder)
    return folder


@pytest.fixture(scope="module")
def grpc_port():
    return free_ports(1)[0]


@pytest.fixture(scope="module")
def example(serve, models, grpc_port):
    return serve("classification", MODEL_REPOSITORY=str(models), GRPC_PORT=str(grpc_port))


@pytest.fixture(scope="module")
def triton(example, grpc_port):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
        yield client


@pytest.fixture(scope="module")
def expected(models):
    """Labels and scores of the photo for all classes, best first, computed without Triton."""
    pixels = load("classification", "classification_pixels", "classification_crop").load_crop(PHOTO, 256, 10_000_000)
    session = onnxruntime.InferenceSession(models / NET, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"pixels": pixels[None]})[0]
    top = load("classification", "classification_labels", "classification_top")
    indices, scores = top.top_classes(logits, np.array([[1000]]))
    return [LABELS[index] for index in indices[0]], scores[0]


def ask(server, file: bytes, **fields):
    return server.post("/classify", image=base64.b64encode(file).decode(), **fields)


def tensors(files, top_k):
    images = np.array([[file] for file in files], np.object_)
    counts = np.array([[count] for count in top_k], np.int32)
    inputs = [
        triton_grpc.InferInput("image", images.shape, "BYTES"),
        triton_grpc.InferInput("top_k", counts.shape, "INT32"),
    ]
    for tensor, values in zip(inputs, (images, counts), strict=True):
        tensor.set_data_from_numpy(values)
    return inputs


@pytest.mark.parametrize("fields", [{}, {"top_k": 1000}], ids=["default", "all"])
def test_service_returns_the_best_classes(example, expected, fields):
    answer = ask(example, PHOTO, **fields)
    assert (answer.status_code, answer.headers["X-Weights"]) == (200, "random")
    count = fields.get("top_k", 5)
    assert [entry["label"] for entry in answer.json()][:5] == expected[0][:5]
    np.testing.assert_allclose([entry["score"] for entry in answer.json()], expected[1][:count], rtol=1e-4)


def test_client_prints_the_output_in_the_readme_over_http_and_grpc(reader, grpc_port, expected):
    ask_both, shown, *_ = readme("classification")
    printed = reader.run(replace(ask_both, code=ask_both.code.replace("127.0.0.1:8001", f"127.0.0.1:{grpc_port}")))
    found = [f"{score:.4f}  {label}" for label, score in zip(*expected, strict=True)][:3]
    assert printed.splitlines() == [*found, "weights: random"] * 2
    assert matches(shown, "\n".join(printed.splitlines()[:4]))


@pytest.mark.parametrize(
    ("file", "fields", "field", "got"),
    [
        (b"no image", {}, "image", "8 bytes of another format"),
        (PHOTO, {"top_k": 1001}, "top_k", "1001"),
    ],
    ids=["error of a step", "too many classes"],
)
def test_invalid_request_is_rejected(example, file, fields, field, got):
    answer = ask(example, file, **fields)
    assert answer.status_code == 422
    assert [(error["field"], error["got"]) for error in problem(answer)["errors"]] == [(field, got)]


def test_several_images_in_one_request(triton, expected):
    answer = triton.infer("classification", tensors([PHOTO] * 3, [2] * 3))
    assert answer.as_numpy("labels").tolist() == [[label.encode() for label in expected[0][:2]]] * 3
    np.testing.assert_allclose(answer.as_numpy("scores"), [expected[1][:2]] * 3, rtol=1e-4)
    assert answer.as_numpy("weights").tolist() == [[b"random"]] * 3


@pytest.mark.parametrize(
    ("files", "top_k", "message"),
    [
        ([b"no image"], [1], "image: expected a PNG, JPEG or WebP file, got 8 bytes of another format"),
        ([PHOTO] * 2, [1, 2], "top_k: expected the same for all images of a request, got 1 and 2"),
    ],
    ids=["first step", "last step"],
)
def test_errors_of_steps_are_returned_by_the_ensemble(triton, files, top_k, message):
    with pytest.raises(InferenceServerException) as raised:
        triton.infer("classification", tensors(files, top_k))
    assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert raised.value.message().endswith(message)


def test_concurrent_requests_are_batched(example, grpc_port):
    async def burst():
        async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{grpc_port}") as client:
            inputs = tensors([PHOTO], [1])
            return await asyncio.gather(*(client.infer("classification", inputs) for _ in range(16)))

    def counted():
        return [example.metric(f"nv_inference_{what}", "wide_resnet101_2") for what in ("count", "exec_count")]

    for _ in range(20):  # batching depends on timing, especially on a busy machine
        images, runs = counted()
        labels = {answer.as_numpy("labels")[0, 0] for answer in asyncio.run(burst())}
        images, runs = (now - then for now, then in zip(counted(), (images, runs), strict=True))
        assert (len(labels), images) == (1, 16)
        if runs < images:
            return
    pytest.fail("no batch in 320 requests")


def test_triton_control_over_grpc_needs_the_key(triton):
    with pytest.raises(InferenceServerException, match="restricted"):
        triton.get_model_repository_index()
