"""docker-compose.yml keeps to Compose's own schema, and to what the service and its image need."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys

import pytest
import yaml

from client import request
from tests.e2e.server import ROOT
from utils.edge.lifecycle import FINISH_TIMEOUT_S, TRITON_STOP_TIMEOUT_S
from utils.settings import PREFIX, Settings
from utils.triton import MIN_SHARED_MEMORY_AT_START_BYTES

MAIN, SECRETS = "docker-compose.yml", "deploy/compose.secrets.yml"
COMPOSE, WITH_SECRETS = (yaml.safe_load((ROOT / name).read_text()) for name in (MAIN, SECRETS))
SERVICES = COMPOSE["services"]
OURS = [SERVICES["mobile-sam"], SERVICES["mobile-sam-gpu"]]
BY_THE_IMAGE = {
    "model_repository",
    "cache_dir",
    "model_control_mode",
    "admin_keys",
    "admin_keys_file",
}  # its models stay
BY_SECRETS = {"api_keys", "api_keys_file", "metrics"}
UNITS = {"m": 2**20, "g": 2**30, "mb": 2**20, "gb": 2**30, "s": 1}
every_service = pytest.mark.parametrize("name", SERVICES)


def amount(text: str) -> int:
    """Bytes of `1gb`, seconds of `45s`."""
    ((number, unit),) = re.findall(r"^(\d+)([a-z]+)$", text)
    return int(number) * UNITS[unit]


@pytest.mark.parametrize("file", [MAIN, SECRETS])
def test_a_file_keeps_to_the_schema_of_compose(file):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", file]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@every_service
def test_a_container_may_do_no_more_than_it_must(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged")
    assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))


@every_service
def test_an_image_is_built_here_or_has_a_version(name):
    service = SERVICES[name]
    _, _, tag = service["image"].partition(":")
    if "build" in service:
        assert tag == service["build"]["target"]
        assert re.search(rf"^FROM \S+ AS {tag}$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    else:
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag)


@every_service
def test_what_a_service_waits_for_can_become_healthy(name):
    for other, wait in SERVICES[name].get("depends_on", {}).items():
        assert wait == {"condition": "service_healthy"}
        assert "test" in SERVICES[other]["healthcheck"]


@every_service
def test_what_is_mounted_is_there(name):
    for volume in SERVICES[name].get("volumes", []):
        source = volume.partition(":")[0]
        assert (ROOT / source).exists() if source.startswith("./") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("service", OURS, ids=["cpu", "gpu"])
def test_the_service_has_the_memory_and_the_time_it_needs(service):
    assert amount(service["shm_size"]) >= MIN_SHARED_MEMORY_AT_START_BYTES
    assert amount(service["stop_grace_period"]) > FINISH_TIMEOUT_S + TRITON_STOP_TIMEOUT_S
    image = (ROOT / "Dockerfile").read_text()
    assert "MOBILE_SAM_CACHE_DIR=/cache" in image
    assert service["volumes"] == ["cache:/cache"]


def test_the_gpu_takes_the_place_of_the_other_only_when_asked_for():
    cpu, gpu = OURS
    assert "profiles" not in cpu
    assert gpu["profiles"] == ["gpu"]
    assert gpu["networks"]["default"]["aliases"] == ["mobile-sam"]
    (device,) = gpu["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])
    for same in ("environment", "ports", "volumes", "tmpfs", "depends_on"):
        assert gpu[same] == cpu[same]


def test_every_setting_of_the_service_can_be_set():
    passed = {name for name in OURS[0]["environment"] if name.startswith(PREFIX)}
    fields = {field.name for field in dataclasses.fields(Settings)}
    assert passed == {PREFIX + name.upper() for name in fields - BY_THE_IMAGE - BY_SECRETS}


def test_redis_lets_old_embeddings_go_and_nobody_else_reaches_it():
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


def test_the_client_asks_as_its_script_can():
    client = SERVICES["client"]
    program, script, *arguments = client["command"]
    assert (program, f".{script}:{script}:ro") == ("python", client["volumes"][0])
    options = request._parser().parse_args(arguments)
    assert (ROOT / options.image.relative_to("/app")).is_file()
    assert options.url == "http://mobile-sam:3000"
    assert (client["restart"], client["profiles"]) == ("no", ["client"])


def test_grafana_shows_nothing_to_strangers():
    assert SERVICES["grafana"]["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_prometheus_reads_its_configuration_where_it_is_mounted():
    for services in (SERVICES, WITH_SECRETS["services"]):
        (config,) = (word for word in services["prometheus"]["command"] if word.startswith("--config.file="))
        folder, _, name = config.removeprefix("--config.file=").rpartition("/")
        assert SERVICES["prometheus"]["volumes"][0] == f"./deploy/monitoring:{folder}:ro"
        assert (ROOT / "deploy" / "monitoring" / name).is_file()


def test_secrets_are_files_that_those_who_need_them_get():
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


def test_the_example_of_env_has_every_variable_and_no_other():
    files = [(ROOT / name).read_text() for name in (MAIN, SECRETS)]
    asked = {name for text in files for name in re.findall(r"\$\{(\w+)", text)}
    passed = {
        name for service in SERVICES.values() for name, value in service.get("environment", {}).items() if not value
    }
    shown = set(re.findall(r"^#(\w+)=", (ROOT / ".env.example").read_text(), re.MULTILINE))
    assert shown == asked | passed | {"COMPOSE_FILE"}
