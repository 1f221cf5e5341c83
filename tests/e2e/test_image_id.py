"""The header `X-Image-Id`: a lie is refused on every path, encodes nothing and leaves nothing
behind.
"""

import base64
import hashlib
from typing import Any

import httpx
import pytest

from tests.e2e.answers import problem
from tests.e2e.pictures import as_base64, scene

pytestmark = pytest.mark.e2e
CLICK = {"pos_coords": [[240, 160]], "mask_format": "rle"}
FUNCTION = {"x-nuclio-function-name": "mobile-sam"}


def ask(server, path: str, *image_ids: str, method: str = "POST", **options: Any) -> Any:
    """Send a request with any number of headers."""
    headers = [*options.pop("headers", {}).items(), *(("X-Image-Id", each) for each in image_ids)]
    return httpx.request(method, f"{server.url}{path}", headers=headers, timeout=60, **options)


def test_header_must_be_one_and_true_and_selects_nothing(server):
    file, known = scene(70), scene(71)
    image_id, known_id = (hashlib.sha256(each).hexdigest() for each in (file, known))
    assert (
        ask(server, "/embed", known_id, json={"input_image": as_base64(known)}).status_code == 200
    )
    before = server.embeddings()
    by_file, sent = {"input_image": as_base64(file)}, {"image": as_base64(file)}
    form: dict[str, Any] = {
        "files": {"image": file},
        "data": {"request": '{"pos_coords": [[240, 160]]}'},
    }
    roboflow = {"image": {"type": "base64", "value": as_base64(file)}}
    requests: list[tuple[str, dict[str, Any]]] = [
        ("/mobile_sam", {"json": {**by_file, **CLICK}}),
        ("/mobile_sam", form),
        ("/embed", {"json": by_file}),
        ("/embed", {"content": file, "headers": {"Content-Type": "image/png"}}),
        ("/embed", {"json": {"images": [by_file["input_image"]]}}),
        ("/everything", {"json": {**by_file, "progress": True}}),
        (
            "/api/function_invocations",
            {"json": {**sent, "pos_points": [[9, 9]]}, "headers": FUNCTION},
        ),
        ("/sam/automask/", {"json": {"b64img": sent["image"]}}),
        ("/sam2/embed_image", {"json": roboflow}),
    ]
    for path, options in requests:
        for lies in ([known_id], [image_id[:-1]], [image_id] * 2):
            refused = ask(server, path, *lies, **options)
            assert refused.status_code == 422, (path, lies)
            assert "X-Image-Id: expected" in refused.text
    (error,) = problem(ask(server, "/embed", known_id, json=by_file))["errors"]
    assert error == {
        "field": "X-Image-Id",
        "expected": f"the SHA-256 of the image, {image_id}",
        "got": known_id,
    }
    for path, body in (("/mobile_sam", CLICK), ("/embed", {}), ("/everything", {})):
        assert ask(server, path, image_id, json={"image_id": known_id, **body}).status_code == 422
    assert ask(server, f"/embeddings/{known_id}", image_id, method="GET").status_code == 422
    assert server.embeddings() == before
    assert ask(server, "/embed", image_id, json={"image_id": image_id}).status_code == 404

    for path, options in requests[:2]:
        assert ask(server, path, image_id, **options).status_code == 200
    assert ask(server, "/embed", image_id, json={"image_id": image_id}).status_code == 200
    assert ask(server, f"/embeddings/{image_id}", image_id, method="GET").status_code == 200
    assert server.embeddings()["encoded"] == before["encoded"] + 1


def test_job_has_the_header_of_one_of_its_images(server):
    files = [scene(72), scene(73)]
    ids = [hashlib.sha256(file).hexdigest() for file in files]
    texts = [base64.b64encode(file).decode() for file in files]
    assert ask(server, "/embed", "0" * 64, json={"images": texts}).status_code == 422
    queued = ask(server, "/embed", ids[1], json={"images": texts})
    assert queued.status_code == 202
    cancelled = ask(server, f"/embed/{queued.json()['job']}", ids[1], method="DELETE")
    assert [image["image_id"] for image in cancelled.json()["images"]] == ids
