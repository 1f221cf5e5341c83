"""Redis server for tests."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from harness import free_ports, wait_until
from tests.skips import require


class RedisServer:
    """Redis process without persistence."""

    def __init__(self, program: str, folder: Path) -> None:
        (self.port,) = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}"
        self._command = [
            program,
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ]
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._command, "--dir", str(self._folder)], stdout=subprocess.DEVNULL
        )
        with self.client() as client:
            wait_until(lambda: answers(client))

    def stop(self) -> None:
        if self._process is not None:
            self.send(signal.SIGCONT)
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def names(self) -> list[str]:
        with self.client() as client:
            return sorted(key.decode() for key in client.scan_iter())


def answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """Run Redis on a free port, or skip the test if it is not installed."""
    running = RedisServer(require("redis-server"), folder)
    running.start()
    try:
        yield running
    finally:
        running.stop()
