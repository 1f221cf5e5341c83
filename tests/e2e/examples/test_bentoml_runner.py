"""MobileSAM on BentoML alone: the model's masks, batches across callers, and clear words on bad input."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mobile_sam_images as images
import mobile_sam_masks as masks
import mobile_sam_prompts as prompts
import numpy as np
import onnxruntime as ort
import pytest
import requests
from PIL import Image

from benchmarks.objects import Mask, iou
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
        BENTOML_HOME=str(folder / "home"),  # which holds the counters, and is emptied by whoever starts next
    )
    yield running
    running.stop()


def ask(server: Server, path: str = "/segment", file: bytes = b"", **fields: str) -> requests.Response:
    picture = ("picture.png", file or scene(0), "image/png")
    return requests.post(f"{server.url}{path}", files={"input_image": picture}, data=fields or CLICK, timeout=60)


def found(answer: requests.Response) -> Mask:
    assert answer.status_code == 200, answer.text
    return np.array(answer.json(), bool)


def model_says(repository: Path, file: bytes, points_xy: list[list[float]], labels: list[int]) -> Mask:
    """What the two graphs say, with the main service's code around them."""
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
        pytest.param([[240, 160], [5, 5]], [1, 0], id="click and one beside"),
        pytest.param([[100, 60], [380, 260]], [2, 3], id="box"),
    ],
)
def test_the_mask_is_what_the_model_says(alone, builtin_repository, points_xy, labels):
    mask = found(ask(alone, pos_coords=json.dumps(points_xy), labels=json.dumps(labels)))
    assert iou(mask, model_says(builtin_repository, scene(0), points_xy, labels)) > 0.99


def test_callers_at_once_are_put_into_batches_and_each_gets_their_own_mask(alone, builtin_repository):
    files = [scene(seed) for seed in range(8)]
    expected = [model_says(builtin_repository, file, [[240, 160]], [1]) for file in files]
    batches, pictures = 0.0, 0.0
    with ThreadPoolExecutor(len(files)) as callers:
        for _ in range(10):
            answers = list(callers.map(lambda file: ask(alone, file=file), files))
            assert all(iou(found(answer), mask) > 0.99 for answer, mask in zip(answers, expected, strict=True))
            told = dict(BATCH_SIZE.findall(requests.get(f"{alone.url}/metrics", timeout=10).text))
            batches, pictures = float(told["count"]), float(told["sum"])
            if batches < pictures:
                break
    assert batches < pictures


def test_connections_between_the_services_are_not_closed_under_requests(alone):
    """BentoML would do so with each hundred: more than two hundred meet that for certain."""
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: ask(alone).status_code, range(220)))
    assert set(answers) == {200}
    assert "ServerDisconnected" not in alone.log.read_text()


TOO_LARGE = f"[[1{'0' * 400}, 1]]"
BAD_FORMS = {
    "no picture": ({"file": b"hello"}, "expected a picture"),
    "half a picture": ({"file": scene(0)[:9000]}, "expected a complete picture"),
    "a point outside": ({"pos_coords": "[[480.5, 10]]"}, "expected points on the picture of 480 x 320 pixels"),
    "no number": ({"pos_coords": "[[NaN, 1]]"}, "finite number"),
    "a number too large": ({"pos_coords": TOO_LARGE}, "valid number"),
    "points of one number": ({"pos_coords": "[[1], [2]]"}, "pos_coords"),
    "no points": ({"labels": "[1]"}, "Field required"),
    "points of no JSON": ({"pos_coords": "here"}, "valid list"),
    "points too deep": ({"pos_coords": "[" * 100_000}, "cannot be read"),
    "a label too many": ({**CLICK, "labels": "[1, 1]"}, "labels: expected 1, one for each point, got 2"),
    "an unknown label": ({**CLICK, "labels": "[7]"}, "0, 1, 2 or 3"),
}


@pytest.mark.parametrize(("form", "reason"), BAD_FORMS.values(), ids=BAD_FORMS)
def test_a_form_that_cannot_be_used_is_refused_with_the_reason(alone, form, reason):
    answer = ask(alone, **form)
    assert answer.status_code == 400
    assert reason in answer.text


BAD_BODIES = {
    "nothing": (b"", "application/json", "Field required"),
    "JSON": (
        b'{"input_image": "picture.png", "pos_coords": [[1, 2]]}',
        "application/json",
        "expected a file in a form",
    ),
    "no JSON": (b"\xff", "application/json", "Invalid JSON"),
    "a form without boundary": (b"x", "multipart/form-data", "Missing boundary"),
    "no form": (b"x", "multipart/form-data; boundary=y", "expected multipart/form-data"),
    "the address of a file": (b"input_image=here&pos_coords=[[1,2]]", "application/x-www-form-urlencoded", "http://"),
}


@pytest.mark.parametrize(("body", "content_type", "reason"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_a_body_that_is_no_form_with_a_picture_is_refused_with_the_reason(alone, body, content_type, reason):
    answer = requests.post(f"{alone.url}/segment", body, headers={"Content-Type": content_type}, timeout=60)
    assert answer.status_code == 400
    assert reason in answer.text


def test_the_commands_of_its_page_run_and_print_what_it_shows(alone, tmp_path):
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


def test_its_client_says_in_one_line_why_there_is_no_mask(alone, tmp_path):
    command = [sys.executable, "examples/bentoml_runner/client.py", f"{pages.SAMPLES}/balloons.jpg", "5000", "1"]
    with pytest.raises(AssertionError, match="expected points on the picture of 1280 x 853 pixels") as failure:
        Reader(tmp_path, alone.url).run_command(command, "client.py")
    assert "error: " in str(failure.value)
    assert "Traceback" not in str(failure.value)
