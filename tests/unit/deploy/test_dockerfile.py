"""The Dockerfile, without a build; `make image-test` builds and runs the images."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from utils.api.info import VERSION

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ("cpu", "gpu")


def stages() -> dict[str, list[str]]:
    """Return the instructions of each stage of the Dockerfile by stage name, without comments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    found: dict[str, list[str]] = {"": []}
    current = found[""]
    for instruction in "\n".join(lines).replace("\\\n", " ").splitlines():
        words = instruction.split()
        if words[:1] == ["FROM"]:
            current = found[words[3]] = []
        if words:
            current.append(" ".join(words))
    return found


STAGES = stages()


def instruction(image: str, name: str) -> str:
    """Return the arguments of the only instruction of that name."""
    (found,) = (line.removeprefix(f"{name} ") for line in STAGES[image] if line.startswith(f"{name} "))
    return found


def copied_sources() -> list[str]:
    """Return the paths that are copied from the repository."""
    lines = [line.split()[1:-1] for stage in STAGES.values() for line in stage if line.startswith("COPY ")]
    return [source for sources in lines for source in sources if not sources[0].startswith("--from")]


def test_images_differ_only_in_base_and_environment():
    cpu, gpu = (
        [re.sub(rf"\b{image}(-base|-environment|$)", r"HARDWARE\1", line) for line in STAGES[image]] for image in IMAGES
    )
    assert cpu == gpu
    assert len(cpu) > 10


def test_copied_sources_exist_and_are_not_ignored():
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[1] == "*"
    assert len(copied_sources()) > 5
    for source in copied_sources():
        assert (ROOT / source).exists()
        assert any(fnmatch(source, rule.strip("!/")) for rule in rules if rule.startswith("!")), source
    assert {"model_repository/*/1/model.onnx", "model_repository/*/1/weights.json"} <= set(rules)


def test_image_contains_the_files_of_the_bento():
    included = re.findall(r'^  - "/(.+?)/?"$', (ROOT / "bentofile.yaml").read_text(), re.MULTILINE)
    assert included
    assert set(included) <= set(copied_sources())


@pytest.mark.parametrize("image", IMAGES)
def test_image_has_the_version_and_runs_as_an_unprivileged_user(image):
    assert f'org.opencontainers.image.version="{VERSION}"' in instruction(image, "LABEL")
    user = [line for line in STAGES[image] if line.startswith("USER")][-1]
    assert user == "USER 10001:10001"
    assert STAGES[image].index(user) > STAGES[image].index("COPY --from=app /app /app")


@pytest.mark.parametrize(
    ("status", "healthy"), [(200, True), (503, False), (None, False)], ids=["ready", "not ready", "no service"]
)
def test_health_check_follows_readyz(status, healthy):
    class FakeService(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status if self.path == "/readyz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), FakeService) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        exit_status = health_check(server.server_address[1] if status else 1)
        server.shutdown()
        thread.join()
    assert (exit_status == 0) is healthy


def health_check(port: int) -> int:
    """Run the program of the HEALTHCHECK and return its exit status."""
    program = json.loads(instruction("cpu", "HEALTHCHECK").partition(" CMD ")[2])
    assert program[0] == "python"
    # The check must ignore proxy settings.
    environment = {**os.environ, "BENTOML_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, *program[1:]], env=environment, stderr=subprocess.DEVNULL, check=False
    ).returncode
