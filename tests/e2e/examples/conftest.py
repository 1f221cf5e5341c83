"""Fixtures of the examples' tests. Each module has a fixture `example`, its running service."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from harness import ROOT, Server, free_ports, serving
from tests.e2e.pages import Block, Reader, blocks
from utils.bento import check_address


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Start the service of an example with these environment variables."""
    with ExitStack() as running:

        def start(name: str, **environment: str) -> Server:
            log = tmp_path_factory.mktemp(name) / "log"
            return running.enter_context(
                serving(log, f"examples.{name}.service:svc", **environment)
            )

        yield start


@pytest.fixture(scope="module")
def port() -> int:
    """First of three free ports for an open Triton."""
    while True:
        (first,) = free_ports(1)
        with contextlib.suppress(SystemExit, OverflowError):
            for port in range(first, first + 3):
                check_address("127.0.0.1", port)
            return first


@pytest.fixture
def reader(example: Server, tmp_path: Path) -> Reader:
    """A reader of the README, who runs its commands."""
    return Reader(tmp_path, example.url)


def readme(name: str) -> list[Block]:
    """Return the blocks of an example's README, without those that only run `make`."""
    page = f"examples/{name}/README.md"
    return [block for block in blocks(page, (ROOT / page).read_text()) if not block.only_make]


def run_open(block: Block, folder: Path, server: Server, first_port: int) -> str:
    """Run a README's commands for `OPEN=1` and return what they print.

    Args:
        block: the commands.
        folder: an empty folder.
        server: a service that was started with EXAMPLE_OPEN.
        first_port: value of EXAMPLE_OPEN.
    """
    code = block.code.replace("127.0.0.1:8002/metrics", server.metrics_url)
    code = code.replace("127.0.0.1:8000", f"127.0.0.1:{first_port}")
    code = code.replace("127.0.0.1:8001", f"127.0.0.1:{first_port + 1}")
    return Reader(folder, server.url).run(replace(block, code=code))
