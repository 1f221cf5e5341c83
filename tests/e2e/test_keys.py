"""A service with API keys, a rate, and a page of another origin."""

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
ORIGIN = "https://annotate.example"


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(f"# who may ask\nalice:{ALICE}\nbob:{BOB}\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def keyed(builtin_repository: Path, key_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(
        tmp_path_factory.mktemp("keyed") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_API_KEYS_FILE=str(key_file),
        MOBILE_SAM_METRICS="key",
        MOBILE_SAM_LOG_FORMAT="json",
        MOBILE_SAM_CORS_ORIGINS=ORIGIN,
        MOBILE_SAM_RATE_LIMIT="200/minute",
    ) as running:
        yield running


def embed(server: Server, key: str = "", **fields) -> requests.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return requests.post(f"{server.url}/embed", json=fields, headers=headers, timeout=60)


def test_the_python_client_sends_the_key(keyed):
    with Client(keyed.url, api_key="") as client, pytest.raises(Unauthorized):
        client.embed(scene(75))
    with Client(keyed.url, api_key=ALICE) as client:
        assert client.info().key_needed
        client.embed(scene(75))


def test_an_image_is_known_to_its_own_key_alone(keyed):
    image = as_base64(scene(70))
    image_id = embed(keyed, ALICE, input_image=image).json()["image_id"]
    before = keyed.embeddings()["encoded"]
    assert embed(keyed, ALICE, image_id=image_id).status_code == 200
    refused = embed(keyed, BOB, image_id=image_id)
    assert refused.status_code == 404
    assert refused.json()["type"] == "urn:mobile-sam:image-not-cached"
    # Nor is an image answered more quickly because somebody else has sent it before.
    assert embed(keyed, BOB, input_image=image).json()["image_id"] == image_id
    assert keyed.embeddings()["encoded"] == before + 1
    assert embed(keyed, BOB, image_id=image_id).status_code == 200


def test_without_a_key_there_is_health_and_the_page_and_nothing_else(keyed):
    for path, status in (("/readyz", 200), ("/livez", 200), ("/", 200), ("/docs.json", 200), ("/metrics", 401)):
        assert requests.get(f"{keyed.url}{path}", timeout=5).status_code == status
    refused = embed(keyed, input_image=as_base64(scene(71)))
    assert refused.status_code == 401
    assert refused.headers["Content-Type"] == "application/problem+json"
    assert requests.get(f"{keyed.url}/metrics", headers={"X-API-Key": ALICE}, timeout=5).status_code == 200


def test_keys_change_while_the_service_runs(keyed, key_file):
    assert embed(keyed, NEW, input_image=as_base64(scene(72))).status_code == 401
    key_file.write_text(f"alice:{ALICE}\nbob:{BOB}\nbob:{NEW}\n")
    deadline = time.monotonic() + 30
    # Each worker looks at the file for itself, at most once a second.
    while any(embed(keyed, NEW, input_image=as_base64(scene(72))).status_code != 200 for _ in range(5)):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert embed(keyed, BOB, input_image=as_base64(scene(72))).status_code == 200


def test_no_key_stands_in_the_log(keyed):
    log = keyed.log.read_text()
    assert not [key for key in (ALICE, BOB, NEW) if key in log]


def test_log_lines_are_documents_with_the_requests_id_but_for_tritons_own(keyed):
    headers = {"X-Request-ID": "one-of-this-test", "X-API-Key": ALICE}
    asked = requests.post(f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=5)
    assert asked.status_code == 404
    lines = keyed.log.read_text().splitlines()
    others = [line for line in lines if not line.startswith("{")]
    assert not [line for line in others if not re.match(r"[EWI]\d{4} |Signal", line)]
    told = [json.loads(line) for line in lines if line.startswith("{")]
    assert {line["level"] for line in told} <= {"info", "warning", "error"}
    assert any(line.get("component") == "triton watchdog" for line in told)
    about = [line for line in told if line.get("request_id") == "one-of-this-test"]
    assert any("404 image-not-cached" in line["message"] for line in about)
    assert any(line["logger"] == "bentoml.access" for line in about)


def test_a_page_of_a_named_origin_may_ask_and_others_may_not(keyed):
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    for origin, allowed in ((ORIGIN, ORIGIN), ("https://elsewhere.example", None)):
        asked = requests.options(f"{keyed.url}/mobile_sam", headers={"Origin": origin, **asks}, timeout=5)
        assert asked.headers.get("Access-Control-Allow-Origin") == allowed
        # A refusal can be read too, or the page would not know why.
        refused = requests.post(f"{keyed.url}/mobile_sam", json={}, headers={"Origin": origin}, timeout=5)
        assert refused.status_code == 401
        assert refused.headers.get("Access-Control-Allow-Origin") == allowed


def test_ten_thousand_paths_make_no_series(keyed):
    headers = {"X-API-Key": ALICE}

    def series() -> int:
        text = requests.get(f"{keyed.url}/metrics", headers=headers, timeout=5).text
        return len([line for line in text.splitlines() if not line.startswith("#")])

    with requests.Session() as session:
        session.get(f"{keyed.url}/random/first", timeout=5)
        before = series()
        for number in range(1000):
            assert session.get(f"{keyed.url}/random/{number}", timeout=5).status_code == 404
    assert series() <= before + 2  # of the other worker, where this one's connection went


def test_who_asks_too_often_waits(keyed):
    answers = [embed(keyed, ALICE) for _ in range(420)]  # each of two workers counts for itself
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert "at most 200 requests per 1 minute" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) >= 1
    assert embed(keyed, BOB, image_id="0" * 64).status_code == 404


OPEN: dict[str, tuple[dict[str, str], str]] = {
    "no keys": ({"MOBILE_SAM_API_KEYS": ""}, "expected API keys, got an empty value"),
    "a short key": ({"MOBILE_SAM_API_KEYS": "me:short"}, "MOBILE_SAM_API_KEYS"),
    "no rate": ({"MOBILE_SAM_RATE_LIMIT": "often"}, "60/minute"),
    "metrics for holders of none": ({"MOBILE_SAM_METRICS": "key"}, "=key needs API keys, but none are set"),
}


@pytest.fixture(scope="module")
def served() -> dict[str, subprocess.CompletedProcess[str]]:
    """What became of services with settings that would leave them open, all started at once."""
    with ThreadPoolExecutor(len(OPEN)) as pool:
        return dict(zip(OPEN, pool.map(lambda case: serve_expecting_failure(**case[0]), OPEN.values()), strict=True))


@pytest.mark.parametrize("case", OPEN)
def test_what_would_leave_the_service_open_ends_it_in_one_line(served, case):
    _, said = OPEN[case]
    assert served[case].returncode == 1
    assert said in served[case].stderr.splitlines()[-1]
    assert "Traceback" not in served[case].stderr
