"""SIGTERM and the death of the parent: nothing hangs, nothing is left behind."""

import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator

import psutil
import pytest
import requests

from harness import Server, launch_server, wait_until
from tests.chaos.processes import left_over
from tests.e2e.pictures import as_base64, scene

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


def check_stop(server: Server, processes: list[psutil.Process]) -> None:
    """Stop a service that has these processes, and check that nothing is left."""
    assert server.stop() == 0, server.log.read_text()[-3000:]
    assert left_over(processes, 60) == []
    assert server.regions() == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()
    assert "a step of the shutdown failed" not in server.log.read_text()


@pytest.fixture
def server(builtin_repository, tmp_path) -> Iterator[Server]:
    """Launch a service, and kill what is left of it at the end."""
    launched = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository))
    yield launched
    launched.kill()


def processes_of(server: Server) -> list[psutil.Process]:
    """Wait until the service loads its models, and return its processes."""
    wait_until(lambda: bool(server.stubs()), every=0.1)
    return server.family()


def terminate_twice(server: Server) -> None:
    for _ in range(2):
        server.process.send_signal(signal.SIGTERM)


def interrupt_all_processes(server: Server) -> None:
    """Do what Ctrl-C in a terminal does."""
    os.killpg(server.process.pid, signal.SIGINT)


def begun_stream(server: Server, seed: int) -> tuple[requests.Response, Iterator[bytes]]:
    """Start automatic masks that take minutes, and return the answer and its further lines after
    the first batch.
    """
    fields = {
        "input_image": as_base64(scene(seed, (1800, 1200))),
        "points_per_side": 63,
        "crop_n_layers": 1,
        "progress": True,
    }
    response = requests.post(f"{server.url}/everything", json=fields, stream=True, timeout=300)
    lines = response.iter_lines()
    while json.loads(next(lines))["done"] == 0:
        pass
    return response, lines


@pytest.mark.parametrize("stop", [terminate_twice, interrupt_all_processes])
def test_stop_ends_automatic_masks_that_take_too_long_and_finishes_the_rest(
    server: Server, stop: Callable[[Server], None]
):
    processes = server.wait_until_ready().family()
    image_id = server.post("/embed", input_image=as_base64(scene(3))).json()["image_id"]
    streams = [begun_stream(server, seed) for seed in (1, 2)]
    queued = [as_base64(scene(seed)) for seed in range(10, 13)]
    assert server.post("/embed", images=queued).status_code == 202
    fields = {
        "image_id": image_id,
        "region": [40, 40, 240, 240],
        "pos_coords": [[100, 100]],
        "mask_format": "rle",
    }
    with server.sending(**fields) as click:
        # Answered after the click has begun, which came first.
        assert requests.get(f"{server.url}/livez", timeout=60).status_code == 200
        stop(server)
        ends = [json.loads([*lines][-1]) for _, lines in streams]
        with click.makefile("rb") as answer:
            assert answer.readline() == b"HTTP/1.1 200 OK\r\n"
            assert b'"masks"' in answer.read()
    assert [end["problem"]["type"] for end in ends] == ["urn:mobile-sam:stopping"] * 2
    check_stop(server, processes)
    log = server.log.read_text()
    events = re.findall(
        r"\] stopping$|would not finish this request in time|Triton has stopped$", log, re.MULTILINE
    )
    assert events == [
        "] stopping",
        *["would not finish this request in time"] * 2,
        "Triton has stopped",
    ]
    for killed in ("could not be finished in time", "and is killed"):
        assert killed not in log


def test_service_told_to_stop_while_it_starts_exits_with_0_and_leaves_nothing(server):
    check_stop(server, processes_of(server))


def test_service_whose_first_process_is_killed_while_it_starts_ends(server):
    processes = processes_of(server)
    server.process.kill()
    server.process.wait()
    assert left_over(processes, 60) == []
