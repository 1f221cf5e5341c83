"""Requests of CVAT's server, sent as it sends them: its server runs in Docker only. CVAT's SDK
decodes the masks.
"""

import json
import subprocess
from typing import Any

import numpy as np
import pytest
import requests
from pycocotools import mask as coco

from tests.e2e.pictures import as_base64, scene
from tests.integrations.conftest import KEY, own_answer

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

PHOTO = scene(45)
HEIGHT, WIDTH = 320, 480
X, Y = 240, 160
HEADERS = {
    "x-nuclio-project-name": "cvat",
    "x-nuclio-function-namespace": "nuclio",
    "x-nuclio-invoke-via": "domain-name",
    "X-Nuclio-Invoke-Timeout": "120s",
    "x-nuclio-function-name": "mobile-sam",
    "x-nuclio-path": "/",
}
DECODE = """
import json, sys
from cvat_sdk import masks, models
points, width, height = json.load(sys.stdin)
shape = models.LabeledShapeRequest(type="mask", frame=0, label_id=1, points=points)
mask = masks.decode_mask(shape.points, image_width=width, image_height=height)
print(json.dumps(mask.astype(int).tolist()))
"""


def test_interactor_returns_the_mask_of_the_service(server, tool_environment):
    clicks = {
        "pos_points": [[X, Y]],
        "neg_points": [[10, 10]],
        "obj_bbox": [[90.5, 60], [390, 260.5]],
    }
    url = server.url.replace("://", f"://cvat:{KEY}@") + "/api/function_invocations"
    answer = requests.post(
        url, headers=HEADERS, timeout=120, json={"image": as_base64(PHOTO), **clicks}
    ).json()
    fields: dict[str, Any] = {
        "pos_coords": [[X, Y]],
        "neg_coords": [[10, 10]],
        "box": [90.5, 60, 390, 260.5],
    }
    expected = coco.decode(own_answer(server, PHOTO, **fields)["masks"][0]["rle"]).tolist()
    (shape,) = answer["shapes"]
    command = [tool_environment("cvat") / "python", "-c", DECODE]
    words = json.dumps([shape["points"], WIDTH, HEIGHT])
    decoded = subprocess.run(command, input=words, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(decoded.stdout) == expected
    left, top, right, bottom = answer["bounds"]
    older = np.zeros((HEIGHT, WIDTH), int)
    older[top : bottom + 1, left : right + 1] = np.array(answer["mask"]) > 0
    assert older.tolist() == expected
