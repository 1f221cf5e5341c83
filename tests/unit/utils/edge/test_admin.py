"""The admin API behind the edge."""

import asyncio

import httpx
import pytest

from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.api.errors import ModelChange
from utils.edge.admin import MODELS, Admin
from utils.edge.keys import ApiKeys
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


class Service:
    """An edge with or without the admin API."""

    def __init__(self, control_mode: str | None = "explicit") -> None:
        self.models, self.counts = FakeModels(), FakeCounts()
        keys = ApiKeys.of(f"ops:{KEY}", None)
        self.edge = make_edge(
            lambda *_: pytest.fail("the request reached the application"),
            keys=ApiKeys.of(f"web:{CALLERS_KEY}", None),
            health=lambda: Health("failing", "mobile_sam is not loaded"),
            counts=self.counts,
            admin=Admin(keys, self.models, control_mode) if control_mode else None,  # type: ignore[arg-type]
        )

    def ask(self, method: str, path: str, key: str | None = KEY, **headers: str) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.edge)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, headers=headers | ({"X-API-Key": key} if key else {}))

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
        ("/admin/models/load", ("load", "all")),
        *(
            (f"/admin/models/{model}/{action}", (action, model))
            for model in LOAD_ORDER
            for action in ("load", "unload")
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


def test_foreign_page_changes_no_models_even_with_the_key():
    service = Service()
    answer = service.ask("POST", "/admin/models/load", Origin="https://evil.example")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:mobile-sam:foreign-page")
    assert service.models.calls == []
    assert service.ask("GET", MODELS, Origin="https://evil.example").status_code == 200


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
    ("control_mode", "method", "path", "status"),
    [
        ("explicit", "POST", MODELS, 405),
        ("explicit", "GET", "/admin/models/load", 405),
        ("explicit", "POST", "/admin/models/another/load", 404),
        ("explicit", "POST", "/admin/models/mobile_sam/delete", 404),
        ("explicit", "GET", "/admin", 404),
        (None, "GET", MODELS, 404),
        (None, "POST", "/admin/models/load", 404),
        (None, "POST", "/admin/models/mobile_sam/unload", 404),
    ],
)
def test_other_paths_and_methods_do_not_exist_and_none_without_admin_keys(control_mode, method, path, status):
    assert Service(control_mode).ask(method, path).status_code == status
