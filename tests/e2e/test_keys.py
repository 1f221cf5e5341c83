"""A service with API keys, a rate limit and CORS."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests

from mobile_sam_client import Client, Unauthorized
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server, serve_expecting_failure, serving

pytestmark = pytest.mark.e2e
ALICE, BOB, NEW = "alice-key-of-24-letters", "bobs-key-of-24-letters..", "a-new-key-for-bob-alone"
WORKERS = 2
ORIGIN = "https://annotate.example"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"# callers\nalice:{ALICE}\nbob:{BOB}\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def keyed(builtin_repository: Path, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("keyed") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_API_KEYS_FILE=str(key_file),
        MOBILE_SAM_METRICS="key",
        BENTOML_CONFIG_OPTIONS=f"api_server.workers={WORKERS}",
        MOBILE_SAM_LOG_FORMAT="json",
        MOBILE_SAM_CORS_ORIGINS=ORIGIN,
        MOBILE_SAM_RATE_LIMIT="200/hour",
    ) as running:
        yield running


def embed(server: Server, key: str = "", **fields) -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return requests.post(f"{server.url}/embed", json=fields, headers=headers, timeout=60)


def test_python_client_sends_the_key(keyed):
    with Client(keyed.url, api_key="") as client, pytest.raises(Unauthorized):
        client.embed(scene(75))
    with Client(keyed.url, api_key=ALICE) as client:
        assert client.info().key_needed
        client.embed(scene(75))


def test_image_is_known_only_to_the_key_that_sent_it(keyed):
    image = as_base64(scene(70))
    image_id = embed(keyed, ALICE, input_image=image).json()["image_id"]
    before = keyed.embeddings()["encoded"]
    assert embed(keyed, ALICE, image_id=image_id).status_code == 200
    rejected = embed(keyed, BOB, image_id=image_id)
    assert rejected.status_code == 404
    assert rejected.json()["type"] == "urn:mobile-sam:image-not-cached"
    # The image is encoded again, so that the response time does not reveal that another key has sent it.
    assert embed(keyed, BOB, input_image=image).json()["image_id"] == image_id
    assert keyed.embeddings()["encoded"] == before + 1
    assert embed(keyed, BOB, image_id=image_id).status_code == 200


def test_only_health_and_docs_are_open_without_a_key(keyed):
    for path, status in (("/readyz", 200), ("/livez", 200), ("/", 200), ("/docs.json", 200), ("/metrics", 401)):
        assert requests.get(f"{keyed.url}{path}", timeout=5).status_code == status
    rejected = embed(keyed, input_image=as_base64(scene(71)))
    assert rejected.status_code == 401
    assert rejected.headers["Content-Type"] == "application/problem+json"
    assert requests.get(f"{keyed.url}/metrics", headers={"X-API-Key": ALICE}, timeout=5).status_code == 200


def test_keys_can_change_while_the_service_runs(keyed, key_file):
    assert embed(keyed, NEW, input_image=as_base64(scene(72))).status_code == 401
    key_file.write_text(f"alice:{ALICE}\nbob:{BOB}\nbob:{NEW}\n")
    deadline = time.monotonic() + 30
    # Each worker checks the file at most once a second.
    while any(embed(keyed, NEW, input_image=as_base64(scene(72))).status_code != 200 for _ in range(5)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert embed(keyed, BOB, input_image=as_base64(scene(72))).status_code == 200


def test_log_contains_no_key(keyed):
    unknown = "a-key-that-nobody-was-given"
    for key, status in ((ALICE, 404), (BOB, 404), (unknown, 401)):
        headers = {"Authorization": f"Bearer {key}", "X-Request-ID": f"to-be-answered-{status}"}
        answer = requests.post(f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=60)
        assert answer.status_code == status
    log = keyed.log.read_text()
    assert {"to-be-answered-404", "to-be-answered-401"} <= set(re.findall(r"to-be-answered-\d+", log))
    assert not [key for key in (ALICE, BOB, unknown) if key in log]


def test_log_lines_are_json_with_the_request_id_except_tritons(keyed):
    headers = {"X-Request-ID": "one-of-this-test", "X-API-Key": ALICE}
    response = requests.post(f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=5)
    assert response.status_code == 404
    lines = keyed.log.read_text().splitlines()
    others = [line for line in lines if not line.startswith("{")]
    assert not [line for line in others if not re.match(r"[EWI]\d{4} |Signal", line)]
    entries = [json.loads(line) for line in lines if line.startswith("{")]
    assert {line["level"] for line in entries} <= {"info", "warning", "error"}
    assert any(line.get("component") == "triton watchdog" for line in entries)
    about = [line for line in entries if line.get("request_id") == "one-of-this-test"]
    assert any("404 image-not-cached" in line["message"] for line in about)
    assert any(line["logger"] == "bentoml.access" for line in about)


def test_cors_allows_only_the_configured_origin(keyed):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://elsewhere.example", None)):
        response = requests.options(f"{keyed.url}/mobile_sam", headers={"Origin": origin, **asks}, timeout=5)
        assert response.headers.get("Access-Control-Allow-Origin") == allowed
        # Errors carry the header too, or the page could not read the reason.
        rejected = requests.post(f"{keyed.url}/mobile_sam", json={}, headers={"Origin": origin}, timeout=5)
        assert rejected.status_code == 401
        assert rejected.headers.get("Access-Control-Allow-Origin") == allowed


def test_unknown_paths_add_no_metric_series(keyed):
    headers = {"X-API-Key": ALICE}

    def series() -> int:
        text = requests.get(f"{keyed.url}/metrics", headers=headers, timeout=5).text
        return len([line for line in text.splitlines() if not line.startswith("#")])

    with requests.Session() as session:
        session.get(f"{keyed.url}/random/first", timeout=5)
        before = series()
        for number in range(100):
            assert session.get(f"{keyed.url}/random/{number}", timeout=5).status_code == 404
    assert series() <= before + 2  # the other worker may add its own


def test_rate_limit_gives_a_429_to_that_caller_only(keyed):
    answers = (embed(keyed, ALICE) for _ in range(200 * WORKERS + 1))  # each worker counts separately
    rejected = next(answer for answer in answers if answer.status_code == 429)
    assert "rate limit exceeded (200 requests per hour)" in rejected.json()["detail"]
    assert int(rejected.headers["Retry-After"]) >= 1
    assert embed(keyed, BOB, image_id="0" * 64).status_code == 404


UNSAFE: dict[str, tuple[dict[str, str], str]] = {
    "no keys": ({"MOBILE_SAM_API_KEYS": ""}, "expected API keys, got an empty value"),
    "a short key": ({"MOBILE_SAM_API_KEYS": "me:short"}, "MOBILE_SAM_API_KEYS"),
    "an invalid rate": ({"MOBILE_SAM_RATE_LIMIT": "often"}, "60/minute"),
    "metrics by key without keys": ({"MOBILE_SAM_METRICS": "key"}, "=key needs API keys, but none are set"),
}


@pytest.fixture(scope="module")
def failed_starts() -> dict[str, subprocess.CompletedProcess[str]]:
    """Start a service with each of the unsafe settings, all at once; return the ended processes."""
    with ThreadPoolExecutor(len(UNSAFE)) as pool:
        results = pool.map(lambda case: serve_expecting_failure(**case[0]), UNSAFE.values())
        return dict(zip(UNSAFE, results, strict=True))


@pytest.mark.parametrize("case", UNSAFE)
def test_unsafe_setting_ends_the_start_with_one_line(failed_starts, case):
    _, message = UNSAFE[case]
    assert failed_starts[case].returncode == 1
    assert message in failed_starts[case].stderr.splitlines()[-1]
    assert "Traceback" not in failed_starts[case].stderr
