"""Listing, loading and unloading the models of a fake Triton."""

import asyncio
import fcntl
import json
import logging
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import pytest

from orchestrator.flood_log import FloodLog
from sam_onnx.repository import replace_file
from tests.unit.utils.edge.fakes import Clock
from tests.unit.utils.triton.conftest import add_version, remove_version
from utils.errors import InferenceUnavailable, ModelChange
from utils.observability.logs import logger
from utils.triton import models as module
from utils.triton.models import Models, ModelState
from utils.triton.run import KEY_HEADER, RunState
from utils.triton.versions import LOAD_ORDER, Deployment, read_record, versions
from utils.triton.watchdog.probes import EngineError, LocalTriton

KEY = {KEY_HEADER: "a secret"}
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
        assert KEY.items() <= request.headers.items()
        assert request.url.host == "127.0.0.1"
        path = request.url.path.removeprefix("/v2/repository/")
        if path == "index":
            unloading, self.unloading = self.unloading > 0, self.unloading - 1
            self.asked_ready = json.loads(request.content)["ready"]
            state = (
                {"name": self.requests[-1][0], "version": "1", "state": "UNLOADING"}
                if unloading
                else {}
            )
            return httpx.Response(200, json=[*self.index, *([state] if state else [])])
        _, model, action = path.split("/")
        if model in self.fails_to_load:
            return httpx.Response(400, text='{"error":"/a/path is secret"}')
        self.requests.append((model, versions(self.deployed, model) if action == "load" else []))
        return httpx.Response(200)


@pytest.fixture
def triton(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton(deployment.folder)
    client = httpx.AsyncClient
    monkeypatch.setattr(
        httpx,
        "AsyncClient",
        lambda **options: client(transport=httpx.MockTransport(fake), **options),
    )
    monkeypatch.setattr(module, "check_engines", lambda *_: None)
    return fake


@pytest.fixture
def models(deployment: Deployment, triton: FakeTriton, tmp_path: Path) -> Models:
    return Models(lambda: "127.0.0.1:9", RunState(str(tmp_path), "a secret", 8002), deployment)


def rejection(change: Callable[[], Any]) -> str:
    with pytest.raises(ModelChange) as caught:
        asyncio.run(change())
    return caught.value.detail


def test_states_are_parsed_from_the_index(models, triton):
    triton.index = [
        {"name": "mobile_sam", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "new"},
    ]
    assert asyncio.run(models.states()) == [
        ModelState("mobile_sam", 1, "UNAVAILABLE", "unloaded"),
        ModelState("new", None, "", ""),
    ]


def test_versions_are_those_ready_in_all_orchestrator_models(models, triton):
    triton.index = [
        {"name": model, "version": str(number)} for model in ORCHESTRATORS for number in (10, 2)
    ]
    triton.index += [
        {"name": "mobile_sam", "version": "11"},
        {"name": "mobile_sam_encoder", "version": "12"},
    ]
    assert asyncio.run(models.versions()) == [2, 10]
    assert triton.asked_ready  # so Triton does not scan the repository


def test_sync_loads_in_dependency_order_and_unloads_in_reverse(models, triton, deployment):
    add_version(deployment.repository, 2)
    asyncio.run(models.sync())
    assert triton.requests == [(model, [1, 2]) for model in LOAD_ORDER]
    assert [model for model, _ in triton.requests][-4:] == list(ORCHESTRATORS)
    triton.requests.clear()
    remove_version(deployment.repository, 1)
    asyncio.run(models.sync())
    assert triton.requests == [(model, [2]) for model in reversed(LOAD_ORDER)]


def test_sync_does_not_load_the_callers_of_a_new_version_with_wrong_masks(
    models, triton, deployment, monkeypatch
):
    checked = []

    def check_engines(triton: LocalTriton, timeout_s: float, version: int) -> None:
        checked.append((triton, version))
        raise EngineError("mobile_sam_decoder returned no mask")

    monkeypatch.setattr(module, "check_engines", check_engines)
    add_version(deployment.repository, 2)
    assert rejection(models.sync) == "version 2 is not used: mobile_sam_decoder returned no mask"
    assert checked == [(LocalTriton(9, KEY, 8002), 2)]
    assert [model for model, _ in triton.requests] == ["mobile_sam_encoder", "mobile_sam_decoder"]
    assert versions(deployment.folder, "mobile_sam_decoder") == [1]


def test_sync_waits_until_callers_of_a_model_are_unloaded(models, triton, monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0)
    triton.unloading = 3
    asyncio.run(models.sync())
    assert triton.unloading < 0
    monkeypatch.setattr(module, "UNLOAD_TIMEOUT_S", -1)
    triton.unloading = 10
    assert "still has running requests" in rejection(models.sync)


def test_sync_without_changes_reloads_all_models(models, triton):
    asyncio.run(models.sync())
    assert triton.requests == [(model, [1]) for model in LOAD_ORDER]
    triton.requests.clear()
    models = replace(models, deployment=None)  # a remote repository
    asyncio.run(models.sync())
    assert [model for model, _ in triton.requests] == list(LOAD_ORDER)


def test_one_model_can_be_unloaded_and_loaded_in_the_same_versions(models, triton, deployment):
    add_version(deployment.repository, 2)
    asyncio.run(models.unload("mobile_sam"))
    asyncio.run(models.load("mobile_sam"))
    assert triton.requests == [("mobile_sam", []), ("mobile_sam", [1])]


def test_a_failed_load_aborts_the_sync_and_hides_paths(models, triton, deployment, caplog):
    add_version(deployment.repository, 2)
    triton.fails_to_load = {"mobile_sam_decoder"}
    message = rejection(models.sync)
    assert "could not load mobile_sam_decoder" in message
    assert "/a/path" not in message
    assert "/a/path is secret" in caplog.text
    assert [model for model, _ in triton.requests] == ["mobile_sam_encoder"]
    # A restarted Triton does not load it.
    assert [versions(deployment.folder, model) for model in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)


def test_failed_loads_are_logged_a_few_times_and_then_counted(models, triton, monkeypatch, caplog):
    log = FloodLog(logger, max_lines=2, window_s=10, clock=Clock(), level=logging.ERROR)
    monkeypatch.setattr("utils.triton.models.ERROR_LOG", log)
    triton.fails_to_load = {"mobile_sam_decoder"}
    for _ in range(5):
        assert "could not load" in rejection(lambda: models.load("mobile_sam_decoder"))
    assert caplog.text.count("Triton could not load mobile_sam_decoder") == 2
    log.summarise_ended(all_windows=True)
    assert "Triton: load of mobile_sam_decoder: 3 more in 0 s" in caplog.text


def names(deployment: Deployment, version: int) -> list[str]:
    """Return the name of a version's weights as Triton's folder has it, for each model with a
    record.
    """
    return [
        read_record(deployment.folder / model / str(version))["name"] for model in ORCHESTRATORS
    ]


def test_a_replaced_version_is_loaded_by_the_next_sync_only(models, deployment, triton):
    for model in ORCHESTRATORS:
        replace_file(deployment.repository / model / "1" / "weights.json", b'{"name": "other"}')
    asyncio.run(models.load("mobile_sam"))
    assert names(deployment, 1) == ["number 1"] * len(ORCHESTRATORS)
    asyncio.run(models.sync())
    assert names(deployment, 1) == ["other"] * len(ORCHESTRATORS)
    triton.fails_to_load = {"mobile_sam_costly"}
    for model in ORCHESTRATORS:
        replace_file(deployment.repository / model / "1" / "weights.json", b'{"name": "third"}')
    triton.requests.clear()
    assert "could not load mobile_sam_costly" in rejection(models.sync)
    assert names(deployment, 1) == ["other"] * len(ORCHESTRATORS)
    assert [model for model, _ in triton.requests] == [*LOAD_ORDER[:3]] * 2  # then as before
    assert deployment.damage() == ""
    assert len(list((deployment.folder.parent / "taken").iterdir())) == 1


def test_a_snapshot_that_cannot_be_written_is_a_rejection(models, deployment, monkeypatch):
    add_version(deployment.repository, 2)
    error = OSError(28, "No space left on device")
    monkeypatch.setattr(Deployment, "take", mock.Mock(side_effect=error))
    assert rejection(models.sync) == "version 2 cannot be copied: No space left on device"
    assert versions(deployment.folder, "mobile_sam") == [1]


def test_a_version_with_a_network_of_other_weights_is_a_rejection(models, deployment, triton):
    before = deployment.links()
    add_version(deployment.repository, 2)
    record = {"name": "tune", "networks": {"mobile_sam_encoder/model.onnx": "0" * 64}}
    replace_file(
        deployment.repository / "mobile_sam" / "2" / "weights.json", json.dumps(record).encode()
    )
    file = deployment.repository / "mobile_sam_encoder" / "2" / "model.onnx"
    assert (
        f"version 2 is not used: {file} is not the file that was written with the weights tune"
        in rejection(models.sync)
    )
    assert (deployment.links(), triton.requests) == (before, [])


@pytest.mark.usefixtures("triton")
def test_the_log_names_versions_and_weights_of_each_load(models, deployment, caplog):
    add_version(deployment.repository, 2)
    record = b'{"name": "tuned.pt", "sha256": "0123456789abcdef"}'
    replace_file(deployment.repository / "mobile_sam" / "2" / "weights.json", record)
    with caplog.at_level("INFO", logger="bentoml.mobile_sam"):
        asyncio.run(models.sync())
        asyncio.run(models.unload("mobile_sam"))
    versions_loaded = (
        "version 1 number 1 (SHA-256 unknown), version 2 tuned.pt (SHA-256 0123456789ab)"
    )
    assert caplog.messages == [
        *(f"{model}: load done: {versions_loaded}" for model in LOAD_ORDER),
        "mobile_sam: unload done",
    ]


def test_concurrent_changes_are_rejected(models, tmp_path):
    with (tmp_path / "models.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for change in (
            models.sync,
            lambda: models.load("mobile_sam"),
            lambda: models.unload("mobile_sam"),
        ):
            assert "another request is changing the models" in rejection(change)
    asyncio.run(models.sync())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            "add remove",
            (
                "new versions must be loaded before old ones are removed, got 2 new and 1 removed:"
                " put 1 back"
            ),
        ),
        ("remove", "at least one version must stay, got 1 removed"),
        ("add lose", "version 2 is incomplete: mobile_sam_cached/2/weights.json is missing"),
    ],
)
def test_changes_that_cannot_be_applied_are_rejected(models, triton, deployment, changes, message):
    if "add" in changes:
        add_version(deployment.repository, 2)
    if "lose" in changes:
        (deployment.repository / "mobile_sam_cached" / "2" / "weights.json").unlink()
    if "remove" in changes:
        remove_version(deployment.repository, 1)
    assert rejection(models.sync).startswith(message)
    assert triton.requests == []


@pytest.mark.parametrize("problem", ["not started", "nothing listens", "silent"])
def test_an_unreachable_triton_is_unavailable(tmp_path, monkeypatch, problem):
    monkeypatch.setattr(module, "INDEX_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = {
            "nothing listens": "127.0.0.1:1",
            "silent": f"127.0.0.1:{silent.getsockname()[1]}",
        }
        with pytest.raises(InferenceUnavailable):
            asyncio.run(
                Models(lambda: addresses[problem], RunState(str(tmp_path), "", 0), None).versions()
            )


def test_version_that_needs_another_configuration_is_refused_until_a_restart(
    triton, deployment, tmp_path
):
    add_version(deployment.repository, 2)
    models = Models(
        lambda: "127.0.0.1:9", RunState(str(tmp_path), "a secret", 8002), deployment, lambda: False
    )
    assert (
        rejection(models.sync)
        == "version 2 needs another engine, batch or number of encoders than the running service"
        " has: restart it"
    )
    assert triton.requests == []
