"""examples/bentoml_runner: masks, batching across callers, errors."""

import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import requests
from PIL import Image

from benchmarks.objects import Mask, iou
from harness import Server
from tests.e2e import pages
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.examples.conftest import readme
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

FORM = "multipart/form-data; boundary=y"
CLICK = {"pos_coords": "[[240, 160]]"}
BATCH_SIZE = re.compile(r"^bentoml_service_adaptive_batch_size_(sum|count){.*} (.+)$", re.MULTILINE)


@pytest.fixture(scope="module")
def example(serve, builtin_repository, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")  # holds the metrics, and is cleared at each start
    return serve(
        "bentoml_runner",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        BENTOML_HOME=str(home),
    )


def ask(server: Server, file: bytes = b"", **fields: str) -> requests.Response:
    picture = ("picture.png", file or scene(0), "image/png")
    return requests.post(
        f"{server.url}/segment", files={"input_image": picture}, data=fields or CLICK, timeout=60
    )


def mask_of(answer: requests.Response) -> Mask:
    assert answer.status_code == 200, answer.text
    return np.array(answer.json(), bool)


def reference_mask(
    server: Server, file: bytes, points_xy: list[list[float]], labels: list[int]
) -> Mask:
    """Return the mask of the main service."""
    answer = server.post(
        input_image=as_base64(file), pos_coords=points_xy, labels=labels, **NPY_ONLY
    )
    return np.array(segmentation(answer).masks, bool)


@pytest.mark.parametrize(
    ("points_xy", "labels"),
    [
        pytest.param([[240, 160], [5, 5]], [1, 0], id="click and negative"),
        pytest.param([[100, 60], [380, 260]], [2, 3], id="box"),
    ],
)
def test_mask_matches_the_reference(example, builtin_server, points_xy, labels):
    mask = mask_of(ask(example, pos_coords=json.dumps(points_xy), labels=json.dumps(labels)))
    assert iou(mask, reference_mask(builtin_server, scene(0), points_xy, labels)) > 0.99


def test_concurrent_requests_are_batched_and_get_their_own_masks(example, builtin_server):
    files = [scene(seed) for seed in range(8)]
    expected = [reference_mask(builtin_server, file, [[240, 160]], [1]) for file in files]
    batches, pictures = 0.0, 0.0
    with ThreadPoolExecutor(len(files)) as callers:
        for _ in range(10):
            answers = list(callers.map(lambda file: ask(example, file=file), files))
            assert all(
                iou(mask_of(answer), mask) > 0.99
                for answer, mask in zip(answers, expected, strict=True)
            )
            sizes = dict(
                BATCH_SIZE.findall(requests.get(f"{example.url}/metrics", timeout=60).text)
            )
            batches, pictures = float(sizes["count"]), float(sizes["sum"])
            if batches < pictures:
                break
    assert batches < pictures


def test_connections_between_services_are_not_closed_in_flight(example):
    """BentoML would replace them every hundred requests."""
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: ask(example).status_code, range(110)))
    assert set(answers) == {200}
    assert "ServerDisconnected" not in example.log.read_text()


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        pytest.param({"file": b"hello"}, "expected a picture", id="not a picture"),
        pytest.param(
            {"file": scene(0)[:9000]},
            "the picture is incomplete or damaged",
            id="truncated picture",
        ),
        pytest.param(
            {"pos_coords": "[[480.5, 10]]"},
            "expected points within 480 x 320 pixels",
            id="point outside",
        ),
        pytest.param(
            {"pos_coords": "[" * 100_000},
            "not valid multipart/form-data",
            id="points nested too deeply",
        ),
        pytest.param(
            {**CLICK, "labels": "[1, 1]"},
            "labels: expected 1, one per point, got 2",
            id="too many labels",
        ),
    ],
)
def test_invalid_form_is_rejected_with_the_reason(example, form, reason):
    answer = ask(example, **form)
    assert answer.status_code == 400
    assert reason in answer.text


def test_body_that_is_no_form_is_rejected_with_the_reason(example):
    fields = {"input_image": "a.png", "pos_coords": [[1, 2]]}
    other = requests.post(f"{example.url}/segment", json=fields, timeout=60)
    assert (other.status_code, "expected a file in a form" in other.text) == (400, True)
    broken = requests.post(
        f"{example.url}/segment", b"x", headers={"Content-Type": FORM}, timeout=60
    )
    assert (broken.status_code, "not valid multipart/form-data" in broken.text) == (400, True)


def test_readme_commands_print_the_documented_output(reader):
    command, shown = readme("bentoml_runner")
    assert pages.matches(shown, reader.run(command))
    mask = np.array(json.loads((reader.folder / "mask.json").read_text()), bool)
    with (
        Image.open(reader.folder / "segmented_image.png") as picture,
        Image.open(reader.folder / pages.SAMPLES / "balloons.jpg") as photo,
    ):
        assert picture.size == photo.size
        changed = (np.asarray(picture) != np.asarray(photo)).any(axis=2)
    assert iou(changed, mask) > 0.99


def test_client_prints_errors_in_one_line(reader):
    command = [
        sys.executable,
        "examples/bentoml_runner/client.py",
        f"{pages.SAMPLES}/balloons.jpg",
        "5000",
        "1",
    ]
    with pytest.raises(
        AssertionError, match=r"error: .*expected points within 1280 x 853 pixels"
    ) as failure:
        reader.run_command(command, "client.py")
    assert "Traceback" not in str(failure.value)
