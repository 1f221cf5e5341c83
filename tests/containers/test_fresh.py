"""README's commands in an empty Debian 12, on a fresh clone; `make test` runs beside the other
tests of this folder.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ROOT, free_ports, wait_until
from tests.containers.docker import click, container, docker, run, step
from tools.pip_config import CERTIFICATES

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

SERVE = """
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends git libpython3.11 make python3-venv
git clone /source /project
cd /project
exec make serve PORT={port}
"""
NOT_AGAIN = [
    f"tests/unit/{name}" for name in ("client", "orchestrator", "page", "sam_onnx", "utils")
]
"""Folders of unit tests that take most of the time of `make test`. CI leaves them out here: it has
just run them in the checkout."""


@pytest.fixture(scope="session")
def name(base: str, secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run `make serve` in a container until its first click, and return the container's name."""
    source, (port,) = tmp_path_factory.mktemp("fresh") / "source", free_ports(1)
    run("git", "clone", "--quiet", "--bare", ROOT, source)
    mounted = {
        "/source": source,
        "/etc/pip.conf": secrets / "pip.conf",
        CERTIFICATES: secrets / "ca.crt",
    }
    volumes = [f"--volume={here}:{there}:ro" for there, here in mounted.items()]
    command = ["docker", "run", "--detach", "--network=host", "--shm-size=4g", *volumes, base]
    with container([*command, "bash", "-ec", SERVE.format(port=port)]) as name:
        with step("Debian's packages, `git clone`, `make serve`, and a click"):
            wait_until(
                lambda: docker("exec", name, "true") == "" and "\nReady: " in docker("logs", name),
                300,
                every=1,
            )
            assert click(port) == "official"
        yield name


@pytest.fixture(scope="session")
def make_test(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Start `make test` in the container at a low priority; return its process and log."""
    log = tmp_path_factory.mktemp("make_test") / "log"
    with log.open("wb") as output:
        left_out = [f"--ignore={folder}" for folder in NOT_AGAIN if "CI" in os.environ]
        options = [f"--env=PYTEST_ADDOPTS={' '.join(left_out)}", "--workdir=/project"]
        command = ["docker", "exec", *options, name, "nice", "make", "test"]
        process = subprocess.Popen(command, stdout=output, stderr=output)
    yield process, log
    process.kill()
    process.wait()


def test_service_starts_in_an_empty_debian(make_test):
    """Runs first, as the fixture starts `make serve`, and then `make test`."""


def test_tests_pass_in_an_empty_debian(make_test):
    """Runs last, as it waits for `make test`."""
    process, log = make_test
    with step("waited for `make test`"):
        status = process.wait()
    *lines, last_line = (
        line for line in log.read_text().splitlines() if not line.startswith("SKIPPED")
    )
    assert status == 0, "\n".join(lines[-100:])
    print(f"\n{last_line}")
    assert "apt-get install" in last_line  # what skipped tests need: Chromium, for example
