"""The objects in deploy/kubernetes are valid for the API, and their references resolve."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.unit.deploy.cluster import KUBERNETES, OVERLAYS, container, each_overlay, named, pod
from tests.unit.deploy.kustomize import KustomizeError, Object, build, containers, read

VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest version with all fields, and the newest with schemas."""
WITHOUT_SCHEMA = {"PodMonitor", "PrometheusRule"}
"""Custom resources of the Prometheus operator."""
FILES = sorted(KUBERNETES.rglob("*.yaml"))


@pytest.mark.parametrize("version", VERSIONS)
@each_overlay
def test_every_object_is_valid(overlay, version):
    objects = [obj for obj in OVERLAYS[overlay] if obj["kind"] not in WITHOUT_SCHEMA]
    assert len(objects) >= 10
    for obj in objects:
        kubernetes_validate.validate(obj, version, strict=True)


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Deployment", "spec.template.spec.terminationGracePeriodSecond", 50),
        ("Deployment", "spec.template.spec.containers.0.readinessProbe.httpGet.pth", "/readyz"),
        ("Deployment", "spec.template.spec.containers.0.livenessProbe.periodSeconds", "10s"),
        ("Deployment", "spec.template.spec.volumes.0.emptyDir", "Memory"),
        ("Deployment", "spec.template.spec.containers.0.envFrom.0.configmapRef", {"name": "mobile-sam-settings"}),
        ("Service", "spec.ports.0.targetport", "http"),
        ("PodDisruptionBudget", "spec.maxUnavailabe", 1),
        ("NetworkPolicy", "spec.ingress.0.form", []),
    ],
    ids=[
        "in a pod",
        "in a probe",
        "string for a number",
        "string for an object",
        "in a list",
        "port",
        "budget",
        "peer",
    ],
)
def test_misspelt_field_or_wrong_type_is_rejected(kind, path, value):
    obj = copy.deepcopy(named("cpu", kind))
    *parents, last = path.split(".")
    node: Any = obj
    for part in parents:
        node = node[int(part) if part.isdigit() else part]
    node[last] = value
    with pytest.raises(kubernetes_validate.ValidationError, match=re.escape(f"'{last}'") + "|is not of type"):
        kubernetes_validate.validate(obj, VERSIONS[-1], strict=True)


@each_overlay
def test_kubectl_builds_the_same_objects(overlay):
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on PATH; `kubectl kustomize` needs no cluster")
    done = subprocess.run(
        [program, "kustomize", KUBERNETES / "overlays" / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = list(yaml.safe_load_all(re.sub(r"\b(mobile-sam-settings)-[a-z0-9]{10}\b", r"\1", done.stdout)))

    def by_name(obj):
        return obj["kind"], obj["metadata"]["name"]

    assert sorted(expected, key=by_name) == sorted(OVERLAYS[overlay], key=by_name)


@pytest.mark.parametrize(
    ("kustomization", "message"),
    [
        ("patches: [{path: patch.yaml}]", "expected one Deployment nobody, got 0"),
        ("resources: [elsewhere.yaml]", "elsewhere.yaml does not exist"),
        ("commonLabels: {a: b}", "unsupported fields: commonLabels"),
        ("images: [{name: other, newTag: '1'}]", "no container has the image other"),
    ],
    ids=["patch without target", "missing file", "unsupported field", "unused image"],
)
def test_invalid_kustomization_is_an_error(tmp_path, kustomization, message):
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    (tmp_path / "patch.yaml").write_text("{kind: Deployment, metadata: {name: nobody}}")
    with pytest.raises(KustomizeError, match=message):
        build(tmp_path)


def test_every_file_belongs_to_an_overlay():
    kustomizations = [file for file in FILES if file.name == "kustomization.yaml"]
    used = {file.resolve() for file in kustomizations}
    for file in kustomizations:
        (content,) = read(file)
        paths = [*content.get("resources", []), *(patch.get("path") for patch in content.get("patches", []))]
        used |= {(file.parent / path).resolve() for path in paths if path}
    helm_values = KUBERNETES / "components" / "autoscaling" / "prometheus-adapter.yaml"
    assert {file.resolve() for file in FILES} - used == {helm_values}


def selectors(obj: Object) -> Iterator[Object]:
    """Yield the label selectors of an object for pods in its own namespace."""
    spec = obj["spec"]
    yield from (spec[name].get("matchLabels", spec[name]) for name in ("selector", "podSelector") if name in spec)
    for rule in [*spec.get("ingress", []), *spec.get("egress", [])] if obj["kind"] == "NetworkPolicy" else []:
        for peer in [*rule.get("from", []), *rule.get("to", [])]:
            if "namespaceSelector" not in peer:
                yield peer["podSelector"]["matchLabels"]


@each_overlay
def test_every_selector_matches_pods(overlay):
    labels = [obj["spec"]["template"]["metadata"]["labels"] for obj in OVERLAYS[overlay] if obj["kind"] == "Deployment"]
    found = [selector for obj in OVERLAYS[overlay] if "spec" in obj for selector in selectors(obj)]
    assert len(found) >= 8
    for selector in found:
        assert any(selector.items() <= pod_labels.items() for pod_labels in labels), selector


@each_overlay
def test_every_named_port_exists_in_a_container(overlay):
    text = yaml.safe_dump(OVERLAYS[overlay])
    declared = {port["name"] for one in containers(OVERLAYS[overlay]) for port in one["ports"]}
    used = set(re.findall(r"(?:^|\s)(?:port|targetPort): ([a-z]+)$", text, re.MULTILINE))
    assert used == declared == {"http", "redis"}


@each_overlay
def test_mounts_and_volumes_correspond(overlay):
    mounts = [mount["name"] for mount in container(overlay)["volumeMounts"]]
    assert sorted(mounts) == sorted(volume["name"] for volume in pod(overlay)["volumes"])


@each_overlay
def test_settings_come_from_an_existing_config_map(overlay):
    (source,) = container(overlay)["envFrom"]
    assert named(overlay, "ConfigMap", source["configMapRef"]["name"])["data"]


@each_overlay
@pytest.mark.parametrize("name", ["mobile-sam", "mobile-sam-redis"])
def test_pods_are_restricted(overlay, name):
    spec, only = pod(overlay, name), container(overlay, name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert only["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not re.search(r":latest$|^[^:]*$", only["image"])
