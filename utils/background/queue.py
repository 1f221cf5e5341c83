"""Queue of images to encode in the background: a database beside the embedding cache, which has
their files.
"""

import contextlib
import fcntl
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from utils.errors import QueueFull, QueueTooLarge, QueueUnavailable, UnknownPath, mib
from utils.inference.shares import NoRoom, share_of, who_loses
from utils.observability.logs import ERROR_LOG
from utils.observability.outage import Outage

STATES = ("queued", "done", "failed", "cancelled")
RETRY_AFTER_S = 5
MAX_KEEP_S = 600.0
"""Longest time until the file of a new image is in the cache; then the process that wanted to keep
it is gone.

By the machine's monotonic clock, which nobody sets. A longer wait is of a time before the machine's
start."""
MAX_ENDED = 20_000
"""Newest images whose results are kept."""
LOST = (
    QueueFull("other callers needed the room of this image: send it again", RETRY_AFTER_S)
    .problem()
    .encode()
)
"""Problem of an image that had to leave the queue."""
NO_SPACE = ("database or disk is full", "No space left on device", "Disk quota exceeded")
"""Messages of SQLite and the system about a full disk."""
SCHEMA = """
PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS images (id INTEGER PRIMARY KEY AUTOINCREMENT, job, owner, caller,
    model_version, image_id, bytes, begins_at, problem, state DEFAULT 'queued', attempts DEFAULT 0);
CREATE INDEX IF NOT EXISTS by_job ON images (job);
CREATE INDEX IF NOT EXISTS by_state ON images (state, caller);
BEGIN IMMEDIATE;
"""


class EncodeQueue:
    """Queue that all processes share, and that outlives them.

    `QueueUnavailable`: its file cannot be used.

    A damaged file is kept under another name, and a new one is started.
    """

    def __init__(self, file: Path, max_bytes: int, embedding_bytes: int) -> None:
        """Store the file, the space in the embedding cache for all queued images, and that of
        one embedding.
        """
        self._file, self._max_bytes, self._embedding_bytes = file, max_bytes, embedding_bytes
        self._open: tuple[int, sqlite3.Connection] | None = None
        """The file's inode, and a connection. It is never used: closing the last connection of all
        processes would write everything to disk each time."""
        self._outage = Outage(f"the queue of images can be used again: {file}")

    def add(
        self, owner: str, caller: str, model_version: int | None, images: Sequence[tuple[str, int]]
    ) -> tuple[str, list[int]]:
        """Reserve room for images, and return the id of their job, which only their owner sees, and
        their numbers.

        Callers take turns. Each image is its id and the bytes of its file. An image with a file
        waits until `record` says that the file is kept; without one it is queued at once.

        Callers share the room as `utils.inference.shares` says; whoever loses has its newest images
        failed.

        Raises:
            QueueTooLarge, QueueFull: there is not enough room.
        """
        job, share, latest = (
            secrets.token_urlsafe(16),
            share_of(self._max_bytes, 1),
            time.monotonic() + MAX_KEEP_S,
        )
        needed = sum(size + self._embedding_bytes for _, size in images)
        got = f"{mib(needed)} ({mib(self._embedding_bytes)} for each embedding, and the files)"
        if needed > share:
            raise QueueTooLarge(
                f"expected images for {mib(share)} of the embedding cache, got {got}; send fewer"
            )
        with self._transaction(create=True) as db:
            self._make_room(db, caller, needed)
            old = (
                "DELETE FROM images WHERE state != 'queued' AND id <= (SELECT max(id) FROM"
                " images) - ?"
            )
            db.execute(old, (MAX_ENDED,))
            query = (
                "INSERT INTO images (job, owner, caller, model_version, image_id, bytes, begins_at)"
                " VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
            )
            rows = [
                (
                    job,
                    owner,
                    caller,
                    model_version,
                    image_id,
                    size + self._embedding_bytes,
                    latest if size else 0,
                )
                for image_id, size in images
            ]
            return job, [db.execute(query, row).fetchone()["id"] for row in rows]

    def _make_room(self, db: sqlite3.Connection, caller: str, needed: int) -> None:
        """Fail the newest images of those who have more than their share, until a caller finds
        room.

        Raises:
            QueueFull: it finds none.
        """
        held = dict(
            db.execute(
                "SELECT caller, sum(bytes) FROM images WHERE state = 'queued' GROUP BY caller"
            ).fetchall()
        )
        newest = (
            "UPDATE images SET state = 'failed', problem = ? WHERE id = "
            "(SELECT max(id) FROM images WHERE state = 'queued' AND caller = ?) RETURNING bytes"
        )
        try:
            while loser := who_loses(self._max_bytes, held, caller, needed, mib):
                held[loser] -= db.execute(newest, (LOST, loser)).fetchone()["bytes"]
        except NoRoom as error:
            raise QueueFull(f"room in the queue: {error}; retry later", RETRY_AFTER_S) from None

    def job(self, job: str, owner: str, *, cancel: bool = False) -> dict[str, Any]:
        """Return the number of a job's images in each state, and the images.

        First cancel those that are queued.
        """
        if cancel:
            with self._transaction() as db:
                query = (
                    "UPDATE images SET state = 'cancelled' WHERE job = ? AND owner = ? AND state ="
                    " 'queued'"
                )
                db.execute(query, (job, owner))
        query = (
            "SELECT image_id, state, problem FROM images WHERE job = ? AND owner = ? ORDER BY id"
        )
        rows = self._read(query, (job, owner))
        if not rows:
            raise UnknownPath("there is no such job of this caller, or no longer")
        images = [
            {"image_id": row["image_id"], "state": row["state"]}
            | ({"problem": orjson.loads(row["problem"])} if row["problem"] else {})
            for row in rows
        ]
        return {
            "job": job,
            **{name: sum(row["state"] == name for row in rows) for name in STATES},
            "images": images,
        }

    def begin(self, after: str) -> sqlite3.Row | None:
        """Count an attempt at the image whose turn it is, and return it.

        The caller `after` had the last turn.
        """
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
        """Record that the file of an image is kept (`queued`), or that it is `done` or `failed`.

        Not if cancelled.
        """
        with self._transaction() as db:
            query = (
                "UPDATE images SET state = ?, problem = ?, begins_at = 0 WHERE id = ? AND state ="
                " 'queued'"
            )
            db.execute(query, (state, problem, image))

    def metrics(self) -> bytes:
        """Return the number of images in each state in Prometheus' text format."""
        name, head = (
            "mobile_sam_queue_images",
            "# HELP {0} Images to encode ahead, by state\n# TYPE {0} gauge\n",
        )
        counts = dict(self._read("SELECT state, count(*) FROM images GROUP BY state"))
        lines = [f'{name}{{state="{state}"}} {counts.get(state, 0)}\n' for state in STATES]
        return "".join([head.format(name), *lines]).encode()

    def _read(self, query: str, values: Sequence[str] = ()) -> list[Any]:
        """Return the rows of a query, without a lock that keeps writers waiting.

        None if there is no queue yet.
        """
        with self._usable(), contextlib.closing(self._connect()) as db:
            if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'images'").fetchone():
                return []
            return db.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _transaction(self, *, create: bool = False) -> Iterator[sqlite3.Connection]:
        with self._usable():
            if create:
                self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._file.touch(0o600)
            with contextlib.closing(self._connect()) as db, db:
                db.executescript(SCHEMA)
                self._stay_open()
                yield db

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        """Translate errors of the database, and replace a damaged one.

        Raises:
            QueueUnavailable: the queue cannot be used.
        """
        inode = self._inode()
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            # SQLite's other errors, such as a full disk, have classes of their own.
            if type(error) is sqlite3.DatabaseError and self._set_aside(inode, error):
                raise QueueUnavailable(
                    "the queue of images was damaged, a new one is started; retry now"
                ) from None
            self._outage.begin(f"the queue of images cannot be used: {self._file}: {error}")
            full = any(text in str(error) for text in NO_SPACE)
            why = (
                "no space is left on the disk of the embedding cache"
                if full
                else "see the server's log"
            )
            raise QueueUnavailable(f"the queue of images cannot be used: {why}") from None
        self._outage.end()

    def _connect(self) -> sqlite3.Connection:
        """Return a connection to the file, or to an empty database if there is none."""
        db = sqlite3.connect(
            self._file if self._file.exists() else ":memory:", isolation_level=None
        )
        db.row_factory = sqlite3.Row
        return db

    def _stay_open(self) -> None:
        """Open the connection that stays open, again if the file is another one by now."""
        inode = self._inode()
        if inode and (self._open is None or self._open[0] != inode):
            connection = sqlite3.connect(self._file, check_same_thread=False)
            connection.execute("SELECT count(*) FROM images")
            self._open = inode, connection

    def _inode(self) -> int:
        """Return the number of the file, 0 if there is none."""
        try:
            return self._file.stat().st_ino
        except OSError:
            return 0

    def _set_aside(self, inode: int, error: sqlite3.Error) -> bool:
        """Rename the damaged file, and start a new one; return whether there is one now.

        The new file has a name of its own, to which the queue's name is a link: a process that
        closes its last connection to the old file removes the files that SQLite keeps beside it, by
        their names.
        """
        try:
            with self._file.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if self._inode() != inode:  # another process has done it
                    return True
                damaged = self._file.resolve()
                moment = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(2)}"
                copy = damaged.with_name(f"{self._file.name}.damaged-{moment}")
                for beside in ("-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        damaged.with_name(damaged.name + beside).rename(f"{copy}{beside}")
                new = self._file.with_name(f"{self._file.stem}-{moment}{self._file.suffix}")
                new.touch(0o600)
                damaged.rename(copy)
                self._file.unlink(missing_ok=True)  # a link
                self._file.symlink_to(new.name)
        except OSError as failure:
            self._outage.begin(
                f"the damaged queue of images cannot be replaced: {self._file}: {failure}"
            )
            return False
        line = f"the queue of images was damaged ({error}), its jobs are lost: it is kept as {copy}"
        ERROR_LOG.log("damaged queue of images", line)
        return True
