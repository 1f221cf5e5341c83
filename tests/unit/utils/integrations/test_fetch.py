"""Fetches from other servers: what is allowed, and the limits. The servers listen on 127.0.0.1."""

import asyncio
import gzip
import ipaddress
import itertools
import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from yarl import URL

from utils.errors import ImageNotFetched
from utils.integrations import fetch
from utils.integrations.fetch import MAX_FETCHES, Fetcher

FILE = b"a file"


class Names(AbstractResolver):
    """Resolver with a list of answers for any name; the last one stays."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    async def resolve(self, host, port=0, family=socket.AF_INET):
        self.asked.append(host)
        address = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [
            {
                "hostname": host,
                "host": address,
                "port": port,
                "family": socket.AF_INET,
                "proto": 0,
                "flags": 0,
            }
        ]

    async def close(self):
        pass


class Site:
    """A server, and the requests that it got."""

    def __init__(self):
        self.requests, self.port = [], 0

    async def answer(self, request):
        self.requests.append(request)
        page = request.path
        if page == "/redirect":
            target = request.query.get("to", "/redirect").replace("PORT", str(self.port))
            return web.Response(status=302, headers={"Location": target})
        if page.startswith("/hops/") and (left := int(page[6:])):
            return web.Response(status=302, headers={"Location": f"/hops/{left - 1}"})
        if page == "/gzip":
            return web.Response(
                body=gzip.compress(bytes(10**6)), headers={"Content-Encoding": "gzip"}
            )
        if page == "/missing":
            return web.Response(status=404)
        if page in ("/slow", "/endless"):
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in itertools.count() if page == "/endless" else range(100):
                await response.write(bytes(1000))
                await asyncio.sleep(0.05 if page == "/slow" else 0)
            return response
        return web.Response(body=bytes(2000) if page == "/large" else FILE)


def fetched(
    url,
    allowed=("http://localhost:PORT",),
    resolver=None,
    headers=lambda _: {},
    *,
    own=None,
    times=1,
    limit=1000,
):
    """Return the last body fetched, and the server's requests."""
    site = Site()

    async def run():
        runner = web.ServerRunner(web.Server(site.answer), shutdown_timeout=0.1)
        await runner.setup()
        listener = web.TCPSite(runner, "127.0.0.1", 0)
        await listener.start()
        site.port = runner.addresses[0][1]
        named = [text.replace("PORT", str(site.port)) for text in (url, own or "", *allowed)]
        fetcher = Fetcher(named[2:], limit, URL(named[1]) if own else None, resolver)
        try:
            return [await fetcher.fetch(named[0], headers) for _ in range(times)][-1]
        finally:
            await runner.cleanup()

    return asyncio.run(run()), site.requests


def test_file_of_a_listed_origin_is_fetched():
    body, (request,) = fetched("http://localhost:PORT/one.jpg?a=1")
    assert (body, request.path_qs, request.headers["Accept-Encoding"]) == (
        FILE,
        "/one.jpg?a=1",
        "identity",
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:1/one.jpg",
        "https://localhost:PORT/one.jpg",
        "http://127.0.0.1:PORT/one.jpg",
        "http://localhost:PORT@evil.example/one.jpg",
        "http://user:password@localhost:PORT/one.jpg",
        "http://localhost:PORT.evil.example/",
        "file:///etc/passwd",
        "http://[::1",
        pytest.param("http://localhost:PORT/one.jpg#" + "a" * 8192, id="long"),
        "",
    ],
)
def test_other_url_is_refused(url):
    with pytest.raises(ImageNotFetched):
        fetched(url)


def test_name_must_have_a_public_address_or_one_of_a_listed_network():
    resolver = Names("127.0.0.1")
    allowed = ["http://images.example:PORT"]
    with pytest.raises(ImageNotFetched, match="private address"):
        fetched("http://images.example:PORT/", allowed, resolver)
    assert fetched("http://images.example:PORT/", [*allowed, "127.0.0.0/8"], resolver)[0] == FILE


def test_own_server_may_have_a_private_address():
    resolver = Names("127.0.0.1")
    assert (
        fetched("http://labels.example:PORT/", [], resolver, own="http://labels.example:PORT")[0]
        == FILE
    )


def test_connection_goes_to_the_address_that_was_checked():
    resolver = Names("127.0.0.1", "169.254.169.254")
    body, _ = fetched(
        "http://images.example:PORT/", ["http://images.example:PORT", "127.0.0.0/8"], resolver
    )
    assert (body, resolver.asked) == (FILE, ["images.example"])
    resolver = Names("127.0.0.1", "10.0.0.1")
    with pytest.raises(ImageNotFetched, match="private address"):
        fetched(
            "http://images.example:PORT/",
            ["http://images.example:PORT", "127.0.0.0/8"],
            resolver,
            times=2,
        )


PUBLIC = "93.184.215.14 64:ff9b::5db8:d70e"
LISTED = "10.20.3.4 ::ffff:10.20.3.4 64:ff9b::a14:304"
PRIVATE = (
    "10.21.3.4 127.0.0.1 100.64.0.1 ::1 fd00::1 64:ff9b::7f00:1 64:ff9b:1::7f00:1 2002:7f00:1::"
)
RESERVED = (
    "169.254.169.254 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 64:ff9b:1:a9fe:a9:fe00::"
    " 255.255.255.255"
)


@pytest.mark.parametrize("address", f"{PUBLIC} {LISTED} {PRIVATE} {RESERVED}".split())
def test_addresses_of_a_public_name(address):
    fetcher = Fetcher(["https://images.example", "10.20.0.0/16"], 1000)
    allowed = address in f"{PUBLIC} {LISTED}".split()
    assert fetcher.allows("images.example", ipaddress.ip_address(address)) is allowed


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1"])
def test_address_of_the_link_is_never_allowed(address):
    fetcher = Fetcher(["http://metadata", "0.0.0.0/0", "::/0"], 1000, URL("http://metadata"))
    assert not fetcher.allows("metadata", ipaddress.ip_address(address))


def test_listed_address_of_the_link_is_refused():
    with pytest.raises(ImageNotFetched, match="reserved"):
        fetched("http://169.254.169.254/latest", ["http://169.254.169.254"])


def test_redirect_to_a_listed_origin_is_followed_without_the_headers_of_the_first():
    def headers(url):
        return {"Authorization": "Token secret"} if url.host == "localhost" else {}

    allowed = ["http://localhost:PORT", "http://127.0.0.1:PORT"]
    assert fetched("http://localhost:PORT/hops/3")[0] == FILE
    body, (first, second) = fetched(
        "http://localhost:PORT/redirect?to=http://127.0.0.1:PORT/one.jpg", allowed, None, headers
    )
    assert body == FILE
    assert (first.headers.get("Authorization"), second.headers.get("Authorization")) == (
        "Token secret",
        None,
    )


@pytest.mark.parametrize(
    ("to", "text"),
    [
        ("http://127.0.0.1:PORT/one.jpg", "are not fetched"),
        ("file:///etc/passwd", "expected an http or https URL"),
        ("/hops/3", "has more than 3 redirects"),
    ],
)
def test_other_redirect_is_refused(to, text):
    with pytest.raises(ImageNotFetched, match=text):
        fetched(f"http://localhost:PORT/redirect?to={to}")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("large", "larger than 1000 bytes"),
        ("endless", "larger than 1000 bytes"),
        ("gzip", "compressed"),
        ("missing?signature=secret", "missing' was answered with status 404"),
        ("slow", "did not arrive within"),
    ],
)
def test_answer_beyond_a_limit_is_an_error(page, text, monkeypatch):
    # A short time for the others might pass before their answer does.
    monkeypatch.setattr(fetch, "FETCH_TIMEOUT_S", 0.5 if page == "slow" else 60)
    with pytest.raises(ImageNotFetched, match=text) as error:
        fetched(f"http://localhost:PORT/{page}", limit=10**9 if page == "slow" else 1000)
    assert "secret" not in str(error.value)


def test_server_that_is_away_is_named():
    with pytest.raises(
        ImageNotFetched, match=r"could not fetch 'http://localhost:1/a\.jpg'.*is its server running"
    ):
        fetched("http://localhost:1/a.jpg", ["http://localhost:1"])


async def test_newcomer_finds_room_beside_callers_that_fetch_all_they_can():
    fetcher, lost = Fetcher([], 1000), list[str]()
    fetcher._files.take("a", 3 * MAX_FETCHES // 4, lambda: lost.append("a"))
    fetcher._files.take("b", MAX_FETCHES // 4, lambda: lost.append("b"))
    # It has a place, and is refused for its URL.
    with pytest.raises(ImageNotFetched, match="are not fetched"):
        await fetcher.fetch("http://images.example/")
    assert lost == ["a"]
    assert fetcher._files.held == {"b": MAX_FETCHES // 4}
