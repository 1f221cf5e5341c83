"""The admin API behind the edge."""

import httpx
import pytest

from tests.http.asgi import Http
from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.edge.admin import MODELS, Admin
from utils.edge.keys import ApiKeys
from utils.triton.health import Health
from utils.triton.models import ModelState
from utils.triton.versions import LOAD_ORDER

KEY, CALLERS_KEY = "an-operators-own-key", "any-other-callers-key"
LOAD = f"{MODELS}/load"


class FakeModels:
    """Models that record the calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, ...]] = []

    async def states(self) -> list[ModelState]:
        versions = ((2, "READY", ""), (1, "UNAVAILABLE", "unloaded"))
        return [
            ModelState("mobile_sam", version, state, reason) for version, state, reason in versions
        ]

    async def sync(self) -> None:
        self.calls.append(("load", "all"))

    async def load(self, model: str) -> None:
        self.calls.append(("load", model))

    async def unload(self, model: str) -> None:
        self.calls.append(("unload", model))


class Service:
    """An edge with or without the admin API."""

    def __init__(self, control_mode: str | None = "explicit") -> None:
        self.models, self.counts = FakeModels(), FakeCounts()
        keys = ApiKeys.from_setting(f"ops:{KEY}", None)
        self.edge = make_edge(
            lambda *_: pytest.fail("the request reached the application"),
            keys=ApiKeys.from_setting(f"web:{CALLERS_KEY}", None),
            health=lambda: Health("failing", "mobile_sam is not loaded"),
            counts=self.counts,
            admin=Admin(keys, self.models, control_mode) if control_mode else None,  # type: ignore[arg-type]
        )

    def ask(self, method: str, path: str, key: str | None = KEY, **headers: str) -> httpx.Response:
        return Http(self.edge).request(
            method, path, headers=headers | ({"X-API-Key": key} if key else {})
        )


def test_admin_api_lists_all_models_while_the_service_is_not_ready():
    service = Service()
    assert service.ask("GET", MODELS).json() == {
        "models": [
            {"name": "mobile_sam", "version": 2, "state": "READY", "reason": ""},
            {"name": "mobile_sam", "version": 1, "state": "UNAVAILABLE", "reason": "unloaded"},
        ]
    }
    assert service.models.calls == []
    assert service.counts.answers == [(MODELS, 200, "ok")]


EACH_MODEL = [
    (f"{MODELS}/{model}/{action}", (action, model))
    for model in LOAD_ORDER
    for action in ("load", "unload")
]


@pytest.mark.parametrize(("path", "call"), [(LOAD, ("load", "all")), *EACH_MODEL])
def test_admin_post_changes_models_and_answers_with_their_state(path, call):
    service = Service()
    assert service.ask("POST", path).json()["models"][0]["state"] == "READY"
    assert service.models.calls == [call]


@pytest.mark.parametrize(
    "key", [None, "not-known-as-a-key-at-all", CALLERS_KEY], ids=["none", "unknown", "api-key"]
)
@pytest.mark.parametrize(("method", "path"), [("GET", MODELS), ("POST", LOAD)])
def test_admin_api_needs_an_admin_key(method, path, key):
    service = Service()
    answer = service.ask(method, path, key)
    assert answer.status_code == 401
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    assert service.models.calls == []


def test_foreign_page_changes_no_models_even_with_the_key():
    service = Service()
    answer = service.ask("POST", LOAD, Origin="https://evil.example")
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:mobile-sam:foreign-page")
    assert service.models.calls == []


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_models_are_read_only_in_other_control_modes(mode):
    service = Service(mode)
    assert service.ask("GET", MODELS).status_code == 200
    assert f"MODE=explicit, got {mode}" in service.ask("POST", LOAD).json()["detail"]
    assert service.counts.answers[-1] == (LOAD, 409, "model-change")
    assert service.models.calls == []


@pytest.mark.parametrize(
    ("control_mode", "method", "path", "status"),
    [
        ("explicit", "POST", MODELS, 405),
        ("explicit", "GET", LOAD, 405),
        ("explicit", "POST", f"{MODELS}/another/load", 404),
        (None, "GET", MODELS, 404),
        (None, "POST", LOAD, 404),
    ],
)
def test_other_paths_and_methods_do_not_exist_and_none_without_admin_keys(
    control_mode, method, path, status
):
    assert Service(control_mode).ask(method, path).status_code == status
