"""State and shared memory of a running service.

Its first process creates the state; the others inherit it.

The run folder is in /dev/shm, which neither cleaners of temporary folders nor a full disk affect:
the health of Triton (`utils.triton.health`), metrics files, and the sockets of BentoML's process
manager. The regions of shared memory of Triton's Python processes lie beside it, and their names
begin with its name. A killed service leaves both behind.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import os
import secrets
import shutil
import socket
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from utils.triton.installation import TritonSetupError

VARIABLE = "MOBILE_SAM_TRITON_RUN"
"""Environment variable through which processes inherit the state, as JSON."""
METRICS_PORT_VARIABLE = "MOBILE_SAM_TRITON_METRICS_PORT"
"""Environment variable with the port of Triton's own metrics; default: a free one."""
KEY_HEADER = "x-mobile-sam-triton-key"
METRICS_DIR = "metrics"
"""Name of the metrics folder in the run folder."""
PREFIX = "mobile_sam_triton_"
"""Start of the names of all services' folders and regions."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (used by Triton's Python backend)
MIN_SHARED_MEMORY_AT_START_BYTES = 256 * 1024 * 1024
"""Free shared memory needed at start: a region for each of seven processes, and a few large images
and answers."""
MIN_SHARED_MEMORY_BYTES = 32 * 1024 * 1024
"""Free shared memory needed while the service runs: enough for two regions to grow by one step."""


@dataclass(frozen=True)
class RunState:
    """Shared state of one running service."""

    folder: str
    """Private folder, removed when the first process exits."""
    key: str
    """Key of Triton's restricted APIs."""
    metrics_port: int
    """Port of Triton's own metrics on 127.0.0.1."""
    first_process: int = 0
    """Process id of the service's first process, whose children the others are."""
    repository: str | None = None
    """Triton's folder, once it is deployed: links to a snapshot of the source."""
    source: str | None = None
    """Model repository that the snapshot was taken from; None if Triton reads a repository
    itself."""
    timeout_s: float = 55.0
    """Maximum time for one call of Triton; the default is that of the setting."""
    probe_models: bool = True
    """True if the watchdog probes MobileSAM's models; False for the server only."""

    @classmethod
    def current(cls) -> RunState:
        """Return the state of this process's service; the first process to call this creates it."""
        if inherited := os.environ.get(VARIABLE):
            return cls(**json.loads(inherited))
        try:
            folder = private_folder(SHARED_MEMORY)
        except OSError:  # `check_shared_memory` reports it, but `bentoml build` works
            folder = private_folder(Path(tempfile.gettempdir()))
        port = int(os.environ.get(METRICS_PORT_VARIABLE) or _free_port())
        return cls(str(folder), secrets.token_urlsafe(32), port, os.getpid()).publish()

    @property
    def health_file(self) -> Path:
        """Record of Triton's health."""
        return Path(self.folder) / "health.json"

    @property
    def shm_prefix(self) -> str:
        """Start of the names of this service's shared-memory regions."""
        return f"{Path(self.folder).name}_"

    @property
    def key_header(self) -> dict[str, str]:
        """Return the header that grants access to Triton's restricted APIs."""
        return {KEY_HEADER: self.key}

    def publish(self) -> RunState:
        """Make this the state that this process and its future children read; return it."""
        os.environ[VARIABLE] = json.dumps(asdict(self))
        return self

    def restore_folder(self) -> bool:
        """Recreate the folder if it was removed, as systemd does when a user logs out.

        Return whether it was.
        """
        try:
            Path(self.folder).mkdir(mode=0o700)
        except FileExistsError:
            return False
        _lock(Path(self.folder))
        (Path(self.folder) / METRICS_DIR).mkdir()
        return True


def check_shared_memory() -> None:
    """Raise `TritonSetupError` if too little shared memory is free to start, as with a
    container's default of 64 MB.
    """
    if problem := shared_memory_problem(MIN_SHARED_MEMORY_AT_START_BYTES):
        raise TritonSetupError(
            f"{problem}: enlarge it (docker run --shm-size=1g), or free some of it"
        )


def shared_memory_problem(needed_bytes: int = MIN_SHARED_MEMORY_BYTES) -> str:
    """Return why there is too little shared memory, or an empty string.

    The reason does not change with what is free, so that it is logged once.
    """
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    if free >= needed_bytes:
        return ""
    return f"{SHARED_MEMORY} has less than {needed_bytes // 2**20} MiB free"


def clean_up(memory: Path = SHARED_MEMORY) -> None:
    """Remove the run folders and regions of killed services."""
    running = tuple(f"{folder.name}_" for folder in remove_abandoned(memory))
    for region in memory.glob(f"{PREFIX}*"):
        if not region.is_dir() and not region.name.startswith(running):
            with contextlib.suppress(OSError):  # another user's
                region.unlink()


def remove_abandoned(parent: Path) -> list[Path]:
    """Remove the folders of killed services, which nobody has locked; return those of running ones.

    A running service may be in this container, in another one, or another user's.
    """
    running = []
    for folder in [entry for entry in parent.glob(f"{PREFIX}*") if entry.is_dir()]:
        try:
            lock = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            running.append(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)
    return running


def is_locked(folder: Path) -> bool:
    """Return whether a running service has locked a folder, or it cannot be known."""
    try:
        os.close(_lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB))
    except OSError:
        return True
    return False


def private_folder(parent: Path) -> Path:
    """Create a folder that only this user can enter, locked by this process and removed at its
    exit.

    Raises:
        OSError: it cannot be created.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}_", dir=parent))
        with contextlib.suppress(FileNotFoundError):  # another service took it for a killed one's
            _lock(folder)
            if folder.exists():
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                return folder


def _lock(folder: Path, operation: int = fcntl.LOCK_SH) -> int:
    """Lock a folder until the returned descriptor ends.

    Raise `OSError` if it is locked, another user's, or a file.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, operation)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
