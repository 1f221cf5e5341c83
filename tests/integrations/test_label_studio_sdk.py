"""Brush masks of the client, of the adapter and of the page: all are those of Label Studio's own
library.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.client.mobile_sam_client.test_results import segmentation
from tests.unit.page.formats import decode, project_of, write
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
        [python, "-c", SCRIPT], input=lines, capture_output=True, text=True, check=True, timeout=300
    )
    expected = [json.loads(line) for line in done.stdout.splitlines()]
    assert [list(brush_rle(run_lengths(mask))) for mask in masks] == expected
    assert [
        segmentation(mask).to_label_studio("Cat")[0]["value"]["rle"] for mask in masks
    ] == expected


TASKS_SCRIPT = """
import json, sys
from label_studio_sdk.converter.brush import decode_rle
for line in sys.stdin:
    task = json.loads(line)
    for result in task["annotations"][0]["result"]:
        shape = result["original_height"], result["original_width"], 4
        pixels = decode_rle(result["value"]["rle"]).reshape(shape)
        print(json.dumps((pixels[:, :, 3] > 0).astype(int).tolist()))
"""


@pytest.mark.slow
def test_library_decodes_the_masks_that_the_page_exports(
    tool_environment: Callable[[str], Path],
):
    python, project = tool_environment("label-studio") / "python", project_of()
    project["images"] = project["images"][:2]
    tasks = json.loads(write("label-studio", project)["tasks.json"])
    lines = "".join(json.dumps(task) + "\n" for task in tasks)
    done = subprocess.run(
        [python, "-c", TASKS_SCRIPT],
        input=lines,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    masks = [decode(one["rle"]) for image in project["images"] for one in image["objects"]]
    assert found == [mask.astype(int).tolist() for mask in masks]
