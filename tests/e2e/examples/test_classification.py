"""examples/classification with an untrained narrow network: classes, damaged files, batches, Triton's own commands."""

import asyncio
import shutil
import time

import numpy as np
import onnxruntime
import pytest
import requests
import tritonclient.grpc as triton_grpc
import tritonclient.grpc.aio as triton_grpc_aio

from examples.classification.prepare import NET, REPOSITORY, prepare
from tests.e2e.examples.conftest import consecutive_ports, readme, run_open
from tests.e2e.pages import SAMPLES, matches
from tests.e2e.server import ROOT
from tests.unit.examples.classification.pixels import pixels_model

pytestmark = pytest.mark.e2e

PHOTO = (ROOT / SAMPLES / "balloons.jpg").read_bytes()


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
def expected(models):
    """The five best classes of the photo with their scores, computed without Triton."""
    pixels = pixels_model().crop(PHOTO)
    session = onnxruntime.InferenceSession(models / NET, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {"pixels": pixels[None]})[0]
    scores = np.exp(logits) / np.exp(logits).sum()
    return {f"class {number} (untrained)": scores[number] for number in np.argsort(-scores)[:5]}


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


def test_several_images_in_one_request(port, expected):
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{port + 1}") as triton:
        answer = triton.infer("classification", tensor(PHOTO, PHOTO, PHOTO))
    assert answer.as_numpy("labels").tolist() == [[label.encode() for label in expected]] * 3
    np.testing.assert_allclose(answer.as_numpy("scores"), [list(expected.values())] * 3, rtol=1e-4)


def test_concurrent_requests_are_batched(example, port):
    async def burst():
        async with triton_grpc_aio.InferenceServerClient(f"127.0.0.1:{port + 1}") as client:
            return await asyncio.gather(*(client.infer("classification", tensor(PHOTO)) for _ in range(16)))

    def counted():
        return [example.metric(f"nv_inference_{what}", "wide_resnet101_2") for what in ("count", "exec_count")]

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
