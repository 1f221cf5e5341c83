"""The queue of images to encode in the background."""

import sqlite3
import time
from typing import Any

import pytest

from utils.ahead import queue as queues
from utils.ahead.queue import EncodeQueue
from utils.api.errors import InferenceUnavailable, QueueFull, QueueTooLarge, UnknownPath

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


def test_image_that_was_not_encoded_stays_queued_and_its_attempts_are_counted_by_all_processes(queue, tmp_path):
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


def test_caller_gets_half_of_the_space_and_all_together_no_more_than_the_whole(queue):
    with pytest.raises(QueueTooLarge, match=r"expected images for 8 MiB .*, got 10 MiB"):
        add(queue, *"12345")
    add(queue, "1", "2", size=EMBEDDING_BYTES)
    with pytest.raises(QueueFull, match=r"the queue has room for 0 bytes, got images for 2 MiB") as full:
        add(queue, "3")
    assert full.value.retry_after
    add(queue, "3", "4", "5", "6", caller="b")
    with pytest.raises(QueueFull):
        add(queue, "7", caller="c")
    queue.record(queue.begin("")["id"], "done")
    add(queue, "7", caller="c")


def test_image_waits_until_its_file_is_kept_or_the_process_that_keeps_it_is_gone(queue, monkeypatch):
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


def test_unusable_file_is_a_503_and_a_line_in_the_log(tmp_path, caplog):
    (tmp_path / "queue.sqlite3").write_bytes(b"this is no database" * 100)
    with pytest.raises(InferenceUnavailable):
        add(EncodeQueue(tmp_path / "queue.sqlite3", 2**30, 0), "1")
    assert "file is not a database" in caplog.text


def test_default_size_is_that_of_the_models():
    from utils.api.info import OWN_REPOSITORY

    for config in OWN_REPOSITORY.glob("mobile_sam*/config.pbtxt"):
        text = config.read_text()
        assert "embedding_cache_bytes" not in text or f'"{queues.DEFAULT_CACHE_BYTES}"' in text


def test_sqlite_is_recent_enough():
    assert sqlite3.sqlite_version_info >= (3, 35)
