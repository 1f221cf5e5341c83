"""The admin API behind the edge."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from utils.api.errors import ModelChange
from utils.edge.admin import MODELS, Admin
from utils.edge.admission import Admission
from utils.edge.guard import Guard
from utils.edge.keys import ADMIN_KEYS, ApiKeys, KeysError
from utils.edge.middleware import Edge, Limits
from utils.triton.health import Health
from utils.triton.models import ModelState
from utils.triton.versions import LOAD_ORDER

KEY = "an-operators-own-key"
CALLERS_KEY = "any-other-callers-key"


class FakeModels:
    """Models that record the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    async def states(self) -> list[ModelState]:
        return [ModelState("mobile_sam", 2, "READY"), ModelState("mobile_sam", 1, "UNAVAILABLE", "unloaded")]

    async def sync(self) -> None:
        if self.error:
            raise self.error
        self.calls.append(("load", "all"))

    async def load(self, model: str) -> None:
        self.calls.append(("load", model))

    async def unload(self, model: str) -> None:
        self.calls.append(("unload", model))


class FakeCounts:
    def __init__(self) -> None:
        self.answers: list[tuple[str, int, str]] = []

    def count_answer(self, *answer) -> None:
        self.answers.append(answer)


class Service:
    """An edge with or without the admin API."""

    def __init__(self, control_mode: str | None = "explicit") -> None:
        self.models, self.counts = FakeModels(), FakeCounts()
        guard = Guard(ApiKeys.of(f"ops:{KEY}", None), None)
        self.edge = Edge(
            self.app,
            work_paths=frozenset({"/work"}),
            file_paths=frozenset(),
            pages={},
            limits=Limits(100, 1, 1),
            guard=Guard(ApiKeys.of(f"web:{CALLERS_KEY}", None), None),
            admission=Admission(1, 100),
            health=lambda: Health("failing", "mobile_sam is not loaded"),
            counts=self.counts,  # type: ignore[arg-type]
            triton_metrics=self.no_metrics,
            admin=Admin(guard, self.models, control_mode) if control_mode else None,  # type: ignore[arg-type]
        )

    async def no_metrics(self) -> bytes:
        return b""

    async def app(self, *_) -> None:
        pytest.fail("the request reached the application")

    def ask(self, method: str, path: str, key: str | None = KEY) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.edge)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, headers={"X-API-Key": key} if key else {})

        return asyncio.run(call())


def test_admin_api_lists_all_models_while_the_service_is_not_ready():
    service = Service()
    answer = service.ask("GET", MODELS)
    assert answer.status_code == 200
    assert answer.json() == {
        "models": [
            {"name": "mobile_sam", "version": 2, "state": "READY", "reason": ""},
            {"name": "mobile_sam", "version": 1, "state": "UNAVAILABLE", "reason": "unloaded"},
        ]
    }
    assert service.models.calls == []
    assert service.counts.answers == [(MODELS, 200, "ok")]


@pytest.mark.parametrize(
    ("path", "call"),
    [
        pytest.param("/admin/models/load", ("load", "all"), id="all"),
        *(pytest.param(f"/admin/models/{model}/load", ("load", model), id=f"load {model}") for model in LOAD_ORDER),
        *(
            pytest.param(f"/admin/models/{model}/unload", ("unload", model), id=f"unload {model}")
            for model in LOAD_ORDER
        ),
    ],
)
def test_admin_post_changes_models_and_answers_with_their_state(path, call):
    service = Service()
    answer = service.ask("POST", path)
    assert answer.status_code == 200
    assert answer.json()["models"][0]["state"] == "READY"
    assert service.models.calls == [call]


@pytest.mark.parametrize("key", [None, "not-known-as-a-key-at-all", CALLERS_KEY], ids=["none", "unknown", "api-key"])
@pytest.mark.parametrize(("method", "path"), [("GET", MODELS), ("POST", "/admin/models/load")])
def test_admin_api_needs_an_admin_key(method, path, key):
    service = Service()
    answer = service.ask(method, path, key)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert service.models.calls == []


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_models_are_read_only_in_other_control_modes(mode):
    service = Service(mode)
    assert service.ask("GET", MODELS).status_code == 200
    answer = service.ask("POST", "/admin/models/load")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:mobile-sam:model-change")
    assert f"MODE=explicit, got {mode}" in answer.json()["detail"]
    assert service.models.calls == []


def test_failed_load_is_a_409():
    service = Service()
    service.models.error = ModelChange("Triton could not load it")
    assert service.ask("POST", "/admin/models/load").status_code == 409
    assert service.counts.answers == [("/admin/models/load", 409, "model-change")]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", MODELS, 405),
        ("GET", "/admin/models/load", 405),
        ("POST", "/admin/models/another/load", 404),
        ("POST", "/admin/models/mobile_sam/delete", 404),
        ("GET", "/admin", 404),
    ],
)
def test_admin_api_refuses_other_paths_and_methods(method, path, status):
    assert Service().ask(method, path).status_code == status


@pytest.mark.parametrize("path", [MODELS, "/admin/models/load", "/admin/models/mobile_sam/unload"])
def test_admin_paths_do_not_exist_without_admin_keys(path):
    service = Service(None)
    assert {service.ask(method, path).status_code for method in ("GET", "POST")} == {404}


def test_key_in_both_lists_is_detected():
    admin_keys, api_keys = ApiKeys.of(f"ops:{KEY}", None), ApiKeys.of(f"web:{CALLERS_KEY},other:{KEY}", None)
    assert admin_keys is not None
    assert api_keys is not None
    assert admin_keys.overlaps(api_keys)
    others = ApiKeys.of(f"ops:{CALLERS_KEY}", None)
    assert others is not None
    assert not admin_keys.overlaps(others)


def test_errors_in_admin_keys_name_their_variables(tmp_path):
    with pytest.raises(KeysError, match="MOBILE_SAM_ADMIN_KEYS, entry 1"):
        ApiKeys.of("nokey", None, variable=ADMIN_KEYS)
    with pytest.raises(KeysError, match=r"MOBILE_SAM_ADMIN_KEYS_FILE .*/absent"):
        ApiKeys.of(None, tmp_path / "absent", variable=ADMIN_KEYS)
    with pytest.raises(KeysError, match="MOBILE_SAM_ADMIN_KEYS and MOBILE_SAM_ADMIN_KEYS_FILE"):
        ApiKeys.of("", tmp_path, variable=ADMIN_KEYS)
