"""Long requests and large responses, and their effect on other callers' clicks."""

import contextlib
import hashlib
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from PIL import Image

from harness import Server, serving, wait_until
from tests.chaos.callers import click, photo
from tests.chaos.processes import shared_memory
from tests.e2e.pictures import as_base64

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
TIMEOUT_S = 5
MEBIBYTE = 2**20
BEGUN = 'mobile_sam_stage_total{model="mobile_sam_costly",stage="cache"}'
ABORTED = 'mobile_sam_cancelled_total{model="mobile_sam_costly"}'
"""Series that count the requests of the processes for long requests; `BEGUN` follows a second
later."""
LARGE = {"mask_format": "json", "segmented_image": "cutout"}
"""Fields of the largest admitted response for 25 megapixels: up to 150 MB."""


@pytest.fixture(scope="module")
def impatient(
    builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Run a service with a short inference timeout."""
    log = tmp_path_factory.mktemp("costly") / "log"
    settings = {
        "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
        "MOBILE_SAM_INFERENCE_TIMEOUT": str(TIMEOUT_S),
    }
    with serving(log, **settings) as running:
        yield running


@pytest.fixture(scope="module")
def image_id(impatient: Server) -> str:
    return large_image_id(impatient)


def large_image_id(server: Server) -> str:
    """Return the id of an image of 25 megapixels."""
    file = io.BytesIO()
    Image.effect_noise((50, 50), 80).convert("RGB").resize((5000, 5000)).save(file, "JPEG")
    image = as_base64(file.getvalue())
    # On a busy machine, an encode may take longer than the short timeout.
    wait_until(lambda: server.post("/embed", input_image=image).ok, what="it was not encoded")
    return hashlib.sha256(file.getvalue()).hexdigest()


def objects(count: int) -> list[dict]:
    return [
        {"pos_coords": [[10 + 19 * (index % 256), 10 + 19 * (index // 256)]]}
        for index in range(count)
    ]


def test_work_is_aborted_when_the_request_times_out(impatient, image_id):
    before = impatient.count(ABORTED)
    answer = impatient.post(
        image_id=image_id, prompts=objects(150), mask_format="rle", segmented_image="none"
    )
    assert (answer.status_code, answer.json()["type"]) == (504, "urn:mobile-sam:inference-timeout")
    wait_until(lambda: impatient.count(ABORTED) > before, what="the work was not aborted")
    few = {
        "image_id": image_id,
        "prompts": objects(5),
        "mask_format": "rle",
        "segmented_image": "none",
    }
    wait_until(lambda: impatient.post(**few).ok, what="the next request was not answered")


def test_work_is_aborted_when_the_caller_disconnects(impatient, image_id):
    begun, aborted = impatient.count(BEGUN), impatient.count(ABORTED)
    ask = {
        "image_id": image_id,
        "prompts": objects(150),
        "mask_format": "rle",
        "segmented_image": "none",
    }
    with impatient.sending(**ask):
        wait_until(lambda: impatient.count(BEGUN) > begun)
    wait_until(lambda: impatient.count(ABORTED) > aborted, what="the work was not aborted")


def test_clicks_are_answered_during_many_long_requests(impatient, image_id):
    ask = {
        "image_id": image_id,
        "prompts": objects(40),
        "mask_format": "polygon",
        "segmented_image": "none",
    }
    with ThreadPoolExecutor(30) as pool:
        costly = [pool.submit(impatient.post, **ask) for _ in range(30)]
        clicks = [impatient.send(click(photo(number % 3))).status_code for number in range(20)]
        statuses = {each.result().status_code for each in costly}
    assert clicks == [200] * 20
    assert statuses <= {200, 503, 504}
    assert "restarting Triton" not in impatient.log.read_text()


def test_large_responses_use_neither_shared_memory_nor_worker_memory(server):
    image_id = large_image_id(server)
    ask = {"image_id": image_id, "pos_coords": [[2500, 2500]], **LARGE}
    shared = shared_memory(server)
    workers = server.workers()
    with contextlib.ExitStack() as connections:
        before = [psutil.Process(worker.pid).memory_info().rss for worker in workers]
        callers = [connections.enter_context(server.sending(**ask)) for _ in range(2)]
        starts = [caller.recv(12) for caller in callers]  # and read no further
        grown = [
            worker.memory_info().rss - rss for worker, rss in zip(workers, before, strict=True)
        ]
    assert starts == [b"HTTP/1.1 200"] * 2
    assert max(grown) < 50 * MEBIBYTE
    assert shared_memory(server) - shared < 50 * MEBIBYTE
    answer = server.post(**ask)
    assert len(answer.content) == int(answer.headers["Content-Length"]) > 50 * MEBIBYTE
