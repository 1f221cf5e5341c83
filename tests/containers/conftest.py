"""Fixtures of the tests with containers: a Docker Engine, and the image of the service."""

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from harness import free_ports
from sam_onnx import pip_options
from tests.containers import docker
from tools import pip_config

ORDER = {"test_service_starts_in_an_empty_debian": -1, "test_tests_pass_in_an_empty_debian": 1}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start `make test` in the empty Debian first and wait for its end last, so that it runs
    beside the other tests.
    """
    items.sort(key=lambda item: ORDER.get(item.name, 0))


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    """Run a Docker Engine, and return its image of Debian 12."""
    with docker.engine():
        with docker.step("Debian 12"):
            docker.make_base()
        yield docker.BASE


@pytest.fixture(scope="session")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with pip's configuration and certificates for builds, with the packages in
    local folders.
    """
    folder, configured = (
        tmp_path_factory.mktemp("secrets"),
        pip_options.read([sys.executable, "-m", "pip"]),
    )
    pip_config.export(configured, folder)
    with ExitStack() as stack:
        local = [link for link in configured.get("find-links", "").split() if Path(link).is_dir()]
        urls = [stack.enter_context(served(link)) for link in local]
        with (folder / "pip.conf").open("a") as file:
            file.write(f"find-links = {' '.join(urls)}\n" * bool(urls))
        yield folder


@contextmanager
def served(folder: str) -> Iterator[str]:
    """Serve a folder over HTTP, and yield its URL."""
    with ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=folder)
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def port() -> int:
    (port,) = free_ports(1)
    return port


@pytest.fixture(scope="session")
def build_options(base: str, secrets: Path) -> list[str]:
    """Return options for `docker build` with Debian's and pip's packages only."""
    files = [
        f"id={name},src={secrets / file}" for name, file in (("pip", "pip.conf"), ("ca", "ca.crt"))
    ]
    return [
        "--network",
        "host",
        "--build-arg",
        f"CPU_BASE={base}",
        *[f"--secret={file}" for file in files],
    ]


@pytest.fixture(scope="session")
def image(build_options: list[str]) -> str:
    """Build the image of the service with the official weights."""
    *command, context = docker.documented("docker build --build-arg HARDWARE=cpu")
    with docker.step("the image"):
        docker.run(*command, *build_options, context)
    return command[-1]
