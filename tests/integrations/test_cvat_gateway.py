"""Requests of CVAT's server, sent as it sends them: its server runs in Docker only. CVAT's SDK decodes the masks."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import requests
from pycocotools import mask as coco

from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import Server
from tests.integrations.conftest import KEY, own_answer

pytestmark = pytest.mark.e2e

PHOTO = scene(45)
HEIGHT, WIDTH = 320, 480
X, Y = 240, 160
DECODE = """
import json, sys
from cvat_sdk import masks, models
for points, width, height in json.load(sys.stdin):
    shape = models.LabeledShapeRequest(type="mask", frame=0, label_id=1, points=points)
    mask = masks.decode_mask(shape.points, image_width=width, image_height=height)
    print(json.dumps(mask.astype(int).tolist()))
"""


class Gateway:
    """CVAT's side of Nuclio's dashboard."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._headers = {
            "x-nuclio-project-name": "cvat",
            "x-nuclio-function-namespace": "nuclio",
            "x-nuclio-invoke-via": "domain-name",
            "X-Nuclio-Invoke-Timeout": "120s",
        }

    def request(self, method: str, path: str, headers: dict[str, str], json: Any = None) -> Any:
        answer = requests.request(method, self.url + path, headers={**self._headers, **headers}, timeout=120, json=json)
        answer.raise_for_status()
        return answer.json()

    def functions(self) -> dict[str, Any]:
        listed: dict[str, Any] = self.request("get", "/api/functions", {})
        return listed

    def invoke(self, name: str, **payload) -> Any:
        function = self.request("get", f"/api/functions/{name}", {})
        headers = {"x-nuclio-function-name": function["metadata"]["name"], "x-nuclio-path": "/"}
        return self.request("post", "/api/function_invocations", headers, {"image": as_base64(PHOTO), **payload})


@pytest.fixture(scope="module")
def gateway(server: Server) -> Gateway:
    return Gateway(server.url.replace("://", f"://cvat:{KEY}@"))


@pytest.fixture(scope="module")
def decode(tool_environment: Callable[[str], Path]) -> Callable[[list[Any]], list[list[list[int]]]]:
    python = tool_environment("cvat") / "python"

    def decode(encoded: list[Any]) -> list[list[list[int]]]:
        words = json.dumps([(points, WIDTH, HEIGHT) for points in encoded])
        done = subprocess.run([python, "-c", DECODE], input=words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return decode


PROMPTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "point": ({"pos_points": [[X, Y]], "neg_points": [], "obj_bbox": None}, {"pos_coords": [[X, Y]]}),
    "negative": (
        {"pos_points": [[X, Y]], "neg_points": [[10, 10]], "obj_bbox": []},
        {"pos_coords": [[X, Y]], "neg_coords": [[10, 10]]},
    ),
    "box": (
        {"pos_points": [], "neg_points": [], "obj_bbox": [[90.5, 60], [390, 260.5]]},
        {"box": [90.5, 60, 390, 260.5]},
    ),
}


@pytest.mark.parametrize("case", PROMPTS.values(), ids=PROMPTS)
def test_interactor_returns_the_mask_of_the_service(gateway, server, decode, case):
    payload, fields = case
    answer = gateway.invoke("mobile-sam", **payload)
    expected = coco.decode(own_answer(server, PHOTO, **fields)["masks"][0]["rle"]).tolist()
    assert decode([shape["points"] for shape in answer["shapes"]]) == [expected]
    left, top, right, bottom = answer["bounds"]
    older = np.zeros((HEIGHT, WIDTH), int)
    older[top : bottom + 1, left : right + 1] = np.array(answer["mask"]) > 0
    assert older.tolist() == expected


def test_detector_returns_the_masks_of_everything(gateway, server):
    """CVAT's server itself encodes a detector's masks: pixels row by row in a box."""
    (label,) = json.loads(gateway.functions()["mobile-sam-everything"]["metadata"]["annotations"]["spec"])
    found = gateway.invoke("mobile-sam-everything", threshold=0.3)
    records = own_answer(server, PHOTO, "/everything", points_per_side=16, pred_iou_thresh=0.3)["masks"]
    assert [(item["label"], item["type"], item["confidence"]) for item in found] == [
        (label["name"], label["type"], record["predicted_iou"]) for record in records
    ]
    for item, record in zip(found, records, strict=True):
        *pixels, left, top, right, bottom = item["mask"]
        mask = np.zeros((HEIGHT, WIDTH), int)
        mask[top : bottom + 1, left : right + 1] = np.reshape(pixels, (bottom - top + 1, right - left + 1))
        assert mask.tolist() == coco.decode(record["segmentation"]).tolist()
        assert len(item["points"]) >= 6


def test_functions_are_listed_without_a_key_and_run_with_one(server):
    without = Gateway(server.url)
    assert set(without.functions()) == {"mobile-sam", "mobile-sam-everything"}
    with pytest.raises(requests.HTTPError, match="401 Client Error"):
        without.invoke("mobile-sam", pos_points=[[X, Y]], neg_points=[])
    assert "got no key" in server.log.read_text()


def test_a_wrong_click_is_explained_in_the_log(gateway, server):
    """CVAT shows a person the status only."""
    with pytest.raises(requests.HTTPError, match="422 Client Error: Unprocessable Entity for url") as shown:
        gateway.invoke("mobile-sam", pos_points=[[5000, Y]], neg_points=[])
    assert KEY in str(shown.value)  # docs/integrations/cvat.md warns of it
    assert "expected a point inside the image" in server.log.read_text()
