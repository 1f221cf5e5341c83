"""The runner that starts Triton, and the flags it gives it, for a BentoML service with any model
repository.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import bentoml

from utils.bento import configure_bentoml, set_up_process_manager
from utils.observability import traces
from utils.observability.logs import logger
from utils.settings import SettingsError
from utils.triton import health
from utils.triton.run import KEY_HEADER, METRICS_DIR, RunState

POLL_INTERVAL_S = 0.2
CONTROL_APIS = "model-repository,model-config,shared-memory,statistics,trace,logging"
CONTROL_MODE_FLAGS = {"explicit": ["--load-model=*"], "poll": ["--repository-poll-secs=15"]}
SHARED_MEMORY_REGION_BYTES = 8 * 1024 * 1024


def make_runner(
    repository: Path | str,
    flags: list[str],
    *,
    ready_line: str = "API {url}/",
    public_warning: str = "",
    announce: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return the runner for a Triton that is already set up.

    Args:
        repository: folder or storage URL of the model repository.
        flags: flags as from `server_flags`.
        ready_line: text for the log once the service is ready; its address replaces `{url}`.
        public_warning: see `utils.bento.set_up_process_manager`.
        announce: called with the service's address once that is known, before Triton is ready.
    """
    folder = Path(RunState.current().folder)  # created here, by the process that lives longest
    configure_bentoml(folder / METRICS_DIR)
    set_up_process_manager(
        folder, start_failure, partial(_wait_until_ready, ready_line, announce), public_warning
    )
    return bentoml.triton.Runner(
        "triton", str(repository), tritonserver_type="http", cli_args=flags
    )


def server_flags(
    control_mode: str = "none", *, auto_complete: bool = False, restricted: str = CONTROL_APIS
) -> list[str]:
    """Return flags for `tritonserver`, in addition to BentoML's (repository, HTTP port and
    address).

    Args:
        control_mode: Triton's model control mode: `none`, `explicit` or `poll`.
        auto_complete: let models complete their own config.pbtxt.
        restricted: Triton's APIs that require the service's key, separated by commas.

    Raises:
        SystemExit: a one-line error; a setting of traces is invalid.
    """
    run = RunState.current()
    try:
        trace_flags = traces.triton_flags()
    except SettingsError as error:
        raise SystemExit(f"error: {error}") from None
    return [
        "--allow-metrics=true",
        "--metrics-address=127.0.0.1",
        f"--metrics-port={run.metrics_port}",
        "--exit-timeout-secs=8",
        *([] if auto_complete else ["--disable-auto-complete-config"]),
        f"--model-control-mode={control_mode}",
        *CONTROL_MODE_FLAGS.get(control_mode, []),
        *trace_flags,
        "--log-info=false",
        *([f"--http-restricted-api={restricted}:{KEY_HEADER}={run.key}"] if restricted else []),
        f"--backend-config=python,shm-region-prefix-name={run.shm_prefix}",
        # The default regions of 1 MB grow in steps of 1 MB, but an image takes 3 MB and an answer 4
        # MB and more.
        f"--backend-config=python,shm-default-byte-size={SHARED_MEMORY_REGION_BYTES}",
        f"--backend-config=python,shm-growth-byte-size={SHARED_MEMORY_REGION_BYTES}",
    ]


def start_failure() -> str:
    """Return why Triton could not start, or an empty string."""
    triton = health.read_health(RunState.current().health_file)
    return triton.reason if triton.state == "failed" else ""


def _wait_until_ready(
    ready_line: str, announce: Callable[[str], None], url: Callable[[], str]
) -> None:
    """Log a line once the service answers requests; until then, count the seconds on a terminal."""
    announce(url())
    file, started = RunState.current().health_file, time.monotonic()
    # A worker takes its lock when it starts.
    while not (triton := health.read_health(file)).ready or health.is_triton_unused(file):
        if triton.stopping:
            return
        if sys.stderr.isatty():
            print(
                f"Triton: {time.monotonic() - started:.0f} s", end="\r", file=sys.stderr, flush=True
            )
        time.sleep(POLL_INTERVAL_S)
    logger.info("Ready: %s (Ctrl+C stops)", ready_line.replace("{url}", url()))
