"""API keys, a rate limit and CORS."""

import json
import re

import pytest
import requests

from harness import Server, wait_until
from tests.e2e.pictures import as_base64, scene
from tests.services import KEYS, ORIGIN

pytestmark = pytest.mark.e2e
ALICE, BOB, NEW = KEYS["alice"], KEYS["bob"], "a-new-key-for-bob-alone"


def embed(server: Server, key: str = "", **fields) -> requests.Response:
    headers = {"Host": "any.example", **({"Authorization": f"Bearer {key}"} if key else {})}
    return requests.post(f"{server.url}/embed", json=fields, headers=headers, timeout=60)


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
        assert requests.get(f"{keyed.url}{path}", timeout=60).status_code == status
    rejected = embed(keyed, input_image=as_base64(scene(71)))
    assert rejected.status_code == 401
    assert rejected.headers["Content-Type"] == "application/problem+json"
    assert requests.get(f"{keyed.url}/metrics", headers={"X-API-Key": ALICE}, timeout=60).status_code == 200
    assert requests.get(f"{keyed.url}/info", headers={"X-API-Key": ALICE}, timeout=60).json()["key_needed"] is True


def test_keys_can_change_while_the_service_runs(keyed, key_file):
    assert embed(keyed, NEW, input_image=as_base64(scene(72))).status_code == 401
    with key_file.open("a") as keys:
        keys.write(f"bob:{NEW}\n")
    # Each worker checks the file at most once a second.
    wait_until(lambda: all(embed(keyed, NEW, input_image=as_base64(scene(72))).ok for _ in range(5)))
    assert embed(keyed, BOB, input_image=as_base64(scene(72))).status_code == 200


def test_log_contains_no_key(keyed):
    unknown = "a-key-that-nobody-was-given"
    for key, status in ((ALICE, 404), (BOB, 404), (unknown, 401)):
        headers = {"Authorization": f"Bearer {key}", "X-Request-ID": f"to-be-answered-{status}"}
        answer = requests.post(f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=60)
        assert answer.status_code == status
    assert requests.get(f"{keyed.url}/{ALICE}", timeout=60).status_code == 404
    query = requests.post(f"{keyed.url}/embed?api_key={ALICE}", json={}, headers={"X-API-Key": BOB}, timeout=60)
    assert query.status_code == 422
    log = keyed.log.read_text()
    assert {"to-be-answered-404", "to-be-answered-401"} <= set(re.findall(r"to-be-answered-\d+", log))
    assert not [key for key in (ALICE, BOB, unknown) if key in log]


def test_log_lines_are_json_with_the_request_id_except_tritons(keyed):
    headers = {"X-Request-ID": "one-of-this-test", "X-API-Key": ALICE}
    response = requests.post(f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=60)
    assert response.status_code == 404
    access = r"bentoml\.access.*one-of-this-test|one-of-this-test.*bentoml\.access"
    wait_until(lambda: re.search(access, keyed.log.read_text()))  # it is written after the answer
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
    asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,x-image-id"}
    for origin, allowed, status in ((ORIGIN, ORIGIN, 401), ("https://elsewhere.example", None, 403)):
        response = requests.options(f"{keyed.url}/mobile_sam", headers={"Origin": origin, **asks}, timeout=60)
        assert (response.status_code, response.headers.get("Access-Control-Allow-Origin")) == (
            200 if allowed else 400,
            allowed,
        )
        # Errors carry the header too, or the page could not read the reason.
        rejected = requests.post(f"{keyed.url}/mobile_sam", json={}, headers={"Origin": origin}, timeout=60)
        assert rejected.status_code == status
        assert rejected.headers.get("Access-Control-Allow-Origin") == allowed
        exposed = rejected.headers.get("Access-Control-Expose-Headers", "")
        assert ("X-Image-Orientation" in exposed) == bool(allowed)


def test_rate_limit_gives_a_429_to_that_caller_only(keyed):
    # Of requests that are rejected often the log has only some, so these are of a kind that no other test looks for.
    headers = {"X-API-Key": KEYS["eve"], "Content-Type": "text/plain"}
    with requests.Session() as session:  # each of two workers counts separately
        answers = [session.post(f"{keyed.url}/embed", b"", headers=headers, timeout=60) for _ in range(420)]
    rejected = next(answer for answer in answers if answer.status_code == 429)
    assert "rate limit exceeded (200 requests per hour)" in rejected.json()["detail"]
    assert int(rejected.headers["Retry-After"]) >= 1
    assert embed(keyed, BOB, image_id="0" * 64).status_code == 404
