"""docker-compose.yml matches the Compose schema and the needs of the service and its image."""

import re
import subprocess
import sys

import pytest
import yaml
from google.protobuf import text_format
from tritonclient.grpc.model_config_pb2 import ModelConfig

from harness import ROOT
from utils.edge.lifecycle import FINISH_TIMEOUT_S, TRITON_STOP_TIMEOUT_S
from utils.settings import PREFIX, Settings
from utils.triton.run import MIN_SHARED_MEMORY_AT_START_BYTES

MAIN, SECRETS, TEXT = (
    "docker-compose.yml",
    "deploy/compose.secrets.yml",
    "examples/text_generation/docker-compose.yml",
)
COMPOSE, WITH_SECRETS = (yaml.safe_load((ROOT / name).read_text()) for name in (MAIN, SECRETS))
SERVICES = COMPOSE["services"]
SET_BY_THE_IMAGE = {
    "model_repository",
    "cache_dir",
    "model_control_mode",
    "admin_keys",
    "admin_keys_file",
}
"""Settings that stay as they are; the models do not change."""
SET_BY_SECRETS = {"api_keys", "api_keys_file", "metrics"}
UNITS = {"m": 2**20, "g": 2**30, "mb": 2**20, "gb": 2**30, "s": 1}


def amount(text: str) -> int:
    """Return the bytes of a size such as `1gb` or the seconds of a duration such as `45s`."""
    ((number, unit),) = re.findall(r"^(\d+)([a-z]+)$", text)
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("file", [MAIN, SECRETS, TEXT])
def test_file_matches_the_compose_schema(file):
    command = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        "vendor.compose-spec",
        file,
    ]
    checked = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_text_generation_s_client_reaches_a_triton_that_listens_on_loopback_only():
    services = yaml.safe_load((ROOT / TEXT).read_text())["services"]
    server, client = services["server"], services["client"]
    assert server["environment"]["EXAMPLE_OPEN"] == "8000"
    assert server["extra_hosts"] == ["tritonserver:127.0.0.1"]
    assert client["network_mode"] == "service:server"
    assert server["ports"] == ["127.0.0.1:${PORT:-3000}:3000"]
    model = ROOT / "examples/text_generation/model_repository/falcon7b"
    config = text_format.Parse((model / "config.pbtxt").read_text(), ModelConfig())
    assert config.name == model.name
    assert [tensor.name for tensor in (*config.input, *config.output)] == [
        "text_input",
        "text_output",
    ]


@pytest.mark.parametrize("name", SERVICES)
def test_container_is_restricted_and_its_files_exist(name):
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
    for source in (volume.partition(":")[0] for volume in service.get("volumes", [])):
        assert (
            (ROOT / source).exists()
            if source.startswith("./")
            else source in {*COMPOSE["volumes"], "/cache"}
        )


@pytest.mark.parametrize("name", ["mobile-sam", "mobile-sam-gpu", "mobile-sam-replicas"])
def test_shared_memory_grace_period_and_cache_fit_the_service(name):
    service = SERVICES[name]
    assert amount(service["shm_size"]) >= MIN_SHARED_MEMORY_AT_START_BYTES
    assert amount(service["stop_grace_period"]) > FINISH_TIMEOUT_S + TRITON_STOP_TIMEOUT_S
    assert service["volumes"] == (["/cache"] if name == "mobile-sam-replicas" else ["cache:/cache"])


@pytest.mark.parametrize("name", ["mobile-sam", "mobile-sam-gpu", "mobile-sam-replicas"])
def test_every_setting_is_passed_to_the_service(name):
    passed = {name for name in SERVICES[name]["environment"] if name.startswith(PREFIX)}
    fields = set(Settings.model_fields)
    assert passed == {PREFIX + name.upper() for name in fields - SET_BY_THE_IMAGE - SET_BY_SECRETS}
    secret = {
        name
        for name in WITH_SECRETS["services"]["mobile-sam"]["environment"]
        if name.startswith(PREFIX)
    }
    assert secret <= {PREFIX + name.upper() for name in SET_BY_SECRETS}


def test_env_example_has_exactly_the_variables_in_use():
    files = [(ROOT / name).read_text() for name in (MAIN, SECRETS)]
    asked = {name for text in files for name in re.findall(r"\$\{(\w+)", text)}
    passed = {
        name
        for service in SERVICES.values()
        for name, value in service.get("environment", {}).items()
        if not value
    }
    shown = set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert shown == asked | passed | {"COMPOSE_FILE"}
