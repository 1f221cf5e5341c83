"""Health of Triton, written by its watchdog and read by the API workers, who report faults and hold
a lock.

All are files in the run folder (`utils.triton.run`), in memory. The health record is replaced twice
a second. Every API worker with possible requests in Triton holds a shared lock, and the watchdog
stops Triton only once it gets the exclusive lock. The kernel releases the locks of killed
processes.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, TextIO

from utils import processes
from utils.triton.run import shared_memory_problem

MAX_RECORD_AGE_S = 5.0
"""Age at which a record is stale; the watchdog writes twice a second."""
MAX_REASON_CHARACTERS = 2000
FAULT, LOCK = ".fault", ".lock"
"""Suffixes of the files beside the record: a reported fault, and the lock of workers with requests
in Triton."""

State = Literal["starting", "ready", "failing", "restarting", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class Health:
    """Health of Triton, as found by the watchdog."""

    state: State
    """`ready`: the models have completed an inference recently. `failing`: one has not, but Triton
    may still answer. `starting`, `restarting`: Triton does not answer yet. `stopping`, `stopped`:
    the service is shutting down. `failed`: it does so because Triton cannot start."""
    reason: str = ""
    """Reason for any state but `ready`."""
    restarts: Mapping[str, int] = field(default_factory=dict)
    """Number of restarts by cause."""
    version: str = ""
    """Triton's version, once it is known."""
    encode_s: float = 0.0
    """Seconds that the encoder takes for an image, the median of recent runs; 0 before the
    first."""
    written_at: float = 0.0
    """Time of the record on the system-wide monotonic clock."""
    watchdog: int = 0
    """Process id of the writer."""

    @property
    def ready(self) -> bool:
        """Return whether every model works."""
        return self.state == "ready"

    @property
    def stopping(self) -> bool:
        """Return whether Triton is stopping or has stopped."""
        return self.ended or self.state == "stopping"

    @property
    def ended(self) -> bool:
        """Return whether Triton has ended and is not started again."""
        return self.state in {"stopped", "failed"}

    @property
    def accepts_requests(self) -> bool:
        """Return whether requests may be sent to Triton."""
        return self.state in {"ready", "failing"}


def write_health(file: Path, health: Health) -> None:
    """Replace the health record; raise `OSError` if the folder is gone or shared memory is full."""
    fields = {
        **asdict(health),
        "reason": health.reason[:MAX_REASON_CHARACTERS],
        "written_at": time.monotonic(),
        "watchdog": os.getpid(),
    }
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(fields))
    fresh.replace(file)


def read_health(file: Path) -> Health:
    """Return the current health.

    Never a record of a watchdog that has exited or no longer writes.
    """
    try:
        health = Health(**json.loads(file.read_bytes()))
    except FileNotFoundError:
        if file.parent.is_dir():
            return Health("starting", "Triton is starting")
        return Health("failing", f"the health of Triton is unknown: {file.parent} was removed")
    if health.ended:
        return health
    if processes.state(health.watchdog) in processes.DEAD:
        return replace(
            health, state="restarting", reason="the watchdog has exited, and Triton with it"
        )
    if time.monotonic() - health.written_at > MAX_RECORD_AGE_S:
        reason = shared_memory_problem() or "its watchdog does not respond"
        return replace(health, state="failing", reason=f"the health of Triton is unknown: {reason}")
    return health


def is_stub_failure(message: str) -> bool:
    """Return whether an error of Triton says that it took a model's process for dead.

    It does so if the process did not run for a second, and frees the memory of its requests. If the
    process runs again, it writes to that memory, and its late answer can reach another request:
    only a restart of Triton helps.
    """
    return "stub process" in message.lower()


OUT_OF_MEMORY = (
    "failed to allocate memory",
    "smaller than requested bytes",
    "out of memory",
    "status_alloc_failed",
)
"""Parts of the messages of ONNX Runtime, CUDA, cuDNN and cuBLAS about a GPU's memory."""


def is_out_of_memory(message: str) -> bool:
    """Return whether an error of Triton says that a GPU has too little free memory."""
    return any(part in message.lower() for part in OUT_OF_MEMORY)


def report_fault(file: Path) -> None:
    """Have the watchdog restart Triton, which took a model's process for dead."""
    with contextlib.suppress(OSError):  # the service is ending
        file.with_suffix(FAULT).touch()


def consume_fault(file: Path) -> bool:
    """Return whether a fault has been reported since the last call."""
    try:
        file.with_suffix(FAULT).unlink()
    except OSError:
        return False
    return True


def lock_requests(file: Path) -> TextIO:
    """Acquire the lock of API workers that may have requests in Triton.

    Closing the returned file releases it.
    """
    lock = file.with_suffix(LOCK).open("a")
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def is_triton_unused(file: Path) -> bool:
    """Return whether no worker holds the lock."""
    try:
        with file.with_suffix(LOCK).open("a") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the folder is gone, and the service with it
        return True
    return True
