"""Requests that take long and answers that are large, and a caller beside them whose clicks are not."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import requests
from PIL import Image

from tests.chaos import victims
from tests.chaos.callers import click, photo
from tests.e2e.server import READY_TIMEOUT_S, Server, serving

pytestmark = pytest.mark.e2e
TIMEOUT_S = 5
MEGABYTE = 2**20
LARGE = {"mask_format": "json", "segmented_image": "cutout"}
"""On 25 megapixels the largest answer that is admitted, up to 150 MB."""


@pytest.fixture(scope="module")
def own(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service in which no request has long."""
    log = tmp_path_factory.mktemp("costly") / "log"
    settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(repository), "MOBILE_SAM_INFERENCE_TIMEOUT": str(TIMEOUT_S)}
    with serving(log, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def image_id(own: Server) -> str:
    """The id of an image of 25 megapixels."""
    file = io.BytesIO()
    Image.effect_noise((50, 50), 80).convert("RGB").resize((5000, 5000)).save(file, "JPEG")
    answer = own.post("/embed", input_image=base64.b64encode(file.getvalue()).decode())
    return str(answer.json()["image_id"])


def objects(count: int) -> list[dict]:
    return [{"pos_coords": [[10 + 19 * (index % 256), 10 + 19 * (index // 256)]]} for index in range(count)]


def given_up(server: Server) -> int:
    """Requests that the processes for what takes long have given up."""
    text = requests.get(server.metrics_url, timeout=5).text
    found = re.search(r'^mobile_sam_given_up_total\{model="mobile_sam_costly"\} (\d+)', text, re.MULTILINE)
    return int(found[1]) if found else 0


def until_given_up(server: Server, before: int) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while given_up(server) == before:
        assert time.monotonic() < deadline, "the work goes on"
        time.sleep(0.1)


@pytest.mark.parametrize("mask_format", ["polygon", "rle"])
def test_what_would_take_minutes_is_refused_at_once_with_what_would_fit(own, image_id, mask_format):
    answer = own.post(
        image_id=image_id,
        prompts=objects(256),
        multimask_output=True,
        mask_format=mask_format,
        segmented_image="none",
    )
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (422, "urn:mobile-sam:too-much-work")
    assert re.match(rf"at most \d+ objects as {mask_format} with picture none on", problem["errors"][0]["expected"])


def test_low_resolution_masks_are_bounded_as_all_answers_are(own):
    image = json.loads(click(photo(1))[1])
    answer = own.post(**{**image, "prompts": objects(25), "pos_coords": None, "low_res_mask": True})
    assert answer.status_code == 200
    few = json.loads(click(photo(2))[1]) | {"pos_coords": None, "multimask_output": True, "low_res_mask": True}
    answer = own.post(**{**few, "prompts": [{"pos_coords": [[1, 1]]}] * 256})
    assert (answer.status_code, answer.json()["type"]) == (422, "urn:mobile-sam:answer-too-large")


def test_work_ends_with_the_time_of_its_request(own, image_id):
    before = given_up(own)
    answer = own.post(image_id=image_id, prompts=objects(150), mask_format="rle", segmented_image="none")
    assert (answer.status_code, answer.json()["type"]) == (504, "urn:mobile-sam:inference-timeout")
    until_given_up(own, before)
    assert own.post(image_id=image_id, prompts=objects(5), mask_format="rle", segmented_image="none").ok


def test_work_ends_when_its_caller_leaves(own, image_id):
    before = given_up(own)
    ask = {"image_id": image_id, "prompts": objects(150), "mask_format": "rle", "segmented_image": "none"}
    with contextlib.suppress(requests.Timeout):
        requests.post(f"{own.url}/mobile_sam", json=ask, timeout=1)
        pytest.fail("it was answered")
    until_given_up(own, before)


def test_clicks_are_answered_beside_as_many_requests_that_take_long_as_come(own, image_id):
    ask = {"image_id": image_id, "prompts": objects(40), "mask_format": "polygon", "segmented_image": "none"}
    with ThreadPoolExecutor(30) as pool:
        costly = [pool.submit(own.post, **ask) for _ in range(30)]
        clicks = [own.post(**json.loads(click(photo(number % 3))[1])).status_code for number in range(20)]
        statuses = {each.result().status_code for each in costly}
    assert clicks == [200] * 20
    assert statuses <= {200, 503, 504}
    assert "restarting Triton" not in own.log.read_text()


def test_large_answers_take_no_shared_memory_and_lie_in_no_worker(own, image_id):
    port = int(own.url.rpartition(":")[2])
    body = json.dumps({"image_id": image_id, "pos_coords": [[2500, 2500]], **LARGE}).encode()
    headers = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    shared = sum(region.stat().st_size for region in victims.regions(own))
    workers = victims.workers(own)
    with contextlib.ExitStack() as open_ones:
        before = [psutil.Process(worker.pid).memory_info().rss for worker in workers]
        callers = [open_ones.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)]
        for caller in callers:
            caller.settimeout(READY_TIMEOUT_S)
            caller.sendall(f"POST /mobile_sam HTTP/1.1\r\n{headers}\r\n\r\n".encode() + body)
        starts = [caller.recv(12) for caller in callers]  # and no more
        grown = [worker.memory_info().rss - rss for worker, rss in zip(workers, before, strict=True)]
    assert starts == [b"HTTP/1.1 200"] * 2
    assert max(grown) < 50 * MEGABYTE
    assert sum(region.stat().st_size for region in victims.regions(own)) - shared < 50 * MEGABYTE
    answer = own.post(image_id=image_id, pos_coords=[[2500, 2500]], **LARGE)
    assert len(answer.content) == int(answer.headers["Content-Length"]) > 50 * MEGABYTE
