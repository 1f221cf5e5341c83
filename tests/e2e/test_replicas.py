"""Two replicas: what they share through Redis, and what callers of HAProxy see when one of them is killed."""

import csv
import re
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import requests

from harness import ROOT, Server, free_ports, launch_server, wait_until
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.redis_server import RedisServer, redis_server
from tests.skips import require

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK = {"pos_coords": [[240, 160]], **NPY_ONLY}
CLICKS, CALLERS = 20, 8
CONFIGURATION = ROOT / "deploy" / "haproxy.cfg"
STATISTICS = """
frontend statistics
    bind 127.0.0.1:{port}
    stats enable
    stats uri /
"""


@pytest.fixture(scope="module")
def redis(tmp_path_factory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture(scope="module")
def replicas(redis, builtin_repository, tmp_path_factory) -> Iterator[list[Server]]:
    """Run two services with one Redis."""
    with ExitStack() as stack:
        servers = []
        for name in ("first", "second"):
            settings = {"MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository), "MOBILE_SAM_REDIS_URL": redis.url}
            servers.append(launch_server(tmp_path_factory.mktemp(name) / "log", **settings))
            stack.callback(servers[-1].request_stop)
        yield [server.wait_until_ready() for server in servers]


@pytest.fixture
def balancer(replicas, tmp_path) -> Iterator[Server]:
    """Run HAProxy with the documented configuration, the addresses of this test, and a page of statistics."""
    port, statistics_port = free_ports(2)
    text = CONFIGURATION.read_text() + STATISTICS.format(port=statistics_port)
    addresses = {"bind :80": f"bind 127.0.0.1:{port}"}
    addresses |= {f"10.0.0.{5 + number}:3000": f"127.0.0.1:{server.port}" for number, server in enumerate(replicas)}
    for documented, here in addresses.items():
        assert text.count(documented) == 1
        text = text.replace(documented, here)
    file, log = tmp_path / "haproxy.cfg", tmp_path / "haproxy.log"
    file.write_text(text)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [require("haproxy"), "-db", "-f", file], stdout=output, stderr=output, start_new_session=True
        )
    running = Server(process, f"http://127.0.0.1:{port}", log, f"http://127.0.0.1:{statistics_port}/;csv")
    yield running.wait_until_ready()
    running.kill()


def in_progress(balancer: Server, replica: str) -> int:
    """Return the number of requests that HAProxy has sent to a replica and that are not answered."""
    table = csv.DictReader(requests.get(balancer.metrics_url, timeout=60).text.splitlines())
    (row,) = (row for row in table if row["svname"] == replica)
    return int(row["scur"])


def test_replicas_share_embeddings_and_survive_the_loss_of_redis(replicas, redis):
    one, other = replicas
    answer = segmentation(one.post(input_image=as_base64(scene(50)), **CLICK))
    wait_until(lambda: len(redis.names()) == 2)  # the other one is the watchdogs' test image
    again = segmentation(other.post(image_id=answer.result["image_id"], **CLICK))
    assert (again.masks == answer.masks).all()
    assert again.result == answer.result
    assert other.embeddings() == {"found": 0, "shared": 1, "encoded": 0}
    segmentation(other.post(image_id=answer.result["image_id"], **CLICK))
    assert other.embeddings() == {"found": 1, "shared": 1, "encoded": 0}

    redis.stop()
    for seed in range(51, 55):
        assert segmentation(other.post(input_image=as_base64(scene(seed)), **CLICK))
    assert other.embeddings()["encoded"] == 4
    warnings = other.log.read_text().count("Redis cannot be used")
    max_warnings = 3  # one per encoding process
    assert 1 <= warnings <= max_warnings


# Runs last, because it kills a replica.
def test_clicks_of_a_killed_replica_are_answered_by_the_other(replicas, balancer):
    image = {"input_image": as_base64(scene(56))}
    expected = segmentation(balancer.post(**image, **CLICK)).result
    answers: list[requests.Response] = []
    over = threading.Event()

    def click() -> None:
        while not over.is_set():
            answers.append(balancer.post(**image, **CLICK))

    with ThreadPoolExecutor(CALLERS) as pool:
        callers = [pool.submit(click) for _ in range(CALLERS)]
        try:
            wait_until(lambda: len(answers) > CLICKS)
            # So that it dies with requests whose answers have not begun: HAProxy cannot repeat the others.
            replicas[0].triton().suspend()
            wait_until(lambda: in_progress(balancer, "first") == CALLERS // 2)
            replicas[0].kill()
        finally:
            over.set()
    assert [caller.exception() for caller in callers] == [None] * CALLERS
    assert all(segmentation(answer).result == expected for answer in answers)

    large = as_base64(scene(57, (1600, 1400)))
    (buffer,) = re.findall(r"tune.bufsize (\d+)", CONFIGURATION.read_text())
    assert len(large) > int(buffer)
    assert segmentation(balancer.post(input_image=large, **CLICK))
