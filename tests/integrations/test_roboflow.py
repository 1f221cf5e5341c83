"""Roboflow's own SDK against the service."""

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from pycocotools import mask as coco

from harness import Server
from tests.e2e.pictures import as_base64, scene
from tests.integrations.conftest import KEY, Tool, own_answer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SCRIPT = Path(__file__).parent / "roboflow" / "sdk.py"
X, Y = 240, 160
POINT = {"x": X, "y": Y, "positive": True}
NEGATIVE = {"x": 10, "y": 10, "positive": False}
BOX = {"x": 240, "y": 160, "width": 300, "height": 200}


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
def sdk(server: Server, python: Path, start_tool: Callable[..., Tool]) -> Callable[..., Any]:
    """Return a function that runs a call of the SDK's client."""
    tool = start_tool(python, SCRIPT, server.url, KEY)

    def run(
        path: Path,
        method: str = "sam2_segment_image",
        transport: str | None = "header",
        **arguments,
    ) -> Any:
        return tool.call(method=method, path=str(path), transport=transport, **arguments)

    return run


def expected(server: Server, photo: Path, **fields) -> dict[str, Any]:
    """Return the best mask of the service's own answer."""
    masks = own_answer(server, photo.read_bytes(), low_res_mask=True, **fields)["masks"]
    best: dict[str, Any] = max(masks, key=lambda mask: mask["score"])
    return best


def test_mask_is_that_of_the_service(sdk, server, photo):
    prompt = {"box": BOX, "points": [POINT, NEGATIVE]}
    answer = sdk(photo, prompts=[prompt], mask_input_format="rle", multimask_output=True)
    (prediction,) = answer["predictions"]
    fields = {"box": [90, 60, 390, 260], "pos_coords": [[X, Y]], "neg_coords": [[10, 10]]}
    best = expected(server, photo, multimask_output=True, **fields)
    assert prediction == {"masks": best["rle"], "confidence": best["score"], "format": "rle"}
    assert (answer["model_id"], answer["weights"]["name"]) == ("mobile_sam", "builtin")


def test_asynchronous_client_gets_masks_as_archive(sdk, server, photo):
    """The synchronous client cannot read archives, not even Roboflow's."""
    answer = sdk(
        photo, "sam2_segment_image_async", prompts=[{"points": [POINT]}], mask_input_format="binary"
    )
    archive = np.load(io.BytesIO(base64.b64decode(answer["archive"])))
    best = expected(server, photo, pos_coords=[[X, Y]], multimask_output=True)
    assert (archive["masks"][0] > 0).tolist() == coco.decode(best["rle"]).astype(bool).tolist()
    low_res = np.load(io.BytesIO(base64.b64decode(best["low_res_mask"])))
    assert archive["low_res_masks"].tolist() == low_res.reshape(1, 256, 256).tolist()


def test_key_in_the_body_is_answered_by_how_to_send_it(sdk, photo):
    error = sdk(photo, transport=None, prompts=[{"points": [POINT]}])["error"]
    assert "got no key" in error
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
    refined = {
        "has_mask_input": True,
        "mask_input": as_base64(file.getvalue()),
        "mask_input_format": "binary",
    }
    assert post("/sam/segment_image", image=image, **refined, **fields).status_code == 200
