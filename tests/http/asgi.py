"""Single requests to an ASGI application, without a client's own checks."""

import asyncio
from typing import Any

ADDRESS = "203.0.113.7"


async def messages_of(
    app, path="/embed", body=b"{}", headers=(), *, method="POST", address=ADDRESS, left: asyncio.Event | None = None
) -> list[dict[str, Any]]:
    """Send a request and return the messages of its answer; the caller disconnects when `left` is set."""
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"service")] * all(name != b"host" for name, _ in headers) + list(headers),
        "client": (address, 1),
        "server": ("service", 80),
    }
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[dict[str, Any]] = []

    async def receive() -> dict:
        if incoming:
            return incoming.pop()
        await (left or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: dict) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent
