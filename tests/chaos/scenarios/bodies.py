"""Decompression bombs and endless bodies."""

from __future__ import annotations

import contextlib
import http.client
import socket
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import psutil

from tests.chaos import victims
from tests.chaos.callers import JSON, click, photo
from tests.chaos.figures import MEGABYTE, Figure, Start, port_of


def bombs(start: Start, gigabytes: float = 1.0) -> Iterator[Figure]:
    """Send small files with many pixels, and an endless body."""
    with start() as server:
        port = port_of(server)
        _ask(port, *click(photo(1)))
        for name, image in (("a PNG of 30,000 x 30,000 pixels", _bomb()), ("a PNG header of 2^31 pixels", _header())):
            inside = victims.stubs(server) + victims.workers(server)
            before, work = victims.resident(inside), _cpu(inside)
            with _peak(inside) as peak:
                status, data = _ask(port, *click(image))
            yield Figure(name, "status", status, 499)
            yield Figure(name, "is a problem", float(b"urn:mobile-sam:" in data), 1, at_least=True)
            yield Figure(name, "work", 1000 * (_cpu(inside) - work), 100, "ms")
            yield Figure(name, "more memory", (peak() - before) / MEGABYTE, 50, "MB")
        for announced in (True, False):
            name = f"a body of {gigabytes:g} GB{'' if announced else ' without a length'}"
            inside = victims.workers(server)
            before, work = victims.resident(inside), _cpu(inside)
            with _peak(inside) as peak:
                status = _send_zeros(port, int(gigabytes * 2**30), announced=announced)
            yield Figure(name, "status", abs(status - 413), 0)
            yield Figure(name, "work", 1000 * (_cpu(inside) - work), 100 if announced else 1000, "ms")
            yield Figure(name, "more memory, in caps of 32 MiB", (peak() - before) / (32 * MEGABYTE), 2)


def _ask(port: int, path: str, body: bytes) -> tuple[int, bytes]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", path, body, JSON)
        response = connection.getresponse()
        return response.status, response.read()


def _bomb() -> bytes:
    """Return a PNG file of 900 million pixels in about a megabyte."""
    program = "import sys; from PIL import Image; Image.new('1', (30000, 30000)).save(sys.stdout.buffer, 'PNG')"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout


def _header() -> bytes:
    """Return the header of a PNG file of 65,535 x 32,768 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 65535, 32768, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + head + struct.pack(">I", zlib.crc32(head)) + b"\0" * 64


def _send_zeros(port: int, size: int, *, announced: bool) -> int:
    """Send a body of zeros until the server hangs up; return the status of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        length = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
        connection.sendall(
            f"POST /mobile_sam HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n".encode()
        )
        part = bytes(MEGABYTE)
        framed = part if announced else b"100000\r\n" + part + b"\r\n"
        with contextlib.suppress(OSError):
            for _ in range(size // MEGABYTE):
                connection.sendall(framed)
        answer = b""
        with contextlib.suppress(OSError):
            while b"\r\n" not in answer and (data := connection.recv(65536)):
                answer += data
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def _cpu(processes: Sequence[psutil.Process]) -> float:
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


@contextmanager
def _peak(processes: list[psutil.Process]) -> Iterator[Callable[[], int]]:
    """Sample the processes' memory every 5 ms; yield a function that returns the peak."""
    peak, over = [victims.resident(processes)], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            peak[0] = max(peak[0], victims.resident(processes))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    yield lambda: peak[0]
    over.set()
    watcher.join()
