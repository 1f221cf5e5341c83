"""Envoy, configured as for Kubernetes and Compose, before replicas on this machine.

envoy = start(folder, [first.port, second.port])
envoy.wait_until_ready()
envoy.set_replicas([first.port])
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml
from requests import get

from harness.server import ROOT, Server
from harness.waiting import free_ports

CONFIGURATION = ROOT / "deploy" / "kubernetes" / "components" / "envoy" / "envoy.yaml"
REPLICAS = {
    "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
    "cluster_name": "replicas",
}


class Envoy(Server):
    """Running Envoy; `metrics_url` has its statistics, beside the other pages of its admin port."""

    def set_replicas(self, ports: Sequence[int]) -> None:
        """Replace the replicas; Envoy reads the file when it is moved."""
        endpoints = [{"endpoint": {"address": _address(port)}} for port in ports]
        file = self.log.with_name("replicas.json")
        new = file.with_suffix(".new")
        new.write_text(
            json.dumps({"resources": [{**REPLICAS, "endpoints": [{"lb_endpoints": endpoints}]}]})
        )
        new.replace(file)

    def healthy(self) -> int:
        """Return the number of replicas that answer Envoy's health checks."""
        counts = re.findall(
            r"^envoy_cluster_membership_healthy\S* (\d+)",
            get(self.metrics_url, timeout=60).text,
            re.M,
        )
        return min(map(int, counts))


def start(
    folder: Path, ports: Sequence[int], change: Callable[[dict[str, Any]], None] = lambda _: None
) -> Envoy:
    """Start Envoy before the replicas on these ports, without waiting for it; its files are in
    `folder`.

    `change` changes the configuration.
    """
    configuration, log = yaml.safe_load(CONFIGURATION.read_text()), folder / "log"
    port, admin_port = free_ports(2)
    configuration["node"] = {"id": "envoy", "cluster": "envoy"}
    configuration["admin"]["address"] = _address(admin_port)
    configuration["static_resources"]["listeners"][0]["address"] = _address(port)
    source = {"path_config_source": {"path": str(log.with_name("replicas.json"))}}
    for cluster in configuration["static_resources"]["clusters"]:
        name = cluster.pop("load_assignment")["cluster_name"]
        cluster |= {
            "type": "EDS",
            "eds_cluster_config": {"eds_config": source, "service_name": name},
        }
    change(configuration)
    log.with_name("envoy.json").write_text(json.dumps(configuration))
    with log.open("wb") as output:
        command = [
            str(Path(sys.executable).with_name("envoy")),
            "--disable-hot-restart",
            "--config-path",
            "envoy.json",
        ]
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    envoy = Envoy(
        process, f"http://127.0.0.1:{port}", log, f"http://127.0.0.1:{admin_port}/stats/prometheus"
    )
    envoy.set_replicas(ports)
    return envoy


def _address(port: int) -> dict[str, object]:
    return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
