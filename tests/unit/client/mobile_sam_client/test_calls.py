"""Image ids, retries and streamed answers."""

from __future__ import annotations

import concurrent.futures
import logging
from typing import Any

import httpx
import pytest

from mobile_sam_client import (
    Client,
    ImageNotCached,
    MobileSamError,
    NotThisService,
    Problem,
    ServiceUnreachable,
    TooManyRequests,
    Unavailable,
)
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    INFO,
    Chunks,
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
    service.reply_with(json_reply(IMAGE), segment_reply(), lines_reply(final_line()), segment_reply(image_id="another"))
    client.embed(path)
    client.segment(str(path), **CLICK)
    client.everything(FILE)
    client.segment(b"another file", **CLICK)
    service.reply_with(segment_reply())
    client.segment(b"another file", **CLICK)
    assert service.images == [FILE, "the id", "the id", b"another file", "another"]


def test_embedding_is_sent_as_id(client, service, make):
    service.reply_with(json_reply(IMAGE), segment_reply())
    embedding = client.embed(FILE)
    client.segment(embedding, **CLICK)
    make(service).segment(embedding, **CLICK)
    assert service.images == [FILE, "the id", "the id"]


def test_image_ids_are_not_shared_between_clients(client, service, make):
    service.reply_with(segment_reply())
    client.segment(FILE, **CLICK)
    make(service, api_key="another-key").segment(FILE, **CLICK)
    assert service.images == [FILE, FILE]


@pytest.mark.parametrize("call", ["segment", "segment embedding", "embed", "everything"])
def test_uncached_image_is_uploaded_again(client, service, call):
    service.reply_with(json_reply(IMAGE))
    embedding = client.embed(FILE)
    service.replies = [NOT_CACHED]
    if call == "embed":
        service.reply_with(json_reply(IMAGE))
        client.embed(FILE)
    elif call == "everything":
        service.reply_with(lines_reply(final_line()))
        client.everything(FILE)
    else:
        service.reply_with(segment_reply())
        client.segment(embedding if call == "segment embedding" else FILE, **CLICK)
    assert service.images == [FILE, "the id", FILE]


def test_image_uncached_during_streaming_is_uploaded_again(client, service):
    service.reply_with(json_reply(IMAGE))
    embedding = client.embed(FILE)
    problem = {"type": "urn:mobile-sam:image-not-cached", "title": "No", "status": 404, "detail": "forgotten"}
    service.replies = [lines_reply({"done": 0, "total": 2}, {"problem": problem}), lines_reply(final_line(2))]
    assert len(client.everything(embedding).masks) == 1
    assert service.images == [FILE, "the id", FILE]


def test_uncached_image_is_uploaded_again_only_once(client, service):
    service.reply_with(json_reply(IMAGE))
    client.embed(FILE)
    service.replies = [NOT_CACHED]
    with pytest.raises(ImageNotCached, match="no such image"):
        client.segment(FILE, **CLICK)
    assert service.images == [FILE, "the id", FILE]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_header_sets_the_wait(client, service, waits, status):
    service.reply_with(problem_reply(status, Retry_After="2"), problem_reply(status, Retry_After="7"), segment_reply())
    client.segment(FILE, **CLICK)
    assert waits == [2, 7]
    assert len({received.body for received in service.requests}) == 1
    assert len(service.requests) == 3


def test_waits_double_without_retry_after(client, service, waits):
    service.reply_with(*[problem_reply(503)] * 5, json_reply(INFO))
    client.info()
    assert all(0.1 * 2**number <= wait <= 0.2 * 2**number for number, wait in enumerate(waits))
    assert len(waits) == 5


@pytest.mark.parametrize(("status", "error"), [(429, TooManyRequests), (503, Unavailable)])
def test_retries_are_limited(make, service, waits, status, error):
    service.reply_with(problem_reply(status, detail="32 requests wait already", Retry_After="1"))
    with pytest.raises(error, match="32 requests wait already") as raised:
        make(service, retries=2).embed(FILE)
    assert raised.value.retry_after == 1
    assert waits == [1, 1]
    assert len(service.requests) == 3


def test_retries_can_be_disabled(make, service, waits):
    service.reply_with(problem_reply(503, Retry_After="1"))
    with pytest.raises(Unavailable):
        make(service, retries=0).info()
    assert len(service.requests) == 1
    assert not waits


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 415, 422, 500, 504])
def test_other_statuses_are_not_retried(client, service, waits, status):
    service.reply_with(problem_reply(status, Retry_After="1"))
    with pytest.raises(Problem):
        client.embed(FILE)
    assert len(service.requests) == 1
    assert not waits


def test_busy_proxy_is_retried(client, service, waits):
    service.reply_with(make_reply(b"<h1>Service Unavailable</h1>", "text/html", 503), json_reply(IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


@pytest.mark.parametrize(
    "failure",
    [
        failing_reply(httpx.ConnectError, "Connection refused"),
        failing_reply(httpx.ReadError),
        failing_reply(httpx.WriteError),
        failing_reply(httpx.RemoteProtocolError, "Server disconnected without sending a response."),
    ],
    ids=["refused", "read error", "write error", "closed"],
)
def test_connection_lost_before_the_response_is_retried(client, service, waits, failure):
    service.reply_with(failure, json_reply(IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


def test_connection_error_names_address_and_remedy(client, service, waits):
    service.reply_with(failing_reply(httpx.ConnectError, "Connection refused"))
    expected = (
        r"^cannot connect to http://127\.0\.0\.1:3000 \(Connection refused\); start the service with `make serve`$"
    )
    with pytest.raises(ServiceUnreachable, match=expected):
        client.embed(FILE)
    assert len(waits) == 5


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


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_streamed_lines_may_be_split_anywhere(client, service, size):
    service.reply_with(lines_reply({"done": 0, "total": 2}, {"done": 1, "total": 2}, final_line(1, 2), size=size))
    steps = []
    everything = client.everything(FILE, on_progress=lambda *step: steps.append(step))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert [record.area for record in everything.masks] == [1, 2]


def test_error_in_callback_closes_the_response(client, service):
    body = Chunks([lines({"done": 0, "total": 2}, final_line())])

    def on_progress(done, total):
        raise KeyError("callback failed")

    service.reply_with(lambda _: httpx.Response(200, stream=body))
    with pytest.raises(KeyError, match="callback failed"):
        client.everything(FILE, on_progress=on_progress)
    assert body.closed


@pytest.mark.parametrize(
    "reply",
    [
        make_reply(b"<html>", "text/html"),
        json_reply([]),
        json_reply({**IMAGE, "masks": []}),
        segment_reply([{"object": 0, "score": 1}]),
        segment_reply(picture=b"no picture"),
        segment_reply(rles={"size": [5, 6], "counts": "0"}),
        segment_reply(masks=[]),
    ],
    ids=["HTML", "list", "not multipart", "mask without area", "not a PNG", "wrong mask size", "no masks"],
)
def test_unexpected_answer_is_reported(client, service, reply):
    service.reply_with(reply)
    with pytest.raises(NotThisService, match=r"^http://127\.0\.0\.1:3000 sent an unexpected answer: "):
        client.segment(FILE, **CLICK)


@pytest.mark.parametrize(
    "reply", [make_reply(b"<html>\n", "text/html"), lines_reply({"done": 1})], ids=["HTML", "no total"]
)
def test_unexpected_streamed_answer_is_reported(client, service, reply):
    service.reply_with(reply)
    with pytest.raises(NotThisService):
        client.everything(FILE)


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


def test_all_errors_share_one_base_class(client, service):
    for reply in (problem_reply(401), make_reply(b"", "text/html", 404), failing_reply(httpx.ReadTimeout)):
        service.replies = [reply]
        with pytest.raises(MobileSamError):
            client.info()
