"""Commands of the Dockerfile, run without a build; `make image-test` builds and runs the images."""

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from harness import ROOT

TEXT = (ROOT / "Dockerfile").read_text()
LINES = TEXT.replace("${HARDWARE}", "cpu").splitlines()


def arguments(instruction: str) -> list[str]:
    """Return the arguments of each instruction of that name."""
    return [
        line.removeprefix(f"{instruction} ") for line in LINES if line.startswith(f"{instruction} ")
    ]


@pytest.mark.parametrize("given", [[], ["ca.crt", "hf_token"]], ids=["no secrets", "all secrets"])
def test_fetching_of_weights_gets_the_secrets_as_files(tmp_path, given):
    (instruction,) = [
        part
        for part in re.split(r"^(?=[A-Z]+ )", TEXT, flags=re.MULTILINE)
        if "-m sam_onnx" in part
    ]
    for name in given:
        assert f"target=/run/secrets/{name}" in instruction
        (tmp_path / name).touch()
    command = (
        re.sub(r"^RUN|--mount=\S+", "", instruction)
        .replace("\\\n", "")
        .replace("cd /build", "true")
    )
    command = command.replace("/run/secrets", str(tmp_path)).replace(
        "/opt/venv/bin/python", "env #"
    )
    printed = subprocess.run(
        ["sh", "-ec", command], env={}, capture_output=True, text=True, check=True
    ).stdout
    found = dict(line.split("=", 1) for line in printed.splitlines())
    certificates = dict.fromkeys(
        ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"] if given else [], str(tmp_path / "ca.crt")
    )
    assert found.items() >= {"HF_TOKEN_PATH": str(tmp_path / "hf_token"), **certificates}.items()
    assert ("SSL_CERT_FILE" in found) is bool(given)


@pytest.mark.parametrize(
    ("status", "healthy"),
    [(200, True), (503, False), (None, False)],
    ids=["ready", "not ready", "no service"],
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
    program = json.loads(arguments("HEALTHCHECK")[0].partition(" CMD ")[2])
    assert program[0] == "python"
    # The service of the test may have to wait for a core.
    code = program[-1].replace("timeout=4", "timeout=60")
    assert code != program[-1]
    # The check must ignore proxy settings.
    environment = {**os.environ, "BENTOML_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL, check=False
    ).returncode
