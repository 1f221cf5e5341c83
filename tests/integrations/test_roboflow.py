"""Roboflow's own SDK against the service."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import requests
from pycocotools import mask as coco

from benchmarks.objects import iou
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import MAX_BODY_BYTES, Server
from tests.integrations.conftest import KEY, Tool, own_answer

pytestmark = pytest.mark.e2e

SCRIPT = Path(__file__).parent / "roboflow" / "sdk.py"
X, Y = 240, 160
POINT = {"x": X, "y": Y, "positive": True}
NEGATIVE = {"x": 10, "y": 10, "positive": False}
BOX = {"x": 240, "y": 160, "width": 300, "height": 200}
PROMPTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "point": ({"points": [POINT]}, {"pos_coords": [[X, Y]]}),
    "negative": ({"points": [POINT, NEGATIVE]}, {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]]}),
    "box": ({"box": BOX}, {"box": [90, 60, 390, 260]}),
    "both": ({"box": BOX, "points": [POINT]}, {"box": [90, 60, 390, 260], "pos_coords": [[X, Y]]}),
}


@pytest.fixture(scope="session")
def python(tool_environment) -> Path:
    folder: Path = tool_environment("roboflow", "import inference_sdk", debian="libgl1")
    return folder / "python"


@pytest.fixture(scope="module")
def photo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("photo") / "scene.png"
    path.write_bytes(scene(43))
    return path


@pytest.fixture(scope="module")
def start(server: Server, python: Path, start_tool: Callable[..., Tool]) -> Callable[..., Callable[..., Any]]:
    """Return a function that starts the SDK with a key, and returns a function that runs a call of its client."""

    def start(key: str) -> Callable[..., Any]:
        tool = start_tool(python, SCRIPT, server.url, key)

        def run(path: Path, method: str = "sam2_segment_image", transport: str | None = "header", **arguments) -> Any:
            return tool.call(method=method, path=str(path), transport=transport, **arguments)

        return run

    return start


@pytest.fixture(scope="module")
def sdk(start) -> Callable[..., Any]:
    run: Callable[..., Any] = start(KEY)
    return run


def expected(server: Server, photo: Path, **fields) -> dict[str, Any]:
    """Return the best mask of the service's own answer."""
    masks = own_answer(server, photo.read_bytes(), low_res_mask=True, **fields)["masks"]
    best: dict[str, Any] = max(masks, key=lambda mask: mask["score"])
    return best


@pytest.mark.parametrize("multimask", [False, True], ids=["one mask", "best of three"])
@pytest.mark.parametrize("case", PROMPTS.values(), ids=PROMPTS)
def test_mask_is_that_of_the_service(sdk, server, photo, case, multimask):
    prompt, fields = case
    answer = sdk(photo, prompts=[prompt], mask_input_format="rle", multimask_output=multimask)
    (prediction,) = answer["predictions"]
    best = expected(server, photo, multimask_output=multimask, **fields)
    assert prediction == {"masks": best["rle"], "confidence": best["score"], "format": "rle"}
    assert (answer["model_id"], answer["weights"]["name"]) == ("mobile_sam", "builtin")


def test_polygons_fill_to_the_mask(sdk, server, photo):
    """Holes would be filled; this mask has none."""
    (prediction,) = sdk(photo, prompts=[{"points": [POINT]}])["predictions"]
    mask = coco.decode(expected(server, photo, pos_coords=[[X, Y]], multimask_output=True)["rle"]).astype(bool)
    filled = np.zeros(mask.shape, np.uint8)
    for polygon in prediction["masks"]:
        cv2.fillPoly(filled, [np.array(polygon, np.int32)], [1])
    assert iou(filled.astype(bool), mask) == 1


def test_asynchronous_client_gets_masks_as_archive(sdk, server, photo):
    """The synchronous client cannot read archives, not even Roboflow's."""
    answer = sdk(photo, "sam2_segment_image_async", prompts=[{"points": [POINT]}], mask_input_format="binary")
    archive = np.load(io.BytesIO(base64.b64decode(answer["archive"])))
    best = expected(server, photo, pos_coords=[[X, Y]], multimask_output=True)
    assert (archive["masks"][0] > 0).tolist() == coco.decode(best["rle"]).astype(bool).tolist()
    low_res = np.load(io.BytesIO(base64.b64decode(best["low_res_mask"])))
    assert archive["low_res_masks"].tolist() == low_res.reshape(1, 256, 256).tolist()


def test_second_click_finds_the_embedding(sdk, server, tmp_path):
    photo = tmp_path / "other.png"
    photo.write_bytes(scene(44))
    before = server.embeddings()
    for x in (X, X + 5):
        sdk(photo, prompts=[{"points": [{**POINT, "x": x}]}])
    after = server.embeddings()
    assert (after["encoded"] - before["encoded"], after["found"] - before["found"]) == (1, 1)


def test_wrong_input_shows_a_sentence(sdk, photo):
    error = sdk(photo, prompts=[{"points": [{**POINT, "x": 5000}]}])["error"]
    assert "prompts[0].pos_coords[0]: expected a point inside the image" in error
    assert "status_code=422" in error


def test_too_large_image_shows_the_limit(sdk, tmp_path):
    photo = tmp_path / "large.png"
    photo.write_bytes(bytes(MAX_BODY_BYTES))
    assert f"expected a body of at most {MAX_BODY_BYTES} bytes" in sdk(photo, prompts=[{"points": [POINT]}])["error"]


@pytest.mark.parametrize("transport", [None, "header"], ids=["no key in a header", "unknown key"])
def test_missing_and_unknown_keys_show_how_to_send_one(start, photo, transport):
    run = start("an-unknown-key-of-letters")
    error = run(photo, transport=transport, prompts=[{"points": [POINT]}])["error"]
    assert f"got {'an unknown' if transport else 'no'} key" in error
    assert 'InferenceConfiguration(api_key_transport="header")' in error


def test_sam_1_clicks_by_the_id_of_an_embedding(server, photo):
    """The SDK has no calls for SAM 1: its users send requests of their own."""
    image = {"type": "base64", "value": as_base64(photo.read_bytes())}

    def post(path: str, **fields) -> requests.Response:
        headers = {"Authorization": f"Bearer {KEY}"}
        return requests.post(f"{server.url}{path}", json=fields, headers=headers, timeout=60)

    embedded = post("/sam/embed_image", image=image).json()
    fields = {"point_coords": [[X, Y], [10, 10]], "point_labels": [1, 0], "format": "binary"}
    for known in (
        {"image_id": embedded["image_id"]},
        {"embeddings": embedded["embeddings"], "orig_im_size": [320, 480]},
    ):
        answer = post("/sam/segment_image", **known, **fields)
        archive = np.load(io.BytesIO(answer.content))
        best = expected(server, photo, pos_coords=[[X, Y]], neg_coords=[[10, 10]])
        assert (archive["masks"][0] > 0).tolist() == coco.decode(best["rle"]).astype(bool).tolist()
    file = io.BytesIO()
    np.save(file, archive["low_res_masks"])
    refined = {"has_mask_input": True, "mask_input": as_base64(file.getvalue()), "mask_input_format": "binary"}
    assert post("/sam/segment_image", image=image, **refined, **fields).status_code == 200
