"""Requests are answered despite full disks, a cleared temporary folder and damaged embeddings."""

import hashlib
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from harness import Server, serving, wait_until
from harness.load import crowd
from tests.chaos.callers import mixed
from tests.e2e.pictures import as_base64, scene
from tests.small_disk import fill, small_disk

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
CLICK: dict[str, Any] = {
    "pos_coords": [[100, 100]],
    "mask_format": "rle",
    "segmented_image": "none",
}


@pytest.fixture(scope="module")
def embedding_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with small_disk(tmp_path_factory.mktemp("embeddings") / "disk", 8) as disk:  # room for three
        yield disk


@pytest.fixture(scope="module")
def temporary_disk() -> Iterator[Path]:
    """A disk with a short path: names of sockets have at most 107 characters."""
    with (
        tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as folder,
        small_disk(Path(folder) / "disk", 4) as disk,
    ):
        yield disk


@pytest.fixture(scope="module")
def server(
    builtin_repository: Path,
    tmp_path_factory: pytest.TempPathFactory,
    embedding_disk: Path,
    temporary_disk: Path,
) -> Iterator[Server]:
    """A service with two API workers, and small disks for embeddings and temporary files."""
    with serving(
        tmp_path_factory.mktemp("server") / "log",
        BENTOML_CONFIG_OPTIONS="api_server.workers=2",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_EMBEDDING_CACHE_DIR=str(embedding_disk / "embeddings"),
        TMPDIR=str(temporary_disk),
    ) as server:
        yield server


def pids(server: Server) -> set[int]:
    return {worker.pid for worker in server.workers()}


def use_every_endpoint(server: Server, seed: int) -> None:
    """Send each worker requests that the metrics count separately, over new connections."""
    for number in range(3):
        image = as_base64(scene(seed + number))
        assert server.post(input_image=image, **CLICK).status_code == 200
        assert server.post("/embed", input_image=image).status_code == 200
        assert server.post(input_image="no image", **CLICK).status_code == 422
        assert server.post(image_id="0" * 64, **CLICK).status_code == 404
        for path, status in {
            "/": 200,
            "/ui": 200,
            "/info": 200,
            "/livez": 200,
            "/nothing": 404,
            "/embed": 405,
        }.items():
            assert requests.get(f"{server.url}{path}", timeout=60).status_code == status, path


def in_progress(server: Server) -> int:
    text = requests.get(f"{server.url}/metrics", timeout=60).text
    (count,) = re.findall(r"^mobile_sam_requests_in_progress (\d+)", text, re.MULTILINE)
    return int(count)


def test_damaged_embedding_is_encoded_again_without_a_crash(server, embedding_disk):
    image = as_base64(scene(91))
    # Its answer is longer: it says how long the encoder took.
    server.post(input_image=image, **CLICK)
    first = server.post(input_image=image, **CLICK)
    processes = {process.pid for process in server.stubs()}
    (entry,) = (embedding_disk / "embeddings").glob(
        f"{hashlib.sha256(scene(91)).hexdigest()}-*.embedding"
    )
    for damage in (
        lambda file: file.write(b"\xff" * entry.stat().st_size),
        lambda file: file.truncate(0),
    ):
        with entry.open("r+b") as file:
            damage(file)
        for _ in range(8):  # so that every process answers
            answer = server.post(input_image=image, **CLICK)
            assert answer.status_code == 200
            assert len(re.sub(rb',"encode_s":[0-9.]+', b"", answer.content)) == len(first.content)
            assert b'"score":null' not in answer.content
    assert {process.pid for process in server.stubs()} == processes


def test_full_embedding_disk_fails_no_request(server, embedding_disk):
    filler = fill(embedding_disk)
    use_every_endpoint(server, 81)
    assert server.readiness() == 200
    filler.unlink()


# Runs last, because it stops the service.
def test_service_survives_a_full_and_a_cleared_temporary_folder_and_stops_cleanly(
    server, temporary_disk
):
    workers = pids(server)
    filler = fill(temporary_disk)
    use_every_endpoint(server, 1)
    filler.unlink()
    for entry in temporary_disk.iterdir():
        shutil.rmtree(entry)
    use_every_endpoint(server, 11)
    assert pids(server) == workers
    assert server.readiness() == 200
    server.workers()[0].kill()
    wait_until(lambda: len(pids(server) - workers) == 1, every=0.1)
    use_every_endpoint(server, 21)
    assert "mobile_sam_ready 1" in requests.get(f"{server.url}/metrics", timeout=60).text

    with crowd(server.port, mixed(new=1), 6) as callers:
        wait_until(lambda: in_progress(server) > 0)
        began, accepted = time.monotonic(), in_progress(server)
        assert server.stop() == 0
    assert callers.before(began).reasons().keys() <= {"ok", "stopping", "closed"}
    assert len([one for one in callers.answered() if one.began + one.seconds > began]) >= accepted
    assert list(temporary_disk.iterdir()) == []
    assert server.regions() == []
