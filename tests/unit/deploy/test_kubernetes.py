"""The objects in deploy/kubernetes are valid for the API, their references resolve, and they fit the service."""

import re
import subprocess
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from harness import ROOT
from tests.skips import require
from utils.api.errors import Unauthorized
from utils.edge.keys import ApiKeys
from utils.edge.lifecycle import FINISH_TIMEOUT_S, TRITON_STOP_TIMEOUT_S
from utils.edge.middleware import LIVE, METRICS, READY, STATIC
from utils.page import ROUTE
from utils.settings import PREFIX, Settings
from utils.triton.run import MIN_SHARED_MEMORY_AT_START_BYTES, SHARED_MEMORY

KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest version with all fields, and the newest with schemas."""
WITHOUT_SCHEMA = {"PodMonitor", "PrometheusRule"}
"""Custom resources of the Prometheus operator."""
UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

Object = dict[str, Any]
each_overlay = pytest.mark.parametrize("overlay", ["cpu", "gpu", "example"])


@cache
def build(overlay: str) -> list[Object]:
    """Return the objects of an overlay, without the suffixes of generated names."""
    command = [require("kubectl"), "kustomize", str(KUBERNETES / "overlays" / overlay)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if 'unknown field "components"' in done.stderr:
        pytest.skip("kubectl is older than 1.21")
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(re.sub(r"\b(mobile-sam-settings)-[a-z0-9]{10}\b", r"\1", done.stdout)))


def named(overlay: str, kind: str, name: str = "mobile-sam") -> Object:
    (found,) = (obj for obj in build(overlay) if (obj["kind"], obj["metadata"]["name"]) == (kind, name))
    return found


def pod(overlay: str) -> Object:
    spec: Object = named(overlay, "Deployment")["spec"]["template"]["spec"]
    return spec


def container(overlay: str) -> Object:
    only: Object
    (only,) = pod(overlay)["containers"]
    return only


def size(quantity: str) -> int:
    """Return the bytes of a Kubernetes quantity."""
    found = re.fullmatch(r"(\d+)(\D*)", quantity)
    assert found, quantity
    return int(found[1]) * UNITS[found[2]]


@pytest.mark.parametrize("version", VERSIONS)
@each_overlay
def test_every_object_is_valid(overlay, version):
    objects = [obj for obj in build(overlay) if obj["kind"] not in WITHOUT_SCHEMA]
    assert len(objects) >= 10
    for obj in objects:
        kubernetes_validate.validate(obj, version, strict=True)


@each_overlay
def test_pods_meet_the_restricted_standard(overlay):
    pods = [obj["spec"]["template"]["spec"] for obj in build(overlay) if "template" in obj.get("spec", {})]
    assert len(pods) >= 2  # the service and Redis
    for spec in pods:
        assert spec["automountServiceAccountToken"] is False
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for only in spec["containers"] + spec.get("initContainers", []):
            restrictions = {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
            assert only["securityContext"] == {"allowPrivilegeEscalation": False, **restrictions}


@each_overlay
def test_settings_exist_in_the_service(overlay, monkeypatch):
    (source,) = container(overlay)["envFrom"]
    values = dict(named(overlay, "ConfigMap", source["configMapRef"]["name"])["data"])
    values |= {variable["name"]: variable.get("value", "secret") for variable in container(overlay)["env"]}
    own = {name: value for name, value in values.items() if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX).lower() for name in own} <= set(Settings.model_fields)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert Settings.from_environment().redis_url == "redis://:$(REDIS_PASSWORD)@mobile-sam-redis:6379/0"


def test_pod_matches_user_port_and_folders_of_the_images():
    spec, only = pod("cpu"), container("cpu")
    dockerfile = (ROOT / "Dockerfile").read_text()
    cache_folders = set(re.findall(r"\bMOBILE_SAM_CACHE_DIR=(\S+)", dockerfile))
    assert set(re.findall(r"^USER (\d+:\d+)$", dockerfile, re.MULTILINE)) == {
        f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
    }
    assert set(re.findall(r"^EXPOSE (\d+)$", dockerfile, re.MULTILINE)) == {str(only["ports"][0]["containerPort"])}
    mounts = {mount["mountPath"] for mount in only["volumeMounts"]}
    assert mounts == {str(SHARED_MEMORY), "/tmp", "/etc/mobile-sam/keys", *cache_folders}


@each_overlay
def test_probes_and_grace_period_fit_the_service(overlay):
    only = container(overlay)
    assert only["readinessProbe"]["httpGet"]["path"] in READY
    assert {only[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} <= set(LIVE)
    wait = only["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(overlay)["terminationGracePeriodSeconds"] >= wait + FINISH_TIMEOUT_S + 1 + TRITON_STOP_TIMEOUT_S + 2


@each_overlay
def test_volumes_are_large_enough(overlay):
    volumes = {volume["name"]: volume.get("emptyDir") for volume in pod(overlay)["volumes"]}
    settings = named(overlay, "ConfigMap", "mobile-sam-settings")["data"]
    assert {mount["name"] for mount in container(overlay)["volumeMounts"]} == set(volumes)
    assert volumes["shared-memory"]["medium"] == "Memory"
    assert size(volumes["shared-memory"]["sizeLimit"]) >= 2 * MIN_SHARED_MEMORY_AT_START_BYTES
    assert size(volumes["cache"]["sizeLimit"]) >= int(settings["MOBILE_SAM_EMBEDDING_CACHE_BYTES"]) + 2**30
    on_disk = sum(size(volumes[name]["sizeLimit"]) for name in ("cache", "tmp"))
    assert size(container(overlay)["resources"]["limits"]["ephemeral-storage"]) > on_disk


def test_ingress_exposes_all_paths_except_metrics_and_health():
    paths = {entry["path"] for entry in named("example", "Ingress")["spec"]["rules"][0]["http"]["paths"]}
    assert paths == {"/", "/docs.json", "/info", "/mobile_sam", "/embed", "/everything", ROUTE, STATIC}
    assert paths.isdisjoint({METRICS, *READY, *LIVE})


def test_running_pod_sees_a_changed_secret(tmp_path):
    def write(version: str, key: str) -> None:  # as the kubelet does, which replaces the link of the folder
        (tmp_path / version).mkdir()
        (tmp_path / version / "keys.txt").write_text(f"alice:{key}\n")
        (tmp_path / "..data_tmp").symlink_to(version)
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    now, old, new = 0.0, "a" * 16, "b" * 16
    write("..1", old)
    (tmp_path / "keys.txt").symlink_to("..data/keys.txt")
    keys = ApiKeys.from_setting(None, tmp_path / "keys.txt", clock=lambda: now)
    assert keys is not None
    assert keys.name_of([(b"x-api-key", old.encode())]) == "alice"
    write("..2", new)
    now = 1.5
    assert keys.name_of([(b"x-api-key", new.encode())]) == "alice"
    with pytest.raises(Unauthorized):
        keys.name_of([(b"x-api-key", old.encode())])
