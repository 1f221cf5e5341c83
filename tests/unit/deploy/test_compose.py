"""docker-compose.yml matches the Compose schema and the needs of the service and its image."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import yaml

from client import request
from tests.e2e.server import ROOT
from utils.edge.lifecycle import FINISH_TIMEOUT_S, TRITON_STOP_TIMEOUT_S
from utils.settings import PREFIX, Settings
from utils.triton.shared_memory import MIN_SHARED_MEMORY_AT_START_BYTES

MAIN, SECRETS = "docker-compose.yml", "deploy/compose.secrets.yml"
COMPOSE, WITH_SECRETS = (yaml.safe_load((ROOT / name).read_text()) for name in (MAIN, SECRETS))
SERVICES = COMPOSE["services"]
OURS = [SERVICES["mobile-sam"], SERVICES["mobile-sam-gpu"]]
SET_BY_THE_IMAGE = {
    "model_repository",
    "cache_dir",
    "model_control_mode",
    "admin_keys",
    "admin_keys_file",
}  # the models do not change
SET_BY_SECRETS = {"api_keys", "api_keys_file", "metrics"}
UNITS = {"m": 2**20, "g": 2**30, "mb": 2**20, "gb": 2**30, "s": 1}
every_service = pytest.mark.parametrize("name", SERVICES)


def amount(text: str) -> int:
    """Return the bytes of a size such as `1gb` or the seconds of a duration such as `45s`."""
    ((number, unit),) = re.findall(r"^(\d+)([a-z]+)$", text)
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("file", [MAIN, SECRETS])
def test_file_matches_the_compose_schema(file):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@every_service
def test_container_is_restricted(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@every_service
def test_image_is_built_here_or_pinned(name):
    service = SERVICES[name]
    _, _, tag = service["image"].partition(":")
    if "build" in service:
        assert tag == service["build"]["target"]
        assert re.search(rf"^FROM \S+ AS {tag}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    else:
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


@every_service
def test_dependencies_have_health_checks(name):
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert wait == {"condition": "service_healthy"}
        assert "test" in SERVICES[other]["healthcheck"]


@every_service
def test_mounted_files_and_volumes_exist(name):
    for volume in SERVICES[name].get("volumes", []):
        source = volume.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("service", OURS, ids=["cpu", "gpu"])
def test_shared_memory_and_grace_period_suffice(service):
    assert amount(service["shm_size"]) >= MIN_SHARED_MEMORY_AT_START_BYTES
    assert amount(service["stop_grace_period"]) > FINISH_TIMEOUT_S + TRITON_STOP_TIMEOUT_S
    image = (ROOT / "Dockerfile").read_text()
    assert "MOBILE_SAM_CACHE_DIR=/cache" in image
    assert service["volumes"] == ["cache:/cache"]


def test_gpu_service_replaces_the_cpu_service_only_on_request():
    cpu, gpu = OURS
    assert "profiles" not in cpu
    assert gpu["profiles"] == ["gpu"]
    assert gpu["networks"]["default"]["aliases"] == ["mobile-sam"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    for key in ("environment", "ports", "volumes", "tmpfs", "depends_on"):
        assert gpu[key] == cpu[key]


def test_every_setting_is_passed_to_the_service():
    passed = {name for name in OURS[0]["environment"] if name.startswith(PREFIX)}
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert passed == {PREFIX + name.upper() for name in fields - SET_BY_THE_IMAGE - SET_BY_SECRETS}


def test_redis_evicts_old_embeddings_and_is_isolated():
    redis = SERVICES["redis"]
    options = dict(zip(redis["command"][1::2], redis["command"][2::2], strict=True))
    assert options["--maxmemory-policy"] == "allkeys-lru"
    assert (options["--save"], options["--protected-mode"]) == ("", "no")
    assert amount("1g") == amount(options["--maxmemory"]) < amount(redis["mem_limit"])
    assert OURS[0]["environment"]["MOBILE_SAM_REDIS_URL"].startswith("redis://redis:6379/")
    assert redis["networks"] == ["embeddings"]
    assert COMPOSE["networks"]["embeddings"] == {"internal": True}
    assert {name for name, service in SERVICES.items() if "embeddings" in service.get("networks", [])} == {
        "mobile-sam",
        "mobile-sam-gpu",
        "redis",
    }


def test_client_command_matches_its_script(monkeypatch):
    client = SERVICES["client"]
    program, script, *arguments = client["command"]
    assert (program, f".{script}:{script}:ro") == ("python", client["volumes"][0])
    image, *options = arguments
    sent = {}

    def send(url, **fields):
        sent[url] = fields
        raise requests.ConnectionError

    monkeypatch.setattr(request, "send", send)
    with pytest.raises(SystemExit, match="cannot connect"):
        request.main([str(ROOT / Path(image).relative_to("/app")), *options])
    assert sent["http://mobile-sam:3000/mobile_sam"]["pos_coords"] == [[903, 310]]
    assert (client["restart"], client["profiles"]) == ("no", ["client"])


def test_grafana_requires_a_login():
    assert SERVICES["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_prometheus_configuration_is_mounted():
    for services in (SERVICES, WITH_SECRETS["services"]):
        (config,) = (word for word in services["prometheus"]["command"] if word.startswith("--config.file="))
        folder, _, name = config.removeprefix("--config.file=").rpartition("/")
        assert SERVICES["prometheus"]["volumes"][0] == f"./deploy/monitoring:{folder}:ro"
        assert (ROOT / "deploy" / "monitoring" / name).is_file()


def test_secrets_are_given_only_to_the_services_that_need_them():
    services, secrets = WITH_SECRETS["services"], WITH_SECRETS["secrets"]
    assert services.keys() <= SERVICES.keys()
    for name in ("mobile-sam", "mobile-sam-gpu"):
        assert services[name]["environment"] == {
            "MOBILE_SAM_API_KEYS_FILE": "/run/secrets/api_keys",
            "MOBILE_SAM_METRICS": "key",
        }
    wanted = {name: service["secrets"] for name, service in services.items()}
    assert wanted == {
        "mobile-sam": ["api_keys"],
        "mobile-sam-gpu": ["api_keys"],
        "prometheus": ["metrics_key"],
        "grafana": ["grafana_password"],
    }
    assert {name: secret["file"] for name, secret in secrets.items()} == {name: f"./secrets/{name}" for name in secrets}


def test_env_example_has_exactly_the_variables_in_use():
    files = [(ROOT / name).read_text() for name in (MAIN, SECRETS)]
    asked = {name for text in files for name in re.findall(r"\$\{(\w+)", text)}
    passed = {
        name for service in SERVICES.values() for name, value in service.get("environment", {}).items() if not value
    }
    shown = set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert shown == asked | passed | {"COMPOSE_FILE"}
