"""HTTP: chunked uploads, timeouts and translated errors."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from mobile_sam_client import AsyncClient, Client, NotThisService, ServiceTimeout, ServiceUnreachable
from mobile_sam_client._wire import CHUNK_BYTES, BlockingWire, run_blocking
from tests.unit.client.mobile_sam_client.fake_service import FILE, IMAGE, Chunks, failing_reply, json_reply, make_reply


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5], ids=["one byte", "one chunk", "several chunks"])
def test_body_is_sent_in_chunks_with_content_length(kind, size):
    """httpx applies its write timeout to each chunk."""
    chunks: list[bytes] = []

    class Blocking(httpx.BaseTransport):
        def handle_request(self, request):
            chunks.extend(request.stream)
            return self.check(request)

        def check(self, request):
            body = b"".join(chunks)
            assert request.headers["Content-Length"] == str(len(body))
            assert "Transfer-Encoding" not in request.headers
            assert request.headers["Content-Type"] == "application/json"
            return json_reply(IMAGE)(request)

    class Async(Blocking, httpx.AsyncBaseTransport):
        async def handle_async_request(self, request):
            chunks.extend([chunk async for chunk in request.stream])
            return self.check(request)

    async def ask() -> None:
        async with AsyncClient(transport=Async()) as client:
            await client.embed(bytes(size))

    if kind is Client:
        with Client(transport=Blocking()) as client:
            client.embed(bytes(size))
    else:
        asyncio.run(ask())
    assert max(map(len, chunks)) <= CHUNK_BYTES
    assert len(b"".join(chunks)) > size


@pytest.mark.parametrize(("timeout", "write"), [(2.5, 60), (90, 90)])
def test_timeout_does_not_limit_uploads(make, service, timeout, write):
    service.reply_with(json_reply(IMAGE))
    make(service, timeout=timeout).embed(FILE)
    assert service.requests[0].timeout == {"connect": timeout, "read": timeout, "write": write, "pool": None}


@pytest.mark.parametrize(("size", "extra_s"), [(300_000, 3), (4_000_000, 32)])
def test_read_timeout_grows_with_the_upload(make, service, size, extra_s):
    service.reply_with(json_reply(IMAGE))
    make(service, timeout=2.5).embed(bytes(size))
    assert service.requests[0].timeout["read"] == 2.5 + extra_s


@pytest.mark.parametrize(
    ("error", "seconds"), [(httpx.ReadTimeout, 2.5), (httpx.ConnectTimeout, 2.5), (httpx.WriteTimeout, 60)]
)
def test_timeout_is_not_retried(make, service, waits, error, seconds):
    service.reply_with(failing_reply(error))
    expected = rf"^no answer from http://127\.0\.0\.1:3000/embed within {seconds} s"
    with pytest.raises(ServiceTimeout, match=expected):
        make(service, timeout=2.5).embed(FILE)
    assert len(service.requests) == 1
    assert not waits


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ReadError("reset"), ServiceUnreachable),
        (httpx.RemoteProtocolError("peer closed connection without sending complete message body"), ServiceUnreachable),
        (httpx.ReadTimeout("slow"), ServiceTimeout),
        (httpx.DecodingError("no gzip"), NotThisService),
    ],
    ids=["lost", "truncated", "timeout", "malformed"],
)
@pytest.mark.parametrize("call", ["embed", "everything"])
def test_error_during_the_response_is_translated(client, service, error, expected, call):
    service.reply_with(lambda _: httpx.Response(200, stream=Chunks([b'{"done":', error])))
    with pytest.raises(expected):
        getattr(client, call)(FILE)
    assert len(service.requests) == 1


def test_non_http_server_is_reported(client, service):
    service.reply_with(failing_reply(httpx.RemoteProtocolError, "illegal status line: bytearray(b'SSH-2.0')"))
    with pytest.raises(NotThisService, match="illegal status line"):
        client.embed(FILE)


def test_run_blocking_rejects_suspension():
    with pytest.raises(RuntimeError, match="was suspended"):
        run_blocking(asyncio.sleep(0))


def test_blocking_wire_returns_chunks_up_to_the_end():
    async def read(wire: BlockingWire) -> list[bytes]:
        response = await wire.send("GET", "/info", None)
        return [await response.chunk() for _ in range(4)]

    def handler(request: httpx.Request) -> httpx.Response:
        assert "Content-Length" not in request.headers
        return httpx.Response(200, stream=Chunks([b"one", b"two"]))

    with httpx.Client(base_url="http://127.0.0.1", transport=httpx.MockTransport(handler)) as http:
        assert run_blocking(read(BlockingWire(http))) == [b"one", b"two", b"", b""]


def test_unknown_content_type_is_quoted_in_one_line(client, service):
    service.reply_with(make_reply(b"<h1>Bad\tGateway</h1>\n<hr>\n", "text/html", 502))
    expected = "expected 200 or application/problem+json, got 502 with text/html: <h1>Bad Gateway</h1>"
    with pytest.raises(NotThisService) as raised:
        client.embed(FILE)
    assert str(raised.value).endswith(expected)
