"""Arguments of a client; chunked uploads, timeouts and translated errors."""

import asyncio

import httpx
import pytest

from mobile_sam_client import AsyncClient, NotThisService, ServiceTimeout, ServiceUnreachable
from mobile_sam_client._wire import CHUNK_BYTES, run_blocking
from tests.unit.client.mobile_sam_client.fake_service import (
    FILE,
    IMAGE,
    Chunks,
    failing_reply,
    json_reply,
    problem_reply,
)

KEY = "a-key-of-16-characters"


@pytest.mark.parametrize(
    ("given", "variable", "sent"),
    [(KEY, "other", KEY), (f" {KEY}\n", "", KEY), (None, KEY, KEY), ("", KEY, None), (None, "", None)],
    ids=["argument", "surrounding whitespace", "variable", "empty argument", "empty variable"],
)
def test_key_at_creation_is_sent_as_bearer_token(*, make, service, monkeypatch, tmp_path, given, variable, sent):
    (tmp_path / "netrc").write_text("default login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("MOBILE_SAM_API_KEY", variable)
    client = make(service, api_key=given)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", "too late")
    client.info()
    assert service.requests[0].headers.get("Authorization") == (sent and f"Bearer {sent}")


@pytest.mark.parametrize("key", ["geheimer-schlüssel", "two\nlines-of-a-key"], ids=["not ASCII", "two lines"])
def test_invalid_key_is_rejected_without_showing_it(make, service, monkeypatch, key):
    with pytest.raises(ValueError, match=r"^api_key: expected printable ASCII$"):
        make(service, api_key=key)
    monkeypatch.setenv("MOBILE_SAM_API_KEY", key)
    with pytest.raises(ValueError, match=r"^MOBILE_SAM_API_KEY: expected printable ASCII$"):
        make(service)


def test_errors_do_not_contain_the_key(make, service):
    service.reply_with(problem_reply(401, "unauthorized", "expected an API key"))
    with pytest.raises(Exception, match="expected an API key") as raised:
        make(service, api_key=KEY).info()
    assert KEY not in f"{raised.value!r} {raised.value} {vars(raised.value)}"


URL_EXPECTED = r"^url: expected a URL such as http://127\.0\.0\.1:3000, "


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *[
            ({"url": url}, URL_EXPECTED)
            for url in ("localhost:3000", "ftp://a.example", "http://", "http://a.example/?x=1", "http://a:b:c", "")
        ],
        *[({"url": f"http://a.example:{port}"}, f"url: expected a port .*, got {port}") for port in (0, 65_536)],
        *[({"timeout": value}, "timeout: expected a positive, finite") for value in (0, float("nan"), None, "5")],
        *[({"retries": value}, f"retries: expected an integer .*, got {value}") for value in (-1, 1.5, None)],
        *[
            ({"model_version": value}, "model_version: expected an integer of at least 1, or None")
            for value in (0, "2")
        ],
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
    assert kind("http://a.example").url == "http://a.example"
    monkeypatch.setenv("MOBILE_SAM_URL", "sam.example.org")
    with pytest.raises(ValueError, match=r"^MOBILE_SAM_URL: expected a URL such as .*, got 'sam\.example\.org'$"):
        kind()


def test_headers_are_sent_beside_the_key(make, service):
    make(service, api_key=KEY, headers={"X-Gateway": "a", "authorization": "Basic replaced"}).info()
    headers = service.requests[0].headers
    assert (headers["X-Gateway"], headers["Authorization"]) == ("a", f"Bearer {KEY}")


def test_verify_and_proxy_are_passed_to_httpx(kind, monkeypatch):
    given = {}
    http = httpx.AsyncClient if kind is AsyncClient else httpx.Client
    create = http.__init__
    monkeypatch.setattr(http, "__init__", lambda self, **named: given.update(named) or create(self, **named))
    kind(verify=False, proxy="http://127.0.0.1:3128")
    assert (given["verify"], given["proxy"]) == (False, "http://127.0.0.1:3128")


def test_url_may_have_a_path(make, service):
    client = make(service, url="http://127.0.0.1:3000/sam/")
    client.info()
    assert service.requests[0].path == "/sam/info"
    assert client.url == "http://127.0.0.1:3000/sam"


def test_repr_shows_only_the_url(make, service, kind):
    client = make(service, api_key="the-secret-key")
    shown = repr(client.client if kind is AsyncClient else client)
    assert shown == f"{kind.__name__}('http://127.0.0.1:3000')"


def test_closed_client_sends_no_requests(make, service, kind):
    client = make(service)
    client.embed(FILE)
    client.aclose() if kind is AsyncClient else client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.embed(FILE)
    assert len(service.requests) == 1


@pytest.mark.parametrize("size", [1, CHUNK_BYTES, 3 * CHUNK_BYTES + 5], ids=["one byte", "one chunk", "several chunks"])
def test_body_is_sent_in_chunks_with_content_length(kind, size):
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
            return json_reply(IMAGE)(request)

    embedding = kind(transport=Transport()).embed(bytes(size))
    if kind is AsyncClient:
        asyncio.run(embedding)
    assert max(map(len, chunks)) <= CHUNK_BYTES
    assert len(b"".join(chunks)) > size


@pytest.mark.parametrize(
    ("timeout", "size", "read", "write"),
    [(2.5, 1, 2.5, 60), (90, 1, 90, 90), (2.5, 300_000, 5.5, 60), (2.5, 4_000_000, 34.5, 60)],
    ids=["short", "long", "small upload", "large upload"],
)
def test_timeout_does_not_limit_uploads(*, make, service, timeout, size, read, write):
    make(service, timeout=timeout).embed(bytes(size))
    assert service.requests[0].timeout == {"connect": timeout, "read": read, "write": write, "pool": None}


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
