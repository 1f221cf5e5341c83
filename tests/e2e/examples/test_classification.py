"""examples/classification with an untrained narrow network: classes, damaged files, batches, Triton's own commands."""

import asyncio
import io
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio
import tritonclient.http as triton_http
from PIL import Image

from examples.classification.prepare import NET, REPOSITORY, prepare
from tests.e2e.examples.conftest import consecutive_ports, readme, run_open
from tests.e2e.pages import SAMPLES, matches
from tests.e2e.server import ROOT
from tests.unit.examples.classification.pixels import pixels_model, pixels_module

pytestmark = pytest.mark.e2e

PHOTO = (ROOT / SAMPLES / "balloons.jpg").read_bytes()
CALLERS = 9
INVALID = {3, 6}
PROCESSES = 2
"""Processes of classification_pixels."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classification") / "models"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns("*.onnx", "labels.txt", "weights.json"))
    prepare("random", None, folder)
    return folder


@pytest.fixture(scope="module")
def port():
    """First port of the open Triton."""
    return consecutive_ports(3)


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
    assert printed.splitlines()[:5] == [f"{score:.4f}  {label}" for label, score in expected.items()]
    assert matches(shown, printed)


def test_service_returns_the_five_best_classes(example, expected):
    answer = classify(example, PHOTO)
    assert answer.status_code == 200
    assert {entry["label"]: entry["score"] for entry in answer.json()} == pytest.approx(expected, rel=1e-4)


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
    np.testing.assert_allclose(answer.as_numpy("scores"), [list(expected.values())] * 3, rtol=1e-4)


def test_damaged_file_in_a_batch_does_not_affect_the_others(example):
    def counted(what: str):
        return example.metric(f"nv_inference_{what}", "classification_pixels")

    # Each process takes one of the large pictures first; the other requests queue up.
    files = [large_picture()] * PROCESSES
    files += [b"no image" if number in INVALID else PHOTO for number in range(CALLERS)]
    statuses = [400 if file == b"no image" else 200 for file in files]
    with ThreadPoolExecutor(len(files)) as callers:
        for _ in range(20):  # batching depends on timing, especially on a busy machine
            executed = counted("exec_count")
            assert [answer.status_code for answer in callers.map(partial(classify, example), files)] == statuses
            if counted("exec_count") - executed < statuses.count(200):
                return
    pytest.fail("no batch in 20 attempts")


def test_concurrent_requests_are_batched(example, port):
    async def burst():
        async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{port + 1}") as client:
            return await asyncio.gather(*(client.infer("classification", tensor(PHOTO)) for _ in range(16)))

    def counted():
        return [example.metric(f"nv_inference_{what}", "onnx_model") for what in ("count", "exec_count")]

    for _ in range(20):  # batching depends on timing, especially on a busy machine
        images, runs = counted()
        assert len({answer.as_numpy("labels")[0, 0] for answer in asyncio.run(burst())}) == 1
        while counted()[0] - images < 16:  # Triton may count after it has answered
            time.sleep(0.1)
        images, runs = (now - then for now, then in zip(counted(), (images, runs), strict=True))
        assert images == 16
        if runs < images:
            return
    pytest.fail("no batch in 320 requests")
