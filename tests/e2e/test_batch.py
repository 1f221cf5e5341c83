"""A batch on a local Ray whose workers and driver are killed: at the end every image has exactly
one row.

make batch-test
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image
from pycocotools import mask as coco

from benchmarks.page_load import delayed
from harness import ROOT, Server, wait_until
from tests.e2e.boxed_images import BOXES, write_images

pytest.importorskip("ray", reason="not installed: ray: make env-batch")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

IMAGES = 30
RUN_TIMEOUT_S = 480
"""Includes the start of Ray on a busy machine."""
DELAY_S = 0.2
"""Delay on the way to the service, of a proxy in this process: while this process stands still, so
does the batch."""


@pytest.fixture
def service(builtin_server: Server) -> Server:
    return builtin_server


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Folder of images in three formats and many sizes, with two invalid files."""
    folder = tmp_path / "photos"
    source = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = Image.fromarray(source.integers(0, 255, (4, 5, 3), np.uint8))
        width, height = (int(side) for side in source.integers(64, 320, 2))
        file = folder / str(number % 5) / f"{number:03}.{('jpg', 'png', 'webp')[number % 3]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(file)
    (folder / "0" / "bad.jpg").write_text("no image")
    (folder / "1" / "empty.png").touch()
    return folder


def start(
    images: Path, out: Path, url: str, prompts: str = "--points-per-side=4"
) -> subprocess.Popen[str]:
    """Start a batch from the command line."""
    command = [
        sys.executable,
        "-m",
        "deploy.ray",
        str(images),
        "--out",
        str(out),
        "--url",
        url,
    ]
    options = ["--workers=2", "--in-flight=4", "--part-size=3", prompts]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MOBILE_SAM_", "RAY_"))
    }
    return subprocess.Popen(
        [*command, *options],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(images: Path, out: Path, service: Server) -> str:
    """Run a batch to its end and return what it prints; it fails, as some images are invalid."""
    batch = start(images, out, service.url)
    printed, _ = batch.communicate(timeout=RUN_TIMEOUT_S)
    assert batch.returncode == 1, printed
    return printed


def rows(out: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of all parts by image, after a check that no image has two."""
    listed = [
        row
        for part in (out / "parts").glob("part-*.parquet")
        for row in pq.read_table(part).to_pylist()
    ]
    found = {row["path"]: row for row in listed}
    assert len(found) == len(listed)
    return found


def kill_a_worker(pid: int) -> bool:
    """Kill a worker of a batch; return False if it has none now. Ray's processes come and go."""
    for process in psutil.Process(pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if "ray::Worker" in "".join(process.cmdline()[:1]):
                process.kill()
                return True
    return False


@pytest.mark.timeout(5 * RUN_TIMEOUT_S)
def test_killed_batch_is_resumed_and_finished_images_are_skipped(
    photos: Path, service: Server, tmp_path: Path
) -> None:
    """Kill a worker and then the batch; resume it after one finished image was touched, one
    changed and one deleted.
    """
    out = tmp_path / "found"

    def parts() -> list[Path]:
        return sorted((out / "parts").glob("part-*.parquet"))

    with delayed(service.port, DELAY_S) as url:
        batch = start(photos, out, url)

        def wait_for(condition: Callable[[], bool]) -> None:
            wait_until(lambda: batch.poll() is not None or condition(), RUN_TIMEOUT_S)
            assert batch.poll() is None, batch.communicate()[0]

        wait_for(lambda: len(parts()) >= 2 and kill_a_worker(batch.pid))
        written = len(parts())
        wait_for(lambda: len(parts()) >= written + 2)
        left = psutil.Process(batch.pid).children(recursive=True)
        os.killpg(batch.pid, signal.SIGKILL)
        for process in left:  # some of Ray's processes have their own sessions
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        batch.communicate(timeout=RUN_TIMEOUT_S)
    before = {part: part.stat().st_mtime_ns for part in parts()}

    # A changed time alone causes only a hash; changed bytes cause a new request that replaces the
    # row.
    finished = [path for path, row in rows(out).items() if row["error"] is None]
    touched, changed, deleted = (Path(path) for path in finished[:3])
    os.utime(touched, (1, 1))
    Image.new("RGB", (50, 40), "teal").save(changed)
    deleted.unlink()
    printed = finish(photos, out, service)
    skipped = len(finished) - 2
    assert (
        f"{IMAGES + 1} images: {IMAGES + 1 - skipped} processed, {skipped} skipped, 2 failed"
        in printed
    )
    assert [
        part
        for part, time_ns in before.items()
        if part.exists() and part.stat().st_mtime_ns == time_ns
    ]
    found = rows(out)
    assert sorted(found) == sorted([*map(str, photos.rglob("*.*")), str(deleted)])  # its row stays
    assert (found[str(changed)]["width"], found[str(changed)]["height"]) == (50, 40)
    errors = {
        Path(path).name: row["error"] for path, row in found.items() if row["error"] is not None
    }
    assert set(errors) == {"bad.jpg", "empty.png"}
    failures = json.loads((out / "failures.json").read_text())
    assert {Path(failure["file"]).name: failure["reason"] for failure in failures} == errors
    masks = [(row, mask) for row in found.values() for mask in row["masks"] or ()]
    assert masks
    for row, mask in masks:
        decoded = coco.decode({"size": mask["size"], "counts": mask["counts"].encode()})
        assert (decoded.shape, decoded.sum()) == ((row["height"], row["width"]), mask["area"])


@pytest.mark.timeout(2 * RUN_TIMEOUT_S)
def test_boxes_of_a_data_set_become_rows_with_their_classes_and_fields(
    service: Server, tmp_path: Path
) -> None:
    write_images(tmp_path / "data", 8, seed=1)
    document = json.loads((tmp_path / "data" / "boxes.json").read_text())
    document["annotations"][3].update(bbox=[700, 5, 9, 9], by="me")
    (tmp_path / "data" / "boxes.json").write_text(json.dumps(document))
    for skipped in (0, 8):
        batch = start(tmp_path / "data", tmp_path / "found", service.url, "--format=coco")
        printed, _ = batch.communicate(timeout=RUN_TIMEOUT_S)
        assert batch.returncode == 0, printed
        assert f"8 images: {8 - skipped} processed, {skipped} skipped, 0 failed" in printed
    found = rows(tmp_path / "found")
    assert [len(row["masks"]) for row in found.values()] == [BOXES] * 8
    lost = found[str(tmp_path / "data" / "images" / "0.jpg")]["masks"][3]
    assert (lost["counts"], lost["class"], lost["note"]) == (None, "object", "outside of the image")
    assert json.loads(lost["fields"])["by"] == "me"
    ids = [json.loads(mask["fields"])["id"] for row in found.values() for mask in row["masks"]]
    assert sorted(ids) == list(range(8 * BOXES))


def test_part_that_ends_every_worker_ends_the_run_with_a_reason(monkeypatch):
    import ray

    from deploy.ray import batch

    class Killed:
        def process(self, name: str, images: list[Any]) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(batch, "Worker", Killed)
    monkeypatch.setattr(batch, "MAX_REPEATS", 1)
    with contextlib.ExitStack() as stack:
        stack.callback(ray.shutdown)
        (ended,) = batch._process({"part": []}, (), 1)
    assert ended[0] == 0
    assert ended[1].startswith("a worker died 2 times with the same part")
