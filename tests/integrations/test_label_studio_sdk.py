"""Brush masks of the client, encoded and decoded by Label Studio's own library."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.unit.client.mobile_sam_client.test_exports import MASKS
from tests.unit.client.mobile_sam_client.test_polygons import NOISE
from tests.unit.client.mobile_sam_client.test_results import segmentation as one

SCRIPT = """
import json, sys
import numpy as np
from label_studio_sdk.converter.brush import decode_rle, mask2rle

for line in sys.stdin:
    case = json.loads(line)
    mask = np.array(case["mask"], np.uint8) * 255
    decoded = decode_rle(case["rle"]).reshape(*mask.shape, 4)
    print(json.dumps([bool((decoded == mask[..., None]).all()), mask2rle(mask) == case["rle"]]))
"""


def test_brush_masks_are_those_of_the_library(tool_environment: Callable[[str], Path]):
    python = tool_environment("label-studio") / "python"
    masks = [*NOISE, *MASKS, np.ones((300, 400), bool)]
    cases = [{"mask": mask.tolist(), "rle": one(mask).to_label_studio("Balloon")[0]["value"]["rle"]} for mask in masks]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    done = subprocess.run([python, "-c", SCRIPT], input=lines, capture_output=True, text=True, check=True, timeout=120)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[True, True]] * len(masks)
