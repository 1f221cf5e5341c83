"""Open-loop load beyond a server's capacity: requests are sent on schedule, whether or not earlier ones are answered.

It takes one thread and little CPU time per request, so that it can run on the server's machine.
"""

import asyncio
import time
from collections import deque

import uvloop

from tests.chaos.callers import Body, Outcome, Outcomes, slug

HEAD = "POST {} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def flood(port: int, body: Body, rate: float, seconds: float) -> Outcomes:
    """Send evenly spaced requests, `rate` per second, over as many connections as needed; return their outcomes."""
    idle: deque[Connection] = deque()
    outcomes = Outcomes()

    async def ask() -> None:
        path, data = body()
        began = time.monotonic()
        status, reason = 0, "lost"
        try:
            while idle and idle[0][0].at_eof():
                idle.popleft()[1].close()
            connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
            status, answer = await exchange(connection, path, data)
            reason = "ok" if status == 200 else slug(answer)
        except ConnectionRefusedError:
            reason = "refused"
        except (OSError, EOFError, ValueError):
            pass
        outcomes.all.append(Outcome(began, time.monotonic() - began, status, reason))

    async def exchange(connection: Connection, path: str, data: bytes) -> tuple[int, bytes]:
        reader, writer = connection
        writer.write(f"{HEAD.format(path)}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        answer = await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0]))
        if b"connection: close" in head:
            writer.close()
        else:
            idle.append(connection)
        return int(head.split()[1]), answer

    async def ask_all() -> None:
        began, asked = time.monotonic(), []
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            asked.append(asyncio.create_task(ask()))
        await asyncio.gather(*asked)
        for _, writer in idle:
            writer.close()

    loop = uvloop.new_event_loop()
    loop.run_until_complete(ask_all())
    loop.close()
    return outcomes
