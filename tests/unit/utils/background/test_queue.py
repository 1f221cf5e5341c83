"""The queue of images to encode in the background."""

import sqlite3
import time
from typing import Any
from unittest.mock import Mock

import pytest

from utils.background import queue as queues
from utils.background.queue import EncodeQueue
from utils.errors import QueueFull, QueueTooLarge, QueueUnavailable, UnknownPath

EMBEDDING_BYTES = 2 * 2**20


@pytest.fixture
def queue(tmp_path) -> EncodeQueue:
    return EncodeQueue(tmp_path / "folder" / "queue.sqlite3", 8 * EMBEDDING_BYTES, EMBEDDING_BYTES)


def add(queue: EncodeQueue, *ids: str, owner: str = "", caller: str = "a", size: int = 0) -> str:
    job, numbers = queue.add(owner, caller, None, [(image_id, size) for image_id in ids])
    for number in numbers:
        queue.record(number, "queued")
    return job


def states(queue: EncodeQueue, job: str, owner: str = "") -> dict[str, str]:
    return {image["image_id"]: image["state"] for image in queue.job(job, owner)["images"]}


def begin(queue: EncodeQueue, after: str = "") -> str | None:
    """Begin an attempt, and return the id of the image."""
    row = queue.begin(after)
    return None if row is None else str(row["image_id"])


def test_images_are_encoded_in_order_and_counted(queue):
    assert begin(queue) is None
    job = add(queue, "1", "2", "3")
    row = queue.begin("")
    assert (row["image_id"], row["caller"], row["attempts"]) == ("1", "a", 1)
    queue.record(row["id"], "done")
    queue.record(queue.begin("")["id"], "failed", b'{"status": 404}')
    found = queue.job(job, "")
    assert [found[state] for state in queues.STATES] == [1, 1, 1, 0]
    assert found["images"][1] == {"image_id": "2", "state": "failed", "problem": {"status": 404}}
    assert b'mobile_sam_queue_images{state="queued"} 1\n' in queue.metrics()


def test_image_that_was_not_encoded_stays_queued_and_its_attempts_are_counted_by_all_processes(
    queue, tmp_path
):
    add(queue, "1")
    assert [queue.begin("")["attempts"] for _ in range(2)] == [1, 2]
    other: Any = EncodeQueue(tmp_path / "folder" / "queue.sqlite3", 0, 0)
    assert other.begin("")["attempts"] == 3


def test_callers_take_turns(queue):
    add(queue, "a1", "a2", "a3", caller="a")
    add(queue, "b1", caller="b")
    last, order = "", []
    for _ in range(4):
        row = queue.begin(last)
        last = row["caller"]
        order.append(row["image_id"])
        queue.record(row["id"], "done")
    assert order == ["a1", "b1", "a2", "a3"]


def test_job_is_known_to_its_owner_only(queue):
    job = add(queue, "1", owner="alice", caller="alice")
    for owner in ("", "bob"):
        with pytest.raises(UnknownPath):
            queue.job(job, owner, cancel=True)
    assert states(queue, job, "alice") == {"1": "queued"}


def test_cancelled_images_leave_the_queue_and_stay_cancelled_if_one_was_being_encoded(queue):
    job, other = add(queue, "1", "2"), add(queue, "3")
    running = queue.begin("")
    assert queue.job(job, "", cancel=True)["cancelled"] == 2
    queue.record(running["id"], "done")
    assert states(queue, job) == {"1": "cancelled", "2": "cancelled"}
    assert (begin(queue), states(queue, other)) == ("3", {"3": "queued"})


def test_callers_share_the_space(queue):
    with pytest.raises(QueueTooLarge, match=r"expected images for 12 MiB .*, got 14 MiB"):
        add(queue, *"1234567")
    add(queue, "1", "2", "3", size=EMBEDDING_BYTES)
    with pytest.raises(
        QueueFull, match="a caller's share is 12 MiB, this one has 12 MiB and asks for 2 MiB"
    ) as full:
        add(queue, "4")
    assert full.value.retry_after
    add(queue, "5", caller="b")
    with pytest.raises(QueueFull, match="share beside 1 other caller is 6 MiB"):
        add(queue, "6", "7", "8", caller="b")


def test_newest_images_of_the_caller_with_most_leave_the_queue_for_a_newcomer(queue):
    job = add(queue, *"123456")
    add(queue, "7", "8", caller="b")
    add(queue, "9", caller="c")
    assert [*states(queue, job).values()] == ["queued"] * 5 + ["failed"]
    problem = queue.job(job, "")["images"][5]["problem"]
    assert (problem["status"], problem["detail"]) == (
        429,
        "other callers needed the room of this image: send it again",
    )
    for number in range(4):
        add(queue, "9", caller=f"later {number}")
    assert [*states(queue, job).values()] == ["queued"] + ["failed"] * 5
    add(queue, "9", caller="and one")  # instead of the newer one of b
    with pytest.raises(QueueFull, match="callers have 16 MiB of 16 MiB"):
        add(queue, "9", caller="one more")
    queue.record(queue.begin("")["id"], "done")
    add(queue, "9", caller="one more")


def test_image_waits_until_its_file_is_kept_or_the_process_that_keeps_it_is_gone(
    queue, monkeypatch
):
    job, numbers = queue.add("", "a", None, [("1", 9), ("2", 9), ("3", 0)])
    assert begin(queue) == "3"
    queue.record(numbers[0], "failed", b"{}")
    assert [*states(queue, job).values()] == ["failed", "queued", "queued"]
    queue.record(numbers[2], "done")
    assert begin(queue) is None
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now + queues.MAX_KEEP_S + 1)
    assert begin(queue) == "2"


def test_unusable_file_takes_no_space(queue):
    for _ in range(9):
        _, (number,) = queue.add("", "a", None, [("1", 3 * EMBEDDING_BYTES)])
        queue.record(number, "failed", b"{}")


def test_results_of_the_oldest_ended_jobs_are_dropped(queue, monkeypatch):
    monkeypatch.setattr(queues, "MAX_ENDED", 3)
    ended, waiting = add(queue, "1"), add(queue, "2")
    queue.record(queue.begin("")["id"], "done")
    for image_id in "34":
        add(queue, image_id, caller=image_id)
    assert states(queue, ended) == {"1": "done"}
    add(queue, "5", caller="5")
    with pytest.raises(UnknownPath):
        queue.job(ended, "")
    assert states(queue, waiting) == {"2": "queued"}


def test_damaged_file_is_kept_and_replaced_by_a_new_queue_for_all_processes_with_one_line(
    queue, tmp_path, caplog
):
    add(queue, "1")
    folder = tmp_path / "folder"
    other = EncodeQueue(folder / "queue.sqlite3", 8 * EMBEDDING_BYTES, EMBEDDING_BYTES)
    assert begin(other) == "1"
    for turn in (1, 2):  # the new one may be damaged too
        for file in folder.glob("queue*.sqlite3-wal"):
            file.write_bytes(b"")
        (folder / "queue.sqlite3").write_bytes(b"this is no database" * 1000)
        with pytest.raises(QueueUnavailable, match="was damaged, a new one is started"):
            add(queue, "2")
        job = add(queue, "3")
        assert other.job(job, "")["queued"] == 1
        assert b'state="queued"} 1' in other.metrics()
        other._open = None  # closes its connection to the damaged file
        assert states(queue, job) == {"3": "queued"}
        kept = [
            file
            for file in folder.glob("*.damaged-*")
            if file.read_bytes().startswith(b"this is no database")
        ]
        assert len(kept) == turn
        assert caplog.text.count("the queue of images was damaged (file is not a database)") == turn
    assert (folder / "queue.sqlite3").resolve().stat().st_mode & 0o777 == 0o600


def test_full_disk_is_named_and_logged_once_until_it_ends(queue, monkeypatch, caplog):
    add(queue, "1")
    connect = queue._connect
    monkeypatch.setattr(
        queue, "_connect", Mock(side_effect=sqlite3.OperationalError("database or disk is full"))
    )
    for _ in range(3):
        with pytest.raises(
            QueueUnavailable, match="no space is left on the disk of the embedding cache"
        ) as failed:
            queue.begin("")
    assert (failed.value.status, failed.value.title) == (503, "The queue of images cannot be used")
    monkeypatch.setattr(queue, "_connect", connect)
    with caplog.at_level("INFO"):
        assert begin(queue) == "1"
    assert caplog.text.count("database or disk is full") == 1
    assert caplog.text.count("can be used again") == 1


def test_look_at_a_job_does_not_wait_for_a_writer_and_makes_no_file(queue, tmp_path):
    with pytest.raises(UnknownPath):
        queue.job("unknown", "")
    assert not (tmp_path / "folder").exists()
    job = add(queue, "1")
    with queue._transaction():
        assert states(queue, job) == {"1": "queued"}
        with pytest.raises(UnknownPath):
            queue.job("unknown", "")


def test_sqlite_is_recent_enough():
    assert sqlite3.sqlite_version_info >= (3, 35)
