"""Two replicas: what they share through Redis, and what callers of Envoy see when one of them
hangs or is killed.
"""

import hashlib
import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
import requests

from harness import Server, launch_server, wait_until
from harness.envoy import Envoy, start
from harness.load import json_request
from tests.e2e.answers import NPY_ONLY, segmentation
from tests.e2e.pictures import as_base64, scene
from tests.redis_server import RedisServer, redis_server

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CLICK = {"pos_coords": [[240, 160]], **NPY_ONLY}
CLICKS, CALLERS = 20, 8


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
            settings = {
                "MOBILE_SAM_MODEL_REPOSITORY": str(builtin_repository),
                "MOBILE_SAM_REDIS_URL": redis.url,
            }
            servers.append(launch_server(tmp_path_factory.mktemp(name) / "log", **settings))
            stack.callback(servers[-1].request_stop)
        yield [server.wait_until_ready() for server in servers]


@pytest.fixture(scope="module")
def envoy(replicas, tmp_path_factory) -> Iterator[Envoy]:
    running = start(tmp_path_factory.mktemp("envoy"), [server.port for server in replicas])
    wait_until(lambda: running.readiness() and running.healthy() == len(replicas))
    yield running
    running.request_stop()


def sent_again(envoy: Envoy) -> int:
    """Return how often Envoy has sent a click to another replica."""
    clusters = ("by_image", "least_requests")
    return sum(
        envoy.count(f'envoy_cluster_upstream_rq_retry{{envoy_cluster_name="{name}"}}')
        for name in clusters
    )


def disturbances(envoy: Envoy) -> int:
    """Return how often Envoy has sent a request to another replica, or found one that does not
    answer in time.
    """
    clusters = ("by_image", "least_requests")
    return sent_again(envoy) + sum(
        envoy.count(f'envoy_cluster_health_check_failure{{envoy_cluster_name="{name}"}}')
        for name in clusters
    )


def post(server: Server, header: str, /, **fields: object) -> requests.Response:
    return server.send(json_request(fields, headers={"X-Image-Id": header}))


@pytest.fixture
def clicking(envoy) -> Callable[[], AbstractContextManager[list[requests.Response]]]:
    """Return a context in which callers click, half of them with the image's id; all get the
    same answer.
    """
    file = scene(56)
    image, image_id = {"input_image": as_base64(file)}, hashlib.sha256(file).hexdigest()

    @contextmanager
    def clicks() -> Iterator[list[requests.Response]]:
        expected = segmentation(envoy.post(**image, **CLICK)).result
        answers: list[requests.Response] = []
        over = threading.Event()

        def click(number: int) -> None:
            while not over.is_set():
                answers.append(
                    post(envoy, image_id, **image, **CLICK)
                    if number % 2
                    else envoy.post(**image, **CLICK)
                )

        with ThreadPoolExecutor(CALLERS) as pool:
            callers = [pool.submit(click, number) for number in range(CALLERS)]
            try:
                wait_until(lambda: len(answers) > CLICKS)
                yield answers
            finally:
                over.set()
        assert [caller.exception() for caller in callers] == [None] * CALLERS
        assert all(segmentation(answer).result == expected for answer in answers)

    return clicks


def test_replicas_share_embeddings_and_survive_the_loss_of_redis(replicas, redis):
    one, other = replicas
    answer = segmentation(one.post(input_image=as_base64(scene(50)), **CLICK))
    wait_until(lambda: len(redis.names()) == 2)  # the other one is the watchdogs' test image
    answers: list[requests.Response] = []

    def is_shared() -> bool:
        """Ask the other one, which leaves a Redis that was slow alone for a while."""
        answers.append(other.post(image_id=answer.result["image_id"], **CLICK))
        return answers[-1].ok

    wait_until(is_shared)
    again = segmentation(answers[-1])
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


def test_requests_of_an_image_reach_one_replica(replicas, envoy):
    def counts() -> list[int]:
        return [sum(server.embeddings().values()) for server in replicas]

    seeds = itertools.count(1000)

    def reaches_one() -> bool:
        """Return False if Envoy took a replica of a busy machine for lost meanwhile."""
        wait_until(lambda: envoy.healthy() == len(replicas))
        file, before, disturbed = scene(next(seeds)), counts(), disturbances(envoy)
        image_id = hashlib.sha256(file).hexdigest()
        images = {"input_image": as_base64(file)}, {"image_id": image_id}
        answers = [post(envoy, image_id, **image, **CLICK) for image in images]
        counted = sorted(after - earlier for after, earlier in zip(counts(), before, strict=True))
        if disturbances(envoy) > disturbed:
            return False
        assert [answer.status_code for answer in answers] == [200, 200]
        assert counted == [0, 2]
        return True

    for _ in range(3):
        wait_until(reaches_one)


def test_job_is_found_and_the_limit_of_bodies_is_explained(envoy):
    job = envoy.post("/embed", images=[as_base64(scene(seed)) for seed in (61, 62)]).json()["job"]
    for _ in range(4):
        assert requests.get(f"{envoy.url}/embed/{job}", timeout=60).json()["job"] == job
    refused = requests.post(f"{envoy.url}/embed", bytes(2**25 + 1), timeout=60)
    assert refused.json()["type"] == "urn:mobile-sam:body-too-large"


# The next two run last, because they stop and kill a replica.
def test_clicks_of_a_hanging_replica_are_answered_by_the_other(replicas, envoy, clicking):
    with clicking() as answers:
        for process in (hanging := replicas[0].family()):
            process.suspend()
        count = len(answers)
        wait_until(lambda: sent_again(envoy) and len(answers) > count + CLICKS)
    for process in hanging:
        process.resume()
    replicas[0].wait_until_ready()


def test_clicks_of_a_killed_replica_are_answered_by_the_other(replicas, envoy, clicking):
    wait_until(lambda: envoy.healthy() == len(replicas))  # it was not after it hung
    retries = sent_again(envoy)
    with clicking() as answers:
        replicas[0].kill()
        count = len(answers)
        wait_until(lambda: sent_again(envoy) > retries and len(answers) > count + CLICKS)
