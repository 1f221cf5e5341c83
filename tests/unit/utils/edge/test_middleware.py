"""The ASGI edge around a fake application."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.responses import JSONResponse, PlainTextResponse

from tests.unit.utils.edge.fakes import FakeCounts, make_edge
from utils.api.errors import InferenceTimeout, Stopping
from utils.edge.admission import MAX_PROMPT_REFUSALS, Admission
from utils.edge.bodies import LARGE_BODY_BYTES, MAX_DRAIN_BYTES, ClientDisconnected
from utils.edge.keys import ApiKeys
from utils.edge.middleware import Limits, run_application
from utils.edge.rate import RateLimit
from utils.observability.context import CALLER, REQUEST_ID
from utils.triton.health import Health, State

KEY = "a-key-of-enough-characters"
MAX_BODY_BYTES = 100


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
    def problem(self) -> tuple[int, str]:
        """Status and slug of a problem document."""
        assert self.headers["content-type"] == "application/problem+json"
        document = json.loads(self.body)
        assert document["status"] == self.status
        return self.status, str(document["type"]).removeprefix("urn:mobile-sam:")


@dataclass
class Service:
    """An edge and its surroundings."""

    keys: str | None = None
    rate: str | None = None
    max_requests: int = 2
    metrics_need_key: bool = False
    state: State = "ready"
    answer_timeout_s: float = 0.2
    counts: FakeCounts = field(default_factory=FakeCounts)
    reached: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.admission = Admission(self.max_requests, 10 * MAX_BODY_BYTES)
        self.edge = make_edge(
            self.app,
            work_paths=frozenset({"/work", "/odd", "/broken", "/busy"}),
            file_paths=frozenset({"/static_content/a.css"}),
            pages={"/page": PlainTextResponse("a page")},
            limits=Limits(MAX_BODY_BYTES, 0.2, self.answer_timeout_s),
            keys=ApiKeys.of(self.keys, None),
            rate=RateLimit(self.rate, None) if self.rate else None,
            admission=self.admission,
            health=lambda: Health(self.state, "a reason", {"died": 2}),
            counts=self.counts,
            metrics_need_key=self.metrics_need_key,
        )

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

    async def ask(self, path="/work", method="POST", chunks=(b"body",), headers=(), *, client="10.0.0.1"):
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

        raw = [(name.encode().lower(), value.encode()) for name, value in (("Host", "service"), *headers)]
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": path, "headers": raw}
        await asyncio.create_task(self.edge({**scope, "client": (client, 1)}, receive, send))
        return ReceivedAnswer(sent)


async def test_request_reaches_the_application_completely():
    answer = await Service().ask(chunks=[b"a" * 40, b"b" * 60])
    assert answer.status == 200
    assert json.loads(answer.body)["body"] == "a" * 40 + "b" * 60


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        pytest.param([b"a" * 50, b"a" * 51], (), id="without-length"),
        pytest.param([b""], [("Content-Length", "101")], id="announced"),
        pytest.param([b"a" * 200], [("Content-Length", "5")], id="longer-than-announced"),
        pytest.param([b"a" * 50] * 20, [("Transfer-Encoding", "chunked")], id="much-left-to-drain"),
    ],
)
async def test_too_large_body_is_drained_and_refused_and_the_connection_closed(chunks, headers):
    service = Service()
    incoming = list(chunks)
    answer = await service.ask(chunks=incoming, headers=headers)
    assert answer.problem == (413, "body-too-large")
    assert "at most 100 bytes" in json.loads(answer.body)["detail"]
    assert answer.headers["connection"] == "close"
    assert answer.messages[-1] == {"type": "http.response.body", "body": b""}
    assert not incoming
    assert not service.reached


async def test_little_is_read_of_a_body_that_is_too_long_to_drain():
    incoming = [b"a" * LARGE_BODY_BYTES] * 20
    answer = await Service().ask(chunks=incoming, headers=[("Content-Length", str(MAX_DRAIN_BYTES + 1))])
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
    answer = await Service().ask(chunks=[b"a", b"b", asyncio.Event(), b"cd"], headers=[("Content-Length", "4")])
    assert answer.problem == (408, "slow-body")
    assert "got 2 bytes" in json.loads(answer.body)["detail"]


async def test_answer_that_does_not_start_in_time_is_a_504_that_keeps_the_connection():
    service = Service()
    answer = await service.ask("/busy", headers=[("Transfer-Encoding", "chunked")])
    assert answer.problem == (504, "inference-timeout")
    assert "connection" not in answer.headers
    assert service.admission.in_progress == service.counts.in_progress == 0


@pytest.mark.parametrize(
    ("method", "path", "problem"),
    [
        ("GET", "/no", (404, "not-found")),
        ("POST", "/work/", (404, "not-found")),
        ("GET", "/static_content/b.css", (404, "not-found")),
        ("GET", "/work", (405, "method-not-allowed")),
        ("POST", "/page", (405, "method-not-allowed")),
        ("DELETE", "/readyz", (405, "method-not-allowed")),
        ("BREW", "/work", (405, "method-not-allowed")),
    ],
)
async def test_unknown_paths_and_methods_stop_at_the_edge_in_bounded_metric_series(method, path, problem):
    service = Service()
    answer = await service.ask(path, method)
    assert answer.problem == problem
    assert not service.reached
    assert service.counts.answers == [("other" if problem[0] == 404 else path, *problem)]
    assert not any("problem" in name for name in answer.headers)
    if answer.status == 405:
        assert answer.headers["allow"] == ("POST" if path == "/work" else "GET, HEAD")


async def test_answers_are_counted_by_path_status_and_reason():
    service = Service()
    for path, method in (("/work", "POST"), ("/odd", "POST"), ("/static_content/a.css", "GET"), ("/page", "GET")):
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
    assert b"ZeroDivision" not in answer.body
    assert "ZeroDivisionError" in caplog.text


async def test_every_answer_has_an_id_and_security_headers():
    service = Service()
    for answer in (await service.ask(), await service.ask("/no", "GET"), await service.ask("/page", "GET")):
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
        pytest.param("a\tb", False, id="tab"),
        pytest.param("", False, id="empty"),
    ],
)
async def test_callers_request_id_is_kept_if_valid(sent, kept):
    answer = await Service().ask(headers=[("X-Request-ID", sent)])
    assert (answer.headers["x-request-id"] == sent) is kept
    assert json.loads(answer.body)["request"] == answer.headers["x-request-id"]


async def test_page_and_liveness_are_answered_in_any_state():
    service = Service(keys=f"me:{KEY}", state="restarting")
    service.admission.stop()
    assert (await service.ask("/page", "GET")).body == b"a page"
    assert (await service.ask("/livez", "GET")).status == 200


@pytest.mark.parametrize("state", ["starting", "failing", "restarting"])
async def test_readiness_answer_says_why_the_service_is_not_ready(state):
    answer = await Service(state=state).ask("/readyz", "GET")
    assert answer.problem == (503, "inference-unavailable")
    assert json.loads(answer.body)["detail"] == f"{state}: a reason"


@pytest.mark.parametrize(("state", "status"), [("starting", 503), ("restarting", 503), ("failing", 200)])
async def test_work_is_refused_while_triton_is_unavailable(state, status):
    service = Service(state=state)
    answer = await service.ask()
    assert answer.status == status
    assert bool(service.reached) is (status == 200)
    assert answer.headers.get("retry-after") == ("5" if status == 503 else None)


@pytest.mark.parametrize("state", ["ready", "stopping", "stopped"])
async def test_stopping_worker_and_worker_of_a_stopping_service_refuse_new_requests(state):
    service = Service(state=state)
    if state == "ready":
        service.admission.stop()
    answer = await service.ask()
    assert answer.problem == (await service.ask("/readyz", "GET")).problem == (503, "stopping")
    assert answer.headers.get("connection") == ("close" if state == "ready" else None)


async def test_requests_beyond_the_limit_are_refused():
    service = Service(max_requests=2)
    answers = await asyncio.gather(*(service.ask("/busy") for _ in range(5)))
    assert sorted(answer.status for answer in answers) == [503, 503, 503, 504, 504]
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.problem == (503, "overloaded")
    assert refused.headers["retry-after"] == "1"


async def test_refusals_of_an_immediate_retry_are_delayed_while_others_are_active(monkeypatch):
    delays: list[float] = []

    async def no_sleep(seconds: float) -> None:
        delays.append(seconds)

    service = Service(max_requests=1, answer_timeout_s=60)
    others = asyncio.ensure_future(service.ask("/busy", client="10.0.0.2"))
    while not service.reached:
        await asyncio.sleep(0)
    monkeypatch.setattr("utils.edge.middleware.asyncio.sleep", no_sleep)
    answers = [await service.ask("/busy") for _ in range(MAX_PROMPT_REFUSALS + 2)]
    others.cancel()
    assert {answer.problem for answer in answers} == {(503, "overloaded")}
    assert [seconds for seconds in delays if seconds] == [1.0, 1.0]


async def test_slow_bodies_take_bounded_memory_and_no_slots():
    service = Service(max_requests=1)
    headers = [("Content-Length", "90")]
    rest = asyncio.Event()
    chunks = (b"a" * 45, rest, b"a" * 45)
    slow = [asyncio.ensure_future(service.ask(chunks=chunks, headers=headers)) for _ in range(30)]
    for _ in range(100):
        await asyncio.sleep(0)
    assert (await service.ask()).status == 200
    rest.set()
    slugs = {answer.problem[1] for answer in await asyncio.gather(*slow) if answer.status != 200}
    assert "overloaded" in slugs
    assert slugs <= {"overloaded", "slow-body", "body-too-large"}


async def test_bodies_of_answered_requests_are_released():
    service = Service()
    for _ in range(30):
        assert (await service.ask(chunks=[b"a" * 90])).status == 200
        assert (await service.ask(chunks=[b"a" * 90, b"b" * 90])).status == 413


async def test_request_without_a_key_is_a_401():
    service = Service(keys=f"me:{KEY}")
    answer = await service.ask()
    assert answer.problem == (401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert not service.reached


async def test_application_sees_the_name_of_the_key():
    answer = await Service(keys=f"me:{KEY}").ask(headers=[("X-API-Key", KEY)])
    assert json.loads(answer.body)["caller"] == "me"


async def test_metrics_need_a_key_if_set_and_readiness_does_not():
    service, protected = (Service(keys=f"me:{KEY}", metrics_need_key=need) for need in (False, True))
    assert (await service.ask("/metrics", "GET")).status == 200
    assert (await protected.ask("/metrics", "GET")).status == 401
    assert (await protected.ask("/metrics", "GET", headers=[("X-API-Key", KEY)])).status == 200
    assert (await protected.ask("/readyz", "GET")).status == 200


async def test_metrics_include_tritons_health():
    answer = await Service(state="failing").ask("/metrics", "GET")
    lines = answer.body.decode().splitlines()
    assert lines[0] == "a_metric 1"
    assert "mobile_sam_ready 0" in lines
    assert 'mobile_sam_triton_restarts_total{cause="died"} 2' in lines
    assert lines[-1] == "nv_inference_count 7"
    assert int(answer.headers["content-length"]) == len(answer.body)


async def test_rate_limit_applies_to_each_address():
    service = Service(rate="2/minute")
    answers = [await service.ask(client=client) for client in ("10.0.0.1",) * 3 + ("10.0.0.2",)]
    assert [answer.status for answer in answers] == [200, 200, 429, 200]
    assert 1 <= int(answers[2].headers["retry-after"]) <= 60


async def test_rate_limit_applies_to_each_key_from_any_address():
    service = Service(keys=f"me:{KEY},you:{KEY}-other", rate="1/minute")
    calls = [(KEY, "10.0.0.1"), (KEY, "10.0.0.2"), (f"{KEY}-other", "10.0.0.1")]
    answers = [await service.ask(headers=[("X-API-Key", key)], client=client) for key, client in calls]
    assert [answer.status for answer in answers] == [200, 429, 200]


async def test_non_ascii_content_type_is_a_415():
    assert (await Service().ask(headers=[("Content-Type", "ü")])).problem == (415, "unsupported-media-type")


async def test_other_asgi_events_pass():
    passed = []

    async def app(scope, receive, send):
        passed.append(scope["type"])

    await make_edge(app)({"type": "lifespan"}, None, None)  # type: ignore[arg-type]
    assert passed == ["lifespan"]


async def test_error_after_the_start_of_an_answer_is_raised():
    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ZeroDivisionError

    service = Service()
    service.edge.app = app
    with pytest.raises(ZeroDivisionError):
        await service.ask()


class Visit:
    """One request, whose caller disconnects when a test sets `disconnect`."""

    def __init__(self, app, timeout_s: float = 60) -> None:
        self.app, self.timeout_s = app, timeout_s
        self.disconnect, self.abort = asyncio.Event(), asyncio.Event()
        self.sent: list[dict] = []

    async def _receive(self):
        await self.disconnect.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)

    async def __call__(self):
        scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
        abort: Any = self.abort.wait
        await run_application(
            self.app, scope, b"body", self._receive, self._send, timeout_s=self.timeout_s, wait_aborted=abort
        )

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Work:
    """An application that works until a test sets `may_end`, and records how it ended."""

    def __init__(self, first: list[dict], last: list[dict]) -> None:
        self.first, self.last = first, last
        self.started, self.may_end = asyncio.Event(), asyncio.Event()
        self.end = ""

    async def __call__(self, scope, receive, send):
        try:
            for message in self.first:
                await send(message)
            self.started.set()
            await self.may_end.wait()
            for message in self.last:
                await send(message)
            self.end = "done"
        except asyncio.CancelledError:
            self.end = "cancelled"
            raise


START = {"type": "http.response.start", "status": 200, "headers": []}
LINE = {"type": "http.response.body", "body": b"line\n", "more_body": True}
LAST = {"type": "http.response.body", "body": b"last"}


async def start(first: list[dict], last: list[dict], timeout_s: float = 60) -> tuple[Work, Visit, asyncio.Task]:
    """Return a request whose application has sent its first messages."""
    work = Work(first, last)
    visit = Visit(work, timeout_s)
    call = asyncio.create_task(visit())
    await work.started.wait()
    return work, visit, call


@pytest.mark.parametrize(
    ("event", "first", "raised"),
    [
        pytest.param("disconnect", [], ClientDisconnected, id="caller disconnects before answer"),
        pytest.param("disconnect", [START], ClientDisconnected, id="caller disconnects after head"),
        pytest.param("disconnect", [START, LINE], ClientDisconnected, id="caller disconnects mid-answer"),
        pytest.param("abort", [], Stopping, id="service aborts before answer"),
        pytest.param("abort", [START, LINE], ClientDisconnected, id="service aborts mid-answer"),
    ],
)
async def test_work_is_cancelled_when_the_caller_disconnects_or_the_service_aborts(event, first, raised):
    work, visit, call = await start(first, [LAST])
    getattr(visit, event).set()
    with pytest.raises(raised):
        await call
    assert work.end == "cancelled"
    assert visit.sent[: len(first)] == first
    assert LAST not in visit.sent


async def test_work_after_the_complete_answer_is_not_cancelled():
    work, visit, call = await start([START, LINE, LAST], [])
    visit.disconnect.set()
    for _ in range(10):  # iterations of the loop in which the edge could have cancelled it
        await asyncio.sleep(0)
    assert not call.done()
    work.may_end.set()
    await call
    assert work.end == "done"
    assert visit.body == b"line\nlast"


async def test_answer_is_sent_as_it_is_produced_without_time_limit_once_started():
    work, visit, call = await start([START, LINE], [LINE, LAST], timeout_s=0.5)
    assert visit.sent == [START, LINE]
    await asyncio.sleep(0.6)
    work.may_end.set()
    await call
    assert visit.body == b"line\nline\nlast"


async def test_application_receives_the_disconnect():
    received = []

    async def app(scope, receive, send):
        received.append((await receive())["body"])
        await PlainTextResponse("an answer")(scope, receive, send)
        received.append(await receive())

    visit = Visit(app)
    call = asyncio.create_task(visit())
    while not visit.body:
        await asyncio.sleep(0)
    assert received == [b"body"]
    visit.disconnect.set()
    await call
    assert received == [b"body", {"type": "http.disconnect"}]


async def test_work_is_cancelled_with_the_server():
    work, _, call = await start([], [])
    call.cancel()
    await asyncio.wait([call])
    assert call.cancelled()
    await asyncio.sleep(0)
    assert work.end == "cancelled"


async def test_answer_that_does_not_start_in_time_is_cancelled():
    work = Work([], [])
    with pytest.raises(InferenceTimeout, match=r"within 0\.05 s"):
        await Visit(work, timeout_s=0.05)()
    assert work.end == "cancelled"
