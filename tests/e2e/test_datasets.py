"""Masks of a data set by the command, killed and resumed, with the real service."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pycocotools.coco import COCO

from harness import ROOT, Server, wait_until
from harness.server import base_environment
from tests.e2e.boxed_images import BOXES, write_images

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

IMAGES = 30
RUN_TIMEOUT_S = 200


def start(folder: Path, server: Server) -> subprocess.Popen[str]:
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
        [*command, "--url", server.url],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder: Path, server: Server) -> dict[str, Any]:
    """Run the command to its end and return the summary."""
    masks = start(folder, server)
    printed, errors = masks.communicate(timeout=RUN_TIMEOUT_S)
    assert masks.returncode == 0, errors
    return dict(json.loads(printed))


def test_run_killed_at_a_third_is_resumed_with_nothing_twice_and_nothing_lost(server, tmp_path):
    write_images(tmp_path / "data", IMAGES, seed=4)
    masks = start(tmp_path, server)

    def records() -> set[Path]:
        return set((tmp_path / "found" / "records").rglob("*.json"))

    wait_until(lambda: masks.poll() is not None or len(records()) >= 0.3 * IMAGES, RUN_TIMEOUT_S)
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
