"""Embeddings and the decoder's file: what callers decode with them, and whom they are given."""

import base64
import json
from typing import Any

import cv2
import numpy as np
import pytest
import requests
from safetensors.numpy import load

from benchmarks.fleet import SMALL
from harness import serving, wait_until
from tests.e2e.answers import NPY_ONLY, problem, segmentation
from tests.e2e.local import decode, get, metadata, run
from tests.e2e.pictures import as_base64, scene
from tests.services import KEYS, ORIGIN
from utils.observability.reading import MAX_AGE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]
FORMER = "0" * 64


@pytest.fixture
def server(builtin_server):
    return builtin_server


def iou(one, other) -> float:
    return float((one & other).sum() / max(1, (one | other).sum()))


@pytest.mark.parametrize("size", [(480, 320), (900, 1600)], ids=["landscape", "scaled portrait"])
@pytest.mark.parametrize("region", [None, [65, 33, 318, 287]], ids=["whole", "region"])
def test_mask_decoded_by_the_caller_is_that_of_the_service(server, size, region):
    fields: dict[str, Any] = {"input_image": as_base64(scene(31, size)), "region": region}
    embedded = server.post("/embed", **fields).json()
    query = "" if region is None else f"?region={','.join(map(str, region))}"
    file = get(server, f"/embeddings/{embedded['image_id']}{query}")
    assert (file.status_code, file.headers["content-type"]) == (200, "application/octet-stream")
    about = metadata(file.content)
    expected = {
        "image_id": embedded["image_id"],
        "width": str(size[0]),
        "height": str(size[1]),
        "squashed": "false",
    }
    assert expected.items() <= about.items()
    assert json.loads(about["region"]) == embedded.get("region", [0, 0, *size])
    assert {name: (t.shape, t.dtype) for name, t in load(file.content).items()} == {
        "image_embeddings": ((1, 64, 64, 256), np.float16)
    }
    path = f"/decoder.onnx?weights={about['weights_sha256']}&model_version={about['model_version']}"
    decoder = get(server, path)
    assert decoder.headers["cache-control"] == "public, max-age=31536000, immutable"
    for points, labels in ([[200, 150]], [1]), ([[200, 150], [90, 60]], [1, 0]):
        asked = {
            "image_id": embedded["image_id"],
            "pos_coords": points,
            "labels": labels,
            "region": region,
        }
        served = segmentation(server.post(**asked, **NPY_ONLY))
        mask, score = decode(file.content, decoder.content, points, labels)
        assert iou(mask, served.masks) >= 0.999
        assert score == pytest.approx(served.result["masks"][0]["score"], abs=2e-3)


def test_region_is_encoded_once_and_files_are_not_sent_again(server):
    image_id = server.post("/embed", input_image=as_base64(scene(32))).json()["image_id"]
    before = server.embeddings()["encoded"]
    path = f"/embeddings/{image_id}?region=64,32,320,288"
    first, again = get(server, path), get(server, path)
    assert (first.content, first.headers["etag"]) == (again.content, again.headers["etag"])
    assert server.embeddings()["encoded"] == before + 1
    assert first.headers["cache-control"] == "private, no-cache"
    whole = get(server, f"/embeddings/{image_id}")
    assert whole.headers["etag"] != first.headers["etag"]
    decoder = get(server, "/decoder.onnx")
    for each, etag in ((path, first.headers["etag"]), ("/decoder.onnx", decoder.headers["etag"])):
        known = get(server, each, **{"If-None-Match": f'W/"x", {etag}'})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", etag)
    assert decoder.headers["cache-control"] == "no-cache"
    head = requests.head(f"{server.url}/embeddings/{image_id}", timeout=60)
    assert (head.status_code, head.headers["content-length"]) == (200, str(len(whole.content)))


def test_bad_requests_say_what_was_expected(server):
    image_id = server.post("/embed", input_image=as_base64(scene(33))).json()["image_id"]
    version = "a loaded version; GET /info lists them"
    cases = {
        "/embeddings/": (404, "image_id", "the id of a cached image; send the image again"),
        "/embeddings/no-id": (404, "image_id", "the id of a cached image; send the image again"),
        f"/embeddings/{FORMER}": (
            404,
            "image_id",
            "the id of a cached image; send the image again",
        ),
        f"/embeddings/{'x' * 129}": (422, "image_id", "at most 128 characters"),
        f"/embeddings/{image_id}?region=1,2,3": (
            422,
            "region",
            '[x0, y0, x1, y1], or "auto" with prompts',
        ),
        f"/embeddings/{image_id}?region=auto": (
            422,
            "region",
            '[x0, y0, x1, y1], or "auto" with prompts',
        ),
        f"/embeddings/{image_id}?region=0,0,999,99": (
            422,
            "region",
            "0 <= x0 < x1 <= 480, 0 <= y0 < y1 <= 320",
        ),
        f"/embeddings/{image_id}?model_version=7": (422, "model_version", version),
        f"/embeddings/{image_id}?box=1": (
            422,
            "box",
            "one of the query parameters region, model_version",
        ),
        "/decoder.onnx?model_version=7": (422, "model_version", version),
        "/decoder.onnx?weights=abc": (422, "weights", "match pattern"),
        "/decoder.onnx?precision=float16": (
            422,
            "precision",
            "one of the query parameters weights, model_version",
        ),
        f"/decoder.onnx?weights={FORMER}": (409, "weights", ", which are loaded"),
    }
    for path, (status, field, expected) in cases.items():
        answer = get(server, path)
        (error,) = problem(answer)["errors"]
        assert (answer.status_code, error["field"], expected in error["expected"]) == (
            status,
            field,
            True,
        ), path
    for path in (f"/embeddings/{image_id}", "/decoder.onnx"):
        refused = server.post(path)
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


def test_keys_and_origins_apply(keyed):
    alice, bob = KEYS["alice"], KEYS["bob"]
    sent = requests.post(
        f"{keyed.url}/embed", files={"image": scene(34)}, headers={"X-API-Key": alice}, timeout=60
    ).json()
    path = f"/embeddings/{sent['image_id']}"
    assert get(keyed, path, key=alice).status_code == 200
    assert problem(get(keyed, path, key=bob))["type"] == "urn:mobile-sam:image-not-cached"
    decoder = (
        f"/decoder.onnx?weights={metadata(get(keyed, path, key=alice).content)['weights_sha256']}"
    )
    assert get(keyed, decoder, key=bob).headers["cache-control"].startswith("private, max-age")
    for each in (path, decoder):
        assert get(keyed, each).status_code == 401
        assert get(keyed, each, key=alice, Origin="https://foreign.example").status_code == 403
        assert get(keyed, each, key=alice, Origin=ORIGIN).status_code == 200
    series = 'path="/embeddings/{image_id}"'
    # The metrics may be that old.
    wait_until(lambda: series in get(keyed, "/metrics", key=alice).text, every=MAX_AGE_S)


@pytest.fixture(scope="module")
def other_server(builtin_repository, tmp_path_factory):
    """A service that keeps its decoder to itself, and whose embeddings CVAT decodes."""
    with serving(
        tmp_path_factory.mktemp("other_server") / "log",
        MOBILE_SAM_MODEL_REPOSITORY=str(builtin_repository),
        MOBILE_SAM_LOCAL_DECODING="off",
        MOBILE_SAM_CVAT_IN_BROWSER="on",
        **SMALL,
    ) as running:
        yield running


def test_service_that_has_it_switched_off_says_so(other_server):
    for path in (f"/embeddings/{FORMER}", "/decoder.onnx"):
        answer = get(other_server, path)
        assert (answer.status_code, answer.json()["type"]) == (404, "urn:mobile-sam:not-found")
        assert "expected MOBILE_SAM_LOCAL_DECODING=on" in answer.json()["detail"]
    assert get(other_server, "/info").json()["local_decoding"] is False
    assert "/decoder.onnx" not in get(other_server, "/docs.json").json()["paths"]


@pytest.mark.parametrize("size", [(900, 1601), (480, 320)], ids=["scaled portrait", "landscape"])
def test_clicks_as_cvats_page_decodes_them_give_the_masks_of_the_service(
    other_server, builtin_repository, size
):
    """The page scales clicks by 1024 over the longer side, unrounded, and pads them with (0, 0),
    labelled -1.
    """
    image = as_base64(scene(35, size))
    headers = {"x-nuclio-function-name": "pth-facebookresearch-sam-vit-h"}
    asked: dict[str, Any] = {"image": image, "pos_points": [], "neg_points": [], "obj_bbox": None}
    invoked = requests.post(
        f"{other_server.url}/api/function_invocations", json=asked, headers=headers, timeout=60
    )
    embedding = np.frombuffer(base64.b64decode(invoked.json()["blob"]), np.float32).reshape(
        1, 256, 64, 64
    )
    scale = 1024 / max(size)
    decoder = (builtin_repository / "mobile_sam_decoder" / "1" / "model.onnx").read_bytes()
    for points, labels in ([[200, 150]], [1]), ([[200, 150], [90, 60]], [1, 0]):
        coords = np.array([*points, [0, 0]], np.float32) * scale
        logits, _ = run(
            decoder,
            {"image_embeddings": embedding.transpose(0, 2, 3, 1).astype(np.float16)},
            coords,
            [*labels, -1],
        )
        in_frame = cv2.resize(logits, (1024, 1024))[
            : round(size[1] * scale), : round(size[0] * scale)
        ]
        mask = cv2.resize(in_frame, size) > 0
        fields = {"input_image": image, "pos_coords": points, "labels": labels}
        assert iou(mask, segmentation(other_server.post(**fields, **NPY_ONLY)).masks) >= 0.995
