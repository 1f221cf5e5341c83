"""Stops and restarts: what is left behind, and what survives."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.chaos import victims
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import (
    Server,
    launch_server,
    make_repository,
    serving,
    start_server,
    write_other_weights,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK: dict[str, Any] = {"pos_coords": [[240, 160]]}
CACHE_BYTES = 8_000_000
"""Room for three embeddings."""


def test_stop_while_triton_loads_leaves_nothing_behind(builtin_repository, tmp_path):
    server = launch_server(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository))

    def family() -> list[psutil.Process]:
        return psutil.Process(server.process.pid).children(recursive=True)

    def is_stub(child: psutil.Process) -> bool:
        try:
            return child.name().startswith("triton_python")
        except psutil.NoSuchProcess:  # a helper of the start, already gone
            return False

    wait_until(lambda: any(map(is_stub, family())))
    children = family()
    assert server.stop() == 0
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not [child for child in alive if child.status() != psutil.STATUS_ZOMBIE]
    assert not [entry for entry in Path("/dev/shm").iterdir() if f"_{server.process.pid}_" in entry.name]


def test_embeddings_survive_a_restart_and_stay_below_their_limit(builtin_repository, tmp_path):
    models = str(builtin_repository)
    first = start_server(tmp_path / "first log", MOBILE_SAM_MODEL_REPOSITORY=models)
    image = {"input_image": as_base64(scene(15))}
    before = segmentation(first.post(**image, **CLICK, **NPY_ONLY)).result
    known = {"image_id": before["image_id"]}
    assert first.stop() == 0

    with serving(
        tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=models, MOBILE_SAM_EMBEDDING_CACHE_BYTES=str(CACHE_BYTES)
    ) as server:
        assert segmentation(server.post(**known, **CLICK, **NPY_ONLY)).result == before
        assert server.embeddings() == {"found": 1, "shared": 0, "encoded": 0}
        shutil.rmtree(tmp_path / "embeddings")
        assert server.post(**known, **CLICK, **NPY_ONLY).status_code == 404
        assert segmentation(server.post(**image, **CLICK, **NPY_ONLY)).result == before
        assert server.embeddings()["encoded"] == 1

        for seed in range(6):
            assert server.post("/embed", input_image=as_base64(scene(seed))).status_code == 200
            entries = os.scandir(tmp_path / "embeddings")
            assert 0 < sum(entry.stat().st_size for entry in entries if entry.is_file()) <= CACHE_BYTES
        assert server.post(**known, **CLICK, **NPY_ONLY).status_code == 404


def test_service_without_a_writable_cache_works_and_warns_once(builtin_repository, tmp_path):
    (tmp_path / "a file").write_text("not a folder")
    with serving(
        tmp_path / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_EMBEDDING_CACHE_DIR=str(tmp_path / "a file" / "embeddings"),
    ) as server:
        for seed in range(6):
            answer = segmentation(server.post(input_image=as_base64(scene(seed)), **CLICK, **NPY_ONLY))
            assert answer.result["masks"]
        warnings = server.log.read_text().count("embeddings are not kept")
        max_warnings = 4  # one per encoding process: two for new images, one for long requests, one for /everything
        assert 1 <= warnings <= max_warnings


def test_automatic_masks_wait_for_the_restart_after_triton_took_a_process_for_dead(builtin_repository, tmp_path):
    with serving(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository)) as server:
        image = {"image_id": server.post("/embed", input_image=as_base64(scene(94))).json()["image_id"]}
        before = server.post("/everything", **image, points_per_side=16).json()
        (stub,) = victims.stubs(server, "mobile_sam_everything")
        restart = "restarting Triton: Triton took a model's process for dead"
        url, body = f"{server.url}/everything", {**image, "points_per_side": 16, "progress": True}
        with requests.post(url, json=body, stream=True, timeout=120) as response:
            steps = response.iter_lines()
            next(steps)
            stub.suspend()
            wait_until(lambda: restart in server.log.read_text())
            with suppress(psutil.NoSuchProcess):
                stub.resume()
            *_, last = steps
        assert json.loads(last)["result"] == before


def loaded_weights(server: Server) -> dict[str, Any]:
    """Return the weights named by `/info`, after checking that a response names the same."""
    info: dict[str, Any] = requests.get(f"{server.url}/info", timeout=60).json()
    answer = server.post("/embed", input_image=as_base64(scene(93))).json()
    assert {key: answer[key] for key in ("weights", "engine")} == {key: info[key] for key in ("weights", "engine")}
    assert info["model_versions"] == [answer["model_version"]] == [1]
    weights: dict[str, Any] = info["weights"]
    return weights


def test_info_names_the_loaded_weights_after_the_repository_has_changed(tmp_path):
    repository = make_repository(tmp_path / "model_repository", "builtin")
    with serving(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(repository)) as server:
        before = loaded_weights(server)
        assert before["name"] == "builtin"

        other = write_other_weights(repository)
        assert loaded_weights(server) == before

        victims.triton(server).kill()
        wait_until(lambda: victims.readiness(server) != 200)
        weights = requests.get(f"{server.url}/info", timeout=60).json()["weights"]
        assert weights is None or weights["name"] == other
        server.wait_until_ready()
        after = loaded_weights(server)
        assert (after["name"], after["trained"]) == (other, True)
        assert after["sha256"] != before["sha256"]
