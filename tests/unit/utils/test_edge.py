"""The ASGI edge around a stand-in application."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.responses import PlainTextResponse, Response

from utils.edge import Edge

LIMIT = 100


async def echo(scope, receive, send):
    """Answers with the body it got; /missing and /odd with errors of its own."""
    message = await receive()
    if scope["path"] == "/missing":
        await PlainTextResponse("Not Found", 404)(scope, receive, send)
    elif scope["path"] == "/odd":
        await Response(b"{}", 422, media_type="application/problem+json")(scope, receive, send)
    else:
        await Response(message["body"])(scope, receive, send)


def call(path="/", chunks=(b"",), method="POST", headers=(), leave=False):
    """Status, content type and body of the answer; None where there is none."""
    incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    incoming[-1]["more_body"] = leave
    incoming.append({"type": "http.disconnect"})
    sent = []

    async def receive():
        return incoming.pop(0)

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": list(headers)}
    edge = Edge(echo, LIMIT, {"/page": PlainTextResponse("a page")})
    asyncio.run(edge(scope, receive, send))
    if not sent:
        return None
    content_type = dict(sent[0]["headers"]).get(b"content-type", b"").decode()
    return sent[0]["status"], content_type, b"".join(message.get("body", b"") for message in sent[1:])


def test_a_body_in_chunks_arrives_whole():
    assert call("/echo", [b"a" * 40, b"b" * 40])[2] == b"a" * 40 + b"b" * 40


def test_a_body_of_exactly_the_limit_passes():
    assert call("/echo", [b"a" * LIMIT])[0] == 200


@pytest.mark.parametrize(
    ("chunks", "headers"),
    [
        pytest.param([b"a" * 50, b"a" * 51], (), id="in chunks without a length"),
        pytest.param([b""], [(b"content-length", b"101")], id="announced"),
        pytest.param([b"a" * 200], [(b"content-length", b"5")], id="longer than announced"),
    ],
)
def test_a_larger_body_is_refused(chunks, headers):
    status, content_type, body = call("/echo", chunks, headers=headers)
    assert (status, content_type) == (413, "application/problem+json")
    assert "at most 100 bytes" in json.loads(body)["detail"]


def test_a_caller_who_leaves_gets_no_answer():
    assert call("/echo", [b"half"], leave=True) is None


def test_foreign_errors_become_problems():
    status, content_type, body = call("/missing")
    assert (status, content_type) == (404, "application/problem+json")
    assert json.loads(body)["type"] == "urn:mobile-sam:not-found"
    assert "'/missing'" in json.loads(body)["detail"]


def test_problems_pass_as_they_are():
    assert call("/odd") == (422, "application/problem+json", b"{}")


def test_pages_answer_get_and_nothing_else():
    assert call("/page", method="GET")[2] == b"a page"
    assert call("/page", [b"body"], method="POST")[2] == b"body"
