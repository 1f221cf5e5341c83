"""Image ids, retries, streamed answers and concurrency."""

import asyncio
import concurrent.futures
import logging
from typing import Any

import httpx
import pytest

from mobile_sam_client import (
    AsyncClient,
    Client,
    ImageNotCached,
    Problem,
    ServiceUnreachable,
    TooManyRequests,
    Unavailable,
)
from mobile_sam_client._calls import MAX_RETRY_WAIT_S, KnownImages, lines_of
from mobile_sam_client._wire import run_blocking
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    INFO,
    Chunks,
    FakeService,
    default_reply,
    failing_reply,
    final_line,
    json_reply,
    lines,
    lines_reply,
    make_client,
    make_reply,
    png,
    problem_reply,
    segment_reply,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}
NOT_CACHED = problem_reply(404, "image-not-cached", "no such image")


def test_image_is_uploaded_once_and_then_sent_as_id(client, service, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(FILE)
    client.embed(path)
    client.segment(str(path), **CLICK)
    client.everything(FILE)
    service.reply_with(segment_reply(image_id="another"))
    client.segment(b"another file", **CLICK)
    client.segment(b"another file", **CLICK)
    assert service.images == [FILE, "the id", "the id", b"another file", "another"]


def test_ids_of_embeddings_are_shared_between_clients_and_those_of_files_are_not(client, service, make):
    embedding = client.embed(FILE)
    another = make(service, api_key="another-key")
    for one, image in ((client, embedding), (another, embedding), (client, FILE), (another, FILE)):
        one.segment(image, **CLICK)
    assert service.images == [FILE, *["the id"] * 3, FILE]


@pytest.mark.parametrize(
    "call",
    [
        lambda client, embedding: client.embed(FILE),
        lambda client, embedding: client.segment(FILE, **CLICK),
        lambda client, embedding: client.segment(embedding, **CLICK),
        lambda client, embedding: client.everything(FILE),
    ],
    ids=["embed", "segment", "segment embedding", "everything"],
)
def test_uncached_image_is_uploaded_again(client, service, call):
    embedding = client.embed(FILE)
    service.reply_with(NOT_CACHED, default_reply)
    call(client, embedding)
    assert service.images == [FILE, "the id", FILE]


def test_image_uncached_during_streaming_is_uploaded_again(client, service):
    embedding = client.embed(FILE)
    problem = {"type": "urn:mobile-sam:image-not-cached", "title": "No", "status": 404, "detail": "forgotten"}
    service.reply_with(lines_reply({"done": 0, "total": 2}, {"problem": problem}), default_reply)
    assert len(client.everything(embedding).masks) == 2
    assert service.images == [FILE, "the id", FILE]


def test_uncached_image_is_uploaded_again_only_once(client, service):
    client.embed(FILE)
    service.reply_with(NOT_CACHED)
    with pytest.raises(ImageNotCached, match="no such image"):
        client.segment(FILE, **CLICK)
    assert service.images == [FILE, "the id", FILE]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_header_sets_the_wait_up_to_the_maximum(client, service, waits, status):
    service.reply_with(*(problem_reply(status, Retry_After=value) for value in ("0", "7", "3600")), segment_reply())
    client.segment(FILE, **CLICK)
    assert waits == [0, 7, MAX_RETRY_WAIT_S]
    assert len({received.body for received in service.requests}) == 1
    assert len(service.requests) == 4


def test_waits_double_with_jitter_up_to_the_maximum(make, service, waits):
    service.reply_with(*[problem_reply(503)] * 40, json_reply(INFO))
    make(service, retries=40).info()
    longest = [min(0.2 * 2**number, MAX_RETRY_WAIT_S) for number in range(40)]
    assert all(limit / 2 <= wait <= limit for wait, limit in zip(waits, longest, strict=True))
    assert len(set(waits[8:])) > 1


@pytest.mark.parametrize(("status", "error"), [(429, TooManyRequests), (503, Unavailable)])
@pytest.mark.parametrize("retries", [0, 2])
def test_retries_are_limited(make, service, waits, status, error, retries):  # noqa: PLR0917
    service.reply_with(problem_reply(status, detail="32 requests wait already", Retry_After="1"))
    with pytest.raises(error, match="32 requests wait already") as raised:
        make(service, retries=retries).embed(FILE)
    assert raised.value.retry_after == 1
    assert waits == [1] * retries
    assert len(service.requests) == retries + 1


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 415, 422, 500, 504])
def test_other_statuses_are_not_retried(client, service, waits, status):
    service.reply_with(problem_reply(status, Retry_After="1"))
    with pytest.raises(Problem):
        client.embed(FILE)
    assert len(service.requests) == 1
    assert not waits


@pytest.mark.parametrize(
    "failure",
    [
        failing_reply(httpx.ConnectError, "Connection refused"),
        failing_reply(httpx.ReadError),
        failing_reply(httpx.WriteError),
        failing_reply(httpx.RemoteProtocolError, "Server disconnected without sending a response."),
        make_reply(b"<h1>Service Unavailable</h1>", "text/html", 503),
    ],
    ids=["refused", "read error", "write error", "closed", "busy proxy"],
)
def test_failure_before_the_response_is_retried(client, service, waits, failure):
    service.reply_with(failure, json_reply(IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


def test_connection_lost_during_the_response_is_not_retried(client, service, waits):
    service.reply_with(lines_reply({"done": 0, "total": 2}))
    with pytest.raises(ServiceUnreachable, match="ended before the result"):
        client.everything(FILE)
    assert len(service.requests) == 1
    assert not waits


def test_problem_in_streamed_answer_is_raised_with_request_id(client, service, waits):
    problem = {"type": "urn:mobile-sam:overloaded", "title": "No", "status": 503, "detail": "too much"}
    service.reply_with(lines_reply({"done": 0, "total": 2}, {"problem": problem}))
    steps = []
    with pytest.raises(Unavailable, match=r"^503 overloaded: too much \(request the-request\)$"):
        client.everything(FILE, on_progress=lambda *step: steps.append(step))
    assert steps == [(0, 2)]
    assert not waits


LINES = 'one\n\n{"a": "\u2028 \x85"}\nthree\n'.encode()


@pytest.mark.parametrize("size", range(1, len(LINES) + 1))
def test_lines_do_not_depend_on_chunk_size(size):
    async def lines() -> list[bytes]:
        return [line async for line in lines_of(Chunks(LINES[at : at + size] for at in range(0, len(LINES), size)))]

    assert run_blocking(lines()) == [b"one", '{"a": "\u2028 \x85"}'.encode(), b"three"]


def test_error_in_callback_closes_the_response(client, service):
    body = Chunks([lines({"done": 0, "total": 2}, final_line())])

    def on_progress(done, total):
        raise KeyError("callback failed")

    service.reply_with(lambda _: httpx.Response(200, stream=body))
    with pytest.raises(KeyError, match="callback failed"):
        client.everything(FILE, on_progress=on_progress)
    assert body.closed


def test_retries_are_logged_without_the_key(make, service, caplog):
    caplog.set_level(logging.DEBUG)
    service.reply_with(problem_reply(503, "overloaded", "busy", Retry_After="1"), json_reply(IMAGE))
    client = make(service, api_key="the-secret-key")
    client.embed(FILE)
    messages = [record.getMessage() for record in caplog.records if record.name == "mobile_sam_client"]
    assert messages == ["retrying in 1.0 s (1 of 5): 503 overloaded: busy (request the-request)"]
    assert service.requests[0].headers["Authorization"] == "Bearer the-secret-key"
    assert "the-secret-key" not in caplog.text


def test_client_is_thread_safe(service):
    service.reply_with(segment_reply(picture=png()))
    files = [bytes([number]) for number in range(8)]
    with make_client(Client, service) as client, concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: client.segment(files[number % 8], **CLICK), range(80)))
    assert len(results) == 80
    uploaded = [image for image in service.images if image != "the id"]
    assert sorted(set(uploaded)) == files  # two threads may upload the same file at once


def test_least_recently_used_image_id_is_dropped():
    known = KnownImages(2)
    known.remember("a", "0")
    known.remember("a", "1")
    known.remember("b", "2")
    assert known.id_of("a") == "1"
    known.remember("c", "3")
    assert [known.id_of(name) for name in "abc"] == ["1", None, "3"]


def test_async_calls_run_concurrently():
    service = FakeService()
    files = [b"one", b"two", b"three"]
    started: list[httpx.Request] = []
    all_started = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        started.append(request)
        if len(started) == len(files):
            all_started.set()
        await all_started.wait()  # would hang if the requests were sequential
        return service(request)

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            found = await asyncio.gather(*(client.segment(file, **CLICK) for file in files))
            assert [segmentation.area for segmentation in found] == [3, 3, 3]

    asyncio.run(ask())


def test_cancelled_async_call_closes_the_response():
    started = asyncio.Event()

    class Endless(httpx.AsyncByteStream):
        closed = False

        async def __aiter__(self):
            yield b'{"done": 0, "total": 2}\n'
            started.set()
            await asyncio.Event().wait()

        async def aclose(self) -> None:
            self.closed = True

    stream = Endless()

    async def ask() -> None:
        transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=stream))
        async with AsyncClient(transport=transport) as client:
            task = asyncio.create_task(client.everything(FILE))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(ask())
    assert stream.closed
