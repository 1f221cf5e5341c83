"""Decompression bombs and endless bodies."""

import contextlib
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator

import psutil

from harness.server import cpu_seconds, resident_bytes
from tests.chaos.callers import click, photo
from tests.chaos.figures import MEGABYTE, Figure, Start
from tests.chaos.processes import sampling


def bombs(start: Start, gigabytes: float = 1.0) -> Iterator[Figure]:
    """Send small files with many pixels, and an endless body."""
    with start() as server:
        server.send(click(photo(1)))
        for name, image in (
            ("a PNG of 30,000 x 30,000 pixels", _bomb()),
            ("a PNG header of 2^31 pixels", _header()),
        ):
            with _watching(server.stubs() + server.workers()) as cost:
                answer = server.send(click(image))
            yield Figure(name, "status", answer.status_code, 499)
            yield Figure(
                name, "is a problem", float(b"urn:mobile-sam:" in answer.content), 1, at_least=True
            )
            yield Figure(name, "work", cost["ms"], 100, "ms")
            yield Figure(name, "more memory", cost["MB"], 50, "MB")
        for announced in (True, False):
            name = f"a body of {gigabytes:g} GB{'' if announced else ' without a length'}"
            with _watching(server.workers()) as cost:
                status = _send_zeros(server.port, int(gigabytes * 2**30), announced=announced)
            yield Figure(name, "status", abs(status - 413), 0)
            yield Figure(name, "work", cost["ms"], 100 if announced else 1000, "ms")
            yield Figure(name, "more memory, in caps of 32 MiB", cost["MB"] / 32, 2)


def _bomb() -> bytes:
    """Return a PNG file of 900 million pixels in about a megabyte."""
    program = (
        "import sys; from PIL import Image; Image.new('1', (30000, 30000)).save(sys.stdout.buffer,"
        " 'PNG')"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout


def _header() -> bytes:
    """Return the header of a PNG file of 65,535 x 32,768 pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", 65535, 32768, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + head
        + struct.pack(">I", zlib.crc32(head))
        + b"\0" * 64
    )


def _send_zeros(port: int, size: int, *, announced: bool) -> int:
    """Send a body of zeros until the server hangs up; return the status of its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        length = f"Content-Length: {size}" if announced else "Transfer-Encoding: chunked"
        connection.sendall(
            "POST /mobile_sam HTTP/1.1\r\nHost: x\r\nContent-Type:"
            f" application/json\r\n{length}\r\n\r\n".encode()
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


@contextlib.contextmanager
def _watching(processes: list[psutil.Process]) -> Iterator[dict[str, float]]:
    """Measure until the context ends: CPU time in `ms`, and growth of resident memory at its
    peak in `MB`.
    """
    cost: dict[str, float] = {}
    work = cpu_seconds(processes)
    with sampling(lambda: resident_bytes(processes), 0.005) as sizes:
        yield cost
    # Rounded: the kernel counts ticks of 10 ms.
    cost |= {
        "ms": round(1000 * (cpu_seconds(processes) - work)),
        "MB": (max(sizes) - sizes[0]) / MEGABYTE,
    }
