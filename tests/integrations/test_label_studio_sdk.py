"""Brush masks of the client and of the adapter: both are those of Label Studio's own library."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.client.mobile_sam_client.test_results import segmentation
from tests.unit.utils.integrations.test_label_studio import LONG_RUNS, MASKS
from utils.integrations.label_studio_config import brush_rle
from utils.integrations.rasters import run_lengths

SCRIPT = """
import json, sys
import numpy as np
from label_studio_sdk.converter.brush import mask2rle
for line in sys.stdin:
    print(json.dumps(mask2rle(np.array(json.loads(line), np.uint8) * 255)))
"""


@pytest.mark.slow
def test_brush_masks_are_those_of_the_library(tool_environment: Callable[[str], Path]):
    python, masks = tool_environment("label-studio") / "python", [*MASKS, LONG_RUNS, ~LONG_RUNS]
    lines = "".join(json.dumps(mask.tolist()) + "\n" for mask in masks)
    done = subprocess.run(
        [python, "-c", SCRIPT], input=lines, capture_output=True, text=True, check=True, timeout=120
    )
    expected = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(brush_rle(run_lengths(mask))) for mask in masks] == expected
    assert [
        segmentation(mask).to_label_studio("Cat")[0]["value"]["rle"] for mask in masks
    ] == expected
