"""Requests are answered despite full disks, a cleared temporary folder, damaged embeddings and stopped workers."""

import hashlib
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chaos import victims
from tests.chaos.callers import crowd, mixed
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, start_server
from tests.small_disk import fill, small_disk
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
CLICK: dict[str, Any] = {"pos_coords": [[100, 100]], "mask_format": "rle", "segmented_image": "none"}


@pytest.fixture(scope="module")
def start(builtin_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Return a function that starts the service with two API workers."""
    started = []

    def start_with(**environment: str) -> Server:
        settings: dict[str, Any] = {"BENTOML_CONFIG_OPTIONS": "api_server.workers=2", **environment}
        settings["MOBILE_SAM_MODEL_REPOSITORY"] = str(builtin_repository)
        started.append(start_server(tmp_path_factory.mktemp("server") / "log", **settings))
        return started[-1]

    yield start_with
    for server in started:
        if server.process.poll() is None:
            server.request_stop()


@pytest.fixture(scope="module")
def embedding_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("embeddings") / "disk", 8) as disk:  # room for three
        yield disk


@pytest.fixture(scope="module")
def server(start: Callable[..., Server], embedding_disk: Path) -> Server:
    """Return a service with a small disk for embeddings."""
    return start(MOBILE_SAM_EMBEDDING_CACHE_DIR=str(embedding_disk / "embeddings"))


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Return a temporary folder with a short path: names of sockets have at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def pids(server: Server) -> set[int]:
    return {worker.pid for worker in victims.workers(server)}


def use_every_endpoint(server: Server, seed: int) -> None:
    """Send each worker requests that the metrics count separately, over new connections."""
    for number in range(3):
        image = as_base64(scene(seed + number))
        assert server.post(input_image=image, **CLICK).status_code == 200
        assert server.post("/embed", input_image=image).status_code == 200
        assert server.post(input_image="no image", **CLICK).status_code == 422
        assert server.post(image_id="0" * 64, **CLICK).status_code == 404
        for path, status in {"/": 200, "/ui": 200, "/info": 200, "/livez": 200, "/nothing": 404, "/embed": 405}.items():
            assert requests.get(f"{server.url}{path}", timeout=60).status_code == status, path


def test_full_temporary_folder_kills_no_worker(start, short_path):
    with small_disk(short_path / "disk", 4) as disk:
        server = start(TMPDIR=str(disk))
        assert list(disk.glob("mobile-sam-triton-*"))
        workers = pids(server)
        assert len(workers) == 2
        fill(disk)
        use_every_endpoint(server, 1)
        assert pids(server) == workers
        assert victims.readiness(server) == 200
        assert "mobile_sam_ready 1" in requests.get(f"{server.url}/metrics", timeout=60).text

        victims.workers(server)[0].kill()
        wait_until(lambda: len(pids(server) - workers) == 1)
        use_every_endpoint(server, 11)
        assert "mobile_sam_ready 1" in requests.get(f"{server.url}/metrics", timeout=60).text
        assert len(re.findall("cannot write counters", server.log.read_text())) <= 3  # once per worker
        assert server.stop() == 0


def test_service_survives_clearing_its_temporary_folder_and_stops_cleanly(start, short_path):
    server = start(TMPDIR=str(short_path))
    use_every_endpoint(server, 21)
    workers = pids(server)
    for entry in short_path.iterdir():
        shutil.rmtree(entry)
    wait_until(lambda: "was removed while the service runs; recreated it" in server.log.read_text())
    assert victims.readiness(server) == 200
    use_every_endpoint(server, 31)
    assert pids(server) == workers
    assert "mobile_sam_ready 1" in requests.get(f"{server.url}/metrics", timeout=60).text
    victims.workers(server)[0].kill()
    wait_until(lambda: len(pids(server) - workers) == 1)
    use_every_endpoint(server, 41)

    with crowd(server.port, mixed(new=1), 6) as callers:
        wait_until(lambda: in_progress(server) > 0)
        began, accepted = time.monotonic(), in_progress(server)
        assert server.stop() == 0
    assert callers.reasons().keys() <= {"ok", "stopping", "closed", "refused"}
    assert len([one for one in callers.answered() if one.began + one.seconds > began]) >= accepted
    assert list(short_path.iterdir()) == []


def in_progress(server: Server) -> int:
    text = requests.get(f"{server.url}/metrics", timeout=60).text
    (count,) = re.findall(r"^mobile_sam_requests_in_progress (\d+)", text, re.MULTILINE)
    return int(count)


def test_damaged_embedding_is_encoded_again_without_a_crash(server, embedding_disk):
    image = as_base64(scene(91))
    first = server.post(input_image=image, **CLICK)
    processes = {process.pid for process in victims.stubs(server)}
    (entry,) = (embedding_disk / "embeddings").glob(f"{hashlib.sha256(scene(91)).hexdigest()}-*.embedding")
    for damage in (lambda file: file.write(b"\xff" * entry.stat().st_size), lambda file: file.truncate(0)):
        with entry.open("r+b") as file:
            damage(file)
        for _ in range(8):  # so that every process answers
            answer = server.post(input_image=image, **CLICK)
            assert (answer.status_code, len(answer.content)) == (200, len(first.content))
            assert b'"score":null' not in answer.content
    assert {process.pid for process in victims.stubs(server)} == processes


def test_worker_stopped_by_a_signal_is_replaced(server):
    workers = pids(server)
    stopped = victims.workers(server)[0]
    stopped.send_signal(signal.SIGSTOP)
    wait_until(lambda: stopped.pid not in pids(server) and len(pids(server)) == 2)
    assert len(pids(server) & workers) == 1
    assert f"API worker {stopped.pid} was stopped by a signal" in server.log.read_text()
    use_every_endpoint(server, 61)


# Runs last, because it stops the service.
def test_full_embedding_disk_fails_no_request(server, embedding_disk):
    fill(embedding_disk)
    use_every_endpoint(server, 81)
    assert victims.readiness(server) == 200
    assert server.stop() == 0
