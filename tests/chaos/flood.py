"""Open-loop load beyond a server's capacity: requests are sent on schedule, whether or not earlier ones are answered.

It takes one thread and little CPU time per request, so that it can run on the server's machine.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

import orjson
import uvloop

from tests.chaos.callers import Body, Outcome, Outcomes

TYPE = "Content-Type: application/json"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Flood:
    """Flood of requests to a server on this machine, over as many keep-alive connections as needed."""

    def __init__(self, port: int, body: Body) -> None:
        self._port, self._body = port, body
        self._idle: deque[Connection] = deque()
        self.outcomes = Outcomes()

    async def run(self, rate: float, seconds: float) -> None:
        """Send evenly spaced requests, `rate` per second; return once all are answered."""
        began = time.monotonic()
        asked = []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            asked.append(asyncio.create_task(self._ask()))
        await asyncio.gather(*asked)
        for _, writer in self._idle:
            writer.close()

    async def _ask(self) -> None:
        path, body = self._body()
        began = time.monotonic()
        status, reason = 0, "lost"
        try:
            while self._idle and self._idle[0][0].at_eof():
                self._idle.popleft()[1].close()
            connection = self._idle.pop() if self._idle else await asyncio.open_connection("127.0.0.1", self._port)
            status, answer = await self._exchange(connection, path, body)
            reason = "ok" if status == 200 else orjson.loads(answer)["type"].rpartition(":")[2]
        except ConnectionRefusedError:
            reason = "refused"
        except (OSError, EOFError, ValueError, KeyError):
            pass
        self.outcomes.all.append(Outcome(began, time.monotonic() - began, status, reason))

    async def _exchange(self, connection: Connection, path: str, body: bytes) -> tuple[int, bytes]:
        reader, writer = connection
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(lines.partition(b"content-length:")[2].partition(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if b"connection: close" in lines:
            writer.close()
        else:
            self._idle.append(connection)
        return int(lines.split()[1]), answer


def flood(port: int, body: Body, rate: float, seconds: float) -> Outcomes:
    """Send `rate` requests per second; return their outcomes."""
    flooding = Flood(port, body)
    loop = uvloop.new_event_loop()
    loop.run_until_complete(flooding.run(rate, seconds))
    loop.close()
    return flooding.outcomes
