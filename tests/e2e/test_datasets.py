"""Masks of a data set by the command, killed and resumed, with the real service."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pycocotools.coco import COCO

from benchmarks.page_load import delayed
from harness import ROOT, Server, wait_until
from harness.server import base_environment
from mobile_sam_client._commands.box_files import MIN_BOX_IOU
from tests.e2e.boxed_images import BOXES, SIZE_WH, write_images

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]

IMAGES = 30
RUN_TIMEOUT_S = 400
DELAY_S = 0.1
"""Delay on the way to the service, of a proxy in this process: while this process stands still, so
does the command."""


def start(folder: Path, url: str, *options: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "mobile_sam_client",
        "masks",
        "data",
        "--format",
        "coco",
        "--out",
        "found",
        "--json",
    ]
    environment = {**base_environment(), "PYTHONPATH": str(ROOT / "client")}
    return subprocess.Popen(
        [*command, *options, "--url", url],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, server: Server) -> dict[str, Any]:
    """Run the command to its end and return the summary."""
    masks = start(folder, server.url)
    printed, errors = masks.communicate(timeout=RUN_TIMEOUT_S)
    assert masks.returncode == 0, errors
    return dict(json.loads(printed))


def test_run_killed_at_a_third_is_resumed_with_nothing_twice_and_nothing_lost(server, tmp_path):
    write_images(tmp_path / "data", IMAGES, seed=4)

    def records() -> set[Path]:
        return set((tmp_path / "found" / "records").rglob("*.json"))

    with delayed(server.port, DELAY_S) as url:
        masks = start(tmp_path, url)
        wait_until(
            lambda: masks.poll() is not None or len(records()) >= 0.3 * IMAGES, RUN_TIMEOUT_S
        )
        assert masks.poll() is None, masks.communicate()
        masks.send_signal(signal.SIGKILL)
        masks.communicate(timeout=RUN_TIMEOUT_S)
    kept = {record: record.stat().st_mtime_ns for record in records()}
    assert IMAGES > len(kept) >= 0.3 * IMAGES
    assert not (tmp_path / "found" / "annotations.json").exists()

    summary = finish(tmp_path, server)
    assert (summary["processed"], summary["skipped"], summary["failed"]) == (
        IMAGES - len(kept),
        len(kept),
        0,
    )
    assert {record: record.stat().st_mtime_ns for record in kept} == kept
    loaded = COCO(tmp_path / "found" / "annotations.json")
    annotations = loaded.loadAnns(loaded.getAnnIds())
    assert sorted(found["id"] for found in annotations) == list(range(IMAGES * BOXES))
    assert len(loaded.dataset["annotations"]) == len(annotations)
    lines = [
        json.loads(line)
        for line in (tmp_path / "found" / "manifest.jsonl").read_text().splitlines()
    ]
    assert sorted(line["id"] for line in lines) == list(range(IMAGES * BOXES))
    for found in annotations:
        assert loaded.annToMask(found).sum() == found["area"]
        assert 0 <= found["box_iou"] <= 1
    assert finish(tmp_path, server)["skipped"] == IMAGES


def annotations_of(folder: Path) -> list[dict[str, Any]]:
    document = json.loads((folder / "found" / "annotations.json").read_text())
    return list(document["annotations"])


def test_boxes_become_those_of_the_masks_where_these_are_plausible(server, tmp_path):
    write_images(tmp_path / "data", 3, seed=8)
    given = json.loads((tmp_path / "data" / "boxes.json").read_text())["annotations"]
    finish(tmp_path, server)
    masks = annotations_of(tmp_path)
    # The masks of the first run are used again.
    boxes = start(tmp_path, server.url, "--to", "boxes")
    printed, errors = boxes.communicate(timeout=RUN_TIMEOUT_S)
    counts = json.loads(printed)
    expected = []
    for source, mask in zip(given, masks, strict=True):
        is_whole_image = mask["bbox"] == [0, 0, *SIZE_WH]
        is_box = mask["box_iou"] >= MIN_BOX_IOU and not is_whole_image
        expected.append(mask["bbox"] if is_box else pytest.approx(source["bbox"]))
    assert [one["bbox"] for one in annotations_of(tmp_path)] == expected
    assert counts["boxes"] + counts["kept"] == len(given)
    assert counts["boxes"] > 0
    assert counts["lost"] == 0
    assert counts["skipped"] == 3
    assert boxes.returncode == (1 if counts["kept"] else 0), errors
