"""Servers of images for tools that name a URL: one that answers at once, and one that drips.

with origin(photo) as quick, origin(photo, every_s=1.0) as dripping:
    print(f"{quick}/1.jpg")
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from harness import free_ports


@contextmanager
def origin(file: bytes, every_s: float = 0.0) -> Iterator[str]:
    """Serve a file at every path until the context ends; yield the origin, such as
    `http://127.0.0.1:8000`.

    Args:
        file: the file.
        every_s: seconds between two bytes of it; 0: everything at once.
    """
    (port,) = free_ports(1)
    loop, started, over = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            contextlib.suppress(OSError, EOFError, asyncio.CancelledError),
            contextlib.closing(writer),
        ):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(file)
            )
            for start in range(0, len(file), 1 if every_s else len(file)):
                writer.write(file[start : start + 1] if every_s else file)
                await writer.drain()
                await asyncio.sleep(every_s)

    async def serve(over: asyncio.Event) -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", port)
        started.set()
        await over.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(over),), daemon=True)
    thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()
