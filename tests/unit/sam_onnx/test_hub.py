"""Weights from the Hugging Face Hub: its client and a local stand-in of the Hub."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from safetensors.numpy import save_file

from harness import ROOT
from tests.family.cases import MODELS, noisy_state, sam_shapes
from tests.unit.sam_onnx.conftest import record

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secret"
LARGE_BYTES = 2**40
Command = Callable[..., list[str]]


class Hub(ThreadingHTTPServer):
    """Hub with the models `owner/tune`, `owner/large`, `owner/gated` and `owner/pickled`.

    The file of `large` is announced as larger than any of the family; the last one has no
    safetensors.
    """

    content: bytes
    asked: list[str]


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        self.server.asked.append(self.command)
        asked = re.fullmatch(r"/owner/(\w+)/resolve/(\w+)/model\.safetensors", self.path)
        model, revision = asked.groups() if asked else ("", "")
        if model == "gated" and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.refuse(401, "GatedRepo")
        elif model not in ("tune", "large", "gated", "pickled"):
            self.refuse(404, "RepoNotFound")
        elif revision not in ("main", COMMIT):
            self.refuse(404, "RevisionNotFound")
        elif model == "pickled":
            self.refuse(404, "EntryNotFound")
        else:
            self.send_response(200)
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{hashlib.sha256(self.server.content).hexdigest()}"')
            size = LARGE_BYTES if model == "large" else len(self.server.content)
            self.send_header("Content-Length", str(size))
            self.end_headers()
            self.wfile.write(self.server.content if self.command == "GET" else b"")

    do_HEAD = do_GET  # noqa: N815

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    save_file(noisy_state(sam_shapes(**MODELS["small"])), tmp_path / "model.safetensors")
    with Hub(("127.0.0.1", 0), Handler) as running:
        running.content, running.asked = (tmp_path / "model.safetensors").read_bytes(), []
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def command(hub: Hub, tmp_path: Path, output: Path) -> Command:
    """Function that exports weights in another process, as the client reads its settings at
    import.
    """

    def command(weights: str, status: int = 0, **variables: str) -> list[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("HF_")
        }
        environment |= {
            "HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}",
            "HF_HOME": str(tmp_path / "hub"),
        }
        arguments = [
            sys.executable,
            "-m",
            "sam_onnx",
            "--weights",
            weights,
            "--output",
            str(output),
        ]
        done = subprocess.run(
            arguments,
            env={**environment, **variables},
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stderr
        return done.stderr.splitlines()

    return command


@pytest.mark.slow
def test_model_is_exported_with_its_commit_and_served_from_the_cache_without_a_network(
    hub, command, output
):
    fetched, exported, _ = command("hf:owner/tune")
    assert fetched == f"weights: hf:owner/tune@{COMMIT}"
    assert re.fullmatch(rf"export: \d+ s \(owner/tune weights to {output}\)", exported)
    found = record(output)
    assert (found["name"], found["sha256"]) == (
        "owner/tune",
        hashlib.sha256(hub.content).hexdigest(),
    )
    assert found["note"] == f"Weights of owner/tune on the Hugging Face Hub, revision {COMMIT}."
    hub.asked.clear()
    for revision in ("", f"@{COMMIT}"):
        for variables in ({"HF_ENDPOINT": "http://127.0.0.1:1"}, {"HF_HUB_OFFLINE": "1"}):
            assert command(f"hf:owner/tune{revision}", **variables) == [
                f"weights: hf:owner/tune@{COMMIT}",
                f"{output} is up to date with owner/tune weights",
            ]
    assert hub.asked == []
    command(f"medsam:hf:owner/tune@{COMMIT}")
    assert record(output)["descriptor"]["prompts"] == ["boxes"]


@pytest.mark.slow
def test_gated_model_needs_a_token(command, output):
    (line,) = command("hf:owner/gated", status=1)
    assert (
        "owner/gated at main: the model is gated: accept its licence on its page, and set HF_TOKEN;"
        " or give" in line
    )
    command("hf:owner/gated", HF_TOKEN=TOKEN)
    assert record(output)["name"] == "owner/gated"


@pytest.mark.parametrize(
    ("weights", "variables", "reason"),
    [
        (
            "hf:owner/none",
            {},
            "none at main: no such model, or a private one, which needs HF_TOKEN",
        ),
        ("hf:owner/tune@v2", {}, "tune at v2: no such revision"),
        (
            "hf:owner/pickled",
            {},
            "the model has no model.safetensors in one piece, and no other file is read",
        ),
        ("hf:owner/large", {}, "expected at most 6442450944 bytes, got 1099511627776"),
        ("hf:owner/tune/x", {}, "expected hf:owner/name"),
        (
            "hf:owner/tune",
            {"HF_ENDPOINT": "http://127.0.0.1:1"},
            r"cannot connect \(ConnectError\)",
        ),
        ("hf:owner/tune", {"HF_HUB_OFFLINE": "1"}, r"cannot connect \(OfflineModeIsEnabled\)"),
    ],
    ids=["model", "revision", "no safetensors", "too large", "malformed", "unreachable", "offline"],
)
def test_model_that_cannot_be_fetched_is_one_line(command, output, weights, variables, reason):
    (line,) = command(weights, status=1, **variables)
    assert re.fullmatch(
        rf"error: cannot fetch model\.safetensors of http.*{reason}; or give the path of a copy .*",
        line,
    )
    assert not output.exists()
