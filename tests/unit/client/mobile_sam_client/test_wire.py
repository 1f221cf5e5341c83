"""Requests on their way: pieces, time limits, and httpx's errors in plain words."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from mobile_sam_client import AsyncClient, Client, NotThisService, ServiceTimeout, ServiceUnreachable
from mobile_sam_client._wire import PIECE, BlockingWire, run_blocking
from tests.unit.client.mobile_sam_client.fake_service import FILE, IMAGE, Chunks, answers, fails, says_json


@pytest.mark.parametrize("size", [1, PIECE, 3 * PIECE + 5], ids=["a byte", "a piece", "some pieces"])
def test_a_body_goes_in_pieces_with_its_length(kind, size):
    """Of each piece, and not of a whole upload, httpx measures the time."""
    pieces: list[bytes] = []

    class Blocking(httpx.BaseTransport):
        def handle_request(self, request):
            pieces.extend(request.stream)
            return self.check(request)

        def check(self, request):
            body = b"".join(pieces)
            assert request.headers["Content-Length"] == str(len(body))
            assert "Transfer-Encoding" not in request.headers
            assert request.headers["Content-Type"] == "application/json"
            return says_json(IMAGE)(request)

    class Async(Blocking, httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            pieces.extend([piece async for piece in request.stream])
            return self.check(request)

    async def ask() -> None:
        async with AsyncClient(transport=Async()) as client:
            await client.embed(bytes(size))

    if kind is Client:
        with Client(transport=Blocking()) as client:
            client.embed(bytes(size))
    else:
        asyncio.run(ask())
    assert max(map(len, pieces)) <= PIECE
    assert len(b"".join(pieces)) > size


@pytest.mark.parametrize(("timeout", "write"), [(2.5, 60), (90, 90)])
def test_the_time_limit_is_for_answers_and_not_for_uploads(make, service, timeout, write):
    service.says(says_json(IMAGE))
    make(service, timeout=timeout).embed(FILE)
    assert service.asked[0].timeout == {"connect": timeout, "read": timeout, "write": write, "pool": None}


@pytest.mark.parametrize(("size", "more"), [(300_000, 3), (4_000_000, 32)])
def test_the_end_of_a_large_upload_may_take_its_time(make, service, size, more):
    service.says(says_json(IMAGE))
    make(service, timeout=2.5).embed(bytes(size))
    assert service.asked[0].timeout["read"] == 2.5 + more


@pytest.mark.parametrize(
    ("error", "seconds"), [(httpx.ReadTimeout, 2.5), (httpx.ConnectTimeout, 2.5), (httpx.WriteTimeout, 60)]
)
def test_an_answer_that_does_not_come_is_not_asked_for_again(make, service, waits, error, seconds):
    service.says(fails(error))
    expected = rf"^no answer from http://127\.0\.0\.1:3000/embed within {seconds} s"
    with pytest.raises(ServiceTimeout, match=expected):
        make(service, timeout=2.5).embed(FILE)
    assert len(service.asked) == 1
    assert not waits


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ReadError("reset"), ServiceUnreachable),
        (httpx.RemoteProtocolError("peer closed connection without sending complete message body"), ServiceUnreachable),
        (httpx.ReadTimeout("slow"), ServiceTimeout),
        (httpx.DecodingError("no gzip"), NotThisService),
    ],
    ids=["lost", "too short", "silent", "damaged"],
)
@pytest.mark.parametrize("call", ["embed", "everything"])
def test_an_answer_that_breaks_off_is_told_plainly(client, service, error, expected, call):
    service.says(lambda _: httpx.Response(200, stream=Chunks([b'{"done":', error])))
    with pytest.raises(expected):
        getattr(client, call)(FILE)
    assert len(service.asked) == 1


def test_what_does_not_speak_http_is_told_as_such(client, service):
    service.says(fails(httpx.RemoteProtocolError, "illegal status line: bytearray(b'SSH-2.0')"))
    with pytest.raises(NotThisService, match="illegal status line"):
        client.embed(FILE)


def test_a_call_that_waits_for_a_loop_cannot_be_run_without_one():
    with pytest.raises(RuntimeError, match="has suspended"):
        run_blocking(asyncio.sleep(0))


def test_the_blocking_wire_hands_on_chunks_to_the_end():
    async def read(wire: BlockingWire) -> list[bytes]:
        answer = await wire.send("GET", "/info", None)
        return [await answer.chunk() for _ in range(4)]

    def handler(request: httpx.Request) -> httpx.Response:
        assert "Content-Length" not in request.headers
        return httpx.Response(200, stream=Chunks([b"one", b"two"]))

    with httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(handler)) as http:
        assert run_blocking(read(BlockingWire(http))) == [b"one", b"two", b"", b""]


def test_an_answer_in_an_unknown_type_is_shown_in_one_line(client, service):
    service.says(answers(b"<h1>Bad\tGateway</h1>\n<hr>\n", "text/html", 502))
    expected = (
        "is not this service: expected 200 or application/problem+json, got 502 with text/html: <h1>Bad Gateway</h1>"
    )
    with pytest.raises(NotThisService) as raised:
        client.embed(FILE)
    assert str(raised.value).endswith(expected)
