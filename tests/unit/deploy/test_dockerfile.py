"""What can be seen of the images without building one; `make image-test` builds and runs them."""

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

from utils.info import VERSION

ROOT = Path(__file__).resolve().parents[3]
IMAGES = ("cpu", "gpu")


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, by its name, without comments."""
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
    """The one instruction of that name."""
    (found,) = (line.removeprefix(f"{name} ") for line in STAGES[image] if line.startswith(f"{name} "))
    return found


def copied() -> list[str]:
    """What is copied from the repository."""
    lines = [line.split()[1:-1] for stage in STAGES.values() for line in stage if line.startswith("COPY ")]
    return [source for sources in lines for source in sources if not sources[0].startswith("--from")]


def test_the_two_images_differ_in_base_and_environment_alone():
    cpu, gpu = (
        [re.sub(rf"\b{image}(-base|-environment|$)", r"HARDWARE\1", line) for line in STAGES[image]] for image in IMAGES
    )
    assert cpu == gpu
    assert len(cpu) > 10


def test_the_last_stages_are_the_images():
    assert tuple(STAGES)[-2:] == IMAGES


@pytest.mark.parametrize("source", copied())
def test_what_is_copied_is_there_and_not_ignored(source):
    assert (ROOT / source).exists()
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    assert rules[1] == "*"
    assert any(fnmatch(source, rule.strip("!/")) for rule in rules if rule.startswith("!"))


def test_an_image_has_what_a_bento_has():
    included = re.findall(r'^  - "/(.+?)/?"$', (ROOT / "bentofile.yaml").read_text(), re.MULTILINE)
    assert included
    assert set(included) <= set(copied())


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_is_labelled_with_the_version_of_the_service(image):
    assert f'org.opencontainers.image.version="{VERSION}"' in instruction(image, "LABEL")


@pytest.mark.parametrize("image", IMAGES)
def test_an_image_runs_as_nobody_in_particular(image):
    user = [line for line in STAGES[image] if line.startswith("USER")][-1]
    assert user == "USER 10001:10001"
    assert STAGES[image].index(user) > STAGES[image].index("COPY --from=app /app /app")


def test_weights_of_this_machine_are_not_taken_along():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {"model_repository/*/1/model.onnx", "model_repository/*/1/weights.json"} <= set(ignored)


class Probed(BaseHTTPRequestHandler):
    """Answers with the status that was asked for."""

    status = 200

    def do_GET(self):
        self.send_response(self.status if self.path == "/readyz" else 404)
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def probed_port():
    server = HTTPServer(("127.0.0.1", 0), Probed)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)], ids=["ready", "not ready"])
def test_the_health_check_says_what_readyz_says(probed_port, monkeypatch, status, healthy):
    monkeypatch.setattr(Probed, "status", status)
    assert (health_check(probed_port) == 0) is healthy


def test_the_health_check_fails_where_nobody_answers():
    assert health_check(1) != 0


def health_check(port: int) -> int:
    """Run the program of the HEALTHCHECK; its exit status."""
    program = json.loads(instruction("cpu", "HEALTHCHECK").partition(" CMD ")[2])
    assert program[0] == "python"
    # A proxy is no way to oneself.
    environment = {**os.environ, "BENTOML_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, *program[1:]], env=environment, stderr=subprocess.DEVNULL, check=False
    ).returncode
