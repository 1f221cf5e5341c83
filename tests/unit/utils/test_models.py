"""Loading and unloading the models of a Triton, in an order that drops no request."""

from __future__ import annotations

import asyncio
import fcntl
import json
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from utils import models as module
from utils.errors import InferenceUnavailable, ModelChange
from utils.models import Models, ModelState
from utils.versions import LOAD_ORDER, REQUIRED_FILES, sync_links, versions

KEY = {"a-header": "a secret"}
ORCHESTRATORS = ("mobile_sam_everything", "mobile_sam_costly", "mobile_sam", "mobile_sam_cached")


class FakeTriton:
    """Answers like Triton's model-repository API, and keeps what it was asked."""

    def __init__(self, deployed: Path) -> None:
        self.deployed = deployed
        self.asked: list[tuple[str, list[int]]] = []
        """Model with the versions it was shown, at each load; `unload` in place of versions."""
        self.index: list[dict[str, Any]] = []
        self.unloading = 0
        """How often still a version is about to go."""
        self.fails_to_load: set[str] = set()
        self.asked_ready = False

    def __call__(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["a-header"] == "a secret"
        assert request.url.host == "127.0.0.1"
        path = request.url.path.removeprefix("/v2/repository/")
        if path == "index":
            going, self.unloading = self.unloading > 0, self.unloading - 1
            self.asked_ready = json.loads(request.content)["ready"]
            state = {"name": self.asked[-1][0], "version": "1", "state": "UNLOADING"} if going else {}
            return httpx.Response(200, json=[*self.index, *([state] if state else [])])
        _, model, how = path.split("/")
        if model in self.fails_to_load:
            return httpx.Response(400, text='{"error":"/a/path is secret"}')
        self.asked.append((model, versions(self.deployed, model) if how == "load" else []))
        return httpx.Response(200)


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """A repository with version 1, and what Triton reads."""
    repository, deployed = tmp_path / "repository", tmp_path / "deployed"
    for model, files in REQUIRED_FILES.items():
        (repository / model / "1").mkdir(parents=True)
        for file in files:
            (repository / model / "1" / file).touch()
        (deployed / model).mkdir(parents=True)
        sync_links(repository, deployed, model)
    return repository, deployed


@pytest.fixture
def triton(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> FakeTriton:
    fake = FakeTriton(folders[1])
    client = httpx.AsyncClient
    monkeypatch.setattr(httpx, "AsyncClient", lambda **options: client(transport=httpx.MockTransport(fake), **options))
    return fake


@pytest.fixture
def models(folders: tuple[Path, Path], triton: FakeTriton, tmp_path: Path) -> Models:
    return Models(lambda: "127.0.0.1:9", KEY, folders, tmp_path)


def copy(repository: Path, version: int) -> None:
    for model in LOAD_ORDER:
        shutil.copytree(repository / model / "1", repository / model / str(version))


def remove(repository: Path, version: int) -> None:
    for model in LOAD_ORDER:
        shutil.rmtree(repository / model / str(version))


def refusal(change: Callable[[], Any]) -> str:
    with pytest.raises(ModelChange) as caught:
        asyncio.run(change())
    return caught.value.detail


def test_states_are_triton_s(models, triton):
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


def test_versions_that_answer_are_those_that_every_model_of_the_orchestrator_has_ready(models, triton):
    triton.index = [{"name": model, "version": str(number)} for model in ORCHESTRATORS for number in (10, 2)]
    triton.index += [{"name": "mobile_sam", "version": "11"}, {"name": "mobile_sam_encoder", "version": "12"}]
    assert asyncio.run(models.versions()) == [2, 10]
    assert triton.asked_ready  # which costs Triton no look at the repository


def test_a_new_version_is_loaded_after_what_it_asks(models, triton, folders):
    copy(folders[0], 2)
    asyncio.run(models.sync())
    assert triton.asked == [(model, [1, 2]) for model in LOAD_ORDER]
    assert [model for model, _ in triton.asked][-4:] == list(ORCHESTRATORS)


def test_a_version_that_is_gone_is_unloaded_before_what_it_asks(models, triton, folders):
    copy(folders[0], 2)
    asyncio.run(models.sync())
    triton.asked.clear()
    remove(folders[0], 1)
    asyncio.run(models.sync())
    assert triton.asked == [(model, [2]) for model in reversed(LOAD_ORDER)]


def test_what_asks_a_model_has_ended_before_that_goes(models, triton, folders, monkeypatch):
    monkeypatch.setattr(module, "POLL_INTERVAL_S", 0)
    copy(folders[0], 2)
    asyncio.run(models.sync())
    remove(folders[0], 1)
    triton.unloading = 3
    asyncio.run(models.sync())
    assert triton.unloading < 0
    monkeypatch.setattr(module, "UNLOAD_TIMEOUT_S", -1)
    triton.unloading = 10
    assert "still has requests" in refusal(models.sync)


def test_versions_that_come_and_go_at_once_are_refused_and_nothing_is_changed(models, triton, folders):
    copy(folders[0], 2)
    remove(folders[0], 1)
    assert "2 new and 1 removed" in refusal(models.sync)
    assert triton.asked == []
    assert versions(folders[1]) == []  # the link is there, its folder is not


def test_without_a_change_all_is_loaded_again(models, triton):
    asyncio.run(models.sync())
    assert triton.asked == [(model, [1]) for model in LOAD_ORDER]


def test_one_model_can_be_unloaded_and_loaded(models, triton):
    asyncio.run(models.unload("mobile_sam"))
    asyncio.run(models.load("mobile_sam"))
    assert triton.asked == [("mobile_sam", []), ("mobile_sam", [1])]


def test_one_model_is_loaded_in_no_version_that_the_others_lack(models, triton, folders):
    copy(folders[0], 2)
    asyncio.run(models.load("mobile_sam"))
    assert triton.asked == [("mobile_sam", [1])]


@pytest.mark.parametrize(
    ("model", "file"), [(model, file) for model, files in REQUIRED_FILES.items() for file in files]
)
def test_a_version_that_is_not_whole_is_refused_and_nothing_is_changed(models, triton, folders, model, file):
    copy(folders[0], 2)
    (folders[0] / model / "2" / file).unlink()
    assert refusal(models.sync) == f"expected all of version 2, got one without {model}/2/{file}"
    assert triton.asked == []
    assert versions(folders[1], model) == [1]


def test_the_last_version_stays(models, triton, folders):
    remove(folders[0], 1)
    assert "at least one version to stay, got 1 removed" in refusal(models.sync)
    assert triton.asked == []


def test_models_that_triton_reads_from_elsewhere_are_loaded_as_they_are_there(triton, tmp_path):
    models = Models(lambda: "127.0.0.1:9", KEY, None, tmp_path)
    asyncio.run(models.sync())
    assert [model for model, _ in triton.asked] == list(LOAD_ORDER)


def test_a_model_that_cannot_be_loaded_ends_the_change_and_its_paths_stay_secret(models, triton, folders, caplog):
    copy(folders[0], 2)
    triton.fails_to_load = {"mobile_sam_decoder"}
    said = refusal(models.sync)
    assert "could not load mobile_sam_decoder" in said
    assert "/a/path" not in said
    assert "/a/path is secret" in caplog.text
    assert [model for model, _ in triton.asked] == ["mobile_sam_encoder"]
    # A Triton that has to start again does not meet it.
    assert [versions(folders[1], model) for model in LOAD_ORDER] == [[1]] * len(LOAD_ORDER)


def test_one_change_at_a_time(models, tmp_path):
    with (tmp_path / "models.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "one change" in refusal(models.sync)
        assert "one change" in refusal(lambda: models.unload("mobile_sam"))
    asyncio.run(models.sync())


def test_a_triton_that_does_not_say_what_is_loaded_is_unavailable(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "INDEX_TIMEOUT_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        models = Models(lambda: f"127.0.0.1:{silent.getsockname()[1]}", {}, None, tmp_path)
        with pytest.raises(InferenceUnavailable):
            asyncio.run(models.versions())


def test_a_triton_that_is_away_is_unavailable(tmp_path):
    def nowhere() -> str:
        raise LookupError("triton")

    for address in (nowhere, lambda: "127.0.0.1:1"):
        models = Models(address, {}, None, tmp_path)
        for ask in (models.states, models.versions, models.sync):
            with pytest.raises(InferenceUnavailable):
                asyncio.run(ask())
