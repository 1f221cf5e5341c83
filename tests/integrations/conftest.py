"""Environments of the tools that the integrations are tested with, their clients, and the
service with keys.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import requests

from harness import Server
from tests import environments
from tests.e2e.pictures import as_base64
from tests.services import KEYS

KEY = KEYS["tools"]


@pytest.fixture(scope="session")
def tool_environment() -> Callable[..., Path]:
    """Return a function that returns the `bin` folder of a tool's environment, installing it if
    needed.

    The environment of `name` has the packages of `requirements/integrations-{name}.txt`. Without an
    index to install them from, or Debian's packages without which its Python cannot run
    `statement`, the test is skipped. Call it in a session fixture per tool, which then tries to
    install only once.
    """

    def bin_folder(
        name: str, statement: str = "pass", debian: str = "", **environment: str
    ) -> Path:
        if sys.version_info < (3, 11):
            pytest.skip("the tools need Python 3.11")
        folder = environments.environment(name, f"integrations-{name}")
        command = [folder / "python", "-c", statement]
        tried = subprocess.run(
            command, env={**os.environ, **environment}, capture_output=True, text=True, check=False
        )
        if tried.returncode:
            pytest.skip(f"{tried.stderr.splitlines()[-1]}; on Debian: apt-get install {debian}")
        return folder

    return bin_folder


class Tool:
    """A tool's client in its own process: a JSON line in for each call, a JSON line out."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def read(self) -> Any:
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def call(self, **fields: Any) -> Any:
        print(json.dumps(fields), file=self._process.stdin, flush=True)
        return self.read()


@pytest.fixture(scope="session")
def start_tool() -> Iterator[Callable[..., Tool]]:
    """Return a function that starts a tool's client with a command and variables."""
    with ExitStack() as running:

        def start(*command: str | Path, **environment: str) -> Tool:
            process = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            running.callback(process.communicate, timeout=60)
            return Tool(process)

        yield start


@pytest.fixture(scope="session")
def server(keyed: Server) -> Server:
    """Return the service with keys and a limit of bodies."""
    return keyed


def own_answer(
    server: Server, photo: bytes, path: str = "/mobile_sam", **fields: Any
) -> dict[str, Any]:
    """Return the service's own answer, with masks as RLE."""
    options = {"mask_format": "rle"} if path == "/mobile_sam" else {}
    answer = requests.post(
        f"{server.url}{path}",
        json={"input_image": as_base64(photo), **options, **fields},
        headers={"X-API-Key": KEY, "Accept": "application/json"},
        timeout=60,
    )
    assert answer.ok, answer.text
    document: dict[str, Any] = answer.json()
    return document
