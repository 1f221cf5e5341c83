"""The classification example with an untrained narrow network."""

from __future__ import annotations

import asyncio
import base64
import shutil
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
from tritonclient.utils import InferenceServerException

from benchmarks.service import free_ports
from examples.classification import build
from examples.classification.prepare import REPOSITORY, prepare
from tests.e2e.pages import Reader, blocks, matches
from tests.e2e.server import ROOT, start_server
from tests.unit.examples.classification.modules import load

pytestmark = pytest.mark.e2e

PHOTO = ROOT / "utils" / "page" / "static" / "samples" / "balloons.jpg"
LABELS = [f"class {number}" for number in range(1000)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification")
    generated = shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json", "__pycache__")
    shutil.copytree(REPOSITORY, folder / "models", ignore=generated)
    prepare("random", None, folder / "models")
    return folder / "models"


@pytest.fixture(scope="module")
def grpc_address():
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture(scope="module")
def server(models, grpc_address, tmp_path_factory):
    running = start_server(
        tmp_path_factory.mktemp("server") / "log",
        target="examples.classification.service:svc",
        MODEL_REPOSITORY=str(models),
        GRPC_PORT=grpc_address.rpartition(":")[2],
    )
    yield running
    running.stop()


@pytest.fixture(scope="module")
def triton(server, grpc_address):
    with triton_grpc.InferenceServerClient(grpc_address) as client:
        yield client


@pytest.fixture(scope="module")
def expected(models):
    """Labels and scores of the photo for all classes, best first, computed without Triton."""
    pixels = load("classification_pixels", "classification_crop").load_crop(PHOTO.read_bytes(), 256, 10_000_000)
    session = onnxruntime.InferenceSession(models / build.NET, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], {"pixels": pixels[None]})[0]
    indices, scores = load("classification_labels", "classification_top").top_classes(logits, np.array([[1000]]))
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


@pytest.mark.parametrize("top_k", [None, 1, 1000], ids=["default", "one", "all"])
def test_service_returns_the_best_classes(server, expected, top_k):
    answer = ask(server, PHOTO.read_bytes(), **({} if top_k is None else {"top_k": top_k}))
    assert (answer.status_code, answer.headers["X-Weights"]) == (200, "random")
    found, count = answer.json(), top_k or 5
    assert [set(entry) for entry in found] == [{"label", "score"}] * count
    assert [entry["label"] for entry in found[:5]] == expected[0][:count][:5]
    np.testing.assert_allclose([entry["score"] for entry in found], expected[1][:count], rtol=1e-4)


def test_client_prints_the_output_in_the_readme_over_http_and_grpc(server, grpc_address, expected, tmp_path):
    page = "examples/classification/README.md"
    start, ask_both, shown, *_ = blocks(page, (ROOT / page).read_text())
    assert start.only_make
    commands = ask_both.code.replace("127.0.0.1:8001", grpc_address)
    printed = Reader(tmp_path, server.url).run(replace(ask_both, code=commands))
    found = [f"{score:.4f}  {label}" for label, score in zip(*expected, strict=True)][:3]
    assert printed.splitlines() == [*found, "weights: random"] * 2
    assert matches(shown, "\n".join(printed.splitlines()[:4]))


@pytest.mark.parametrize(
    ("file", "fields", "field", "got"),
    [
        (b"no image", {}, "image", "8 bytes of another format"),
        (PHOTO.read_bytes(), {"top_k": 0}, "top_k", "0"),
        (PHOTO.read_bytes(), {"top_k": 1001}, "top_k", "1001"),
        (PHOTO.read_bytes(), {"top": 3}, "top", "an unknown field"),
    ],
    ids=["not an image", "no classes", "too many classes", "unknown field"],
)
def test_invalid_request_is_rejected(server, file, fields, field, got):
    answer = ask(server, file, **fields)
    assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
    (error,) = answer.json()["errors"]
    assert (error["field"], error["got"]) == (field, got)


def test_several_images_in_one_request(triton, expected):
    answer = triton.infer("classification", tensors([PHOTO.read_bytes()] * 3, [2] * 3))
    assert answer.as_numpy("labels").tolist() == [[label.encode() for label in expected[0][:2]]] * 3
    np.testing.assert_allclose(answer.as_numpy("scores"), [expected[1][:2]] * 3, rtol=1e-4)
    assert answer.as_numpy("weights").tolist() == [[b"random"]] * 3


@pytest.mark.parametrize(
    ("files", "top_k", "message"),
    [
        ([b"no image"], [1], "image: expected a PNG, JPEG or WebP file, got 8 bytes of another format"),
        ([PHOTO.read_bytes()], [1001], "top_k: expected from 1 to 1000, got 1001"),
        ([PHOTO.read_bytes()] * 2, [1, 2], "top_k: expected the same for all images of a request, got 1 and 2"),
    ],
    ids=["not an image", "too many classes", "different counts"],
)
def test_errors_of_steps_are_returned_by_the_ensemble(triton, files, top_k, message):
    with pytest.raises(InferenceServerException) as raised:
        triton.infer("classification", tensors(files, top_k))
    assert raised.value.status() == "StatusCode.INVALID_ARGUMENT"
    assert raised.value.message().endswith(message)


def test_concurrent_requests_are_batched(server, grpc_address):
    async def burst():
        async with triton_grpc_aio.InferenceServerClient(grpc_address) as client:
            inputs = tensors([PHOTO.read_bytes()], [1])
            return await asyncio.gather(*(client.infer("classification", inputs) for _ in range(16)))

    def counted():
        return [server.metric(f"nv_inference_{what}", "wide_resnet101_2") for what in ("count", "exec_count")]

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


def test_openapi_declares_the_bounds(server):
    document = requests.get(f"{server.url}/docs.json", timeout=10).json()
    fields = document["components"]["schemas"]["ClassifyRequest"]["properties"]
    assert (fields["top_k"]["minimum"], fields["top_k"]["maximum"]) == (1, 1000)
