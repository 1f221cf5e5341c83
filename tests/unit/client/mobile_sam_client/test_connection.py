"""Arguments of a client; chunked uploads, timeouts and translated errors."""

import asyncio

import httpx
import pytest

from mobile_sam_client import AsyncClient, NotThisService, ServiceTimeout, ServiceUnreachable
from mobile_sam_client._wire import CHUNK_BYTES
from tests.unit.client.mobile_sam_client import fake_service as fake

KEY = "a-key-of-16-characters"


@pytest.mark.parametrize(
    ("given", "variable", "sent"),
    [
        (KEY, "other", KEY),
        (f" {KEY}\n", "", KEY),
        (None, KEY, KEY),
        ("", KEY, None),
        (None, "", None),
    ],
)
def test_key_at_creation_is_sent_as_bearer_token(
    *, make, service, monkeypatch, tmp_path, given, variable, sent
):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("MOBILE_SAM_API_KEY", variable)
    client = make(service, api_key=given)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "too late")
    client.info()
    assert service.requests[0].headers.get("Authorization") == (sent and f"Bearer {sent}")


@pytest.mark.parametrize(
    "key", ["geheimer-schlüssel", "two\nlines-of-a-key"], ids=["not ASCII", "two lines"]
)
def test_invalid_key_is_rejected_without_showing_it(make, service, monkeypatch, key):
    with pytest.raises(ValueError, match=r"^api_key: expected printable ASCII$"):
        make(service, api_key=key)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    with pytest.raises(ValueError, match=r"^MOBILE_SAM_API_KEY: expected printable ASCII$"):
        make(service)


URL_EXPECTED = r"^url: expected a URL such as http://127\.0\.0\.1:3000, "


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *[
            ({"url": url}, URL_EXPECTED)
            for url in ("ftp://a.example", "http://a.example/?x=1", "http://a:b:c", "")
        ],
        ({"url": "http://a.example:65536"}, "url: expected a port .*, got 65536"),
        *[
            ({"timeout": value}, "timeout: expected a positive, finite")
            for value in (0, float("nan"), "5")
        ],
        *[
            ({"retries": value}, f"retries: expected an integer .*, got {value}")
            for value in (-1, 1.5)
        ],
        ({"model_version": 0}, "model_version: expected an integer of at least 1, or None"),
    ],
    ids=str,
)
def test_invalid_argument_is_rejected(make, service, settings, message):
    with pytest.raises(ValueError, match=message):
        make(service, **settings)


def test_url_with_password_is_rejected_without_showing_it(make, service):
    with pytest.raises(ValueError, match="pass API keys as api_key") as raised:
        make(service, url="http://me:secret@a.example")
    assert "secret" not in str(raised.value)


def test_url_is_read_from_environment_unless_given(kind, monkeypatch):
    assert kind().url == "http://127.0.0.1:3000"
    monkeypatch.setenv("MOBILE_SAM_URL", "https://sam.example.org/")
    assert kind().url == "https://sam.example.org"
    assert kind("a.example:3001").url == "http://a.example:3001"
    monkeypatch.setenv("MOBILE_SAM_URL", "ftp://sam.example.org")
    with pytest.raises(
        ValueError,
        match=r"^MOBILE_SAM_URL: expected a URL such as .*, got 'ftp://sam\.example\.org'$",
    ):
        kind()


def test_body_is_sent_in_chunks_with_content_length(kind):
    """httpx applies its write timeout to each chunk."""
    chunks: list[bytes] = []

    class Transport(httpx.BaseTransport, httpx.AsyncBaseTransport):
        def handle_request(self, request):
            chunks.extend(request.stream)
            return self.check(request)

        async def handle_async_request(self, request):
            chunks.extend([chunk async for chunk in request.stream])
            return self.check(request)

        def check(self, request):
            assert request.headers["Content-Length"] == str(sum(map(len, chunks)))
            assert "Transfer-Encoding" not in request.headers
            assert request.headers["Content-Type"] == "application/json"
            return fake.json_reply(fake.IMAGE)(request)

    embedding = kind(transport=Transport()).embed(bytes(3 * CHUNK_BYTES + 5))
    if kind is AsyncClient:
        asyncio.run(embedding)
    assert max(map(len, chunks)) <= CHUNK_BYTES
    assert len(chunks) > 3


@pytest.mark.parametrize(
    ("timeout", "size", "read", "write"),
    [(2.5, 1, 2.5, 60), (90, 1, 90, 90), (2.5, 4_000_000, 34.5, 60)],
    ids=["short", "long", "large upload"],
)
def test_timeout_does_not_limit_uploads(*, make, service, timeout, size, read, write):
    make(service, timeout=timeout).embed(bytes(size))
    assert service.requests[0].extensions["timeout"] == {
        "connect": min(timeout, 60),
        "read": read,
        "write": write,
        "pool": None,
    }


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ReadError("reset"), ServiceUnreachable),
        (
            httpx.RemoteProtocolError(
                "peer closed connection without sending complete message body"
            ),
            ServiceUnreachable,
        ),
        (httpx.ReadTimeout("slow"), ServiceTimeout),
        (httpx.RemoteProtocolError("illegal status line: bytearray(b'SSH-2.0')"), NotThisService),
    ],
    ids=["lost", "truncated", "timeout", "no HTTP"],
)
def test_error_during_the_response_is_translated(client, service, error, expected):
    service.reply_with(lambda _: httpx.Response(200, stream=fake.Chunks([b'{"done":', error])))
    for call in (client.embed, client.everything):
        with pytest.raises(expected):
            call(fake.FILE)
    assert len(service.requests) == 2
