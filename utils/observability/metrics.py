"""Metrics of answers by reason, and of requests in progress; `utils.triton.metrics` has Triton's.

Every label has a bounded number of values. BentoML's own metrics use the request's path as a label;
the edge lets only known paths through.
"""

import contextlib
import itertools
import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from utils import processes
from utils.observability.context import KEY_NAME
from utils.observability.logs import logger

RESERVED_BYTES = {"counter": 2**17, "gauge_livesum": 2**16, "histogram": 2**19}
"""Sizes of new metrics files, by kind as prometheus_client names them. BentoML's histogram has 5
kB for each pair of path and status."""
RESERVED_BYTES_BY_KEY = RESERVED_BYTES | {"counter": 2**20}
"""The same with a label for the caller's key: 300 bytes for each name, path, status and reason."""
OK = "ok"
"""Reason of successful answers."""
OTHER_PATH = "other"
"""Label of all unknown paths."""
MAX_KEYS, OTHER_KEYS = 100, "other"
"""Names of keys that are labels, and the label of all further ones."""


class Counts:
    """Metrics of requests and answers, shared by all API workers."""

    def __init__(self, key_names: Iterable[str] | None = None) -> None:
        """Count by path, status and reason, and with names of keys by the caller's key as well.

        The first names are the labels in all workers; names that come later are labels as long as
        there is room.
        """
        self._keys: set[str] | None = None
        if key_names is not None:
            self._keys = {"", *itertools.islice(dict.fromkeys(key_names), MAX_KEYS)}

    def start(self, paths: Iterable[str]) -> None:
        """Export 0 requests in progress, and 0 successful answers for each path; call this in
        the worker.
        """
        for path in paths:
            self._answers(path, 200, OK)

    @cached_property
    def _metrics(self) -> tuple[Any, Any]:
        """Answers, and requests in progress."""
        # Import prometheus_client only after BentoML has set up the folder that its workers share.
        from prometheus_client import Counter, Gauge  # noqa: PLC0415

        labels = ["path", "status", "reason"]
        text = "Answers by path, status and reason (ok, or the problem type)"
        if self._keys is not None:
            labels.append("key")
            text += ", and by the name of the caller's key"
        return (
            Counter("mobile_sam_answers_total", text, labels),
            Gauge(
                "mobile_sam_requests_in_progress",
                "Requests that are being answered or are queued",
                multiprocess_mode="livesum",
            ),
        )

    def count_answer(self, path: str, status: int, reason: str) -> None:
        """Count an answer to the caller."""
        self._answers(path, status, reason).inc()

    def _answers(self, path: str, status: int, reason: str) -> Any:
        """Return the counter of such answers to the caller, which is exported from now on."""
        values = [path, str(status), reason]
        if self._keys is not None:
            values.append(self._key_label(KEY_NAME.get()))
        return self._metrics[0].labels(*values)

    def _key_label(self, name: str) -> str:
        """Return a name, or `OTHER_KEYS` for a further one; there is one label more for callers
        without a key.
        """
        assert self._keys is not None
        if len(self._keys) <= MAX_KEYS:
            self._keys.add(name)
        return name if name in self._keys else OTHER_KEYS

    def tracked_in_progress(self) -> AbstractContextManager[object]:
        """Return a context in which one more request is in progress."""
        return cast("AbstractContextManager[object]", self._metrics[1].track_inprogress())


def prepare_files(*, by_key: bool = False) -> None:
    """Allocate the memory of this worker's metrics files before prometheus_client maps them, and
    tidy killed workers'.

    It maps sparse files: the first write to a page for which shared memory has no room kills the
    process (SIGBUS). Gauges of killed workers are removed, and their other files give back the
    memory that they do not use.

    Args:
        by_key: whether answers are counted by key.
    """
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    if not folder:
        return
    for kind, size in (RESERVED_BYTES_BY_KEY if by_key else RESERVED_BYTES).items():
        try:
            with (Path(folder) / f"{kind}_{os.getpid()}.db").open("ab") as file:
                os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            logger.warning("no room for this worker's metrics in %s: %s", folder, error)
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415

    for path in Path(folder).glob("*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdigit() and not processes.state(int(pid)):
            mark_process_dead(int(pid), folder)  # type: ignore[no-untyped-call]
            with contextlib.suppress(OSError), path.open("r+b") as counts:
                # The number of bytes in use.
                counts.truncate(int.from_bytes(counts.read(4), sys.byteorder))
