"""The operators' paths behind the edge."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from utils.edge.admin import MODELS, Admin
from utils.edge.admission import Admission
from utils.edge.guard import Guard
from utils.edge.keys import ADMIN_KEYS, ApiKeys, KeysError
from utils.edge.middleware import Edge, Limits
from utils.errors import ModelChange
from utils.health import Health
from utils.models import ModelState
from utils.versions import LOAD_ORDER

KEY = "an-operators-own-key"
CALLERS_KEY = "any-other-callers-key"


class FakeModels:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.done: list[tuple[str, ...]] = []
        self.error: Exception | None = None

    async def states(self) -> list[ModelState]:
        return [ModelState("mobile_sam", 2, "READY"), ModelState("mobile_sam", 1, "UNAVAILABLE", "unloaded")]

    async def sync(self) -> None:
        if self.error:
            raise self.error
        self.done.append(("load", "all"))

    async def load(self, model: str) -> None:
        self.done.append(("load", model))

    async def unload(self, model: str) -> None:
        self.done.append(("unload", model))


class Counted:
    def __init__(self) -> None:
        self.answers: list[tuple[str, int, str]] = []

    def answered(self, *answer) -> None:
        self.answers.append(answer)


class Service:
    """An edge with or without operators."""

    def __init__(self, control_mode: str | None = "explicit") -> None:
        self.models, self.counts = FakeModels(), Counted()
        guard = Guard(ApiKeys.of(f"ops:{KEY}", None), None)
        self.edge = Edge(
            self.app,
            work=frozenset({"/work"}),
            files=frozenset(),
            pages={},
            limits=Limits(100, 1, 1),
            guard=Guard(ApiKeys.of(f"web:{CALLERS_KEY}", None), None),
            admission=Admission(1, 100),
            health=lambda: Health("failing", "mobile_sam is not loaded"),
            counts=self.counts,  # type: ignore[arg-type]
            triton_metrics=self.nothing,
            admin=Admin(guard, self.models, control_mode) if control_mode else None,  # type: ignore[arg-type]
        )

    async def nothing(self) -> bytes:
        return b""

    async def app(self, *_) -> None:
        pytest.fail("nothing of this is for the application")

    def ask(self, method: str, path: str, key: str | None = KEY) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.edge)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, headers={"X-API-Key": key} if key else {})

        return asyncio.run(call())


def test_the_state_of_all_models_is_told_also_where_the_service_is_not_ready():
    service = Service()
    answer = service.ask("GET", MODELS)
    assert answer.status_code == 200
    assert answer.json() == {
        "models": [
            {"name": "mobile_sam", "version": 2, "state": "READY", "reason": ""},
            {"name": "mobile_sam", "version": 1, "state": "UNAVAILABLE", "reason": "unloaded"},
        ]
    }
    assert service.models.done == []
    assert service.counts.answers == [(MODELS, 200, "ok")]


@pytest.mark.parametrize(
    ("path", "done"),
    [
        pytest.param("/admin/models/load", ("load", "all"), id="all"),
        *(pytest.param(f"/admin/models/{model}/load", ("load", model), id=f"load {model}") for model in LOAD_ORDER),
        *(
            pytest.param(f"/admin/models/{model}/unload", ("unload", model), id=f"unload {model}")
            for model in LOAD_ORDER
        ),
    ],
)
def test_models_are_changed_by_a_post_and_their_state_is_the_answer(path, done):
    service = Service()
    answer = service.ask("POST", path)
    assert answer.status_code == 200
    assert answer.json()["models"][0]["state"] == "READY"
    assert service.models.done == [done]


@pytest.mark.parametrize("key", [None, "not-known-as-a-key-at-all", CALLERS_KEY], ids=["none", "unknown", "a caller's"])
@pytest.mark.parametrize(("method", "path"), [("GET", MODELS), ("POST", "/admin/models/load")])
def test_without_an_operators_key_nothing_is_told_or_done(method, path, key):
    service = Service()
    answer = service.ask(method, path, key)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert service.models.done == []


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_in_another_mode_models_are_seen_and_not_changed(mode):
    service = Service(mode)
    assert service.ask("GET", MODELS).status_code == 200
    answer = service.ask("POST", "/admin/models/load")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:mobile-sam:model-change")
    assert f"MODE=explicit, got {mode}" in answer.json()["detail"]
    assert service.models.done == []


def test_what_cannot_be_loaded_is_a_409():
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
def test_other_paths_and_methods_are_not_there(method, path, status):
    assert Service().ask(method, path).status_code == status


@pytest.mark.parametrize("path", [MODELS, "/admin/models/load", "/admin/models/mobile_sam/unload"])
def test_without_operators_there_are_no_such_paths(path):
    service = Service(None)
    assert {service.ask(method, path).status_code for method in ("GET", "POST")} == {404}


def test_keys_that_are_an_operators_and_a_callers_are_seen():
    ours, theirs = ApiKeys.of(f"ops:{KEY}", None), ApiKeys.of(f"web:{CALLERS_KEY},other:{KEY}", None)
    assert ours is not None
    assert theirs is not None
    assert ours.shares_one_with(theirs)
    only = ApiKeys.of(f"ops:{CALLERS_KEY}", None)
    assert only is not None
    assert not ours.shares_one_with(only)


def test_operators_keys_have_variables_of_their_own(tmp_path):
    with pytest.raises(KeysError, match="MOBILE_SAM_ADMIN_KEYS, entry 1"):
        ApiKeys.of("nokey", None, variable=ADMIN_KEYS)
    with pytest.raises(KeysError, match=r"MOBILE_SAM_ADMIN_KEYS_FILE .*/absent"):
        ApiKeys.of(None, tmp_path / "absent", variable=ADMIN_KEYS)
    with pytest.raises(KeysError, match="MOBILE_SAM_ADMIN_KEYS and MOBILE_SAM_ADMIN_KEYS_FILE"):
        ApiKeys.of("", tmp_path, variable=ADMIN_KEYS)
