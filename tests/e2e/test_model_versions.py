"""Model versions side by side, and hot swaps under load, with the real Triton."""

from __future__ import annotations

import json
import shutil
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from requests_toolbelt.multipart.decoder import MultipartDecoder

from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, make_repository, serving, write_broken_encoder, write_other_weights
from tests.waiting import wait_until
from utils.triton.versions import LOAD_ORDER

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEY = {"X-API-Key": "an-operators-own-key"}
CLICK: dict[str, Any] = {"pos_coords": [[100, 80]], "mask_format": "rle", "segmented_image": "none"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the built-in weights as version 1."""
    return make_repository(tmp_path_factory.mktemp("models") / "model_repository", "builtin")


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("server") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_MODEL_CONTROL_MODE="explicit",
        MOBILE_SAM_ADMIN_KEYS="ops:an-operators-own-key",
    ) as running:
        yield running


def result_of(answer: requests.Response) -> dict[str, Any]:
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = json.loads(MultipartDecoder.from_response(answer).parts[-1].content)
    return result


def post_admin(server: Server, path: str = "load") -> requests.Response:
    return requests.post(f"{server.url}/admin/models/{path}", headers=KEY, timeout=120)


def states(answer: requests.Response) -> dict[tuple[str, int], str]:
    assert answer.status_code == 200, answer.text
    return {(model["name"], model["version"]): model["state"] for model in answer.json()["models"]}


@dataclass
class Callers:
    """Three threads that send requests, with pauses, until the block ends: new images, a known image, and its id."""

    server: Server
    seen: Counter[tuple[int, int | str]] = field(default_factory=Counter)
    """Number of responses by status and by model version or error text."""

    def __enter__(self) -> Callers:
        known = as_base64(scene(90))
        image_id = self.server.post("/embed", input_image=known).json()["image_id"]
        self._stop = threading.Event()
        kinds = [
            lambda number: {"input_image": as_base64(scene(1000 + number))},
            lambda _: {"input_image": known},
            lambda _: {"image_id": image_id},
        ]
        self._threads = [threading.Thread(target=self._ask, args=(kind,)) for kind in kinds]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, kind) -> None:
        number = 0
        while not self._stop.wait(0.05):
            number += 1
            answer = self.server.post(**kind(number), **CLICK)
            version_or_error = result_of(answer)["model_version"] if answer.ok else answer.text
            self.seen[answer.status_code, version_or_error] += 1


def test_weights_are_swapped_under_load_without_errors(server, repository):
    image = as_base64(scene(90))
    first = result_of(server.post(input_image=image, **CLICK))
    assert (first["weights"]["name"], first["model_version"]) == ("builtin", 1)
    assert server.post(input_image=image, model_version=2, **CLICK).status_code == 422
    name = write_other_weights(repository, 2)

    with Callers(server) as callers:
        loaded = states(post_admin(server))
        # The new weights encode the image stored with the old embedding.
        second = result_of(server.post(image_id=first["image_id"], **CLICK))
    assert set(loaded.items()) >= {((model, version), "READY") for model in LOAD_ORDER for version in (1, 2)}
    assert (second["weights"]["name"], second["model_version"]) == (name, 2)
    assert set(callers.seen) == {(200, 1), (200, 2)}, callers.seen

    info = requests.get(f"{server.url}/info", timeout=60).json()
    assert (info["model_versions"], info["weights"]["name"]) == ([1, 2], name)
    # Requests may name either version.
    again = result_of(server.post(image_id=first["image_id"], model_version=1, **CLICK))
    assert again == first
    embedded = server.post("/embed", input_image=image, model_version=1).json()
    assert (embedded["weights"]["name"], embedded["model_version"]) == ("builtin", 1)
    for version, weights in ((1, "builtin"), (2, name)):
        everything = server.post("/everything", input_image=image, points_per_side=2, model_version=version).json()
        assert (everything["model_version"], everything["weights"]["name"]) == (version, weights)

    with Callers(server) as callers:
        for model in LOAD_ORDER:
            shutil.rmtree(repository / model / "1")
        left = states(post_admin(server))
    assert {version for (_, version), state in left.items() if state == "READY"} == {2}
    assert {state for (_, version), state in left.items() if version == 1} == {"UNAVAILABLE"}
    assert set(callers.seen) == {(200, 2)}, callers.seen
    rejected = server.post(input_image=image, model_version=1, **CLICK)
    assert rejected.status_code == 422
    assert rejected.json()["errors"][0]["field"] == "model_version"
    assert requests.get(f"{server.url}/readyz", timeout=60).ok
    assert "restarting Triton" not in server.log.read_text()


def processes(server: Server, name: str) -> list[psutil.Process]:
    return [child for child in psutil.Process(server.process.pid).children(recursive=True) if name in child.name()]


def test_failed_load_keeps_the_old_models_even_after_restarts(server, repository):
    before = result_of(server.post(input_image=as_base64(scene(91)), **CLICK))
    write_other_weights(repository, 3)
    decoder = repository / "mobile_sam_decoder" / "3" / "model.onnx"
    intact = decoder.read_bytes()
    for content, message in ((None, "decoder/3/model.onnx is missing"), (b"not a model", "mobile_sam_decoder")):
        decoder.unlink() if content is None else decoder.write_bytes(content)
        answer = post_admin(server)
        assert (answer.status_code, answer.json()["type"]) == (409, "urn:mobile-sam:model-change")
        assert message in answer.json()["detail"]
        assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before

    (triton,) = processes(server, "tritonserver")
    workers = [child for child in processes(server, "") if "http_api_server" in " ".join(child.cmdline())]
    for process in (triton, *workers):
        process.kill()
    wait_until(lambda: ready(server) and triton.pid not in [each.pid for each in processes(server, "tritonserver")])
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before

    decoder.write_bytes(intact)
    assert states(post_admin(server))["mobile_sam", 3] == "READY"
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK))["model_version"] == 3
    for model in LOAD_ORDER:
        shutil.rmtree(repository / model / "3")
    states(post_admin(server))
    assert result_of(server.post(input_image=as_base64(scene(91)), **CLICK)) == before


def test_version_whose_encoder_ignores_the_image_is_not_used(server, repository):
    before = result_of(server.post(input_image=as_base64(scene(94)), **CLICK))
    write_other_weights(repository, 4)
    write_broken_encoder(repository, 4)
    answer = post_admin(server)
    assert answer.status_code == 409
    assert "version 4 is not used: mobile_sam_encoder returned the same embedding" in answer.json()["detail"]
    assert result_of(server.post(input_image=as_base64(scene(94)), **CLICK)) == before
    for model in LOAD_ORDER:
        shutil.rmtree(repository / model / "4")
    assert states(post_admin(server))["mobile_sam_encoder", before["model_version"]] == "READY"


def ready(server: Server) -> bool:
    try:
        return requests.get(f"{server.url}/readyz", timeout=60).ok
    except requests.RequestException:  # a restarting worker does not answer yet
        return False


def test_unloaded_model_gives_a_503_until_it_is_loaded_again(server):
    version = requests.get(f"{server.url}/info", timeout=60).json()["model_versions"][-1]
    assert states(post_admin(server, "mobile_sam_everything/unload"))["mobile_sam_everything", version] == "UNAVAILABLE"
    answer = server.post("/everything", input_image=as_base64(scene(92)), points_per_side=2)
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:mobile-sam:inference-unavailable")
    assert result_of(server.post(input_image=as_base64(scene(92)), **CLICK))["model_version"] == version
    assert states(post_admin(server, "mobile_sam_everything/load"))["mobile_sam_everything", version] == "READY"
    assert server.post("/everything", input_image=as_base64(scene(92)), points_per_side=2).ok


def test_info_names_replaced_weights_after_they_are_loaded(server, repository):
    before = requests.get(f"{server.url}/info", timeout=60).json()
    version = before["model_versions"][-1]
    name = write_other_weights(repository, version, "replaced")
    assert requests.get(f"{server.url}/info", timeout=60).json() == before
    states(post_admin(server))
    after = requests.get(f"{server.url}/info", timeout=60).json()
    assert after == {**before, "weights": result_of(server.post(input_image=as_base64(scene(93)), **CLICK))["weights"]}
    assert after["weights"]["name"] == name != before["weights"]["name"]


def test_admin_api_rejects_missing_and_other_keys(server):
    for headers in ({}, {"X-API-Key": "the-key-of-another-caller"}):
        for method, path in (("GET", "models"), ("POST", "models/load"), ("POST", "models/mobile_sam/unload")):
            answer = requests.request(method, f"{server.url}/admin/{path}", headers=headers, timeout=60)
            assert answer.status_code == 401
