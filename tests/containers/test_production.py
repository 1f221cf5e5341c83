"""The commands of docs/production.md, typed from top to bottom into an empty Debian 12 with systemd,
nginx and Prometheus; what they print is what the page shows.

The container has no network: an engine of the tests has no way out, and nginx must not listen on
the machine. So what needs a package index is typed while the image is built. systemd needs cgroups
of version 1, or another engine than the tests' own.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ROOT, wait_until
from tests.containers.docker import container, docker, run, step
from tests.e2e.pages import Block, blocks
from tools.pip_config import CERTIFICATES

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1500)]

PAGE = "docs/production.md"
TYPED = "in `make production-test`"
"""Mark of the blocks that this test types, and of what they print."""
NEEDS_INDEX = re.compile(r"^(apt-get|git clone) ", re.MULTILINE)
DOCKERFILE = """
FROM {base}
ENV DEBIAN_FRONTEND=noninteractive SOURCE=/source
RUN apt-get update && apt-get install --yes --no-install-recommends systemd-sysv
RUN --mount=type=bind,source=packages.sh,target=/packages.sh bash -eo pipefail /packages.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca,target={certificates} \\
    --mount=type=bind,source=source,target=/source --mount=type=bind,source=releases.sh,target=/releases.sh \\
    bash -eo pipefail /releases.sh && rm -r /root/.cache
"""
SYSTEMD = [
    *("docker", "run", "--detach", "--network=none", "--shm-size=1g", "--env=container=docker"),
    *("--cgroupns=private", "--tmpfs=/run", "--tmpfs=/run/lock"),
    # systemd and the unit's protection mount file systems.
    *("--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined"),
    "--security-opt=apparmor=unconfined",
]
UNIFIED_CGROUPS = Path("/sys/fs/cgroup/cgroup.controllers")
"""There with cgroups of version 2."""
SHELL = ("bash", "-eo", "pipefail", "-c")


def typed_blocks() -> list[tuple[Block, str | None]]:
    """Return the page's commands in their order, each with what the page shows of its output."""
    found: list[tuple[Block, str | None]] = []
    for block in blocks(PAGE, (ROOT / PAGE).read_text()):
        if block.not_run != TYPED:
            continue
        if block.language == "text":
            command, shown = found[-1]
            assert shown is None, f"{block}: expected commands before it"
            found[-1] = command, block.code.strip()
        else:
            assert block.language == "sh", f"{block}: expected sh or text, got {block.language}"
            found.append((block, None))
    return found


@pytest.fixture(scope="module")
def machine(base: str, secrets: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a container whose first process is systemd, with the packages and releases that the page
    installs, and return the container's name.
    """
    if UNIFIED_CGROUPS.exists():
        pytest.skip("systemd needs cgroups of version 1 in the tests' own engine")
    folder = tmp_path_factory.mktemp("production")
    packages, *releases = (
        block.code for block, _ in typed_blocks() if NEEDS_INDEX.search(block.code)
    )
    (folder / "packages.sh").write_text(packages)
    (folder / "releases.sh").write_text("".join(releases))
    (folder / "Dockerfile").write_text(DOCKERFILE.format(base=base, certificates=CERTIFICATES))
    run("git", "clone", "--quiet", "--bare", ROOT, folder / "source")
    files = [
        f"--secret=id={name},src={secrets / file}"
        for name, file in (("pip", "pip.conf"), ("ca", "ca.crt"))
    ]
    tag = "mobile-sam-test-production"
    with step("Debian's packages, and two releases"):
        docker("build", "--network=host", f"--tag={tag}", *files, folder)
    shutil.rmtree(folder / "source")
    with container([*SYSTEMD, tag, "/lib/systemd/systemd"]) as name:
        with step("systemd"):
            wait_until(lambda: state_of(name) in {"starting", "running", "degraded"}, every=1)
        yield name


def state_of(machine: str) -> str:
    """Return what systemd says of itself; "offline" or an error before it listens."""
    return docker("exec", machine, *SHELL, "systemctl is-system-running || true").strip()


def test_commands_of_the_production_page_print_what_it_shows(machine):
    with step("the page, from top to bottom"):
        for block, shown in typed_blocks():
            if NEEDS_INDEX.search(block.code):
                continue
            with step(str(block)):
                printed = docker("exec", machine, *SHELL, block.code)
            if shown is not None:
                expected = re.escape(shown).replace("…", ".*")
                assert re.fullmatch(expected, re.sub(r"\s*\n\s*", "\n", printed.expandtabs(1))), (
                    f"{block} printed something else:\n{printed}"
                )
