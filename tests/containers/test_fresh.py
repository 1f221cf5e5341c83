"""README's commands in an empty Debian 12, on a fresh clone."""

import pytest

from tests.containers.docker import click, container, docker, run, step
from tests.e2e.server import ROOT
from tests.waiting import wait_until
from tools.pip_config import CERTIFICATES

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

SERVE = """
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends git libpython3.11 make python3-venv
git clone /source /project
cd /project
exec make serve PORT={port}
"""


def test_service_starts_and_the_tests_pass_in_an_empty_debian(base, secrets, port, tmp_path):
    run("git", "clone", "--quiet", "--bare", ROOT, tmp_path / "source")
    mounted = {"/source": tmp_path / "source", "/etc/pip.conf": secrets / "pip.conf", CERTIFICATES: secrets / "ca.crt"}
    volumes = [f"--volume={here}:{there}:ro" for there, here in mounted.items()]
    command = ["docker", "run", "--detach", "--network=host", "--shm-size=4g", *volumes, base]
    with container([*command, "bash", "-ec", SERVE.format(port=port)]) as name:
        with step("Debian's packages, `git clone`, `make serve`, and a click"):
            wait_until(lambda: docker("top", name) and "\nReady: " in docker("logs", name), 300)
            assert click(port) == "official"
        with step("`make test`"):
            printed = docker("exec", "--workdir", "/project", name, "make", "test")
            *_, last_line = printed.splitlines()
            print(f"\n{last_line}")
            assert "apt-get install" in last_line  # what skipped tests need: Chromium, for example
