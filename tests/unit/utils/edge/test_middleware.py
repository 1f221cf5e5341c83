"""The ASGI edge around a fake application."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass, field

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from utils.edge.admission import MAX_PROMPT_REFUSALS, Admission
from utils.edge.guard import Guard
from utils.edge.keys import ApiKeys
from utils.edge.middleware import Edge, Limits
from utils.edge.rate import RateLimit
from utils.observability.context import CALLER, REQUEST_ID
from utils.triton.health import Health, State

KEY = "a-key-of-enough-characters"
MAX_BODY_BYTES = 100


class FakeCounts:
    """Metrics that record the answers."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, int, str]] = []
        self.in_progress = 0

    def count_answer(self, path: str, status: int, reason: str) -> None:
        self.answers.append((path, status, reason))

    def set_in_progress(self, requests: int) -> None:
        self.in_progress = requests


@dataclass
class ReceivedAnswer:
    """The ASGI messages of an answer."""

    messages: list[dict]

    @property
    def status(self) -> int:
        return int(self.messages[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode().lower(): value.decode() for name, value in self.messages[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def slug(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        return str(document["type"]).removeprefix("urn:mobile-sam:")


@dataclass
class Service:
    """An edge and its surroundings."""

    keys: str | None = None
    rate: str | None = None
    max_requests: int = 2
    metrics_need_key: bool = False
    state: State = "ready"
    counts: FakeCounts = field(default_factory=FakeCounts)
    reached: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(self.max_requests, 10 * MAX_BODY_BYTES)
        self.edge = Edge(
            self.app,
            work_paths=frozenset({"/work", "/odd", "/broken", "/busy"}),
            file_paths=frozenset({"/static_content/a.css"}),
            pages={"/page": PlainTextResponse("a page")},
            limits=Limits(MAX_BODY_BYTES, 0.2, 0.2),
            guard=Guard(ApiKeys.of(self.keys, None), RateLimit.of(self.rate, None) if self.rate else None),
            admission=self.admission,
            health=lambda: Health(self.state, "a reason", {"died": 2}),
            counts=self.counts,  # type: ignore[arg-type]
            triton_metrics=self.triton_metrics,
            metrics_need_key=self.metrics_need_key,
        )

    async def triton_metrics(self) -> bytes:
        return b"nv_inference_count 7\n"

    async def app(self, scope, receive, send):
        """Describe the request; /odd fails with its own JSON, /broken raises, /busy is slow."""
        path = scope["path"]
        self.reached.append(path)
        if path == "/odd":
            await JSONResponse({"error": "not a problem document"}, 507)(scope, receive, send)
        elif path == "/broken":
            raise ZeroDivisionError
        elif path == "/busy":
            await asyncio.sleep(60)
        elif path == "/metrics":
            await PlainTextResponse("a_metric 1\n")(scope, receive, send)
        else:
            body = (await receive())["body"]
            description = {"body": body.decode(), "caller": CALLER.get(), "request": REQUEST_ID.get()}
            await JSONResponse(description)(scope, receive, send)

    async def ask(self, path="/work", method="POST", chunks=(b"body",), headers=(), *, pause=0.0, client="10.0.0.1"):
        """Send one request and return its answer."""
        incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        incoming[-1]["more_body"] = False
        sent: list[dict] = []

        async def receive():
            await asyncio.sleep(pause)
            return incoming.pop(0) if incoming else await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        raw = [(name.encode().lower(), value.encode()) for name, value in (("Host", "service"), *headers)]
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "headers": raw}
        scope["client"] = (client, 1)
        await self.edge(scope, receive, send)
        return ReceivedAnswer(sent)

    def call(self, *arguments, **options) -> ReceivedAnswer:
        answer: ReceivedAnswer = asyncio.run(self.ask(*arguments, **options))
        return answer


def test_request_reaches_the_application_completely():
    answer = Service().call(chunks=[b"a" * 40, b"b" * 60])
    assert answer.status == 200
    assert json.loads(answer.body)["body"] == "a" * 40 + "b" * 60


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        pytest.param([b"a" * 50, b"a" * 51], (), id="without-length"),
        pytest.param([b""], [("Content-Length", "101")], id="announced"),
        pytest.param([b"a" * 200], [("Content-Length", "5")], id="longer-than-announced"),
    ],
)
def test_too_large_body_is_refused_and_the_connection_closed(chunks, headers):
    service = Service()
    answer = service.call(chunks=chunks, headers=headers)
    assert (answer.status, answer.slug) == (413, "body-too-large")
    assert "at most 100 bytes" in json.loads(answer.body)["detail"]
    assert answer.headers["connection"] == "close"
    assert not service.reached


def test_rest_of_a_too_large_body_is_drained():
    async def send_a_lot() -> tuple[ReceivedAnswer, int]:
        chunks, left = 20, 20
        sent: list[dict] = []

        async def receive():
            nonlocal left
            left -= 1
            return {"type": "http.request", "body": b"a" * 50, "more_body": left > 0}

        async def send(message):
            sent.append(message)

        headers = [(b"host", b"service"), (b"transfer-encoding", b"chunked")]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": "/work", "headers": headers}
        await Service().edge(scope, receive, send)
        return ReceivedAnswer(sent), chunks - left

    answer, read = asyncio.run(send_a_lot())
    assert answer.status == 413
    assert read == 20
    assert answer.messages[-1] == {"type": "http.response.body", "body": b""}


@pytest.mark.parametrize(
    ("headers", "closed"),
    [
        pytest.param([("Content-Length", "50")], False, id="small"),
        pytest.param([("Content-Length", "101")], True, id="too-large"),
        pytest.param([("Transfer-Encoding", "chunked")], True, id="unknown-length"),
    ],
)
def test_refusal_closes_the_connection_if_much_of_the_body_is_unread(headers, closed):
    answer = Service(keys=f"me:{KEY}").call(headers=headers)
    assert answer.slug == "unauthorized"
    assert (answer.headers.get("connection") == "close") is closed


def test_refusal_after_a_complete_body_keeps_the_connection():
    refused = Service().call("/busy", headers=[("Transfer-Encoding", "chunked")])
    assert refused.status == 504
    assert "connection" not in refused.headers


def test_slow_body_is_a_408():
    answer = Service().call(chunks=[b"a", b"b", b"c", b"d"], pause=0.08, headers=[("Content-Length", "4")])
    assert (answer.status, answer.slug) == (408, "slow-body")
    assert "got 2 bytes" in json.loads(answer.body)["detail"]


def test_answer_that_does_not_start_in_time_is_a_504():
    service = Service()
    answer = service.call("/busy")
    assert (answer.status, answer.slug) == (504, "inference-timeout")
    assert service.admission.in_progress == service.counts.in_progress == 0


@pytest.mark.parametrize(
    ("method", "path", "status", "slug"),
    [
        ("GET", "/no", 404, "not-found"),
        ("POST", "/work/", 404, "not-found"),
        ("GET", "/static_content/b.css", 404, "not-found"),
        ("GET", "/work", 405, "method-not-allowed"),
        ("POST", "/page", 405, "method-not-allowed"),
        ("DELETE", "/readyz", 405, "method-not-allowed"),
        ("BREW", "/work", 405, "method-not-allowed"),
    ],
)
def test_unknown_paths_and_methods_do_not_reach_the_application(method, path, status, slug):
    service = Service()
    answer = service.call(path, method)
    assert (answer.status, answer.slug) == (status, slug)
    assert not service.reached
    if status == 405:
        assert answer.headers["allow"] in {"GET, HEAD", "POST"}


def test_unknown_paths_share_one_metric_series():
    service = Service()
    for number in range(100):
        service.call(f"/random/{number}", "GET")
    assert set(service.counts.answers) == {("other", 404, "not-found")}


def test_answers_are_counted_by_path_status_and_reason():
    service = Service()
    for path, method in (("/work", "POST"), ("/odd", "POST"), ("/static_content/a.css", "GET"), ("/page", "GET")):
        service.call(path, method)
    assert service.counts.answers == [
        ("/work", 200, "ok"),
        ("/odd", 507, "insufficient-storage"),
        ("/static_content", 200, "ok"),
        ("/page", 200, "ok"),
    ]


def test_internal_problem_header_is_removed():
    assert not any("problem" in name for name in Service().call("/no", "GET").headers)


def test_foreign_errors_become_problems():
    answer = Service().call("/odd")
    assert (answer.status, answer.slug) == (507, "insufficient-storage")


def test_application_error_is_a_500_without_details(caplog):
    with caplog.at_level(logging.ERROR, "bentoml.mobile_sam"):
        answer = Service().call("/broken")
    assert (answer.status, answer.slug) == (500, "internal-error")
    assert b"ZeroDivision" not in answer.body
    assert "ZeroDivisionError" in caplog.text


def test_every_answer_has_an_id_and_security_headers():
    service = Service()
    for answer in (service.call(), service.call("/no", "GET"), service.call("/page", "GET")):
        assert len(answer.headers["x-request-id"]) == 32
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert service.call().headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param("order-66_a.b", True, id="plain"),
        pytest.param("x" * 129, False, id="too-long"),
        pytest.param("a b", False, id="space"),
        pytest.param("a\tb", False, id="tab"),
        pytest.param("", False, id="empty"),
    ],
)
def test_callers_request_id_is_kept_if_valid(sent, kept):
    answer = Service().call(headers=[("X-Request-ID", sent)])
    assert (answer.headers["x-request-id"] == sent) is kept
    assert json.loads(answer.body)["request"] == answer.headers["x-request-id"]


def test_page_and_liveness_are_answered_in_any_state():
    service = Service(keys=f"me:{KEY}", state="restarting")
    service.admission.stop()
    assert service.call("/page", "GET").body == b"a page"
    assert service.call("/livez", "GET").status == 200


@pytest.mark.parametrize("state", ["starting", "failing", "restarting"])
def test_readiness_answer_says_why_the_service_is_not_ready(state):
    answer = Service(state=state).call("/readyz", "GET")
    assert (answer.status, answer.slug) == (503, "inference-unavailable")
    assert json.loads(answer.body)["detail"] == f"{state}: a reason"


def test_readiness_is_200_when_ready():
    assert Service().call("/readyz", "GET").status == 200


@pytest.mark.parametrize(("state", "status"), [("starting", 503), ("restarting", 503), ("failing", 200)])
def test_work_is_refused_while_triton_is_unavailable(state, status):
    service = Service(state=state)
    answer = service.call()
    assert answer.status == status
    assert bool(service.reached) is (status == 200)
    if status == 503:
        assert answer.headers["retry-after"] == "5"


def test_stopping_worker_refuses_new_requests():
    service = Service()
    service.admission.stop()
    answer = service.call()
    assert (answer.status, answer.slug) == (503, "stopping")
    assert answer.headers["connection"] == "close"
    assert service.call("/readyz", "GET").slug == "stopping"


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_worker_of_a_stopping_service_refuses_new_requests(state):
    service = Service(state=state)
    assert service.call().slug == service.call("/readyz", "GET").slug == "stopping"


def test_requests_beyond_the_limit_are_refused():
    async def crowd() -> list[ReceivedAnswer]:
        service = Service(max_requests=2)
        return list(await asyncio.gather(*(service.ask("/busy") for _ in range(5))))

    answers = asyncio.run(crowd())
    assert sorted(answer.status for answer in answers) == [503, 503, 503, 504, 504]
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.slug == "overloaded"
    assert refused.headers["retry-after"] == "1"


def test_refusals_of_an_immediate_retry_are_delayed_while_others_are_active(monkeypatch):
    delays: list[float] = []

    async def no_sleep(seconds: float) -> None:
        delays.append(seconds)

    async def crowd() -> list[ReceivedAnswer]:
        service = Service(max_requests=1)
        others = asyncio.ensure_future(service.ask("/busy", client="10.0.0.2"))
        await asyncio.sleep(0.01)
        monkeypatch.setattr("utils.edge.middleware.asyncio.sleep", no_sleep)
        answers = [await service.ask("/busy") for _ in range(MAX_PROMPT_REFUSALS + 2)]
        others.cancel()
        return answers

    assert {answer.slug for answer in asyncio.run(crowd())} == {"overloaded"}
    assert [seconds for seconds in delays if seconds] == [1.0, 1.0]


def test_slow_bodies_take_bounded_memory_and_no_slots():
    async def crowd() -> tuple[list[ReceivedAnswer], ReceivedAnswer]:
        service = Service(max_requests=1)
        body = {"chunks": [b"a" * 45] * 2, "headers": [("Content-Length", "90")], "pause": 0.05}
        slow = [asyncio.ensure_future(service.ask(**body)) for _ in range(30)]
        await asyncio.sleep(0.01)
        quick = await service.ask()
        return list(await asyncio.gather(*slow)), quick

    slow, quick = asyncio.run(crowd())
    assert quick.status == 200
    assert {answer.slug for answer in slow} <= {"overloaded", "slow-body", "body-too-large"}
    assert "overloaded" in {answer.slug for answer in slow}


def test_bodies_of_answered_requests_are_released():
    service = Service()
    for _ in range(30):
        assert service.call(chunks=[b"a" * 90]).status == 200
        assert service.call(chunks=[b"a" * 90, b"b" * 90]).status == 413


def test_request_without_a_key_is_a_401():
    service = Service(keys=f"me:{KEY}")
    answer = service.call()
    assert (answer.status, answer.slug) == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert not service.reached


@pytest.mark.parametrize(
    "header", [("Authorization", f"Bearer {KEY}"), ("X-API-Key", KEY)], ids=["bearer", "x-api-key"]
)
def test_application_sees_the_name_of_the_key(header):
    answer = Service(keys=f"me:{KEY}").call(headers=[header])
    assert json.loads(answer.body)["caller"] == "me"


def test_metrics_need_a_key_if_set_and_readiness_does_not():
    service = Service(keys=f"me:{KEY}")
    assert service.call("/metrics", "GET").status == 200
    protected = Service(keys=f"me:{KEY}", metrics_need_key=True)
    assert protected.call("/metrics", "GET").status == 401
    assert protected.call("/metrics", "GET", headers=[("X-API-Key", KEY)]).status == 200
    assert protected.call("/readyz", "GET").status == 200


def test_metrics_include_tritons_health():
    answer = Service(state="failing").call("/metrics", "GET")
    lines = answer.body.decode().splitlines()
    assert lines[0] == "a_metric 1"
    assert "mobile_sam_ready 0" in lines
    assert 'mobile_sam_triton_restarts_total{cause="died"} 2' in lines
    assert lines[-1] == "nv_inference_count 7"
    assert int(answer.headers["content-length"]) == len(answer.body)


def test_rate_limit_applies_to_each_address():
    async def ask_repeatedly() -> list[ReceivedAnswer]:
        service = Service(rate="2/minute")
        return [await service.ask(client=client) for client in ("10.0.0.1",) * 3 + ("10.0.0.2",)]

    answers = asyncio.run(ask_repeatedly())
    assert [answer.status for answer in answers] == [200, 200, 429, 200]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60


def test_rate_limit_applies_to_each_key_from_any_address():
    async def ask_repeatedly() -> list[int]:
        service = Service(keys=f"me:{KEY},you:{KEY}-other", rate="1/minute")
        calls = [(KEY, "10.0.0.1"), (KEY, "10.0.0.2"), (f"{KEY}-other", "10.0.0.1")]
        return [(await service.ask(headers=[("X-API-Key", key)], client=client)).status for key, client in calls]

    assert asyncio.run(ask_repeatedly()) == [200, 429, 200]


def test_non_ascii_content_type_is_a_415():
    assert Service().call(headers=[("Content-Type", "ü")]).slug == "unsupported-media-type"


def test_other_asgi_events_pass():
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    service = Service()
    service.edge.app = app
    asyncio.run(service.edge({"type": "lifespan"}, None, None))  # type: ignore[arg-type]
    assert passed == ["lifespan"]


def test_error_after_the_start_of_an_answer_is_raised():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    service = Service()
    service.edge.app = app
    with pytest.raises(ZeroDivisionError):
        service.call()
