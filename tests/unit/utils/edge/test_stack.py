"""All steps of the edge around a fake application."""

import asyncio
import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp

from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.edge.admission import Admission
from utils.edge.bodies import LARGE_BODY_BYTES, MAX_DRAIN_BYTES
from utils.edge.connections import MAX_FIELDS
from utils.edge.keys import ApiKeys
from utils.edge.limits import Limits
from utils.edge.rate import RateLimit
from utils.observability.context import KEY_NAME, REQUEST_ID
from utils.triton.health import Health, State

KEY = "a-key-of-enough-characters"
MAX_BODY_BYTES = 100


class ReceivedAnswer(httpx.Response):
    """The ASGI messages of an answer."""

    def __init__(self, messages: list[dict]) -> None:
        body = b"".join(message.get("body", b"") for message in messages[1:])
        super().__init__(messages[0]["status"], headers=messages[0]["headers"], content=body)
        self.messages = messages

    @property
    def problem(self) -> tuple[int, str]:
        """Status and slug of a problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        assert self.json()["status"] == self.status_code
        return self.status_code, str(self.json()["type"]).removeprefix("urn:mobile-sam:")


@dataclass
class Service:
    """An edge and its surroundings."""

    keys: str | None = None
    rate: str | None = None
    max_requests: int = 2
    metrics_need_key: bool = False
    state: State = "ready"
    body_timeout_s: float = 60
    answer_timeout_s: float = 60
    application: ASGIApp | None = None
    """In place of `app`."""
    counts: FakeCounts = field(default_factory=FakeCounts)
    reached: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(self.max_requests, 10 * MAX_BODY_BYTES)
        keys = ApiKeys.from_setting(self.keys, None)
        rates_of = keys.rates_of if keys else lambda _: None
        work_pages = {"/embeddings/{image_id}": PlainTextResponse("a file"), "/slow": self.app}
        self.edge = make_edge(
            self.application or self.app,
            work_paths=frozenset({"/work", "/odd", "/broken", "/busy", "/endless", *work_pages}),
            file_paths=frozenset({"/static_content/a.css"}),
            pages={"/page": PlainTextResponse("a page"), **work_pages},
            limits=Limits(MAX_BODY_BYTES, self.body_timeout_s, lambda: self.answer_timeout_s),
            keys=keys,
            rate=RateLimit(self.rate, None, rates_of=rates_of) if self.rate or keys else None,
            admission=self.admission,
            health=lambda: Health(self.state, "a reason", {"died": 2}),
            counts=self.counts,
            metrics_need_key=self.metrics_need_key,
        )

    async def app(self, scope, receive, send):
        """Describe the request; /odd fails with its own JSON, /broken raises, /busy and /endless
        never end.
        """
        path = scope["path"]
        self.reached.append(path)
        if path == "/odd":
            await JSONResponse({"error": "not a problem document"}, 507)(scope, receive, send)
        elif path == "/broken":
            raise ZeroDivisionError
        elif path in ("/busy", "/endless", "/slow"):
            if path == "/endless":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            await asyncio.sleep(60)
        elif path == "/metrics":
            await PlainTextResponse("a_metric 1\n")(scope, receive, send)
        else:
            body = (await receive())["body"]
            description = {
                "body": body.decode(),
                "caller": KEY_NAME.get(),
                "request": REQUEST_ID.get(),
            }
            await JSONResponse(description)(scope, receive, send)

    async def ask(
        self, path="/work", method="POST", chunks=(b"body",), headers=(), *, client="10.0.0.1"
    ):
        """Send one request, in a context of its own, and return its answer.

        `chunks` loses what was read; an event among the chunks is waited for.
        """
        incoming = chunks if isinstance(chunks, list) else list(chunks)
        sent: list[dict] = []

        async def receive():
            await asyncio.sleep(0)
            if not incoming:
                await asyncio.Event().wait()
            if isinstance(chunk := incoming.pop(0), asyncio.Event):
                await chunk.wait()
                chunk = incoming.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(incoming)}

        async def send(message):
            sent.append(message)

        raw = [
            (name.encode().lower(), value.encode())
            for name, value in (("Host", "service"), *headers)
        ]
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "headers": raw,
        }
        await asyncio.ensure_future(self.edge({**scope, "client": (client, 1)}, receive, send))
        return ReceivedAnswer(sent)


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        pytest.param([b"a" * 50, b"a" * 51], (), id="without-length"),
        pytest.param([b""], [("Content-Length", "101")], id="announced"),
        pytest.param([b"a" * 50] * 20, [("Transfer-Encoding", "chunked")], id="much-left-to-drain"),
    ],
)
async def test_too_large_body_is_drained_and_refused_and_the_connection_closed(chunks, headers):
    service = Service()
    incoming = list(chunks)
    answer = await service.ask(chunks=incoming, headers=headers)
    assert answer.problem == (413, "body-too-large")
    assert "at most 100 bytes" in answer.json()["detail"]
    assert answer.headers["connection"] == "close"
    assert answer.messages[-1] == {"type": "http.response.body", "body": b""}
    assert not incoming
    assert not service.reached


async def test_little_is_read_of_a_body_that_is_too_long_to_drain():
    incoming = [b"a" * LARGE_BODY_BYTES] * 20
    answer = await Service().ask(
        chunks=incoming, headers=[("Content-Length", str(MAX_DRAIN_BYTES + 1))]
    )
    assert answer.problem == (413, "body-too-large")
    assert 17 <= len(incoming) < 20


@pytest.mark.parametrize(
    ("headers", "closed"),
    [
        pytest.param([("Content-Length", "50")], False, id="small"),
        pytest.param([("Content-Length", "101")], True, id="too-large"),
        pytest.param([("Transfer-Encoding", "chunked")], True, id="unknown-length"),
    ],
)
async def test_refusal_closes_the_connection_if_much_of_the_body_is_unread(headers, closed):
    answer = await Service(keys=f"me:{KEY}").ask(headers=headers)
    assert answer.problem == (401, "unauthorized")
    assert (answer.headers.get("connection") == "close") is closed


async def test_slow_body_is_a_408():
    answer = await Service(body_timeout_s=1).ask(
        chunks=[b"a", b"b", asyncio.Event(), b"cd"], headers=[("Content-Length", "4")]
    )
    assert answer.problem == (408, "slow-body")
    assert "got 2 bytes" in answer.json()["detail"]


async def test_answer_that_does_not_start_in_time_is_a_504_that_keeps_the_connection():
    service = Service(answer_timeout_s=0.2)
    answer = await service.ask("/busy", headers=[("Transfer-Encoding", "chunked")])
    assert answer.problem == (504, "inference-timeout")
    assert "connection" not in answer.headers
    assert service.admission.in_progress == service.counts.in_progress == 0


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("GET", "/no", (404, "not-found")),
        ("POST", "/work/", (404, "not-found")),
        ("GET", "/work", (405, "method-not-allowed")),
        ("POST", "/page", (405, "method-not-allowed")),
        ("DELETE", "/readyz", (405, "method-not-allowed")),
        ("BREW", "/work", (405, "method-not-allowed")),
    ],
)
async def test_unknown_paths_and_methods_stop_at_the_edge_in_bounded_metric_series(
    method, path, problem
):
    service = Service()
    answer = await service.ask(path, method)
    assert answer.problem == problem
    assert not service.reached
    assert service.counts.answers == [("other" if problem[0] == 404 else path, *problem)]
    assert not any("problem" in name for name in answer.headers)
    if answer.status_code == 405:
        assert answer.headers["allow"] == ("POST" if path == "/work" else "GET, HEAD")


async def test_answers_are_counted_by_path_status_and_reason():
    service = Service()
    for path, method in (
        ("/work", "POST"),
        ("/odd", "POST"),
        ("/static_content/a.css", "GET"),
        ("/page", "GET"),
    ):
        await service.ask(path, method)
    assert service.counts.answers == [
        ("/work", 200, "ok"),
        ("/odd", 507, "insufficient-storage"),
        ("/static_content", 200, "ok"),
        ("/page", 200, "ok"),
    ]


async def test_application_errors_become_problems_without_details(caplog):
    assert (await Service().ask("/odd")).problem == (507, "insufficient-storage")
    answer = await Service().ask("/broken")
    assert answer.problem == (500, "internal-error")
    assert b"ZeroDivision" not in answer.content
    assert "ZeroDivisionError" in caplog.text


async def test_every_answer_has_an_id_and_security_headers():
    service = Service()
    for answer in (
        await service.ask(),
        await service.ask("/no", "GET"),
        await service.ask("/page", "GET"),
    ):
        assert len(answer.headers["x-request-id"]) == 32
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert (await service.ask()).headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        pytest.param("order-66_a.b", True, id="plain"),
        pytest.param("x" * 129, False, id="too-long"),
        pytest.param("a b", False, id="space"),
        pytest.param("", False, id="empty"),
    ],
)
async def test_callers_request_id_is_kept_if_valid(sent, kept):
    answer = await Service().ask(headers=[("X-Request-ID", sent)])
    assert (answer.headers["x-request-id"] == sent) is kept
    assert answer.json()["request"] == answer.headers["x-request-id"]


async def test_page_and_liveness_are_answered_in_any_state():
    service = Service(keys=f"me:{KEY}", state="restarting")
    service.admission.stop(10)
    assert (await service.ask("/page", "GET")).content == b"a page"
    assert (await service.ask("/livez", "GET")).status_code == 200


@pytest.mark.parametrize(
    ("state", "status"), [("starting", 503), ("restarting", 503), ("failing", 200)]
)
async def test_readiness_says_why_triton_is_not_ready_and_work_waits_for_no_start(state, status):
    service = Service(state=state)
    readiness, answer = await service.ask("/readyz", "GET"), await service.ask()
    assert readiness.problem == (503, "inference-unavailable")
    assert readiness.json()["detail"] == f"{state}: a reason"
    assert answer.status_code == status
    assert bool(service.reached) is (status == 200)
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)


@pytest.mark.parametrize("state", ["ready", "stopping", "stopped"])
async def test_stopping_worker_and_worker_of_a_stopping_service_refuse_new_requests(state):
    service = Service(state=state)
    if state == "ready":
        service.admission.stop(10)
    answer = await service.ask()
    assert answer.problem == (await service.ask("/readyz", "GET")).problem == (503, "stopping")
    assert answer.headers.get("connection") == ("close" if state == "ready" else None)


async def test_refusals_are_delayed_while_others_are_active(monkeypatch):
    delays: list[float] = []

    async def no_sleep(seconds: float) -> None:
        delays.append(seconds)

    service = Service(max_requests=1)
    other = asyncio.ensure_future(service.ask("/busy", client="10.0.0.2"))
    while not service.reached:
        await asyncio.sleep(0)
    monkeypatch.setattr("utils.edge.middleware.refusals.asyncio.sleep", no_sleep)
    answer = await service.ask("/busy", client="10.0.0.2")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    for client, expected in (("10.0.0.2", []), ("10.0.0.1", [1])):
        delays.clear()
        assert (await service.ask("/busy", client=client)).problem == (503, "overloaded")
        assert [seconds for seconds in delays if seconds] == expected
    other.cancel()
    limited = Service(rate="1/minute")
    for client, expected in (("10.0.0.2", []), ("10.0.0.1", [1])):
        delays.clear()
        answers = [await limited.ask(client=client) for _ in range(2)]
        assert answers[1].problem == (429, "too-many-requests")
        assert [seconds for seconds in delays if seconds] == expected


async def test_slow_bodies_take_bounded_memory_and_no_slots():
    service = Service(max_requests=1)
    headers = [("Content-Length", "90")]
    rest = asyncio.Event()
    chunks = (b"a" * 45, rest, b"a" * 45)
    slow = [asyncio.ensure_future(service.ask(chunks=chunks, headers=headers)) for _ in range(30)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert (await service.ask()).status_code == 200
    rest.set()
    slugs = {
        answer.problem[1] for answer in await asyncio.gather(*slow) if answer.status_code != 200
    }
    assert "overloaded" in slugs
    assert slugs <= {"overloaded", "slow-body", "body-too-large"}


async def test_bodies_of_answered_requests_are_released():
    service = Service()
    for _ in range(30):
        assert (await service.ask(chunks=[b"a" * 90])).status_code == 200
        assert (await service.ask(chunks=[b"a" * 90, b"b" * 90])).status_code == 413


async def test_metrics_need_a_key_if_set_and_readiness_does_not():
    service, protected = (
        Service(keys=f"me:{KEY}", metrics_need_key=need) for need in (False, True)
    )
    assert (await service.ask("/metrics", "GET")).status_code == 200
    assert (await protected.ask("/metrics", "GET")).status_code == 401
    assert (await protected.ask("/metrics", "GET", headers=[("X-API-Key", KEY)])).status_code == 200
    assert (await protected.ask("/readyz", "GET")).status_code == 200


@pytest.mark.parametrize(
    ("sent", "ends_with_problem"),
    [pytest.param(b'{"done":1}\n', True, id="line"), pytest.param(b'{"do', False, id="part")],
)
async def test_stream_that_a_stop_cancels_ends_with_the_problem_line(sent, ends_with_problem):
    async def app(scope, receive, send):
        headers = [(b"content-type", b"application/x-ndjson")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": sent, "more_body": True})
        service.admission.abort_in_flight()
        await asyncio.sleep(60)

    service = Service(application=app)
    answer = await service.ask()
    if not ends_with_problem:
        assert (answer.content, answer.messages[-1]["more_body"]) == (sent, True)
        return
    lines = answer.content.splitlines()
    assert [json.loads(line).keys() for line in lines] == [
        {"done": 1}.keys(),
        {"problem": 1}.keys(),
    ]
    assert json.loads(lines[-1])["problem"]["type"] == "urn:mobile-sam:stopping"
    assert not answer.messages[-1].get("more_body", False)


async def test_callers_share_one_read_of_the_metrics():
    service = Service()
    answers = await asyncio.gather(*(service.ask("/metrics", "GET") for _ in range(64)))
    assert {answer.status_code for answer in answers} == {200}
    assert {int(answer.headers["content-length"]) == len(answer.content) for answer in answers} == {
        True
    }
    assert service.reached == ["/metrics"]


async def test_answers_from_a_file_do_not_count_as_answer_bytes():
    for file_answers, status in ((frozenset(), 503), (frozenset({"/file"}), 200)):

        async def app(scope, receive, send):
            await PlainTextResponse("x" * 100_000)(scope, receive, send)

        admission = Admission(8, 10 * MAX_BODY_BYTES, 150_000)
        edge = make_edge(
            app, work_paths=frozenset({"/file"}), file_answers=file_answers, admission=admission
        )
        service = Service()
        service.edge = edge
        with admission.slot("another") as start_answer:
            start_answer(100_000)
            assert (await service.ask("/file")).status_code == status


async def test_metrics_include_tritons_health():
    answer = await Service(state="failing").ask("/metrics", "GET")
    lines = answer.text.splitlines()
    assert lines[0] == "a_metric 1"
    assert "mobile_sam_ready 0" in lines
    assert 'mobile_sam_triton_restarts_total{cause="died"} 2' in lines
    assert lines[-1] == "nv_inference_count 7"
    assert int(answer.headers["content-length"]) == len(answer.content)


OTHER_KEY = f"{KEY}-other"


@pytest.mark.parametrize(
    ("keys", "calls"),
    [
        pytest.param(None, [("", "10.0.0.1"), ("", "10.0.0.1"), ("", "10.0.0.2")], id="address"),
        pytest.param(
            f"a:{KEY},b:{OTHER_KEY}",
            [(KEY, "10.0.0.1"), (KEY, "10.0.0.2"), (OTHER_KEY, "10.0.0.1")],
            id="key",
        ),
    ],
)
async def test_rate_limit_applies_to_each_address_or_key_from_any_address(keys, calls):
    service = Service(keys=keys, rate="1/minute")
    answers = [
        await service.ask(headers=[("X-API-Key", key)], client=client) for key, client in calls
    ]
    assert [answer.status_code for answer in answers] == [200, 429, 200]
    assert 1 <= int(answers[1].headers["retry-after"]) <= 60


async def test_key_has_the_rate_in_its_entry():
    service = Service(keys=f"a:{KEY} 1/minute,b:{OTHER_KEY}", rate="2/minute")
    statuses = {}
    for key in (KEY, OTHER_KEY):
        answers = [await service.ask(headers=[("X-API-Key", key)]) for _ in range(3)]
        statuses[key] = [answer.status_code for answer in answers]
    assert statuses == {KEY: [200, 429, 429], OTHER_KEY: [200, 200, 429]}


async def test_pages_that_work_pass_the_checks_of_work():
    service, headers = Service(keys=f"a:{KEY}", rate="2/minute"), [("X-API-Key", KEY)]
    path = "/embeddings/an-id"
    assert (await service.ask(path, "GET")).problem == (401, "unauthorized")
    foreign = await service.ask(
        path, "GET", headers=[*headers, ("Origin", "https://foreign.example")]
    )
    assert foreign.problem == (403, "foreign-page")
    answers = [
        await service.ask(path, method, headers=headers) for method in ("GET", "HEAD", "GET")
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["cache-control"] == "no-store"
    assert {path for path, *_ in service.counts.answers} == {"/embeddings/{image_id}"}
    assert (await Service(state="restarting").ask(path, "GET")).problem == (
        503,
        "inference-unavailable",
    )
    slow = await Service(answer_timeout_s=0.2).ask("/slow", "GET")
    assert slow.problem == (504, "inference-timeout")
    refused = await Service().ask(path)
    assert (refused.problem, refused.headers["allow"]) == ((405, "method-not-allowed"), "GET, HEAD")


async def test_non_ascii_content_type_is_a_415():
    assert (await Service().ask(headers=[("Content-Type", "ü")])).problem == (
        415,
        "unsupported-media-type",
    )


async def test_error_after_the_start_of_an_answer_is_raised():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    service = Service(application=app)
    with pytest.raises(ZeroDivisionError):
        await service.ask()


async def test_aborted_request_is_a_503_unless_its_answer_has_started():
    service = Service(max_requests=4)
    unread = service.ask(chunks=[b"a", asyncio.Event()], headers=[("Content-Length", "2")])
    requests = [
        asyncio.ensure_future(ask)
        for ask in (unread, service.ask("/busy"), service.ask("/endless"))
    ]
    while len(service.reached) < 2:
        await asyncio.sleep(0)
    assert service.counts.in_progress == 2
    service.admission.abort_in_flight()
    *refused, ended = await asyncio.gather(*requests)
    assert [answer.problem for answer in (*refused, await service.ask())] == [(503, "stopping")] * 3
    assert [message["type"] for message in ended.messages] == ["http.response.start"]
    assert service.admission.in_progress == service.counts.in_progress == 0


FAULTS: dict[str, dict[str, Any]] = {
    "head-too-large": {"headers": [("X-Many", "a")] * (MAX_FIELDS + 1)},
    "not-found": {"path": "/no"},
    "method-not-allowed": {"method": "GET"},
    "foreign-page": {"headers": [("Origin", "https://foreign.example")]},
    "unauthorized": {"key": None},
    "too-many-requests": {"rate": "exceeded"},
    "invalid-request": {"headers": [("X-Image-Id", "no-id")]},
    "stopping": {"stopping": True},
    "unsupported-media-type": {"headers": [("Content-Type", "ü")]},
    "unsupported-content-encoding": {"headers": [("Content-Encoding", "gzip")]},
    "body-too-large": {"chunks": [b"a" * (MAX_BODY_BYTES + 1)]},
}
"""What is wrong with a request or the worker, in the order in which the steps refuse it."""


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=FAULTS)
async def test_request_with_many_faults_is_refused_for_the_first_one(first):
    expected = list(FAULTS)[first]
    request: dict = {"path": "/work", "method": "POST", "chunks": [b"body"], "headers": []}
    state: dict = {"key": KEY, "rate": None, "stopping": False}
    for fault in list(FAULTS.values())[first:]:
        for name, value in fault.items():
            if name == "headers":
                request["headers"] = [*request["headers"], *value]
            elif name in request:
                request[name] = value
            else:
                state[name] = value
    if state["key"]:
        request["headers"] = [*request["headers"], ("X-API-Key", state["key"])]
    service = Service(keys=f"me:{KEY}", rate=state["rate"] and "1/minute")
    if state["rate"]:
        assert (await service.ask(headers=[("X-API-Key", KEY)])).status_code == 200
    if state["stopping"]:
        service.admission.stop(10)
    assert (await service.ask(**request)).problem[1] == expected


class Jobs:
    """Jobs in the background that record their requests."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.encoder = SimpleNamespace(metrics=None)

    async def __call__(self, scope, receive, send):
        self.paths.append(scope["path"])
        await PlainTextResponse("a job")(scope, receive, send)


async def test_job_is_refused_if_a_proxy_may_have_routed_it_by_another_image():
    service, jobs = Service(), Jobs()
    service.edge = make_edge(service.app, jobs=jobs)
    refused = await service.ask("/embed/7", "GET", headers=[("X-Image-Id", "no-id")])
    assert refused.problem == (422, "invalid-request")
    assert jobs.paths == []
    assert (await service.ask("/embed/7", "GET")).content == b"a job"
    assert jobs.paths == ["/embed/7"]
