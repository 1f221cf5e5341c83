"""Cancellation of work through the whole application when callers disconnect."""

import asyncio
import json

import pytest

from tests.http.asgi import messages_of


@pytest.mark.parametrize(
    ("path", "fields", "method"),
    [
        pytest.param("/mobile_sam", {"pos_coords": [[1, 2]]}, "segment", id="segment"),
        pytest.param("/embed", {}, "embed", id="embed"),
        pytest.param("/everything", {}, "records", id="everything"),
        pytest.param("/everything", {"progress": True}, "records", id="everything-lines"),
    ],
)
def test_work_is_cancelled_when_the_caller_disconnects(
    app, segmenter, monkeypatch, *, path, fields, method
):
    body = json.dumps({"image_id": "an id", **fields}).encode()
    ended: list[str] = []

    async def visit() -> list[dict]:
        working = asyncio.Event()

        async def work(*_):
            working.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        monkeypatch.setattr(segmenter, method, work)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        return await asyncio.wait_for(messages_of(app, path, body, headers, left=working), 60)

    sent = asyncio.run(visit())
    assert ended == ["cancelled"]
    complete = any(
        message["type"] == "http.response.body" and not message.get("more_body") for message in sent
    )
    assert not (complete and sent[0]["status"] == 200)
