"""State and shared memory of a running service. Its first process creates the state; the others inherit it.

- The shared file is in memory: the first process holds it open, and the others open its descriptor. Neither cleaners of
  temporary folders nor a full disk affect it. It contains the health of Triton (`utils.triton.health`).
- The folder has the sockets of BentoML's process manager and the metrics files. The watchdog recreates it if it is
  removed.
- Triton's Python processes have regions of shared memory. A killed service leaves its regions and its folder behind.
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
PREFIX = "mobile-sam-triton-"
METRICS_DIR = "metrics"
"""Name of the metrics folder in the run folder."""
SHM_PREFIX = "mobile_sam_triton_"
"""Start of the names of the shared-memory regions of all services."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (used by Triton's Python backend)
MIN_SHARED_MEMORY_AT_START_BYTES = 256 * 1024 * 1024
"""Free shared memory needed at start: a region for each of seven processes, and a few large images and answers."""
MIN_SHARED_MEMORY_BYTES = 32 * 1024 * 1024
"""Free shared memory needed while the service runs: enough for two regions to grow by one step."""


@dataclass(frozen=True)
class Run:
    """Shared state of one running service."""

    folder: str
    """Private folder, removed when the first process exits."""
    shared_file: str
    key: str
    """Key of Triton's restricted APIs."""
    shm_prefix: str
    """Start of the names of this service's shared-memory regions."""
    metrics_port: int
    """Port of Triton's own metrics on 127.0.0.1."""
    repository: str | None = None
    """Model repository that Triton reads, once it is deployed."""
    probe_models: bool = True
    """True if the watchdog probes MobileSAM's models; False for the server only."""

    @classmethod
    def current(cls) -> Run:
        """Return the state of this process's service; the first process to call this creates it."""
        if inherited := os.environ.get(VARIABLE):
            return cls(**json.loads(inherited))
        folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        # Never closed: cleaners that follow systemd's rules skip a locked folder.
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)
        return cls(
            folder,
            f"/proc/{os.getpid()}/fd/{os.memfd_create('mobile-sam-triton')}",
            secrets.token_urlsafe(32),
            f"{SHM_PREFIX}{os.getpid()}_",
            int(os.environ.get(METRICS_PORT_VARIABLE) or _free_port()),
        ).publish()

    @property
    def key_header(self) -> dict[str, str]:
        """Return the header that grants access to Triton's restricted APIs."""
        return {KEY_HEADER: self.key}

    def publish(self) -> Run:
        """Make this the state that this process and its future children read; return it."""
        os.environ[VARIABLE] = json.dumps(asdict(self))
        return self

    def restore_folder(self) -> bool:
        """Recreate the folder if it was removed; return whether it was.

        Raises:
            OSError: the folder cannot be created.
        """
        restored = False
        for path in (Path(self.folder), Path(self.folder) / METRICS_DIR):
            with contextlib.suppress(FileExistsError):
                path.mkdir(mode=0o700)
                restored = True
        return restored


def check_shared_memory() -> None:
    """Check that there is enough shared memory to start Triton.

    Raises:
        TritonSetupError: too little is free, as with a container's default of 64 MB.
    """
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else 0
    needed = MIN_SHARED_MEMORY_AT_START_BYTES
    if free < needed:
        raise TritonSetupError(
            f"{SHARED_MEMORY} has {free // 2**20} MiB free, {needed // 2**20} MiB are needed: "
            "enlarge it (docker run --shm-size=1g), or free some of it"
        )


def shared_memory_problem() -> str:
    """Return why there is too little shared memory to go on, or an empty string."""
    free = shutil.disk_usage(SHARED_MEMORY).free
    if free >= MIN_SHARED_MEMORY_BYTES:
        return ""
    return f"{SHARED_MEMORY} has {free // 2**20} MiB free, {MIN_SHARED_MEMORY_BYTES // 2**20} MiB are needed"


def clean_up() -> None:
    """Remove shared memory and run folders of killed services."""
    remove_stale_shared_memory()
    remove_stale_folders()


def remove_stale_shared_memory(folder: Path = SHARED_MEMORY) -> None:
    """Delete shared-memory regions left by killed services."""
    regions = list(folder.glob(f"{SHM_PREFIX}*")) if folder.is_dir() else []
    used = "".join(_read_text(maps) for maps in Path("/proc").glob("[0-9]*/maps")) if regions else ""
    for region in regions:
        if str(region) not in used:
            with contextlib.suppress(PermissionError):  # the file of another user
                region.unlink(missing_ok=True)


def remove_stale_folders() -> None:
    """Remove the folders of killed services."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        # After a restart, a container's first process has the same id as before.
        is_predecessor = owner == str(os.getpid()) and str(folder) != Run.current().folder
        if not owner.isdigit() or (Path(f"/proc/{owner}").exists() and not is_predecessor):
            continue
        with contextlib.suppress(OSError):
            # The lock shows owners in other containers; their processes are not visible here.
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has exited, or belongs to another user
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
