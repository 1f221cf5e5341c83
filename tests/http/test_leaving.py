"""Cancellation of work through the whole application when callers disconnect."""

from __future__ import annotations

import asyncio
import json

import pytest


@pytest.mark.parametrize(
    ("path", "fields", "method"),
    [
        pytest.param("/mobile_sam", {"pos_coords": [[1, 2]]}, "segment", id="segment"),
        pytest.param("/embed", {}, "embed", id="embed"),
        pytest.param("/everything", {}, "records", id="everything"),
        pytest.param("/everything", {"progress": True}, "records", id="everything-lines"),
    ],
)
def test_work_is_cancelled_when_the_caller_disconnects(app, segmenter, monkeypatch, *, path, fields, method):
    body = json.dumps({"image_id": "an id", **fields}).encode()
    ended: list[str] = []
    sent: list[dict] = []

    async def visit() -> None:
        working, never = asyncio.Event(), asyncio.Event()
        incoming = [{"type": "http.request", "body": body, "more_body": False}]

        async def work(*_):
            working.set()
            try:
                await never.wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        monkeypatch.setattr(segmenter, method, work)

        async def receive():
            if incoming:
                return incoming.pop()
            await working.wait()
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [
                (b"host", b"service"),
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
            ],
            "client": ("127.0.0.1", 1),
            "server": ("service", 80),
        }
        await asyncio.wait_for(app(scope, receive, send), 10)

    asyncio.run(visit())
    assert ended == ["cancelled"]
    complete = any(message["type"] == "http.response.body" and not message.get("more_body") for message in sent)
    assert not (complete and sent[0]["status"] == 200)
