"""`/info` and responses name the weights that Triton has loaded, not those in the model repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.chaos import victims
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import ROOT, Server, make_repository, serving, write_other_weights

pytestmark = pytest.mark.e2e


def info_of(server: Server) -> dict[str, Any]:
    info: dict[str, Any] = requests.get(f"{server.url}/info", timeout=10).json()
    return info


def loaded_weights(server: Server) -> dict[str, Any]:
    """Return the weights named by `/info`, after checking that a response names the same."""
    info = info_of(server)
    answer = server.post("/embed", input_image=as_base64(scene(93))).json()
    assert {key: answer[key] for key in ("weights", "engine")} == {key: info[key] for key in ("weights", "engine")}
    assert info["model_versions"] == [answer["model_version"]] == [1]
    weights: dict[str, Any] = info["weights"]
    return weights


def test_info_names_the_loaded_weights_after_the_repository_has_changed(tmp_path: Path):
    repository = make_repository(tmp_path / "model_repository", "builtin")
    other = write_other_weights(tmp_path / "other.npz")
    with serving(tmp_path / "log", MOBILE_SAM_MODEL_REPOSITORY=str(repository)) as server:
        before = loaded_weights(server)
        assert before["name"] == "builtin"

        command = [sys.executable, "-m", "mobile_sam_onnx", "--weights", str(other), "--output", str(repository)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=60)
        assert loaded_weights(server) == before

        victims.triton(server).kill()
        victims.until(lambda: victims.readiness(server) != 200, 10, 0.01)
        weights = info_of(server)["weights"]
        assert weights is None or weights["name"] == other.name
        server.wait_until_ready()
        after = loaded_weights(server)
        assert (after["name"], after["trained"]) == (other.name, True)
        assert after["sha256"] != before["sha256"]
