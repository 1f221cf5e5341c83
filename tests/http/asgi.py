"""Requests to an ASGI application in this process."""

import asyncio
from typing import Any

import httpx

ADDRESS = "203.0.113.7"


class Http:
    """Requests to an ASGI application, as httpx sends them."""

    def __init__(self, app: Any) -> None:
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)


async def messages_of(
    app,
    path="/embed",
    body=b"{}",
    headers=(),
    *,
    method="POST",
    address=ADDRESS,
    left: asyncio.Event | None = None,
) -> list[dict[str, Any]]:
    """Send a request without a client's own checks, and return the messages of its answer.

    The caller disconnects when `left` is set.
    """
    scope = {
        "type": "http",
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"service")] * all(name != b"host" for name, _ in headers)
        + list(headers),
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
