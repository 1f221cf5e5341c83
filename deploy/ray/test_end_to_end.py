"""A batch on a Ray of this machine: workers and the whole run are killed on the way, and every image has one row.

make batch-test
"""

from __future__ import annotations

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
LIMIT = 240
"""Seconds for a run: starting Ray on a busy machine takes a while."""


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
    """Pictures of three kinds and many sizes, in folders; and two files that are none."""
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
    """A batch, as a person starts it."""
    command = [sys.executable, "-m", "deploy.ray", str(images), "--out", str(out), "--url", service.url]
    options = [f"--workers={WORKERS}", "--in-flight=4", "--part-size=6", "--points-per-side=4"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MOBILE_SAM_", "RAY_"))}
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=own,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(batch: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status, and what it printed."""
    printed, _ = batch.communicate(timeout=LIMIT)
    return batch.returncode, printed


def parts(out: Path) -> list[Path]:
    """The files of results."""
    return sorted((out / "parts").glob("part-*.parquet"))


def rows(out: Path) -> list[dict[str, Any]]:
    """What they hold."""
    return [row for part in parts(out) for row in pq.read_table(part).to_pylist()]


def wait_until(ready: Callable[[], bool], batch: subprocess.Popen[str]) -> None:
    """Wait, as long as the batch runs."""
    deadline = time.monotonic() + LIMIT
    while not ready():
        assert batch.poll() is None, batch.communicate()[0]
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.05)


def workers(batch: subprocess.Popen[str]) -> list[psutil.Process]:
    """The actors of a batch, which belong to the processes that it has started."""
    return [
        process
        for process in psutil.Process(batch.pid).children(recursive=True)
        if process.cmdline() and process.cmdline()[0].startswith("ray::MapWorker")
    ]


def every_image_has_one_row(images: Path, out: Path) -> None:
    """Check it, with what the rows say."""
    found = {row["path"]: row for row in rows(out)}
    assert len(found) == len(rows(out))
    assert sorted(found) == sorted(str(file) for file in images.rglob("*.*"))
    wrong = {Path(path).name: row["error"] for path, row in found.items() if row["error"] is not None}
    assert set(wrong) == {"bad.jpg", "empty.png"}
    listed = json.loads((out / "failures.json").read_text())
    assert {Path(one["file"]).name: one["reason"] for one in listed} == wrong
    for path, row in found.items():
        if row["error"] is None:
            with Image.open(path) as image:
                assert (row["width"], row["height"]) == image.size
            for mask in row["masks"]:
                decoded = coco.decode({"size": mask["size"], "counts": mask["counts"].encode()})
                assert decoded.shape == (row["height"], row["width"])
                assert decoded.sum() == mask["area"]
    assert any(row["masks"] for row in found.values())


@pytest.mark.timeout(3 * LIMIT)
def test_killed_workers_lose_nothing_and_leave_nothing_twice(photos: Path, service: Server, tmp_path: Path) -> None:
    """Each worker is killed once, while it works."""
    out = tmp_path / "found"
    batch = start(photos, out, service)
    for number in range(1, WORKERS + 1):
        wait_until(lambda: len(parts(out)) >= 3 * number, batch)  # noqa: B023
        wait_until(lambda: bool(workers(batch)), batch)
        workers(batch)[0].kill()
    status, printed = finish(batch)
    assert (status, f"{IMAGES + 2} images: {IMAGES + 2} done now, 0 before, 2 failed" in printed) == (1, True), printed
    every_image_has_one_row(photos, out)


@pytest.mark.timeout(5 * LIMIT)
def test_a_killed_batch_goes_on_and_one_that_is_done_does_nothing_anew(
    photos: Path, service: Server, tmp_path: Path
) -> None:
    """Killed with all of Ray, begun again, and once more with one image touched, one changed and one gone."""
    out = tmp_path / "found"
    batch = start(photos, out, service)
    wait_until(lambda: len(parts(out)) >= 3, batch)
    left = psutil.Process(batch.pid).children(recursive=True)
    os.killpg(batch.pid, signal.SIGKILL)
    for process in left:  # Ray's own, some of which have sessions of their own
        if process.is_running():
            process.kill()
    batch.communicate(timeout=LIMIT)
    before = {part: part.stat().st_mtime_ns for part in parts(out)}

    status, printed = finish(start(photos, out, service))
    assert status == 1, printed
    assert f"{IMAGES + 2} images: " in printed
    assert " 0 before" not in printed
    every_image_has_one_row(photos, out)
    kept = [part for part, written in before.items() if part.exists() and part.stat().st_mtime_ns == written]
    assert kept

    # Another time, the same bytes: read again, and nothing asked. Other bytes: asked again, and the old row goes.
    touched, changed, gone = photos / "2" / "002.webp", photos / "3" / "003.jpg", photos / "0" / "bad.jpg"
    os.utime(touched, (1, 1))
    Image.new("RGB", (50, 40), "teal").save(changed)
    gone.unlink()
    encoded = service.embeddings()["encoded"]
    status, printed = finish(start(photos, out, service))
    assert (status, f"{IMAGES + 1} images: 2 done now, {IMAGES - 1} before, 1 failed" in printed) == (1, True), printed
    assert service.embeddings()["encoded"] == encoded + 1
    (row,) = (row for row in rows(out) if row["path"] == str(changed))
    assert (row["width"], row["height"]) == (50, 40)
    assert len(rows(out)) == IMAGES + 2  # that of the image which is gone stays
