"""Shared memory of Triton's Python processes: room for it, and regions left by killed services."""

import shutil
from pathlib import Path

from utils.triton.installation import TritonSetupError
from utils.triton.run import SHM_PREFIX

MIN_SHARED_MEMORY_AT_START_BYTES = 256 * 1024 * 1024
"""Free shared memory needed at start: a region for each of seven processes, and a few large images and answers."""
MIN_SHARED_MEMORY_BYTES = 32 * 1024 * 1024
"""Free shared memory needed while the service runs: enough for two regions to grow by one step."""
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  (used by Triton's Python backend)


def check_shared_memory(folder: Path = SHARED_MEMORY) -> None:
    """Check that there is enough shared memory to start Triton.

    Raises:
        TritonSetupError: too little is free, as with a container's default of 64 MB.
    """
    free = shutil.disk_usage(folder).free if folder.is_dir() else 0
    if free < MIN_SHARED_MEMORY_AT_START_BYTES:
        raise TritonSetupError(
            f"{folder} has {free // 2**20} MiB free, {MIN_SHARED_MEMORY_AT_START_BYTES // 2**20} MiB are needed: "
            "enlarge it (docker run --shm-size=1g), or free some of it"
        )


def shared_memory_problem(folder: Path = SHARED_MEMORY) -> str:
    """Return why there is too little shared memory to go on, or an empty string."""
    free = shutil.disk_usage(folder).free
    if free >= MIN_SHARED_MEMORY_BYTES:
        return ""
    return f"{folder} has {free // 2**20} MiB free, {MIN_SHARED_MEMORY_BYTES // 2**20} MiB are needed"


def remove_stale_shared_memory(folder: Path = SHARED_MEMORY) -> list[Path]:
    """Delete shared-memory regions left by killed services.

    Returns:
        The deleted regions.
    """
    regions = list(folder.glob(f"{SHM_PREFIX}*")) if folder.is_dir() else []
    if not regions:
        return []
    used = "".join(_read_text(maps) for maps in Path("/proc").glob("[0-9]*/maps"))
    stale = [region for region in regions if str(region) not in used]
    return [region for region in stale if _remove(region)]


def _remove(file: Path) -> bool:
    try:
        file.unlink(missing_ok=True)
    except PermissionError:  # the file of another user
        return False
    return True


def _read_text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:  # the process has exited, or belongs to another user
        return ""
