"""Full shared memory: the service says so once, and works again when there is room."""

from pathlib import Path
from typing import Any

import pytest
import requests

from harness import Server, launch_server, wait_until
from harness.server import READY_TIMEOUT_S, SHARED_MEMORY
from tests.e2e.pictures import as_base64, scene
from tests.e2e.test_stops import check_stop
from tests.small_disk import full_shared_memory, own_shared_memory

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {
    "pos_coords": [[100, 100]],
    "mask_format": "rle",
    "segmented_image": "none",
}
FULL = "/dev/shm has less than 32 MiB free"
SHORTAGE = {"urn:mobile-sam:inference-unavailable", "urn:mobile-sam:overloaded"}


def problem(server: Server) -> str:
    """Return why the service is not ready, empty if it is."""
    answer = requests.get(f"{server.url}/readyz", timeout=60)
    return "" if answer.ok else str(answer.json()["detail"])


@pytest.fixture
def wrapper() -> list[str]:
    """Command that runs a service with shared memory of its own."""
    command = own_shared_memory(600)
    if command is None:
        pytest.skip("mounting a disk is not allowed here")
    return command


def test_start_with_full_shared_memory_ends_with_one_line(
    builtin_repository: Path, tmp_path: Path, wrapper
):
    fill = f'head --bytes=1G /dev/zero >{SHARED_MEMORY}/filler; exec "$0" "$@"'
    server = launch_server(
        tmp_path / "log",
        wrapper=[*wrapper, "sh", "-c", fill],
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
    )
    assert server.process.wait(READY_TIMEOUT_S) == 1
    lines = server.log.read_text().splitlines()
    assert lines[-1] == (
        "error: /dev/shm has less than 256 MiB free: enlarge it (docker run --shm-size=1g), or free"
        " some of it"
    )
    assert "Traceback" not in server.log.read_text()


def test_shared_memory_that_fills_up_is_reported_once_until_there_is_room(
    builtin_repository: Path, tmp_path: Path, wrapper
):
    server = launch_server(
        tmp_path / "log", wrapper=wrapper, MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository)
    )
    try:
        server.wait_until_ready()
        workers = {worker.pid for worker in server.workers()}
        small = as_base64(scene(1))
        assert server.post(input_image=small, **CLICK).status_code == 200
        with full_shared_memory(server):
            wait_until(lambda: problem(server) == f"failing: {FULL}")
            for seed in range(4):
                answers = [
                    server.post(input_image=small, **CLICK),
                    server.post(input_image=as_base64(scene(seed, (1800, 1200))), **CLICK),
                ]
                for answer in answers:
                    assert answer.status_code == 200 or answer.json()["type"] in SHORTAGE, (
                        answer.text
                    )
        wait_until(lambda: server.readiness() == 200)
        assert (
            server.post(input_image=as_base64(scene(9, (1800, 1200))), **CLICK).status_code == 200
        )
        assert {worker.pid for worker in server.workers()} == workers
        log = server.log.read_text()
        assert log.count(f"Triton is failing: {FULL}") == 1
        assert "Traceback" not in log
        check_stop(server, server.family())
    finally:
        server.kill()
