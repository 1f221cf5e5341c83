"""Images that are sent once, forgotten and sent again; a service that is busy."""

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
    answers,
    client_of,
    fails,
    last,
    lines,
    png,
    refuses,
    says_json,
    says_lines,
    segments,
)

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}
FORGOTTEN = refuses(404, "image-not-cached", "no such image")


def test_an_image_is_sent_with_the_first_call_and_named_by_its_id_from_then_on(client, service, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(FILE)
    service.says(says_json(IMAGE), segments(), says_lines(last()), segments(image_id="another"))
    client.embed(path)
    client.segment(str(path), **CLICK)
    client.everything(FILE)
    client.segment(b"another file", **CLICK)
    service.says(segments())
    client.segment(b"another file", **CLICK)
    assert service.images == [FILE, "the id", "the id", b"another file", "another"]


def test_an_embedding_is_named_by_its_id(client, service, make):
    service.says(says_json(IMAGE), segments())
    embedding = client.embed(FILE)
    client.segment(embedding, **CLICK)
    make(service).segment(embedding, **CLICK)
    assert service.images == [FILE, "the id", "the id"]


def test_another_client_does_not_know_the_ids_of_this_one(client, service, make):
    service.says(segments())
    client.segment(FILE, **CLICK)
    make(service, api_key="another-key").segment(FILE, **CLICK)
    assert service.images == [FILE, FILE]


@pytest.mark.parametrize("call", ["segment", "segment by embedding", "embed", "everything"])
def test_an_image_that_the_service_has_forgotten_is_sent_again(client, service, call):
    service.says(says_json(IMAGE))
    embedding = client.embed(FILE)
    service.replies = [FORGOTTEN]
    if call == "embed":
        service.says(says_json(IMAGE))
        client.embed(FILE)
    elif call == "everything":
        service.says(says_lines(last()))
        client.everything(FILE)
    else:
        service.says(segments())
        client.segment(embedding if call == "segment by embedding" else FILE, **CLICK)
    assert service.images == [FILE, "the id", FILE]


def test_an_image_that_is_forgotten_on_the_way_is_sent_again(client, service):
    service.says(says_json(IMAGE))
    embedding = client.embed(FILE)
    problem = {"type": "urn:mobile-sam:image-not-cached", "title": "No", "status": 404, "detail": "forgotten"}
    service.replies = [says_lines({"done": 0, "total": 2}, {"problem": problem}), says_lines(last(2))]
    assert len(client.everything(embedding).masks) == 1
    assert service.images == [FILE, "the id", FILE]


def test_an_image_is_sent_again_once_and_not_for_ever(client, service):
    service.says(says_json(IMAGE))
    client.embed(FILE)
    service.replies = [FORGOTTEN]
    with pytest.raises(ImageNotCached, match="no such image"):
        client.segment(FILE, **CLICK)
    assert service.images == [FILE, "the id", FILE]


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_service_is_asked_again_when_it_says(client, service, waits, status):
    service.says(refuses(status, Retry_After="2"), refuses(status, Retry_After="7"), segments())
    client.segment(FILE, **CLICK)
    assert waits == [2, 7]
    assert len({asked.body for asked in service.asked}) == 1
    assert len(service.asked) == 3


def test_a_busy_service_that_does_not_say_is_asked_after_longer_and_longer_waits(client, service, waits):
    service.says(*[refuses(503)] * 5, says_json(INFO))
    client.info()
    assert all(0.1 * 2**number <= wait <= 0.2 * 2**number for number, wait in enumerate(waits))
    assert len(waits) == 5


@pytest.mark.parametrize(("status", "error"), [(429, TooManyRequests), (503, Unavailable)])
def test_a_service_that_stays_busy_is_left_in_the_end(make, service, waits, status, error):
    service.says(refuses(status, detail="32 requests wait already", Retry_After="1"))
    with pytest.raises(error, match="32 requests wait already") as raised:
        make(service, retries=2).embed(FILE)
    assert raised.value.retry_after == 1
    assert waits == [1, 1]
    assert len(service.asked) == 3


def test_without_retries_nothing_is_tried_again(make, service, waits):
    service.says(refuses(503, Retry_After="1"))
    with pytest.raises(Unavailable):
        make(service, retries=0).info()
    assert len(service.asked) == 1
    assert not waits


@pytest.mark.parametrize("status", [400, 401, 404, 408, 413, 415, 422, 500, 504])
def test_other_refusals_are_not_tried_again(client, service, waits, status):
    service.says(refuses(status, Retry_After="1"))
    with pytest.raises(Problem):
        client.embed(FILE)
    assert len(service.asked) == 1
    assert not waits


def test_a_proxy_that_is_busy_is_asked_again_too(client, service, waits):
    service.says(answers(b"<h1>Service Unavailable</h1>", "text/html", 503), says_json(IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


@pytest.mark.parametrize(
    "failure",
    [
        fails(httpx.ConnectError, "Connection refused"),
        fails(httpx.ReadError),
        fails(httpx.WriteError),
        fails(httpx.RemoteProtocolError, "Server disconnected without sending a response."),
    ],
    ids=["refused", "lost while reading", "lost while writing", "closed"],
)
def test_a_connection_that_is_lost_before_an_answer_is_made_again(client, service, waits, failure):
    service.says(failure, says_json(IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


def test_where_nothing_answers_the_error_says_where_and_what_to_do(client, service, waits):
    service.says(fails(httpx.ConnectError, "Connection refused"))
    expected = (
        r"^nothing answers at http://127\.0\.0\.1:3000 \(Connection refused\); start the service with `make serve`$"
    )
    with pytest.raises(ServiceUnreachable, match=expected):
        client.embed(FILE)
    assert len(waits) == 5


def test_a_connection_that_is_lost_during_the_answer_is_not_made_again(client, service, waits):
    service.says(says_lines({"done": 0, "total": 2}))
    with pytest.raises(ServiceUnreachable, match="ended before the result"):
        client.everything(FILE)
    assert len(service.asked) == 1
    assert not waits


def test_what_goes_wrong_on_the_way_is_raised_with_the_requests_id(client, service, waits):
    problem = {"type": "urn:mobile-sam:overloaded", "title": "No", "status": 503, "detail": "too much"}
    service.says(says_lines({"done": 0, "total": 2}, {"problem": problem}))
    steps = []
    with pytest.raises(Unavailable, match=r"^503 overloaded: too much \(request the-request\)$"):
        client.everything(FILE, on_progress=lambda *step: steps.append(step))
    assert steps == [(0, 2)]
    assert not waits


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_are_put_together_however_they_arrive(client, service, size):
    service.says(says_lines({"done": 0, "total": 2}, {"done": 1, "total": 2}, last(1, 2), size=size))
    steps = []
    everything = client.everything(FILE, on_progress=lambda *step: steps.append(step))
    assert steps == [(0, 2), (1, 2), (2, 2)]
    assert [record.area for record in everything.masks] == [1, 2]


def test_an_error_of_the_callers_own_ends_the_answer(client, service):
    body = Chunks([lines({"done": 0, "total": 2}, last())])

    def on_progress(done, total):
        raise KeyError("mine")

    service.says(lambda _: httpx.Response(200, stream=body))
    with pytest.raises(KeyError, match="mine"):
        client.everything(FILE, on_progress=on_progress)
    assert body.closed


@pytest.mark.parametrize(
    "reply",
    [
        answers(b"<html>", "text/html"),
        says_json([]),
        says_json({**IMAGE, "masks": []}),
        segments([{"object": 0, "score": 1}]),
        segments(picture=b"no picture"),
        segments(rles={"size": [5, 6], "counts": "0"}),
        segments(masks=[]),
    ],
    ids=["a page", "a list", "no multipart", "a mask without area", "no PNG", "a mask of another size", "no masks"],
)
def test_an_answer_of_something_else_is_told_as_such(client, service, reply):
    service.says(reply)
    with pytest.raises(NotThisService, match=r"^http://127\.0\.0\.1:3000 does not answer as this service does: "):
        client.segment(FILE, **CLICK)


@pytest.mark.parametrize(
    "reply", [answers(b"<html>\n", "text/html"), says_lines({"done": 1})], ids=["a page", "no total"]
)
def test_lines_of_something_else_are_told_as_such(client, service, reply):
    service.says(reply)
    with pytest.raises(NotThisService):
        client.everything(FILE)


def test_what_is_tried_again_is_logged_without_the_key(make, service, caplog):
    caplog.set_level(logging.DEBUG)
    service.says(refuses(503, "overloaded", "busy", Retry_After="1"), says_json(IMAGE))
    client = make(service, api_key="the-secret-key")
    client.embed(FILE)
    own = [record.getMessage() for record in caplog.records if record.name == "mobile_sam_client"]
    assert own == ["trying again in 1.0 s (1 of 5): 503 overloaded: busy (request the-request)"]
    assert service.asked[0].headers["Authorization"] == "Bearer the-secret-key"
    assert "the-secret-key" not in caplog.text


def test_many_threads_may_use_one_client(service):
    service.says(segments(picture=png()))
    files = [bytes([number]) for number in range(8)]
    with client_of(Client, service) as client, concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda number: client.segment(files[number % 8], **CLICK), range(80)))
    assert len(results) == 80
    sent = [image for image in service.images if image != "the id"]
    assert sorted(set(sent)) == files  # some of them twice, by two threads at once


def test_every_error_has_one_base(client, service):
    for reply in (refuses(401), answers(b"", "text/html", 404), fails(httpx.ReadTimeout)):
        service.replies = [reply]
        with pytest.raises(MobileSamError):
            client.info()
