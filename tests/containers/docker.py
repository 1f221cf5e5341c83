"""Docker for tests: an engine, Debian as a base image, and commands that show their output if they
fail.

There may be no registry: debootstrap makes the base from Debian's packages. The engine keeps images
and layers in `$XDG_CACHE_HOME/mobile-sam-triton/docker`, so that later runs build only what has
changed.
"""

import os
import re
import shlex
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, STDOUT

import pytest

from harness import ROOT, wait_until
from mobile_sam_client import Client
from tests.e2e.pages import blocks
from tests.skips import require

FOLDER = (
    Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    / "mobile-sam-triton"
    / "docker"
)
BASE = "mobile-sam-test-debian:12"
CACHED_LAYERS = "8GB"
"""Size to which the builder's cache is reduced."""
PAGE = "docs/containers.md"
PICTURE, CLICK_XY = ROOT / "page" / "samples" / "balloons.jpg", (903, 310)
KILL_TRITON = (
    "python",
    "-c",
    (
        "import psutil; (triton,) = [p for p in psutil.process_iter() if p.name() =="
        " 'tritonserver']; triton.kill()"
    ),
)
"""Command that kills the Triton of its container."""


@contextmanager
def step(name: str) -> Iterator[None]:
    """Print the seconds that a step takes."""
    began = time.monotonic()
    yield
    print(f"\n{time.monotonic() - began:.0f} s: {name}", flush=True)


def run(*command: str | Path, **environment: str) -> str:
    """Run a command in the repository's root and return what it prints; fail with the last lines of
    that.

    Args:
        command: program and arguments.
        environment: variables added to this process's environment.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=PIPE,
        stderr=STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (
        f"{command} ended with status {done.returncode}:\n{done.stdout[-5000:]}"
    )
    return done.stdout.strip()


def docker(*arguments: str | Path) -> str:
    """Run a command of Docker, as `run` does."""
    return run("docker", *arguments)


def succeeds(*command: str | Path) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def documented(start: str, port: int = 3000) -> list[str]:
    """Return the command in docs/containers.md that starts with these words, for a port and
    names of tests.
    """
    code = "\n".join(block.code for block in blocks(PAGE, (ROOT / PAGE).read_text()))
    (command,) = re.findall(rf"^{re.escape(start)}.*$", code.replace("\\\n", " "), re.MULTILINE)
    return shlex.split(
        re.sub(r"mobile-sam(?!-triton)", "mobile-sam-test", command.replace(":3000:", f":{port}:"))
    )


def click(port: int, *, api_key: str | None = None, retries: int = 60) -> str:
    """Check the mask of a click, and return the name of the weights. Retries until the service
    is ready.
    """
    with Client(f"http://127.0.0.1:{port}", api_key=api_key, retries=retries) as client:
        found = client.segment(PICTURE, pos_coords=CLICK_XY)
    x, y = CLICK_XY
    assert found.mask.shape == (found.height, found.width)
    assert found.mask[y, x]
    return found.weights.name


@contextmanager
def container(command: list[str]) -> Iterator[str]:
    """Run a detached container and return its id; remove it at the end. A failure has its log."""
    # Messages of Docker's may stand before it and after it.
    (identifier,) = re.findall("^[0-9a-f]{64}$", run(*command), re.MULTILINE)
    try:
        yield identifier
    except Exception as error:
        log = run("docker", "logs", "--tail", "50", identifier)
        raise AssertionError(f"{error}; the container's log:\n{log}") from error
    finally:
        docker("rm", "--force", "--volumes", identifier)
        docker("volume", "rm", "--force", "mobile-sam-test-cache")


def stop(container_id: str) -> None:
    """Stop a container, as SIGTERM does within its time for a stop."""
    docker("stop", container_id)
    assert docker("inspect", "--format", "{{.State.ExitCode}}", container_id) == "0"


@contextmanager
def engine() -> Iterator[None]:
    """Have an engine: the one that DOCKER_HOST names, or one of the tests' own."""
    if "DOCKER_HOST" in os.environ and succeeds("docker", "version"):
        yield
        return
    if os.geteuid() != 0:
        pytest.skip("a Docker Engine is started by root; or set DOCKER_HOST")
    program = require("dockerd")
    (FOLDER / "exec").mkdir(parents=True, exist_ok=True)
    host = f"unix://{FOLDER}/socket"
    # Without rules for packets, containers reach each other and are reached at published ports, and
    # nothing else.
    command = [program, "--iptables=false", f"--host={host}", f"--pidfile={FOLDER / 'pid'}"]
    command += [f"--data-root={FOLDER / 'data'}", f"--exec-root={FOLDER / 'exec'}"]
    with pytest.MonkeyPatch.context() as patch, (FOLDER / "log").open("wb") as log:
        patch.setenv("DOCKER_HOST", host)
        patch.setenv("DOCKER_BUILDKIT", "1")
        # Debian's client has BuildKit; another one on PATH may need a plug-in for it.
        patch.setenv("PATH", f"/usr/bin:{os.environ['PATH']}")
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(
                lambda: process.poll() is not None or succeeds("docker", "version"), every=0.5
            )
            if process.poll() is not None:
                pytest.skip(
                    f"dockerd cannot start: {(FOLDER / 'log').read_text().splitlines()[-1]}"
                )
            for leftover in ("container", "network", "volume", "image"):
                docker(leftover, "prune", "--force")
            docker("builder", "prune", "--force", "--keep-storage", CACHED_LAYERS)
            yield
        finally:
            process.terminate()
            process.wait(60)


def make_base() -> None:
    """Make Debian 12 an image."""
    if succeeds("docker", "image", "inspect", BASE):
        return
    program = require("debootstrap")
    with tempfile.TemporaryDirectory() as folder:
        run(program, "--variant=minbase", "bookworm", folder)
        without = "--exclude=./var/cache/apt/archives/*.deb --exclude=./var/lib/apt/lists/*"
        run(
            "bash",
            "-o",
            "pipefail",
            "-c",
            f"tar --create --directory {folder} {without} . | docker import - {BASE}",
        )
