"""The objects for a cluster are valid to its API, and know each other."""

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
from tests.unit.deploy.kustomize import CannotBuild, Object, build, containers, read

VERSIONS = ("1.30", kubernetes_validate.latest_version())
"""The oldest that knows all fields, and the newest whose schemas are there."""
WITHOUT_SCHEMA = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which are not Kubernetes' own."""
FILES = sorted(KUBERNETES.rglob("*.yaml"))


@pytest.mark.parametrize("version", VERSIONS)
@each_overlay
def test_every_object_is_valid(overlay, version):
    objects = [made for made in OVERLAYS[overlay] if made["kind"] not in WITHOUT_SCHEMA]
    assert len(objects) >= 10
    for made in objects:
        kubernetes_validate.validate(made, version, strict=True)


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
        "a text for a number",
        "a text for an object",
        "in a list",
        "port",
        "budget",
        "peer",
    ],
)
def test_a_misspelt_field_or_a_wrong_type_is_found(kind, path, value):
    made = copy.deepcopy(named("cpu", kind))
    *way, last = path.split(".")
    place: Any = made
    for part in way:
        place = place[int(part) if part.isdigit() else part]
    place[last] = value
    with pytest.raises(kubernetes_validate.ValidationError, match=re.escape(f"'{last}'") + "|is not of type"):
        kubernetes_validate.validate(made, VERSIONS[-1], strict=True)


@each_overlay
def test_kubectl_builds_the_same(overlay):
    program = shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl on PATH; `kubectl kustomize` needs no cluster")
    done = subprocess.run(
        [program, "kustomize", KUBERNETES / "overlays" / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    theirs = list(yaml.safe_load_all(re.sub(r"\b(mobile-sam-settings)-[a-z0-9]{10}\b", r"\1", done.stdout)))

    def by_name(made):
        return made["kind"], made["metadata"]["name"]

    assert sorted(theirs, key=by_name) == sorted(OVERLAYS[overlay], key=by_name)


@pytest.mark.parametrize(
    ("kustomization", "message"),
    [
        ("patches: [{path: patch.yaml}]", "expected one Deployment nobody, got 0"),
        ("resources: [elsewhere.yaml]", "elsewhere.yaml is not there"),
        ("commonLabels: {a: b}", "nothing is known here of commonLabels"),
        ("images: [{name: other, newTag: '1'}]", "no container has the image other"),
    ],
    ids=["a patch without a target", "a missing file", "an unknown field", "an image that nothing has"],
)
def test_a_kustomization_that_does_not_fit_is_an_error(tmp_path, kustomization, message):
    (tmp_path / "kustomization.yaml").write_text(kustomization)
    (tmp_path / "patch.yaml").write_text("{kind: Deployment, metadata: {name: nobody}}")
    with pytest.raises(CannotBuild, match=message):
        build(tmp_path)


def test_every_file_is_part_of_an_overlay():
    kustomizations = [file for file in FILES if file.name == "kustomization.yaml"]
    used = {file.resolve() for file in kustomizations}
    for file in kustomizations:
        (content,) = read(file)
        paths = [*content.get("resources", []), *(patch.get("path") for patch in content.get("patches", []))]
        used |= {(file.parent / path).resolve() for path in paths if path}
    values_of_another_program = KUBERNETES / "components" / "autoscaling" / "prometheus-adapter.yaml"
    assert {file.resolve() for file in FILES} - used == {values_of_another_program}


def selectors(made: Object) -> Iterator[Object]:
    """The labels by which an object chooses pods of its own namespace."""
    spec = made["spec"]
    yield from (spec[name].get("matchLabels", spec[name]) for name in ("selector", "podSelector") if name in spec)
    for rule in [*spec.get("ingress", []), *spec.get("egress", [])] if made["kind"] == "NetworkPolicy" else []:
        for peer in [*rule.get("from", []), *rule.get("to", [])]:
            if "namespaceSelector" not in peer:
                yield peer["podSelector"]["matchLabels"]


@each_overlay
def test_what_selects_pods_selects_some(overlay):
    labels = [
        made["spec"]["template"]["metadata"]["labels"] for made in OVERLAYS[overlay] if made["kind"] == "Deployment"
    ]
    chosen = [selector for made in OVERLAYS[overlay] if "spec" in made for selector in selectors(made)]
    assert len(chosen) >= 8
    for selector in chosen:
        assert any(selector.items() <= of_pod.items() for of_pod in labels), selector


@each_overlay
def test_every_port_by_name_is_a_containers(overlay):
    text = yaml.safe_dump(OVERLAYS[overlay])
    declared = {port["name"] for one in containers(OVERLAYS[overlay]) for port in one["ports"]}
    used = set(re.findall(r"(?:^|\s)(?:port|targetPort): ([a-z]+)$", text, re.MULTILINE))
    assert used == declared == {"http", "redis"}


@each_overlay
def test_every_mount_has_a_volume_and_every_volume_a_mount(overlay):
    mounts = [mount["name"] for mount in container(overlay)["volumeMounts"]]
    assert sorted(mounts) == sorted(volume["name"] for volume in pod(overlay)["volumes"])


@each_overlay
def test_settings_come_from_a_config_map_that_is_there(overlay):
    (source,) = container(overlay)["envFrom"]
    assert named(overlay, "ConfigMap", source["configMapRef"]["name"])["data"]


@each_overlay
@pytest.mark.parametrize("name", ["mobile-sam", "mobile-sam-redis"])
def test_pods_have_no_rights_that_they_do_not_need(overlay, name):
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
