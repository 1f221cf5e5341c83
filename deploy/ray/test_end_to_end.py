"""Batches on a local Ray; workers and whole runs are killed, and still every image has exactly one row.

make batch-test
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pycocotools import mask as coco

from tests.e2e.server import ROOT, Server, make_repository, start_server

IMAGES = 90
WORKERS = 2
RUN_TIMEOUT_S = 480
"""Includes the start of Ray on a busy machine."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The service with the built-in weights."""
    folder = tmp_path_factory.mktemp("service")
    repository = make_repository(folder / "model_repository", "builtin")
    running = start_server(folder / "log", MOBILE_SAM_MODEL_REPOSITORY=str(repository))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of images in three formats and many sizes, with two invalid files."""
    folder = tmp_path_factory.mktemp("photos")
    source = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = Image.fromarray(source.integers(0, 255, (4, 5, 3), np.uint8))
        width, height = (int(side) for side in source.integers(64, 320, 2))
        file = folder / str(number % 5) / f"{number:03}.{('jpg', 'png', 'webp')[number % 3]}"
        file.parent.mkdir(exist_ok=True)
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(file)
    (folder / "0" / "bad.jpg").write_text("no image")
    (folder / "1" / "empty.png").touch()
    return folder


def start(images: Path, out: Path, service: Server) -> subprocess.Popen[str]:
    """Start a batch from the command line."""
    command = [sys.executable, "-m", "deploy.ray", str(images), "--out", str(out), "--url", service.url]
    options = [f"--workers={WORKERS}", "--in-flight=4", "--part-size=6", "--points-per-side=4"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MOBILE_SAM_", "RAY_"))}
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(batch: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status and output of a batch."""
    printed, _ = batch.communicate(timeout=RUN_TIMEOUT_S)
    return batch.returncode, printed


def parts(out: Path) -> list[Path]:
    """Return the result files."""
    return sorted((out / "parts").glob("part-*.parquet"))


def rows(out: Path) -> list[dict[str, Any]]:
    """Return the rows of all result files."""
    return [row for part in parts(out) for row in pq.read_table(part).to_pylist()]


def wait_until(ready: Callable[[], bool], batch: subprocess.Popen[str]) -> None:
    """Wait for a condition while the batch runs."""
    deadline = time.monotonic() + RUN_TIMEOUT_S
    while not ready():
        assert batch.poll() is None, batch.communicate()[0]
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.05)


def workers(batch: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the actor processes of a batch."""
    return [
        process
        for process in psutil.Process(batch.pid).children(recursive=True)
        if process.cmdline() and process.cmdline()[0].startswith("ray::MapWorker")
    ]


def check_one_row_per_image(images: Path, out: Path) -> None:
    """Check that every image has one row, and check the rows' contents."""
    found = {row["path"]: row for row in rows(out)}
    assert len(found) == len(rows(out))
    assert sorted(found) == sorted(str(file) for file in images.rglob("*.*"))
    errors = {Path(path).name: row["error"] for path, row in found.items() if row["error"] is not None}
    assert set(errors) == {"bad.jpg", "empty.png"}
    failures = json.loads((out / "failures.json").read_text())
    assert {Path(failure["file"]).name: failure["reason"] for failure in failures} == errors
    for path, row in found.items():
        if row["error"] is None:
            with Image.open(path) as image:
                assert (row["width"], row["height"]) == image.size
            for mask in row["masks"]:
                decoded = coco.decode({"size": mask["size"], "counts": mask["counts"].encode()})
                assert decoded.shape == (row["height"], row["width"])
                assert decoded.sum() == mask["area"]
    assert any(row["masks"] for row in found.values())


@pytest.mark.timeout(3 * RUN_TIMEOUT_S)
def test_killed_workers_cause_no_missing_or_duplicate_rows(photos: Path, service: Server, tmp_path: Path) -> None:
    """Kill each worker once."""
    out = tmp_path / "found"
    batch = start(photos, out, service)
    for number in range(1, WORKERS + 1):
        wait_until(lambda: len(parts(out)) >= 3 * number, batch)  # noqa: B023
        wait_until(lambda: bool(workers(batch)), batch)
        workers(batch)[0].kill()
    status, printed = finish(batch)
    assert status == 1, printed
    assert f"{IMAGES + 2} images: {IMAGES + 2} processed, 0 skipped, 2 failed" in printed
    check_one_row_per_image(photos, out)


@pytest.mark.timeout(5 * RUN_TIMEOUT_S)
def test_killed_batch_is_resumed_and_finished_images_are_skipped(photos: Path, service: Server, tmp_path: Path) -> None:
    """Kill a batch with its Ray, resume it, then run it again with one image touched, one changed and one deleted."""
    out = tmp_path / "found"
    batch = start(photos, out, service)
    wait_until(lambda: len(parts(out)) >= 3, batch)
    left = psutil.Process(batch.pid).children(recursive=True)
    os.killpg(batch.pid, signal.SIGKILL)
    for process in left:  # some of Ray's processes have their own sessions
        if process.is_running():
            process.kill()
    batch.communicate(timeout=RUN_TIMEOUT_S)
    before = {part: part.stat().st_mtime_ns for part in parts(out)}

    status, printed = finish(start(photos, out, service))
    assert status == 1, printed
    assert f"{IMAGES + 2} images: " in printed
    assert " 0 skipped" not in printed
    check_one_row_per_image(photos, out)
    kept = [part for part, written in before.items() if part.exists() and part.stat().st_mtime_ns == written]
    assert kept

    # A changed time alone causes only a hash; changed bytes cause a new request that replaces the row.
    touched, changed, deleted = photos / "2" / "002.webp", photos / "3" / "003.jpg", photos / "0" / "bad.jpg"
    os.utime(touched, (1, 1))
    Image.new("RGB", (50, 40), "teal").save(changed)
    deleted.unlink()
    encoded = service.embeddings()["encoded"]
    status, printed = finish(start(photos, out, service))
    assert status == 1, printed
    assert f"{IMAGES + 1} images: 2 processed, {IMAGES - 1} skipped, 1 failed" in printed
    assert service.embeddings()["encoded"] == encoded + 1
    (row,) = (row for row in rows(out) if row["path"] == str(changed))
    assert (row["width"], row["height"]) == (50, 40)
    assert len(rows(out)) == IMAGES + 2  # the row of the deleted image stays
