"""Bad input: answered with a 4xx problem that names the fault."""

import logging
import re

import pytest

PATHS = ["/mobile_sam", "/embed", "/everything"]
BODIES = {
    "empty": (b"", 400),
    "19,000-nested-lists": (b"[" * 19_000 + b"]" * 19_000, 400),
    "integer-of-1,000-digits": (b'{"input_image": "AAAA", "labels": [' + b"9" * 1_000 + b"]}", 422),
    "float-of-1,000-digits": (b'{"input_image": "AAAA", "pos_coords": [[' + b"9" * 1_000 + b",1]]}", 422),
    "lone-surrogate-in-key": (b'{"\\ud800": 1}', 400),
    "nul-in-key": (b'{"\\u0000": 1, "input_image": "AAAA"}', 422),
    "line-break-in-key": (b'{"a\\n2026-11-21 [INFO] forged\\u001b[31m": 1, "input_image": "AAAA"}', 422),
    "three-million-points": (b'{"input_image": "AAAA", "pos_coords": [' + b"[1,2]," * 3_000_000 + b"[1,2]]}", 422),
    "image-not-base64": (b'{"input_image": "!!!!"}', 422),
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("body", "status"), BODIES.values(), ids=BODIES.keys())
def test_bad_body_is_a_4xx_problem_and_one_log_line(http, segmenter, caplog, *, path, body, status):
    with caplog.at_level(logging.INFO, "bentoml.mobile_sam"):
        response = http.post(path, content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    problem = response.json()
    assert problem["type"].startswith("urn:mobile-sam:")
    assert problem["errors"]
    for error in problem["errors"]:
        assert set(error) == {"field", "expected", "got"}
        assert all(error.values())
    assert len(response.content) < 10_000
    assert not segmenter.calls
    records = [record for record in caplog.records if record.name == "bentoml.mobile_sam"]
    assert len(records) == 1
    assert not records[0].exc_info
    assert records[0].getMessage().isprintable()


@pytest.mark.parametrize(
    ("path", "fields", "field"),
    [
        pytest.param("/mobile_sam", {"prompts": [{"box": [0, 0, 1]}]}, "prompts[0].box", id="box-of-three-values"),
        pytest.param("/embed", {"box": [0, 0, 1, 1]}, "box", id="prompt-for-embed"),
        pytest.param("/everything", {"progress": True, "box_nms_thresh": 2}, "box_nms_thresh", id="with-progress"),
    ],
)
def test_bad_field_is_a_422_that_names_it(http, segmenter, path, fields, field):
    response = http.post(path, json={"image_id": "an id", **fields})
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["errors"][0]["field"] == field
    assert not segmenter.calls


@pytest.mark.parametrize("content_type", ["text/plain", "multipart/mixed", "application/x-www-form-urlencoded", "x"])
def test_other_content_type_is_a_415(http, content_type):
    response = http.post("/mobile_sam", content=b"{}", headers={"content-type": content_type})
    assert response.status_code == 415
    assert content_type in response.json()["detail"]


def test_body_over_the_limit_is_a_413(http, service):
    response = http.post("/mobile_sam", content=b" " * (service.app.settings.max_body_bytes + 1))
    assert response.status_code == 413
    assert response.headers["content-type"] == "application/problem+json"


def test_swagger_page_and_its_files_are_served_locally(http):
    page = http.get("/").text
    files = re.findall(r'(?:src|rel="[^>]*href)="\.(/[^"]+)"', page)
    assert len(files) == 5
    assert {http.get(file).status_code for file in files} == {200}
    assert "://" not in page
