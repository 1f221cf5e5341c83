"""The pod of deploy/kubernetes/overlays/cpu on a Docker Engine: the kubelet's options, probes,
preStop and stop.
"""

import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from harness import wait_until
from mobile_sam_client import Client
from tests.containers.docker import PICTURE, click, container, docker, step, stop
from tests.unit.deploy import test_kubernetes as kubernetes
from tests.unit.deploy.test_kubernetes import Object, named, size

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

KEY = "a" * 16
SECRETS = {"mobile-sam-keys": {"keys.txt": f"alice:{KEY}\n"}, "mobile-sam-redis": {"password": "b"}}
CALLERS = 2


def variables(only: Object) -> dict[str, str]:
    """Return a container's environment, with the values of earlier variables in place of their
    names.
    """
    values: dict[str, str] = {}
    for source in only["envFrom"]:
        values |= named("cpu", "ConfigMap", source["configMapRef"]["name"])["data"]
    for each in only["env"]:
        if "value" in each:
            values[each["name"]] = re.sub(
                r"\$\((\w+)\)", lambda found: values[found[1]], each["value"]
            )
        else:
            secret = each["valueFrom"]["secretKeyRef"]
            values[each["name"]] = SECRETS[secret["name"]][secret["key"]]
    return values


def mounts(spec: Object, only: Object, folder: Path) -> list[str]:
    """Return options for a container's volumes, whose folders and files belong to the pod's
    group.
    """
    volumes, options = {volume["name"]: volume for volume in spec["volumes"]}, []
    for mount in only["volumeMounts"]:
        target, volume, path = mount["mountPath"], volumes[mount["name"]], folder / mount["name"]
        if volume.get("emptyDir", {}).get("medium") == "Memory":
            options.append(
                f"--tmpfs={target}:mode=1777,size={size(volume['emptyDir']['sizeLimit'])}"
            )
            continue
        path.mkdir()
        path.chmod(0o2777)
        if "secret" in volume:
            for name, text in SECRETS[volume["secret"]["secretName"]].items():
                (path / name).write_text(text)
                (path / name).chmod(volume["secret"]["defaultMode"])
        for each in (path, *path.iterdir()):
            os.chown(each, 0, spec["securityContext"]["fsGroup"])
        options.append(f"--volume={path}:{target}" + ":ro" * mount.get("readOnly", False))
    return options


def docker_run(spec: Object, only: Object, port: int, folder: Path) -> list[str]:
    """Return the command that runs a pod's container as a kubelet does."""
    user, limits, security = (
        spec["securityContext"],
        only["resources"]["limits"],
        only["securityContext"],
    )
    wait = only["lifecycle"]["preStop"]["sleep"]["seconds"]
    options = [f"--user={user['runAsUser']}:{user['runAsGroup']}", f"--group-add={user['fsGroup']}"]
    options += [f"--cap-drop={name}" for name in security["capabilities"]["drop"]]
    options += ["--read-only"] * security["readOnlyRootFilesystem"]
    options += ["--security-opt=no-new-privileges"] * (not security["allowPrivilegeEscalation"])
    options += [f"--memory={size(limits['memory'])}", f"--memory-swap={size(limits['memory'])}"]
    options += [
        f"--cpus={limits['cpu']}",
        f"--stop-timeout={spec['terminationGracePeriodSeconds'] - wait}",
    ]
    options += [f"--env={name}={value}" for name, value in variables(only).items()]
    options += [
        "--no-healthcheck",
        f"--publish=127.0.0.1:{port}:{only['ports'][0]['containerPort']}",
    ]
    # No Redis: the service does without it.
    options += ["--add-host=mobile-sam-redis:127.0.0.1", *mounts(spec, only, folder)]
    return ["docker", "run", "--detach", *options, only["image"]]


def passes(probe: Object, port: int) -> bool:
    """Return whether a probe succeeds before it has failed as often as it may."""
    for _ in range(probe["failureThreshold"]):
        try:
            url = f"http://127.0.0.1:{port}{probe['httpGet']['path']}"
            if requests.get(url, timeout=probe["timeoutSeconds"]).ok:
                return True
        except requests.RequestException:
            pass
        time.sleep(probe["periodSeconds"])
    return False


def in_progress(port: int) -> bool:
    return (
        "mobile_sam_requests_in_progress 1.0"
        in requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text
    )


def test_pod_serves_within_its_limits_and_loses_no_request_when_it_ends(image, port, tmp_path):
    spec, only = kubernetes.pod("cpu"), kubernetes.container("cpu")
    assert only["image"] == image
    over = threading.Event()

    def click_until_over() -> int:
        count = 0
        while not over.is_set():
            click(port, api_key=KEY, retries=0)
            count += 1
        return count

    with (
        container(docker_run(spec, only, port, tmp_path)) as name,
        ThreadPoolExecutor(CALLERS) as pool,
    ):
        with step("ready, and a click"):
            assert passes(only["startupProbe"], port)
            wait_until(lambda: passes(only["readinessProbe"], port))
            assert click(port, api_key=KEY) == "official"
            status = docker("exec", name, "cat", "/proc/1/status")
            assert re.findall(r"^(CapEff|NoNewPrivs|Seccomp):\s+(\d+)$", status, re.MULTILINE) == [
                ("CapEff", "0" * 16),
                ("NoNewPrivs", "1"),
                ("Seccomp", "2"),
            ]
        with step("clicks during preStop"):
            callers = [pool.submit(click_until_over) for _ in range(CALLERS)]
            try:
                for _ in range(only["lifecycle"]["preStop"]["sleep"]["seconds"]):
                    time.sleep(1)
                    assert all(
                        passes(only[probe], port) for probe in ("readinessProbe", "livenessProbe")
                    )
            finally:
                over.set()
            assert all(caller.result() for caller in callers)
        with (
            step("a stop during a request"),
            Client(f"http://127.0.0.1:{port}", api_key=KEY, retries=0) as client,
        ):
            everything = pool.submit(client.everything, PICTURE, points_per_side=4)
            wait_until(lambda: in_progress(port) or everything.done())
            stop(name)
            assert everything.result().masks
