"""MobileSAM with BentoML alone: masks, batching across callers, errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
import requests
from PIL import Image

from benchmarks.objects import Mask, iou
from orchestrator import images, masks, prompts
from tests.e2e import pages
from tests.e2e.pages import Reader
from tests.e2e.pictures import scene
from tests.e2e.server import ROOT, Server, start_server

pytestmark = pytest.mark.e2e

README = "examples/bentoml_runner/README.md"
CLICK = {"pos_coords": "[[240, 160]]"}
BATCH_SIZE = re.compile(r"^bentoml_service_adaptive_batch_size_(sum|count){.*} (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def alone(builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("bentoml_runner")
    running = start_server(
        folder / "log",
        "examples.bentoml_runner.service:svc",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        BENTOML_HOME=str(folder / "home"),  # holds the metrics, and is cleared at each start
    )
    yield running
    running.stop()


def ask(server: Server, path: str = "/segment", file: bytes = b"", **fields: str) -> requests.Response:
    picture = ("picture.png", file or scene(0), "image/png")
    return requests.post(f"{server.url}{path}", files={"input_image": picture}, data=fields or CLICK, timeout=60)


def mask_of(answer: requests.Response) -> Mask:
    assert answer.status_code == 200, answer.text
    return np.array(answer.json(), bool)


def reference_mask(repository: Path, file: bytes, points_xy: list[list[float]], labels: list[int]) -> Mask:
    """Return the mask computed by the two graphs with the main service's code."""
    pixels = images.decode(images.open_image(file, 10**7))
    frame, size_hw = images.to_frame(pixels), (pixels.shape[0], pixels.shape[1])
    encoder, decoder = (
        ort.InferenceSession(repository / f"mobile_sam_{part}" / "1" / "model.onnx", providers=["CPUExecutionProvider"])
        for part in ("encoder", "decoder")
    )
    size = np.array([frame.size_hw], np.int32)
    (embedding,) = encoder.run(["image_embeddings"], {"images": frame.pixels[None], "sizes_hw": size})
    coords, own_labels = prompts.to_frame(
        np.array([points_xy], np.float32), np.array([labels], np.int32), size_hw, frame.size_hw
    )
    mask_input, has_mask = prompts.mask_inputs(None, None, 1)
    prompt = {
        "image_embeddings": embedding,
        "point_coords": coords,
        "point_labels": own_labels,
        "mask_input": mask_input,
        "has_mask_input": has_mask,
    }
    low_res = np.asarray(decoder.run(["single_masks"], prompt)[0])[0, 0]
    return np.array(masks.upsample(low_res, frame.size_hw, size_hw) > 0)


@pytest.mark.parametrize(
    ("points_xy", "labels"),
    [
        pytest.param([[240, 160]], [1], id="click"),
        pytest.param([[240, 160], [5, 5]], [1, 0], id="click and negative"),
        pytest.param([[100, 60], [380, 260]], [2, 3], id="box"),
    ],
)
def test_mask_matches_the_reference(alone, builtin_repository, points_xy, labels):
    mask = mask_of(ask(alone, pos_coords=json.dumps(points_xy), labels=json.dumps(labels)))
    assert iou(mask, reference_mask(builtin_repository, scene(0), points_xy, labels)) > 0.99


def test_concurrent_requests_are_batched_and_get_their_own_masks(alone, builtin_repository):
    files = [scene(seed) for seed in range(8)]
    expected = [reference_mask(builtin_repository, file, [[240, 160]], [1]) for file in files]
    batches, pictures = 0.0, 0.0
    with ThreadPoolExecutor(len(files)) as callers:
        for _ in range(10):
            answers = list(callers.map(lambda file: ask(alone, file=file), files))
            assert all(iou(mask_of(answer), mask) > 0.99 for answer, mask in zip(answers, expected, strict=True))
            sizes = dict(BATCH_SIZE.findall(requests.get(f"{alone.url}/metrics", timeout=10).text))
            batches, pictures = float(sizes["count"]), float(sizes["sum"])
            if batches < pictures:
                break
    assert batches < pictures


def test_connections_between_services_are_not_closed_in_flight(alone):
    """BentoML would replace them every hundred requests; 220 requests are sure to hit that."""
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: ask(alone).status_code, range(220)))
    assert set(answers) == {200}
    assert "ServerDisconnected" not in alone.log.read_text()


TOO_LARGE = f"[[1{'0' * 400}, 1]]"
BAD_FORMS = {
    "not a picture": ({"file": b"hello"}, "expected a picture"),
    "truncated picture": ({"file": scene(0)[:9000]}, "the picture is incomplete or damaged"),
    "point outside": ({"pos_coords": "[[480.5, 10]]"}, "expected points within 480 x 320 pixels"),
    "NaN": ({"pos_coords": "[[NaN, 1]]"}, "finite number"),
    "number too large": ({"pos_coords": TOO_LARGE}, "valid number"),
    "one-dimensional points": ({"pos_coords": "[[1], [2]]"}, "pos_coords"),
    "no points": ({"labels": "[1]"}, "Field required"),
    "points not JSON": ({"pos_coords": "here"}, "valid list"),
    "points nested too deeply": ({"pos_coords": "[" * 100_000}, "not valid multipart/form-data"),
    "too many labels": ({**CLICK, "labels": "[1, 1]"}, "labels: expected 1, one per point, got 2"),
    "unknown label": ({**CLICK, "labels": "[7]"}, "0, 1, 2 or 3"),
}


@pytest.mark.parametrize(("form", "reason"), BAD_FORMS.values(), ids=BAD_FORMS)
def test_invalid_form_is_rejected_with_the_reason(alone, form, reason):
    answer = ask(alone, **form)
    assert answer.status_code == 400
    assert reason in answer.text


BAD_BODIES = {
    "empty": (b"", "application/json", "Field required"),
    "JSON": (
        b'{"input_image": "picture.png", "pos_coords": [[1, 2]]}',
        "application/json",
        "expected a file in a form",
    ),
    "not JSON": (b"\xff", "application/json", "Invalid JSON"),
    "form without boundary": (b"x", "multipart/form-data", "Missing boundary"),
    "not a form": (b"x", "multipart/form-data; boundary=y", "not valid multipart/form-data"),
    "URL of a file": (b"input_image=here&pos_coords=[[1,2]]", "application/x-www-form-urlencoded", "http://"),
}


@pytest.mark.parametrize(("body", "content_type", "reason"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_invalid_body_is_rejected_with_the_reason(alone, body, content_type, reason):
    answer = requests.post(f"{alone.url}/segment", body, headers={"Content-Type": content_type}, timeout=60)
    assert answer.status_code == 400
    assert reason in answer.text


def test_readme_commands_print_the_documented_output(alone, tmp_path):
    _, command, shown = pages.blocks(README, (ROOT / README).read_text())
    reader = Reader(tmp_path, alone.url)
    assert pages.matches(shown, reader.run(command))
    mask = np.array(json.loads((tmp_path / "mask.json").read_text()), bool)
    with (
        Image.open(tmp_path / "segmented_image.png") as picture,
        Image.open(tmp_path / pages.SAMPLES / "balloons.jpg") as photo,
    ):
        assert picture.size == photo.size
        changed = (np.asarray(picture) != np.asarray(photo)).any(axis=2)
    assert iou(changed, mask) > 0.99


def test_client_prints_errors_in_one_line(alone, tmp_path):
    command = [sys.executable, "examples/bentoml_runner/client.py", f"{pages.SAMPLES}/balloons.jpg", "5000", "1"]
    with pytest.raises(AssertionError, match="expected points within 1280 x 853 pixels") as failure:
        Reader(tmp_path, alone.url).run_command(command, "client.py")
    assert "error: " in str(failure.value)
    assert "Traceback" not in str(failure.value)
