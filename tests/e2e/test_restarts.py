"""Restarts: what survives them, and what changes."""

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from harness import Server, launch_server, serving, wait_until
from harness.load import crowd
from harness.repository import make_repository
from harness.server import READY_TIMEOUT_S, serve_expecting_failure
from tests.chaos.callers import click
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.test_stops import check_stop
from tests.services import write_other_weights
from utils.processes import waits_for_child
from utils.triton.services import users_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {"pos_coords": [[240, 160]]}
IMAGE = {"input_image": as_base64(scene(15))}
CACHE_BYTES = 8_000_000
"""Room for three embeddings."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_repository(tmp_path_factory.mktemp("models") / "model_repository", "builtin")


@pytest.fixture(scope="module")
def settings(repository: Path) -> dict[str, Any]:
    return {
        "MOBILE_SAM_MODEL_REPOSITORY": str(repository),
        "MOBILE_SAM_EMBEDDING_CACHE_BYTES": str(CACHE_BYTES),
    }


@pytest.fixture(scope="module")
def first(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    launched = launch_server(tmp_path_factory.mktemp("restarts") / "log", **settings)
    yield launched
    launched.kill()


@pytest.fixture(scope="module")
def server(first: Server, settings: dict[str, Any]) -> Iterator[Server]:
    """The service that was stopped after clicks on `scene(15)`, started again."""
    with serving(first.log, **settings) as server:
        yield server


# Runs first, because the other tests restart the service.
def test_busy_service_told_to_stop_exits_with_0_and_leaves_nothing(first):
    processes = first.wait_until_ready().family()
    with crowd(first.port, lambda: click(scene(15)), 8) as callers:
        wait_until(lambda: len(callers.answered()) > 20)
        began = time.monotonic()
        check_stop(first, processes)
    assert callers.before(began).reasons().keys() <= {"ok", "stopping", "closed"}
    # The port closes while callers connect.
    assert callers.reasons().keys() <= {"ok", "stopping", "closed", "refused", "lost"}


def remove(folder: Path) -> None:
    """Remove a folder in which the service may write meanwhile."""
    removed = folder.with_name(secrets.token_hex(8))
    folder.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def test_embeddings_survive_a_restart_and_stay_below_their_limit(server):
    known = {"image_id": hashlib.sha256(scene(15)).hexdigest()}
    before = segmentation(server.post(**known, **CLICK, **NPY_ONLY)).result
    assert server.embeddings() == {"found": 1, "shared": 0, "encoded": 0}
    folder = server.log.parent / "embeddings"
    remove(folder)
    assert server.post(**known, **CLICK, **NPY_ONLY).status_code == 404
    assert segmentation(server.post(**IMAGE, **CLICK, **NPY_ONLY)).result == before
    assert server.embeddings()["encoded"] == 1

    for seed in range(6):
        assert server.post("/embed", input_image=as_base64(scene(seed))).status_code == 200
        assert (
            0
            < sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
            <= CACHE_BYTES
        )
    assert server.post(**known, **CLICK, **NPY_ONLY).status_code == 404


def test_automatic_masks_wait_for_the_restart_after_triton_took_a_process_for_dead(server):
    image = {"image_id": server.post("/embed", input_image=as_base64(scene(94))).json()["image_id"]}
    before = server.post("/everything", **image, points_per_side=16).json()
    (stub,) = server.stubs("mobile_sam_everything")
    # The watchdog may be the first to notice it.
    noticed = "Triton took a model's process for dead|process .+ was stopped by a signal"
    restart = re.compile(f"restarting Triton: ({noticed})")
    url, body = f"{server.url}/everything", {**image, "points_per_side": 16, "progress": True}
    with requests.post(url, json=body, stream=True, timeout=120) as response:
        steps = response.iter_lines()
        next(steps)
        stub.suspend()
        # It may have computed all of the answer before that: the other request needs it now.
        with server.sending("/everything", **image, points_per_side=16):
            wait_until(lambda: restart.search(server.log.read_text()))
        with suppress(psutil.NoSuchProcess):
            stub.resume()
        *_, last = steps
    assert json.loads(last)["result"] == before
    server.wait_until_ready()


def test_a_start_is_repeated_after_triton_took_a_process_for_dead_that_lives(server):
    dead = "took a model's process for dead while it loaded the model"

    def is_taken_for_dead() -> bool:
        """Return whether a process was suspended before it had loaded its model."""
        (before,) = server.wait_until_ready().stubs("mobile_sam_everything")
        server.triton().kill()
        wait_until(lambda: not before.is_running())
        # Its model sets that first.
        wait_until(lambda: any(stub.nice() for stub in server.stubs("mobile_sam_everything")))
        (stub,), triton = server.stubs("mobile_sam_everything"), server.triton()
        stub.suspend()
        # The watchdog ends one that is stopped after it has loaded its model.
        wait_until(lambda: not stub.is_running() or waits_for_child(triton.pid))
        with suppress(psutil.NoSuchProcess):
            stub.resume()
            wait_until(lambda: not stub.is_running())
        return dead in server.log.read_text()

    wait_until(is_taken_for_dead, READY_TIMEOUT_S)
    server.wait_until_ready()


def loaded_weights(server: Server) -> dict[str, Any]:
    """Return the weights named by `/info`, after checking that a response names the same."""
    info: dict[str, Any] = requests.get(f"{server.url}/info", timeout=60).json()
    answer = server.post("/embed", input_image=as_base64(scene(93))).json()
    assert {key: answer[key] for key in ("weights", "engine")} == {
        key: info[key] for key in ("weights", "engine")
    }
    assert info["model_versions"] == [answer["model_version"]] == [1]
    weights: dict[str, Any] = info["weights"]
    return weights


def masks(server: Server) -> dict[str, Any]:
    answer = server.post(**IMAGE, **CLICK, **NPY_ONLY)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = segmentation(answer).result["masks"]
    return result


def kill_triton(server: Server) -> None:
    """Kill Triton, and wait until the watchdog has started another."""
    killed = server.triton()
    killed.kill()

    def has_started_another() -> bool:
        with suppress(IndexError):  # there is none
            return server.triton() != killed
        return False

    # In this order: for a moment after its death, Triton still counts as ready.
    wait_until(
        lambda: has_started_another() and server.readiness() == 200, READY_TIMEOUT_S, every=0.1
    )


# Runs after the others, because it changes the weights in the repository.
def test_a_service_keeps_the_weights_it_started_with_after_the_repository_has_changed(
    server, repository, tmp_path
):
    weights, before = loaded_weights(server), masks(server)
    decoder = requests.get(f"{server.url}/decoder.onnx?weights={weights['sha256']}", timeout=60)
    assert weights["name"] == "builtin"

    other = write_other_weights(repository)
    note = (
        f"the service at {server.url} (process {server.process.pid}) uses the same folder, with"
        " builtin weights"
    )
    assert [line[: len(note)] for line in users_of(repository)] == [note]
    for name in ("mobile_sam_encoder", "mobile_sam_decoder"):
        (repository / name / "1" / "model.onnx").unlink()
    for _ in range(2):
        assert loaded_weights(server) == weights
        assert masks(server) == before
        again = requests.get(f"{server.url}/decoder.onnx", timeout=60)
        assert (again.status_code, again.content) == (200, decoder.content)
        kill_triton(server)
        remove(server.log.parent / "embeddings")  # so that the encoder runs
    server.workers()[
        0
    ].kill()  # BentoML starts another, which reads the settings and the plan again
    wait_until(lambda: server.readiness() == 200)
    assert loaded_weights(server) == weights

    write_other_weights(repository)
    environment = {"MOBILE_SAM_MODEL_REPOSITORY": str(repository)}
    with serving(tmp_path / "log", **environment) as second:
        assert loaded_weights(second)["name"] == other
        assert masks(second) != before
        assert f"{note} until it is started again" in second.log.read_text()
    assert loaded_weights(server) == weights


def test_a_start_with_other_weights_than_the_expected_ones_ends_with_one_line(repository):
    ended = serve_expecting_failure(
        MOBILE_SAM_EXPECTED_WEIGHTS="0" * 64, MOBILE_SAM_MODEL_REPOSITORY=str(repository)
    )
    assert ended.returncode == 1
    line = ended.stderr.splitlines()[-1]
    assert line.startswith(
        f"error: MOBILE_SAM_EXPECTED_WEIGHTS: expected weights with the SHA-256 {'0' * 64}, got "
    )
    assert "(other)" in line


# Runs last, because it ends the service.
def test_a_restart_with_changed_files_ends_the_service_with_one_line(server):
    snapshots = Path(json.loads(server.triton().environ()["MOBILE_SAM_TRITON_RUN"])["repository"])
    with (snapshots / "mobile_sam_encoder" / "1" / "model.onnx").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    assert loaded_weights(server)["name"] == "builtin"  # Triton has read it
    server.triton().kill()
    assert server.process.wait(READY_TIMEOUT_S) == 1
    line = server.log.read_text().splitlines()[-1]
    assert line.startswith(
        "error: the weights that this service started with were changed or removed: "
    )
    assert line.endswith("model.onnx has changed; start it again")
    assert not snapshots.parent.exists()
