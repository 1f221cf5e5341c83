"""API keys, a rate limit and CORS."""

import json
import re
from typing import Any

import pytest
import requests

from harness import Server, wait_until
from tests.e2e.pictures import as_base64, scene
from tests.services import KEYS, ORIGIN
from utils.observability.reading import MAX_AGE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
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
    # The image is encoded again, so that the response time does not reveal that another key has
    # sent it.
    assert embed(keyed, BOB, input_image=image).json()["image_id"] == image_id
    assert keyed.embeddings()["encoded"] == before + 1
    assert embed(keyed, BOB, image_id=image_id).status_code == 200


def test_only_health_and_docs_are_open_without_a_key(keyed):
    for path, status in (
        ("/readyz", 200),
        ("/livez", 200),
        ("/", 200),
        ("/docs.json", 200),
        ("/metrics", 401),
    ):
        assert requests.get(f"{keyed.url}{path}", timeout=60).status_code == status
    rejected = embed(keyed, input_image=as_base64(scene(71)))
    assert rejected.status_code == 401
    assert rejected.headers["Content-Type"] == "application/problem+json"
    assert (
        requests.get(f"{keyed.url}/metrics", headers={"X-API-Key": ALICE}, timeout=60).status_code
        == 200
    )
    assert (
        requests.get(f"{keyed.url}/info", headers={"X-API-Key": ALICE}, timeout=60).json()[
            "key_needed"
        ]
        is True
    )


def test_keys_can_change_while_the_service_runs(keyed, key_file):
    assert embed(keyed, NEW, input_image=as_base64(scene(72))).status_code == 401
    with key_file.open("a") as keys:
        keys.write(f"bob:{NEW}\n")
    # Each worker checks the file at most once a second.
    wait_until(
        lambda: all(embed(keyed, NEW, input_image=as_base64(scene(72))).ok for _ in range(5))
    )
    assert embed(keyed, BOB, input_image=as_base64(scene(72))).status_code == 200


def test_rate_of_a_key_holds_for_all_workers_together(keyed, key_file):
    key = "a-key-for-someone-slow"
    with key_file.open("a") as keys:
        keys.write(f"slow:{key} 6/day\n")
    answers: list[requests.Response] = []

    def has_asked_often() -> bool:
        """Ask once more: the workers read the file within a second, and answer 401 until then."""
        answer = embed(keyed, key)
        if answer.status_code != 401:
            answers.append(answer)
        return len(answers) == 40

    wait_until(has_asked_often)
    statuses = [answer.status_code for answer in answers]
    assert (statuses.count(422), statuses.count(429)) == (6, 34)  # none has an image
    assert (
        answers[-1]
        .json()["detail"]
        .startswith("rate limit exceeded (6 requests per day); retry in ")
    )


def test_answers_are_counted_by_the_name_of_the_key(keyed):
    for key, status in ((BOB, 404), ("a-key-that-nobody-was-given", 401)):
        assert embed(keyed, key, image_id="0" * 64).status_code == status
    series = 'mobile_sam_answers_total{key="%s",path="/embed",reason="%s",status="%d"}'
    expected = {series % ("bob", "image-not-cached", 404), series % ("", "unauthorized", 401)}
    text = ""

    def counted() -> bool:
        nonlocal text
        text = requests.get(f"{keyed.url}/metrics", headers={"X-API-Key": ALICE}, timeout=60).text
        return all(each in text for each in expected)

    wait_until(counted, every=MAX_AGE_S)  # the metrics may be that old
    assert not [key for key in (ALICE, BOB) if key in text]


def test_log_contains_no_key(keyed):
    unknown = "a-key-that-nobody-was-given"

    def answered(key: str, status: int) -> None:
        headers = {"Authorization": f"Bearer {key}", "X-Request-ID": f"to-be-answered-{status}"}
        answer = requests.post(
            f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=60
        )
        assert answer.status_code == status

    def logged(status: int) -> bool:
        return f"to-be-answered-{status}" in keyed.log.read_text()

    def refused() -> bool:
        answered(unknown, 401)
        return logged(401)

    answered(ALICE, 404)
    answered(BOB, 404)
    wait_until(refused)  # after many refusals, some are only counted
    assert requests.get(f"{keyed.url}/{ALICE}", timeout=60).status_code == 404
    query = requests.post(
        f"{keyed.url}/embed?api_key={ALICE}",
        json={},
        headers={"X-API-Key": BOB, "X-Request-ID": "to-be-answered-422"},
        timeout=60,
    )
    assert query.status_code == 422
    wait_until(lambda: logged(404) and logged(422))  # lines may be written after the answer
    log = keyed.log.read_text()
    assert not [key for key in (ALICE, BOB, unknown) if key in log]


def test_log_lines_are_json_with_the_request_id_except_tritons(keyed):
    headers = {"X-Request-ID": "one-of-this-test", "X-API-Key": ALICE}
    response = requests.post(
        f"{keyed.url}/embed", json={"image_id": "0" * 64}, headers=headers, timeout=60
    )
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
    (refusal,) = (line for line in about if "404 image-not-cached" in line["message"])
    request = {
        "method": "POST",
        "path": "/embed",
        "status": 404,
        "caller": "alice",
        "image_id": "0" * 64,
    }
    assert refusal.items() >= {**request, "reason": "image-not-cached"}.items()
    (line,) = (line for line in about if line["logger"] == "bentoml.access")
    assert line.items() >= {**request, "message": "POST /embed 404"}.items()
    assert "weights" not in line


def test_log_line_of_an_answer_names_image_weights_and_time(keyed):
    headers = {"X-Request-ID": "with-an-image", "X-API-Key": ALICE}
    answer = requests.post(
        f"{keyed.url}/embed",
        json={"input_image": as_base64(scene(73))},
        headers=headers,
        timeout=60,
    )
    assert answer.status_code == 200

    def lines() -> list[dict[str, Any]]:
        written = [
            json.loads(line) for line in keyed.log.read_text().splitlines() if line.startswith("{")
        ]
        about = [line for line in written if line.get("request_id") == "with-an-image"]
        return [line for line in about if line["logger"] == "bentoml.access"]

    wait_until(lines)  # it is written after the answer
    (line,) = lines()
    image = answer.json()
    assert (line["image_id"], line["weights"], line["status"]) == (
        image["image_id"],
        image["weights"]["name"],
        200,
    )
    assert line["ms"] > 1000 * image["encode_s"] > 0


def test_cors_allows_only_the_configured_origin(keyed):
    asks = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,x-image-id",
    }
    for origin, allowed, status in (
        (ORIGIN, ORIGIN, 401),
        ("https://elsewhere.example", None, 403),
    ):
        response = requests.options(
            f"{keyed.url}/mobile_sam", headers={"Origin": origin, **asks}, timeout=60
        )
        assert (response.status_code, response.headers.get("Access-Control-Allow-Origin")) == (
            200 if allowed else 400,
            allowed,
        )
        # Errors carry the header too, or the page could not read the reason.
        rejected = requests.post(
            f"{keyed.url}/mobile_sam", json={}, headers={"Origin": origin}, timeout=60
        )
        assert rejected.status_code == status
        assert rejected.headers.get("Access-Control-Allow-Origin") == allowed
        if allowed:
            assert "X-Image-Orientation" in rejected.headers["Access-Control-Expose-Headers"]


def test_rate_limit_gives_a_429_to_that_caller_only(keyed):
    # Of requests that are rejected often the log has only some, so these are of a kind that no
    # other test looks for.
    headers = {"X-API-Key": KEYS["eve"], "Content-Type": "text/plain"}
    with requests.Session() as session:
        answers = [
            session.post(f"{keyed.url}/embed", b"", headers=headers, timeout=60) for _ in range(401)
        ]
    *accepted, rejected = answers
    assert {answer.status_code for answer in accepted} == {415}
    assert rejected.status_code == 429
    assert "rate limit exceeded (400 requests per hour)" in rejected.json()["detail"]
    assert int(rejected.headers["Retry-After"]) >= 1
    assert embed(keyed, BOB, image_id="0" * 64).status_code == 404
