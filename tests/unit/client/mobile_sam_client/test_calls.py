"""Image ids, retries, streamed answers and concurrency."""

import asyncio
import logging
from typing import Any

import httpx
import numpy as np
import pytest

from mobile_sam_client import (
    AsyncClient,
    Problem,
    Prompt,
    ServiceUnreachable,
    TooManyRequests,
    Unavailable,
    _image_ids,
    _wire,
)
from mobile_sam_client._wire import run_blocking
from tests.unit.client.mobile_sam_client import fake_service as fake
from tests.unit.client.mobile_sam_client.fake_service import FILE, lines_reply, problem_reply

CLICK: dict[str, Any] = {"pos_coords": [[1, 2]]}


def test_image_is_uploaded_once_and_then_sent_as_id(client, service, tmp_path):
    path = tmp_path / "photo.png"
    path.write_bytes(FILE)
    client.embed(path)
    client.segment(str(path), **CLICK)
    client.everything(FILE)
    service.reply_with(fake.segment_reply(image_id="another"))
    for _ in range(2):
        client.segment(b"another file", **CLICK)
    assert service.images == [FILE, "the id", "the id", b"another file", "another"]


def test_ids_of_embeddings_are_shared_between_clients_and_those_of_files_are_not(
    client, service, make
):
    embedding = client.embed(FILE)
    another = make(service, api_key="another-key")
    for one, image in ((client, embedding), (another, embedding), (client, FILE), (another, FILE)):
        one.segment(image, **CLICK)
    assert service.images == [FILE, *["the id"] * 3, FILE]


def test_least_recently_used_image_id_is_dropped(client, service, monkeypatch):
    monkeypatch.setattr(_image_ids, "MAX_KNOWN_IMAGES", 2)
    for image in (b"a", b"b", b"a", b"c", b"a", b"b"):
        client.embed(image)
    assert service.images == [b"a", b"b", "the id", b"c", "the id", b"b"]


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_uncached_image_is_uploaded_again(client, service, call):
    embedding = client.embed(FILE)
    for image in (FILE, embedding):
        service.replies = [problem_reply(404, "image-not-cached"), fake.default_reply]
        getattr(client, call)(image)
    assert service.images == [FILE, *["the id", FILE] * 2]


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_header_sets_the_wait_up_to_the_maximum(client, service, waits, status):
    busy = (problem_reply(status, Retry_After=value) for value in ("0", "7", "3600"))
    service.reply_with(*busy, fake.segment_reply())
    client.segment(FILE, **CLICK)
    assert waits == [0, 7, 30]
    assert len({request.content for request in service.requests}) == 1


@pytest.mark.parametrize(("status", "error"), [(429, TooManyRequests), (503, Unavailable)])
def test_retries_are_limited(make, service, waits, status, error):
    service.reply_with(problem_reply(status, detail="32 requests wait already", Retry_After="1"))
    with pytest.raises(error, match="32 requests wait already") as raised:
        make(service, retries=2).embed(FILE)
    assert raised.value.retry_after == 1
    assert (waits, len(service.requests)) == ([1, 1], 3)


@pytest.mark.parametrize("status", [400, 404, 500, 504])
def test_other_statuses_are_not_retried(client, service, waits, status):
    service.reply_with(problem_reply(status, Retry_After="1"))
    with pytest.raises(Problem):
        client.embed(FILE)
    assert (waits, len(service.requests)) == ([], 1)


@pytest.mark.parametrize(
    "failure",
    [
        fake.failing_reply(httpx.ConnectError, "Connection refused"),
        fake.failing_reply(
            httpx.RemoteProtocolError, "Server disconnected without sending a response."
        ),
        fake.make_reply(b"<h1>Service Unavailable</h1>", "text/html", 503),
    ],
    ids=["refused", "closed", "busy proxy"],
)
def test_failure_before_the_response_is_retried(client, service, waits, failure):
    service.reply_with(failure, fake.json_reply(fake.IMAGE))
    client.embed(FILE)
    assert len(waits) == 1


def test_connection_lost_during_the_response_is_not_retried(client, service, waits):
    service.reply_with(lines_reply({"done": 0, "total": 2}))
    with pytest.raises(ServiceUnreachable, match="ended before the result"):
        client.everything(FILE)
    assert (waits, len(service.requests)) == ([], 1)


def test_problem_in_streamed_answer_is_raised_with_request_id(client, service, waits):
    problem = {
        "type": "urn:mobile-sam:overloaded",
        "title": "No",
        "status": 503,
        "detail": "too much",
    }
    service.reply_with(lines_reply({"done": 0, "total": 2}, {"problem": problem}))
    steps = []
    with pytest.raises(Unavailable, match=r"^503 overloaded: too much \(request the-request\)$"):
        client.everything(FILE, on_progress=lambda *step: steps.append(step))
    assert (steps, waits) == ([(0, 2)], [])


def test_lines_do_not_depend_on_chunk_size():
    text = 'one\n\n{"a": "\u2028 \x85"}\nthree\n'.encode()

    async def lines(size: int) -> list[bytes]:
        chunks = fake.Chunks(text[at : at + size] for at in range(0, len(text), size))
        return [line async for line in _wire.lines_of(chunks)]

    for size in range(1, len(text) + 1):
        assert run_blocking(lines(size)) == [b"one", '{"a": "\u2028 \x85"}'.encode(), b"three"]


def test_error_in_callback_closes_the_response(client, service):
    body = fake.Chunks([fake.lines({"done": 0, "total": 2}, fake.final_line())])

    def on_progress(done, total):
        raise KeyError("callback failed")

    service.reply_with(lambda _: httpx.Response(200, stream=body))
    with pytest.raises(KeyError, match="callback failed"):
        client.everything(FILE, on_progress=on_progress)
    assert body.closed


def test_retries_are_logged_without_the_key(make, service, caplog):
    caplog.set_level(logging.DEBUG)
    service.reply_with(
        problem_reply(503, "overloaded", "busy", Retry_After="1"), fake.json_reply(fake.IMAGE)
    )
    make(service, api_key="the-secret-key").embed(FILE)
    messages = [
        record.getMessage() for record in caplog.records if record.name == "mobile_sam_client"
    ]
    assert messages == ["retrying in 1.0 s (1 of 5): 503 overloaded: busy (request the-request)"]
    assert "the-secret-key" not in caplog.text


def test_async_calls_run_concurrently():
    files = [b"one", b"two", b"three"]
    started: list[httpx.Request] = []
    all_started = asyncio.Event()

    async def handler(request: httpx.Request) -> httpx.Response:
        started.append(request)
        if len(started) == len(files):
            all_started.set()
        await all_started.wait()  # would hang if the requests were sequential
        return fake.default_reply(request)

    async def ask() -> None:
        async with AsyncClient(transport=httpx.MockTransport(handler)) as client:
            found = await asyncio.gather(*(client.segment(file, **CLICK) for file in files))
            assert [segmentation.area for segmentation in found] == [3, 3, 3]

    asyncio.run(ask())


REGION = [0, 0, 4, 4]


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_region_is_sent_and_results_have_the_rounded_one(client, service, call):
    result = {**fake.IMAGE, "region": REGION}
    everything = {"done": 1, "total": 1, "result": {**result, "masks": []}}
    answers = {"embed": fake.json_reply(result), "segment": fake.segment_reply(region=REGION)}
    service.replies = [answers.get(call) or lines_reply(everything), fake.default_reply]
    assert getattr(client, call)(FILE, region=np.array([0.5, 0, 3, 4])).region == (0, 0, 4, 4)
    assert service.fields[0]["region"] == [0.5, 0, 3, 4]
    assert getattr(client, call)(FILE).region is None
    assert "region" not in service.fields[1]


@pytest.mark.parametrize("call", ["embed", "segment", "everything"])
def test_results_have_the_orientation_and_the_range_of_the_answer(client, service, call):
    deep: dict[str, Any] = {"orientation": 8, "range": [120, 4095]}
    result = {**fake.IMAGE, **deep}
    everything = {"done": 1, "total": 1, "result": {**result, "masks": []}}
    answers = {"embed": fake.json_reply(result), "segment": fake.segment_reply(**deep)}
    service.replies = [answers.get(call) or lines_reply(everything), fake.default_reply]
    found, plain = getattr(client, call)(FILE), getattr(client, call)(FILE)
    assert (found.orientation, found.sample_range) == (8, (120, 4095))
    assert (plain.orientation, plain.sample_range) == (1, None)


def test_orientation_is_none_from_a_service_that_does_not_name_it(client, service):
    service.replies = [
        fake.json_reply({name: fake.IMAGE[name] for name in fake.IMAGE if name != "orientation"})
    ]
    assert client.embed(FILE).orientation is None


def test_automatic_region_is_for_all_objects(client, service):
    service.replies = [
        fake.segment_reply([fake.mask_result(0), fake.mask_result(1)], region=REGION)
    ]
    found = client.segment_many(FILE, [Prompt(box=[0, 0, 3, 3])] * 2, region="auto")
    assert service.fields[0]["region"] == "auto"
    assert [each.region for each in found] == [(0, 0, 4, 4)] * 2


@pytest.mark.parametrize("region", [[1, 2, 3], "Auto", [0, 0, float("nan"), 1]])
def test_unusable_region_is_rejected_before_sending(client, service, region):
    with pytest.raises(ValueError, match=r"^region: expected .*"):
        client.segment(FILE, **CLICK, region=region)
    assert not service.requests
