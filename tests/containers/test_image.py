"""The image, and a Bento and BentoML's image of it, built and run with the commands in
docs/containers.md.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import yaml

from harness import ROOT, serving, wait_until
from tests.containers.docker import (
    KILL_TRITON,
    click,
    container,
    docker,
    documented,
    run,
    step,
    stop,
    succeeds,
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

BENTOML = Path(sys.executable).parent / "bentoml"
BENTO_BASE_IMAGE = "mobile-sam-test-python"
FOREIGN_USER = "23456:0"
RUNTIME = "ui/onnxruntime/ort.wasm.gz"
ZOMBIES = (
    "python",
    "-c",
    "import psutil; print([p for p in psutil.process_iter() if p.status() == 'zombie'])",
)
BENTO_BASE = """
FROM {base}
RUN apt-get update && apt-get install --yes --no-install-recommends ca-certificates libpython3.11 python3-venv
RUN python3 -m venv /usr/local
COPY pip.conf /etc/
COPY ca.crt /run/secrets/
RUN cp /run/secrets/ca.crt /etc/ssl/certs/ca-certificates.crt
RUN mkdir /etc/uv && echo 'native-tls = true' >/etc/uv/uv.toml
"""
"""Instead of BentoML's base `python:3.11-slim`: Python in /usr/local, with pip's configuration."""


def test_image_serves_a_foreign_user_and_recovers_and_stops(image, port):
    *command, _ = documented("docker run --detach", port)
    with container([*command, "--user", FOREIGN_USER, image]) as name:
        with step("healthy, and a click"):
            state = "{{.State.Health.Status}}"
            wait_until(
                lambda: docker("inspect", "--format", state, name) == "healthy", 90, every=0.5
            )
            assert docker("exec", name, "id", "--user") == FOREIGN_USER.partition(":")[0]
            assert click(port) == "official"
            httpx.head(f"http://127.0.0.1:{port}/{RUNTIME}").raise_for_status()
        with step("a killed Triton, and a click"):
            docker("exec", name, *KILL_TRITON)
            assert click(port) == "official"
            assert "restarting Triton: " in docker("logs", name)
            wait_until(lambda: docker("exec", name, *ZOMBIES) == "[]", every=0.5)
        with step("a stop"):
            stop(name)


def test_default_size_of_shared_memory_ends_the_service_with_advice(image):
    command = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", image]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "--shm-size" in done.stdout + done.stderr


def test_bento_and_its_image_serve_and_stop(base, secrets, builtin_repository, port, tmp_path):
    with step("base of the Bento's image"):
        (secrets / "Dockerfile").write_text(BENTO_BASE.format(base=base))
        docker("build", "--network", "host", "--tag", BENTO_BASE_IMAGE, secrets)
    project, store = (
        tmp_path / "project",
        {"BENTOML_HOME": str(tmp_path / "bentoml"), "BENTOML_DO_NOT_TRACK": "True"},
    )
    options = yaml.safe_load((ROOT / "bentofile.yaml").read_text())
    parts = {part.strip("/") for part in options["include"]} - {"model_repository"}
    project.mkdir()
    run("cp", "--recursive", "requirements", *parts, project)
    shutil.copytree(builtin_repository, project / "model_repository", symlinks=True)
    options["docker"] = {"base_image": BENTO_BASE_IMAGE, "env": options["docker"]["env"]}
    (project / "bentofile.yaml").write_text(yaml.safe_dump(options))
    with step("the Bento and its image"):
        run("env", f"--chdir={project}", BENTOML, "build", **store)
        _, *arguments = documented(".venv/bin/bentoml containerize")
        printed = run(BENTOML, *arguments, "--opt", "network=host", **store)
        assert succeeds("docker", "image", "inspect", arguments[-1]), printed
    shutil.rmtree(project)
    with (
        step("a click on the Bento"),
        serving(tmp_path / "log", "mobile_sam:latest", **store) as server,
    ):
        assert click(server.port) == "builtin"
    command = documented("docker run --rm --publish 127.0.0.1:3000:3000 --shm-size", port)
    command[command.index("--rm")] = "--detach"
    with step("a click and a stop"), container(command) as name:
        assert click(port) == "builtin"
        httpx.head(f"http://127.0.0.1:{port}/{RUNTIME}").raise_for_status()
        stop(name)
