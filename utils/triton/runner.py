"""The runner that starts Triton, for a BentoML service with any model repository."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import bentoml

from utils.bento import disable_bentoml_limits, enable_worker_respawn, isolate_metrics, set_up_process_manager
from utils.observability.traces import TracesError
from utils.triton import health
from utils.triton.flags import server_flags
from utils.triton.run import Run, remove_stale_folders
from utils.triton.shared_memory import remove_stale_shared_memory

logger = logging.getLogger("bentoml.mobile_sam")

POLL_INTERVAL_S = 0.2


def make_runner(
    repository: Path | str,
    control_mode: str = "none",
    *,
    auto_complete: bool = False,
    restricted: bool = True,
    ready_line: str = "API {url}/",
) -> Any:
    """Return the runner for a Triton that is already set up.

    Args:
        repository: folder or storage URL of the model repository.
        control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        auto_complete: let models complete their own config.pbtxt.
        restricted: require the service's key for Triton's control APIs.
        ready_line: text for the log once the service is ready; its address replaces `{url}`.
    """
    folder = Path(Run.current().folder)  # created here, by the process that lives longest
    disable_bentoml_limits()
    enable_worker_respawn()
    set_up_process_manager(folder, start_failure, partial(_wait_until_ready, ready_line))
    isolate_metrics(folder)
    try:
        flags = server_flags(control_mode, auto_complete=auto_complete, restricted=restricted)
    except TracesError as error:
        raise SystemExit(f"error: {error}") from None
    return bentoml.triton.Runner("triton", str(repository), tritonserver_type="http", cli_args=flags)


def start_failure() -> str:
    """Return why Triton could not start, or an empty string."""
    triton = health.read_health(Path(Run.current().shared_file))
    return triton.reason if triton.state == "failed" else ""


def _wait_until_ready(ready_line: str, url: Callable[[], str]) -> None:
    """Log a line once the service answers requests; until then, count the seconds on a terminal."""
    file, started = Path(Run.current().shared_file), time.monotonic()
    # A worker takes its lock when it starts.
    while not (triton := health.read_health(file)).ready or health.is_triton_unused(file):
        if triton.stopping:
            return
        if sys.stderr.isatty():
            print(f"Triton: {time.monotonic() - started:.0f} s", end="\r", file=sys.stderr, flush=True)
        time.sleep(POLL_INTERVAL_S)
    logger.info("Ready: %s (Ctrl+C stops)", ready_line.replace("{url}", url()))


def clean_up() -> None:
    """Remove shared memory and run folders of killed services."""
    remove_stale_shared_memory()
    remove_stale_folders()
