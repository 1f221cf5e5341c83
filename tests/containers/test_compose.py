"""docker-compose.yml, and that of examples/text_generation, run by Docker Compose."""

import math
import re
import shlex
import shutil
import socket
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import requests
from PIL import Image

from harness import ROOT, free_ports, wait_until
from harness.load import crowd, json_request
from harness.server import embedding_counts
from mobile_sam_client import Client
from tests.containers.docker import CLICK_XY, KILL_TRITON, PICTURE, click, docker, run, step
from tests.e2e.pages import Block, blocks, matches
from tests.unit.deploy.test_compose import SERVICES
from tests.unit.deploy.test_monitoring import ALERTS, GPU_METRICS, QUERIES
from utils.api.openapi import EXAMPLE

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1200)]

COMPOSE = Path(sys.prefix, "compose", "compose", "docker-compose")
STARTED = ("mobile-sam", "prometheus")
"""Services that are started by name, and Redis with them. Debian has no Grafana."""
PANELS = {
    query
    for source, query in QUERIES
    if source not in {alert["alert"] for alert in ALERTS}
    and not any(metric in query for metric in GPU_METRICS)
}
"""Queries of the dashboard and of docs/monitoring.md."""


@contextmanager
def project(*files: str, **variables: object) -> Iterator[Callable[..., str]]:
    """Yield a function that runs a command of Docker Compose; remove the containers and volumes at
    the end.

    Args:
        files: configurations; later ones change earlier ones.
        variables: values of variables in them.
    """
    if not COMPOSE.exists():
        pytest.skip("not installed: Docker Compose: make env-compose")
    options = [
        "--project-name=mobile-sam-test",
        "--env-file=/dev/null",
        *[f"--file={file}" for file in files],
    ]
    compose = partial(
        run, COMPOSE, *options, **{name: str(value) for name, value in variables.items()}
    )
    try:
        yield compose
    except BaseException:
        print(compose("logs", "--tail", "50"))
        raise
    finally:
        compose("down", "--volumes")


def stop(compose: Callable[..., str], count: int) -> None:
    """Stop so many containers, and check that each exits with status 0."""
    compose("stop")
    names = compose("ps", "--all", "--quiet").splitlines()
    assert docker("inspect", "--format", "{{.State.ExitCode}}", *names).split() == ["0"] * count


def address(container: str) -> str:
    """Return the address by which this machine reaches a container."""
    return docker(
        "inspect",
        "--format",
        '{{(index .NetworkSettings.Networks "mobile-sam-test_default").IPAddress}}',
        container,
    )


def metrics_url(container: str) -> str:
    """Return the URL of a replica's metrics."""
    return f"http://{address(container)}:3000/metrics"


def has_values(prometheus: str, query: str) -> bool:
    """Return whether a query has a number at this time."""
    answer = requests.get(f"{prometheus}/api/v1/query", params={"query": query}, timeout=60).json()
    return any(math.isfinite(float(series["value"][1])) for series in answer["data"]["result"])


def often(monitoring: Path, folder: Path) -> Path:
    """Copy Prometheus's configuration to a folder, with a scrape every 3 s, and return the
    folder.
    """
    shutil.copytree(monitoring, folder)
    configuration = folder / "prometheus.yml"
    configuration.write_text(
        configuration.read_text().replace("scrape_interval: 15s", "scrape_interval: 3s")
    )
    return folder


def article(compose: Callable[..., str]) -> tuple[Block, str]:
    """Ask Triton from the client's container, as the README of the example; return what it shows
    and what came.
    """
    page = "examples/text_generation/README.md"
    found = blocks(page, (ROOT / page).read_text())
    (position,) = (
        number for number, block in enumerate(found) if "--entrypoint curl" in block.code
    )
    command = shlex.split(found[position].code.replace("\\\n", " ").splitlines()[-1])
    words = command[command.index("run") + 1 :]
    return found[position + 1], compose("run", "--no-TTY", *words).splitlines()[-1]


def check_replicas(compose: Callable[..., str], port: int) -> None:
    """Start two replicas and Envoy in place of the service, and stop one under clicks."""
    compose("rm", "--stop", "--force", "mobile-sam")
    compose("up", "--detach", "--wait", "envoy")
    assert click(port) == "official"
    replicas = compose("ps", "--quiet", "mobile-sam-replicas").split()

    def encoded() -> int:
        return sum(embedding_counts(metrics_url(replica))["encoded"] for replica in replicas)

    before = encoded()
    with Client(f"http://127.0.0.1:{port}") as client:
        for _ in range(4):
            client.segment(np.zeros((64, 64, 3), np.uint8), pos_coords=(32, 32))
    assert encoded() == before + 1
    with crowd(port, lambda: json_request(EXAMPLE), callers=4) as replies:
        docker("stop", replicas[0])
        count = len(replies.all)
        wait_until(lambda: len(replies.all) > count + 8)
    assert replies.reasons().keys() == {"ok"}
    assert requests.get(f"http://127.0.0.1:{port}/metrics", timeout=60).status_code == 404


def test_service_answers_its_client_and_prometheus_the_dashboard(base, secrets, tmp_path):
    ports = free_ports(2)
    variables = {
        "PORT": ports[0],
        "PROMETHEUS_PORT": ports[1],
        "SECRETS": secrets,
        "WEIGHTS": "official",
    }
    variables |= {
        "COMPOSE_PROFILES": "replicas",
        "MONITORING": often(ROOT / "deploy" / "monitoring", tmp_path / "monitoring"),
        "ENVOY": Path(sysconfig.get_path("purelib"), "envoy", "_bin", "envoy"),
    }
    service, prometheus = (f"http://127.0.0.1:{port}" for port in ports)
    with project("docker-compose.yml", "tests/containers/compose.yml", **variables) as compose:
        with step("build and start"):
            compose("up", "--build", "--detach", "--wait", *STARTED)

        with step("the client"):
            assert "wrote /tmp/mask.png and /tmp/picture.png" in compose(
                "run", "--rm", "--no-TTY", "client"
            )
            tmp_path.chmod(0o777)
            command = [word.replace("=/tmp/", "=/out/") for word in SERVICES["client"]["command"]]
            compose("run", "--rm", "--no-TTY", "--volume", f"{tmp_path}:/out", "client", *command)
            with Image.open(PICTURE) as picture, Image.open(tmp_path / "mask.png") as mask:
                assert mask.size == picture.size
                assert mask.getpixel(CLICK_XY)
            with Image.open(tmp_path / "picture.png") as drawn:
                assert drawn.size == mask.size
            restarts = [
                line
                for line in compose("logs", "mobile-sam").splitlines()
                if "restarting Triton" in line
            ]
            # A busy processor.
            assert not [line for line in restarts if "for dead while it loaded" not in line]

        with step("a new service with an empty disk, and the click"):
            compose("rm", "--stop", "--force", "mobile-sam")
            docker("volume", "rm", "mobile-sam-test_cache")
            compose("up", "--detach", "--wait", "mobile-sam")
            assert click(ports[0]) == "official"
            assert embedding_counts(f"{service}/metrics") == {"found": 0, "shared": 1, "encoded": 0}

        with step("the dashboard's queries"):
            compose("exec", "--no-TTY", "mobile-sam", *KILL_TRITON)
            while (
                requests.post(f"{service}/mobile_sam", json=EXAMPLE, timeout=60).status_code != 503
            ):
                pass
            deadline, random = time.monotonic() + 180, np.random.default_rng(7)
            with Client(service, retries=15) as client:
                while empty := [query for query in PANELS if not has_values(prometheus, query)]:
                    assert time.monotonic() < deadline, empty
                    image = random.integers(0, 256, (64, 64, 3), np.uint8)
                    for _ in ("new", "cached"):
                        client.segment(image, pos_coords=(32, 32))
                    client.everything(image, points_per_side=2)
                    time.sleep(1)  # Prometheus asks every 3 s

        groups = requests.get(f"{prometheus}/api/v1/rules", timeout=60).json()["data"]["groups"]
        rules = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
        assert rules == dict.fromkeys((alert["alert"] for alert in ALERTS), "ok")

        with step("two replicas behind Envoy, of which one stops"):
            check_replicas(compose, ports[0])

        with step("stop"):
            stop(compose, 2 + len({*STARTED, "redis", "envoy"} - {"mobile-sam"}))


def test_text_generation_streams_a_text_to_its_client(image, secrets, tmp_path):
    files = ("examples/text_generation/docker-compose.yml", "tests/containers/text_generation.yml")
    (port,) = free_ports(1)
    with project(*files, PORT=port, MODEL=tmp_path, SECRETS=secrets) as compose:
        with step("build with PyTorch"):
            compose("build", "server")
        tmp_path.chmod(0o777)
        program = ROOT / "tests" / "e2e" / "examples" / "tiny_gpt2.py"
        mounts = [f"--volume={program}:/tiny_gpt2.py:ro", f"--volume={tmp_path}:/model"]
        docker("run", "--rm", *mounts, "text-generation:cpu", "python", "/tiny_gpt2.py", "/model")
        with step("start, a text and a stop"):
            compose("up", "--detach", "--wait", "server")
            assert re.search(
                "^the quick brown.+",
                compose("run", "--rm", "--no-TTY", "client", "the quick brown"),
                re.M,
            )
            shown, printed = article(compose)
            assert matches(shown, printed)
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((address(compose("ps", "--quiet", "server")), 8000), 10)
            stop(compose, 1)
