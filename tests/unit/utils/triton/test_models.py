"""Listing, loading and unloading the models of a fake Triton."""

import asyncio
import fcntl
import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.api.errors import InferenceUnavailable, ModelChange
from utils.triton import models as module
from utils.triton.models import Models, ModelState
from utils.triton.versions import LOAD_ORDER, sync_links, versions
from utils.triton.watchdog.engines import EngineError

KEY = {"a-header": "a secret"}
ORCHESTRATORS = ("mobile_sam_everything", "mobile_sam_costly", "mobile_sam", "mobile_sam_cached")


class FakeTriton:
    """Fake of Triton's model-repository API that records requests."""

    def __init__(self, deployed: Path) -> None:
        self.deployed = deployed
        self.requests: list[tuple[str, list[int]]] = []
        """Model and its linked versions at each load; no versions for an unload."""
        self.index: list[dict[str, Any]] = []
        self.unloading = 0
        """Number of index requests that still report a version as unloading."""
        self.fails_to_load: set[str] = set()
        self.asked_ready = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["a-header"] == "a secret"
        assert request.url.host == "127.0.0.1"
        path = request.url.path.removeprefix("/v2/repository/")
        if path == "index":
            unloading, self.unloading = self.unloading > 0, self.unloading - 1
            self.asked_ready = json.loads(request.content)["ready"]
            state = {"name": self.requests[-1][0], "version": "1", "state": "UNLOADING"} if unloading else {}
            return httpx.Response(200, json=[*self.index, *([state] if state else [])])
        _, model, action = path.split("/")
        if model in self.fails_to_load:
            return httpx.Response(400, text='{"error":"/a/path is secret"}')
        self.requests.append((model, versions(self.deployed, model) if action == "load" else []))
        return httpx.Response(200)


@pytest.fixture
def folders(repository: Path, deployed: Path) -> tuple[Path, Path]:
    """A repository with version 1, and Triton's folder of links to it."""
    for model in LOAD_ORDER:
        sync_links(repository, deployed, model)
    return repository, deployed


@pytest.fixture
def triton(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton(folders[1])
    client = httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **options: client(transport=httpx.MockTransport(fake), **options))
    monkeypatch.setattr(module, "check_engines", lambda *_: None)
    return fake


@pytest.fixture
def models(folders: tuple[Path, Path], triton: FakeTriton, tmp_path: Path) -> Models:
    return Models(lambda: "127.0.0.1:9", KEY, folders, tmp_path)


def rejection(change: Callable[[], Any]) -> str:
    with pytest.raises(ModelChange) as caught:
        asyncio.run(change())
    return caught.value.detail


def test_states_are_parsed_from_the_index(models, triton):
    triton.index = [
        {"name": "mobile_sam", "version": "2", "state": "READY"},
        {"name": "mobile_sam", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "never", "state": "UNAVAILABLE"},
        {"name": "new"},
    ]
    assert asyncio.run(models.states()) == [
        ModelState("mobile_sam", 2, "READY"),
        ModelState("mobile_sam", 1, "UNAVAILABLE", "unloaded"),
        ModelState("never", None, "UNAVAILABLE"),
        ModelState("new", None, ""),
    ]


def test_versions_are_those_ready_in_all_orchestrator_models(models, triton):
    triton.index = [{"name": model, "version": str(number)} for model in ORCHESTRATORS for number in (10, 2)]
    triton.index += [{"name": "mobile_sam", "version": "11"}, {"name": "mobile_sam_encoder", "version": "12"}]
    assert asyncio.run(models.versions()) == [2, 10]
    assert triton.asked_ready  # so Triton does not scan the repository


def test_sync_loads_in_dependency_order_and_unloads_in_reverse(models, triton, folders):
    add_version(folders[0], 2)
    asyncio.run(models.sync())
    assert triton.requests == [(model, [1, 2]) for model in LOAD_ORDER]
    assert [model for model, _ in triton.requests][-4:] == list(ORCHESTRATORS)
    triton.requests.clear()
    remove_version(folders[0], 1)
    asyncio.run(models.sync())
    assert triton.requests == [(model, [2]) for model in reversed(LOAD_ORDER)]


def test_sync_does_not_load_the_callers_of_a_new_version_with_wrong_masks(models, triton, folders, monkeypatch):
    checked = []

    def check_engines(key_header: dict[str, str], port: int, timeout_s: float, version: int) -> None:
        checked.append((key_header, port, version))
        raise EngineError("mobile_sam_decoder returned no mask")

    monkeypatch.setattr(module, "check_engines", check_engines)
    add_version(folders[0], 2)
    assert rejection(models.sync) == "version 2 is not used: mobile_sam_decoder returned no mask"
    assert checked == [(KEY, 9, 2)]
    assert [model for model, _ in triton.requests] == ["mobile_sam_encoder", "mobile_sam_decoder"]
    assert versions(folders[1], "mobile_sam_decoder") == [1]


def test_sync_waits_until_callers_of_a_model_are_unloaded(models, triton, folders, monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0)
    add_version(folders[0], 2)
    asyncio.run(models.sync())
    remove_version(folders[0], 1)
    triton.unloading = 3
    asyncio.run(models.sync())
    assert triton.unloading < 0
    monkeypatch.setattr(module, "UNLOAD_TIMEOUT_S", -1)
    triton.unloading = 10
    assert "still has running requests" in rejection(models.sync)


def test_adding_and_removing_versions_at_once_is_rejected(models, triton, folders):
    add_version(folders[0], 2)
    remove_version(folders[0], 1)
    assert "2 new and 1 removed" in rejection(models.sync)
    assert triton.requests == []
    assert versions(folders[1]) == []  # the link is dangling


def test_sync_without_changes_reloads_all_models(models, triton, tmp_path):
    asyncio.run(models.sync())
    assert triton.requests == [(model, [1]) for model in LOAD_ORDER]
    triton.requests.clear()
    asyncio.run(Models(lambda: "127.0.0.1:9", KEY, None, tmp_path).sync())  # a remote repository
    assert [model for model, _ in triton.requests] == list(LOAD_ORDER)


def test_one_model_can_be_unloaded_and_loaded_in_the_same_versions(models, triton, folders):
    add_version(folders[0], 2)
    asyncio.run(models.unload("mobile_sam"))
    asyncio.run(models.load("mobile_sam"))
    assert triton.requests == [("mobile_sam", []), ("mobile_sam", [1])]


def test_an_incomplete_version_is_rejected(models, triton, folders):
    add_version(folders[0], 2)
    (folders[0] / "mobile_sam_cached" / "2" / "weights.json").unlink()
    assert rejection(models.sync) == "version 2 is incomplete: mobile_sam_cached/2/weights.json is missing"
    assert triton.requests == []
    assert versions(folders[1], "mobile_sam_cached") == [1]


def test_removing_the_last_version_is_rejected(models, triton, folders):
    remove_version(folders[0], 1)
    assert "at least one version must stay, got 1 removed" in rejection(models.sync)
    assert triton.requests == []


def test_a_failed_load_aborts_the_sync_and_hides_paths(models, triton, folders, caplog):
    add_version(folders[0], 2)
    triton.fails_to_load = {"mobile_sam_decoder"}
    message = rejection(models.sync)
    assert "could not load mobile_sam_decoder" in message
    assert "/a/path" not in message
    assert "/a/path is secret" in caplog.text
    assert [model for model, _ in triton.requests] == ["mobile_sam_encoder"]
    # A restarted Triton does not load it.
    assert [versions(folders[1], model) for model in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)


def test_concurrent_changes_are_rejected(models, tmp_path):
    with (tmp_path / "models.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "another request is changing the models" in rejection(models.sync)
        assert "another request is changing the models" in rejection(lambda: models.unload("mobile_sam"))
    asyncio.run(models.sync())


def test_an_unresponsive_triton_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INDEX_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        models = Models(lambda: f"127.0.0.1:{silent.getsockname()[1]}", {}, None, tmp_path)
        with pytest.raises(InferenceUnavailable):
            asyncio.run(models.versions())


def test_an_unreachable_triton_is_unavailable(tmp_path):
    def unknown() -> str:
        raise LookupError("triton")

    for address in (unknown, lambda: "127.0.0.1:1"):
        models = Models(address, {}, None, tmp_path)
        for method in (models.states, models.versions, models.sync):
            with pytest.raises(InferenceUnavailable):
                asyncio.run(method())
