"""Images that are encoded in the background, through restarts and kills, and clicks beside them."""

import base64
import contextlib
import fcntl
import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from benchmarks.photo import CLICK, new_photo, photo
from harness import Server, launch_server, wait_until
from harness.server import until_end
from mobile_sam_client import Client
from tests.services import KEYS
from tests.unit.utils.background.test_queue_states import ends_of, log_changes

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


RECOVERY_TIMEOUT_S = 400
"""Includes a start of Triton, and pauses between images that each last 24 encodes, on a busy
machine."""


class Queued:
    """A job of new images."""

    def __init__(self, server: Server, count: int) -> None:
        self.server, self.files = server, [new_photo() for _ in range(count)]
        texts = [base64.b64encode(file).decode() for file in self.files]
        self.job = ask(server, "POST", "/embed", images=texts)

    def states(self) -> dict[str, int]:
        """Return the number of images in each state; empty while the service does not answer."""
        with contextlib.suppress(requests.ConnectionError):
            found = ask(self.server, "GET", f"/embed/{self.job['job']}")
            return {state: found[state] for state in ("queued", "done", "failed", "cancelled")}
        return {}

    def wait_until_all_are_done(self) -> None:
        wait_until(lambda: self.states().get("queued") == 0, RECOVERY_TIMEOUT_S, every=0.1)
        assert self.states() == {"queued": 0, "done": len(self.files), "failed": 0, "cancelled": 0}


def ask(server: Server, method: str, path: str, key: str = KEYS["alice"], **fields: object) -> Any:
    answer = requests.request(
        method, server.url + path, json=fields or None, headers={"X-API-Key": key}, timeout=60
    )
    return answer.json()


def start(folder: Path, repository: Path, key_file: Path, port: int | None = None) -> Server:
    return launch_server(
        folder / "log",
        port=port,
        MOBILE_SAM_MODEL_REPOSITORY=str(repository),
        MOBILE_SAM_API_KEYS_FILE=str(key_file),
        BENTOML_CONFIG_OPTIONS="api_server.workers=2",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("background")


@pytest.fixture(scope="module")
def server(folder: Path, builtin_repository: Path, key_file: Path) -> Iterator[Server]:
    with until_end(start(folder, builtin_repository, key_file)) as running:
        yield running


@contextlib.contextmanager
def waiting_caller(server: Server) -> Iterator[None]:
    """Hold the lock of a caller who waits for an answer: meanwhile no queued image is encoded."""
    (folder,) = [entry for entry in server.regions() if entry.is_dir()]
    with (folder / "callers").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield


def encoders(server: Server) -> list[psutil.Process]:
    """Return the worker that encodes, none if the queue is empty."""
    return [
        worker
        for worker in server.workers()
        if any(
            file.path.endswith("/encoder") and lock(file.path) == worker.pid
            for file in worker.open_files()
        )
    ]


def lock(path: str) -> int:
    """Return the process that holds the lock of a file, 0 without one (proc(5), /proc/locks)."""
    inode = Path(path).stat().st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return next(
        (int(line[4]) for line in lines if "->" not in line and line[5].endswith(f":{inode}")), 0
    )


def test_images_are_encoded_while_clicks_are_answered_and_other_keys_see_nothing(server):
    with waiting_caller(server):
        queued = Queued(server, 40)
        assert queued.states()["queued"] == 40
    url = f"{server.url}/embed/{queued.job['job']}"
    for method in ("GET", "DELETE"):
        assert requests.request(method, url, timeout=60).status_code == 401
        assert (
            requests.request(
                method, url, headers={"X-API-Key": KEYS["bob"]}, timeout=60
            ).status_code
            == 404
        )
    wait_until(lambda: queued.states().get("done", 0) > 2)
    last, click = (
        queued.job["images"][-1]["image_id"],
        {"pos_coords": [CLICK], "mask_format": "rle"},
    )
    for source in ({"image_id": last}, {"input_image": base64.b64encode(photo()).decode()}):
        headers = {"X-API-Key": KEYS["alice"], "Accept": "application/json"}
        answer = requests.post(
            f"{server.url}/mobile_sam", json={**source, **click}, headers=headers, timeout=60
        )
        assert answer.json()["masks"][0]["area"] > 0
    queued.wait_until_all_are_done()
    before = server.embeddings()["encoded"]
    for image in queued.job["images"]:
        assert ask(server, "POST", "/embed", image_id=image["image_id"])["width"]
    assert server.embeddings()["encoded"] == before


def test_evicted_image_fails_and_cancelled_ones_are_not_encoded(server, folder):
    with waiting_caller(server):
        queued, other = Queued(server, 20), Queued(server, 20)
        assert ask(server, "DELETE", f"/embed/{other.job['job']}")["cancelled"] > 15
        last = queued.job["images"][-1]["image_id"]
        name = hashlib.sha256(f"alice {last}".encode()).hexdigest()
        (entry,) = (folder / "embeddings").glob(f"{name}-*")
        entry.unlink()
    wait_until(lambda: queued.states().get("queued") == 0, RECOVERY_TIMEOUT_S)
    found = ask(server, "GET", f"/embed/{queued.job['job']}")
    assert [image["image_id"] for image in found["images"] if image["state"] == "failed"] == [last]
    assert found["images"][-1]["problem"]["detail"].startswith("evicted before its turn")
    assert other.states()["cancelled"] > 15
    assert (
        'mobile_sam_queue_images{state="cancelled"}'
        in requests.get(f"{server.url}/metrics", timeout=60).text
    )


def test_truncated_file_is_queued_and_fails_and_what_is_no_image_fails_at_once(server):
    texts = [base64.b64encode(file).decode() for file in (photo()[:-100_000], b"no image")]
    with waiting_caller(server):
        job = ask(server, "POST", "/embed", images=texts)
    assert [image["state"] for image in job["images"]] == ["queued", "failed"]
    wait_until(lambda: ask(server, "GET", f"/embed/{job['job']}")["failed"] == 2)
    found = ask(server, "GET", f"/embed/{job['job']}")["images"]
    assert "a complete image file" in found[0]["problem"]["detail"]
    assert "that are not an image" in found[1]["problem"]["detail"]


@pytest.fixture(scope="module")
def queue_file(server: Server, folder: Path) -> Path:
    """The queue's database, which keeps each change of an image's state from now on."""
    Queued(server, 1).wait_until_all_are_done()
    (file,) = (folder / "embeddings").glob("ahead-*.sqlite3")
    log_changes(file)
    return file


def check_all_ended_once(server: Server, queue_file: Path, queued: Queued) -> None:
    """Wait for a job, and check that each image was recorded as done once, and has its
    embedding.
    """
    queued.wait_until_all_are_done()
    with contextlib.closing(sqlite3.connect(queue_file)) as db:
        rows = db.execute("SELECT id FROM images WHERE job = ?", [queued.job["job"]]).fetchall()
    ends = ends_of(queue_file)
    assert [ends[number] for (number,) in rows] == [["done"]] * len(queued.files)
    before = server.embeddings()["encoded"]
    for image in queued.job["images"]:
        assert ask(server, "POST", "/embed", image_id=image["image_id"])["width"]
    assert server.embeddings()["encoded"] == before


def wait_for_an_encode(folder: Path) -> None:
    """Wait until a process encodes an image, for which it holds a lock."""
    locks = folder / "embeddings" / "locks"
    wait_until(lambda: any(lock(str(file)) for file in locks.glob("??")), every=0.001)


def encoding_worker(server: Server) -> list[psutil.Process]:
    wait_until(lambda: encoders(server))
    return encoders(server)


def triton(server: Server) -> list[psutil.Process]:
    return [server.triton()]


def encoder_of_the_model(server: Server) -> list[psutil.Process]:
    return server.stubs("mobile_sam_encoder")[:1]


def orchestrators(server: Server) -> list[psutil.Process]:
    return server.stubs("mobile_sam")


@pytest.mark.parametrize("find", [encoding_worker, triton, encoder_of_the_model, orchestrators])
def test_images_end_once_after_a_kill_in_an_encode(server, folder, queue_file, find):
    done = Queued(server, 1)
    done.wait_until_all_are_done()
    with waiting_caller(server):
        queued = Queued(server, 30)
        killed = find(server)
    wait_for_an_encode(folder)
    for process in killed:
        process.kill()
    check_all_ended_once(server, queue_file, queued)
    check_all_ended_once(server, queue_file, done)


# Runs last, because it ends the service.
@pytest.mark.timeout(1500)
def test_client_goes_on_through_a_kill_and_a_restart_of_the_service(
    server, folder, queue_file, builtin_repository, key_file
):
    files = [new_photo() for _ in range(40)]
    queued = Queued(server, 20)
    with contextlib.ExitStack() as stack, Client(server.url, api_key=KEYS["alice"]) as client:
        results = client.embed_ahead(files)
        found = [next(results)]
        wait_for_an_encode(folder)
        server.kill()  # a worker that is only told to stop would finish the encode

        second = start(folder, builtin_repository, key_file, server.port).wait_until_ready()
        stack.callback(second.kill)
        assert second.stop() == 0

        third = start(folder, builtin_repository, key_file, server.port)
        stack.enter_context(until_end(third))
        queued.server = third
        found += results
        check_all_ended_once(third, queue_file, queued)
    assert found == [(file, hashlib.sha256(file).hexdigest()) for file in files]
    with contextlib.closing(sqlite3.connect(queue_file)) as db:
        (interrupted,) = db.execute("SELECT count(*) FROM images WHERE attempts > 1").fetchone()
    assert interrupted > 0
