"""envoy.yaml before servers that tell what reaches them."""

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests
import yaml

from harness import ROOT, wait_until
from harness.envoy import CONFIGURATION, Envoy, start
from utils.settings import INFERENCE_TIMEOUT_S

PROXY_MARGIN_S = 10
"""Seconds that a proxy waits longer than the service, which answers with its own 504 within
five."""
KEPT_BYTES = 2**20
"""Size of a body up to which Envoy keeps it, to send it again."""
IDS = [f"{number:064x}" for number in range(100)]


class Replica(ThreadingHTTPServer):
    """Server that answers with its port and the request's headers, or as `fail` does."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.fail: Callable[[Handler], None] | None = None
        self.stopped = False
        self.paths: Counter[str] = Counter()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def stop(self) -> None:
        """Refuse new connections, and close the others at their next request."""
        self.stopped = True
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Replica

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.paths[self.path] += 1
        if self.server.stopped:
            break_off(self)
        elif self.server.fail and self.path != "/readyz":
            self.server.fail(self)
        else:
            self.answer(200, json.dumps({"port": self.server.server_port, **self.headers}).encode())

    do_POST = do_GET  # noqa: N815


def busy(handler: Handler) -> None:
    handler.answer(503)


def break_off(handler: Handler) -> None:
    handler.close_connection = True


@pytest.fixture(scope="module")
def replicas() -> Iterator[list[Replica]]:
    running = [Replica() for _ in range(3)]
    yield running
    for each in running:
        each.stop()


@pytest.fixture(scope="module")
def envoy(replicas, tmp_path_factory) -> Iterator[Envoy]:
    running = start(tmp_path_factory.mktemp("envoy"), [each.server_port for each in replicas[:2]])
    running.wait_until_ready()
    wait_until(lambda: running.healthy() == 2)
    yield running
    assert running.stop() == 0


@pytest.fixture(autouse=True)
def _reset(request, replicas) -> None:
    for each in replicas:
        each.fail = None
    if "envoy" in request.fixturenames:
        running = request.getfixturevalue("envoy")
        # A pause of this process makes the replicas miss Envoy's checks.
        wait_until(lambda: running.healthy() == 2)
    for each in replicas:
        each.paths.clear()


def post(envoy: Envoy, path: str = "/mobile_sam", **headers: str) -> requests.Response:
    return requests.post(envoy.url + path, b"{}", headers=headers, timeout=60)


def test_streams_may_idle_longer_than_the_service_works():
    (listener,) = yaml.safe_load(CONFIGURATION.read_text())["static_resources"]["listeners"]
    manager = listener["filter_chains"][0]["filters"][0]["typed_config"]
    assert float(manager["stream_idle_timeout"].rstrip("s")) >= INFERENCE_TIMEOUT_S + PROXY_MARGIN_S


def test_documented_proxies_wait_longer_than_a_service_whose_limit_is_fixed():
    deploy = CONFIGURATION.parents[2]
    settings = (deploy / "base" / "settings.env").read_text()
    assert f"MOBILE_SAM_INFERENCE_TIMEOUT={INFERENCE_TIMEOUT_S:g}\n" in settings
    nginx = ROOT / "deploy" / "nginx" / "mobile-sam.conf"
    for file in (nginx, deploy / "components" / "ingress" / "ingress.yaml"):
        (seconds,) = re.findall(r"proxy[-_]read[-_]timeout:? (\d+)s", file.read_text())
        assert int(seconds) >= INFERENCE_TIMEOUT_S + PROXY_MARGIN_S, file
    page, unit = ROOT / "docs" / "deployment.md", ROOT / "deploy" / "systemd" / "settings"
    fixed = f"MOBILE_SAM_INFERENCE_TIMEOUT={INFERENCE_TIMEOUT_S:g}"
    assert f"`{fixed}`" in page.read_text()
    assert f"{fixed}\n" in unit.read_text()


@pytest.mark.parametrize(
    "path", ["/metrics", "/%6Detrics", "/x/../metrics", "/metrics?x", "/admin/models"]
)
def test_paths_of_a_single_replica_are_hidden(envoy, path, replicas):
    request = requests.Request("GET", envoy.url).prepare()
    request.url = envoy.url + path
    answer = requests.Session().send(request, timeout=60)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["status"] == answer.status_code == 404
    assert not any(path in each.paths for each in replicas)


def test_address_of_the_caller_is_set_and_its_request_id_kept(envoy):
    sent = {"X-Forwarded-For": "192.0.2.1", "X-Request-Id": "mine"}
    seen = {name.lower(): value for name, value in post(envoy, **sent).json().items()}
    assert (seen["x-forwarded-for"], seen["x-request-id"]) == ("127.0.0.1", "mine")


@pytest.mark.slow
def test_requests_of_an_image_and_of_a_job_reach_one_replica(envoy):
    for path in ("/mobile_sam", "/everything", "/embed/job"):
        ports = [
            {post(envoy, path, **{"X-Image-Id": name}).json()["port"] for _ in range(2)}
            for name in IDS[:16]
        ]
        assert set(map(len, ports)) == {1}
        assert len(set.union(*ports)) == 2
    for headers in ({}, {"X-API-Key": "a"}, {"Authorization": "Bearer b"}):
        assert (
            len(
                {
                    post(envoy, path, **headers).json()["port"]
                    for path in ("/embed", "/embed/job") * 4
                }
            )
            == 1
        )


@pytest.mark.slow
def test_new_replica_gets_its_share_of_the_images(envoy, replicas):
    def found() -> list[int]:
        with requests.Session() as session:
            return [
                session.get(envoy.url, headers={"X-Image-Id": name}, timeout=60).json()["port"]
                for name in IDS
            ]

    def found_again() -> bool:
        """Return whether Envoy's threads, which learn of a replica one after another, have
        settled.
        """
        return envoy.healthy() == 3 and found() == found() != before

    before = found()
    envoy.set_replicas([each.server_port for each in replicas])
    wait_until(found_again)
    moved = [new for old, new in zip(before, found(), strict=True) if old != new]
    assert len(IDS) / 6 < len(moved) < len(IDS) * 0.55
    assert Counter(moved)[replicas[2].server_port] > 0.9 * len(moved)
    envoy.set_replicas([each.server_port for each in replicas[:2]])
    wait_until(lambda: found() == before)


@pytest.mark.parametrize("fault", [busy, break_off])
@pytest.mark.parametrize("headers", [{}, {"X-Image-Id": IDS[0]}], ids=["any", "image"])
def test_refused_or_lost_request_is_sent_to_another_replica(envoy, replicas, fault, headers):
    for failing in replicas[:2]:
        replicas[0].fail = replicas[1].fail = None
        failing.fail = fault
        assert {post(envoy, **headers).status_code for _ in range(4)} == {200}


@pytest.mark.slow
def test_replica_that_is_back_takes_over_at_once_when_the_other_is_lost(envoy, replicas):
    for lost in (0, 1, 0):
        replicas[lost].stop()
        assert {post(envoy).status_code for _ in range(50)} == {200}
        wait_until(lambda: envoy.healthy() == 1)
        replicas[lost] = Replica(replicas[lost].server_port)
        wait_until(lambda: envoy.healthy() == 2)


@pytest.mark.parametrize("fault", [busy, break_off])
def test_large_request_is_not_kept_and_its_refusal_is_passed_on(envoy, replicas, fault):
    for replica in replicas:
        replica.fail = fault
    answer = requests.post(envoy.url + "/mobile_sam", b"x" * 2 * KEPT_BYTES, timeout=60)
    assert (answer.status_code, sum(replica.paths["/mobile_sam"] for replica in replicas)) == (
        503,
        1,
    )
    for replica in replicas:
        replica.fail = None
    assert (
        requests.post(envoy.url + "/mobile_sam", b"x" * 2 * KEPT_BYTES, timeout=60).status_code
        == 200
    )


@pytest.mark.parametrize(("fault", "tried"), [(busy, 2), (break_off, 1)])
def test_list_of_images_is_sent_again_only_if_it_was_refused(envoy, replicas, fault, tried):
    for each in replicas:
        each.fail = fault
    answer = post(envoy, "/embed")
    assert (answer.status_code, sum(each.paths["/embed"] > 0 for each in replicas)) == (503, tried)
