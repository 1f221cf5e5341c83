"""Queue of images to encode in the background: a database beside the embedding cache, which has their files."""

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from utils.api.errors import InferenceUnavailable, QueueFull, QueueTooLarge, UnknownPath, mib
from utils.observability.logs import logger

STATES = ("queued", "done", "failed", "cancelled")
DEFAULT_CACHE_BYTES = 2**31
"""`embedding_cache_bytes` in the models' config.pbtxt."""
RETRY_AFTER_S = 5
MAX_KEEP_S = 600.0
"""Longest time until the file of a new image is in the cache; then the process that wanted to keep it is gone.

By the machine's monotonic clock, which nobody sets. A longer wait is of a time before the machine's start."""
MAX_ENDED = 20_000
"""Newest images whose results are kept."""
SCHEMA = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY AUTOINCREMENT, job, owner, caller, model_version, image_id,
    bytes, begins_at, problem, state DEFAULT 'queued', attempts DEFAULT 0);
CREATE INDEX IF NOT EXISTS by_job ON images (job);
CREATE INDEX IF NOT EXISTS by_state ON images (state, caller);
BEGIN IMMEDIATE;
"""


class EncodeQueue:
    """Queue that all processes share, and that outlives them. `InferenceUnavailable`: its file cannot be used."""

    def __init__(self, file: Path, max_bytes: int, embedding_bytes: int) -> None:
        """Store the file, the space in the embedding cache for all queued images (half of it for one caller), and
        the space of one embedding.
        """
        self._file, self._max_bytes, self._embedding_bytes = file, max_bytes, embedding_bytes
        self._open: sqlite3.Connection | None = None
        """Never used: closing the last connection of all processes would write everything to disk each time."""

    def add(
        self, owner: str, caller: str, model_version: int | None, images: Sequence[tuple[str, int]]
    ) -> tuple[str, list[int]]:
        """Reserve room for images, and return the id of their job, which only their owner sees, and their numbers.

        Callers take turns. Each image is its id and the bytes of its file. An image with a file waits until `record`
        says that the file is kept; without one it is queued at once.

        Raises:
            QueueTooLarge, QueueFull: there is not enough room.
        """
        job, share, latest = secrets.token_urlsafe(16), self._max_bytes // 2, time.monotonic() + MAX_KEEP_S
        needed = sum(size + self._embedding_bytes for _, size in images)
        got = f"{mib(needed)} ({mib(self._embedding_bytes)} for each embedding, and the files)"
        if needed > share:
            raise QueueTooLarge(f"expected images for {mib(share)} of the embedding cache, got {got}; send fewer")
        with self._transaction(create=True) as db:
            used = "SELECT total(bytes), total(bytes * (caller = ?)) FROM images WHERE state = 'queued'"
            total, own = db.execute(used, (caller,)).fetchone()
            if needed > (left := max(0, int(min(self._max_bytes - total, share - own)))):
                raise QueueFull(f"the queue has room for {mib(left)}, got images for {got}; retry later", RETRY_AFTER_S)
            old = "DELETE FROM images WHERE state != 'queued' AND id <= (SELECT max(id) FROM images) - ?"
            db.execute(old, (MAX_ENDED,))
            query = (
                "INSERT INTO images (job, owner, caller, model_version, image_id, bytes, begins_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
            )
            rows = [
                (job, owner, caller, model_version, image_id, size + self._embedding_bytes, latest if size else 0)
                for image_id, size in images
            ]
            return job, [db.execute(query, row).fetchone()["id"] for row in rows]

    def job(self, job: str, owner: str, *, cancel: bool = False) -> dict[str, Any]:
        """Return the number of a job's images in each state, and the images; first cancel those that are queued."""
        with self._transaction() as db:
            if cancel:
                query = "UPDATE images SET state = 'cancelled' WHERE job = ? AND owner = ? AND state = 'queued'"
                db.execute(query, (job, owner))
            query = "SELECT image_id, state, problem FROM images WHERE job = ? AND owner = ? ORDER BY id"
            rows = db.execute(query, (job, owner)).fetchall()
        if not rows:
            raise UnknownPath("there is no such job of this caller, or no longer")
        images = [
            {"image_id": row["image_id"], "state": row["state"]}
            | ({"problem": orjson.loads(row["problem"])} if row["problem"] else {})
            for row in rows
        ]
        return {"job": job, **{name: sum(row["state"] == name for row in rows) for name in STATES}, "images": images}

    def begin(self, after: str) -> sqlite3.Row | None:
        """Count an attempt at the image whose turn it is, and return it; the caller `after` had the last turn."""
        now = time.monotonic()
        with self._transaction() as db:
            row: sqlite3.Row | None = db.execute(
                "UPDATE images SET attempts = attempts + 1 WHERE id = (SELECT min(id) FROM images "
                "WHERE state = 'queued' AND (begins_at <= ? OR begins_at > ?) "
                "GROUP BY caller ORDER BY caller <= ?, caller LIMIT 1) RETURNING *",
                (now, now + MAX_KEEP_S, after),
            ).fetchone()
        return row

    def record(self, image: int, state: str, problem: bytes | None = None) -> None:
        """Record that the file of an image is kept (`queued`), or that it is `done` or `failed`; not if cancelled."""
        with self._transaction() as db:
            query = "UPDATE images SET state = ?, problem = ?, begins_at = 0 WHERE id = ? AND state = 'queued'"
            db.execute(query, (state, problem, image))

    def metrics(self) -> bytes:
        """Return the number of images in each state in Prometheus' text format."""
        name, head = "mobile_sam_queue_images", "# HELP {0} Images to encode ahead, by state\n# TYPE {0} gauge\n"
        with self._transaction() as db:
            counts = dict(db.execute("SELECT state, count(*) FROM images GROUP BY state").fetchall())
        lines = [f'{name}{{state="{state}"}} {counts.get(state, 0)}\n' for state in STATES]
        return "".join([head.format(name), *lines]).encode()

    @contextlib.contextmanager
    def _transaction(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        try:
            if create:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file.touch(0o600)
            file = self._file if self._file.exists() else ":memory:"
            with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db, db:
                db.row_factory = sqlite3.Row
                db.executescript(SCHEMA)
                if file is self._file and not self._open:
                    self._open = sqlite3.connect(file, check_same_thread=False)
                    self._open.execute("SELECT count(*) FROM images")
                yield db
        except (OSError, sqlite3.Error) as error:
            logger.error("the queue of images cannot be used: %s: %s", self._file, error)
            raise InferenceUnavailable("the queue of images cannot be used; see the server's log") from None
