"""Changes to BentoML's defaults, and access to its internals."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import bentoml
from bentoml import serving
from bentoml._internal.configuration.containers import BentoMLContainer
from bentoml._internal.utils import circus

from utils import health
from utils.environment import EnvironmentCheckError, check_port

logger = logging.getLogger("bentoml.mobile_sam")

BENTOML_TIMEOUT_S = 60
CONTAINERIZED = "BENTOML_CONTAINERIZED"
STOP_RETRY_INTERVAL_S = 0.1
"""Time between two attempts to stop a busy process manager."""


def disable_bentoml_limits() -> None:
    """Disable BentoML's timeout and concurrency limit, whose responses bypass the service's own limits and errors."""
    traffic = BentoMLContainer.api_server_config.traffic
    timeout, concurrency = traffic.timeout.get(), traffic.max_concurrency.get()
    if timeout not in {None, BENTOML_TIMEOUT_S} or concurrency is not None:
        logger.warning(
            "BentoML's limits (timeout %s, max_concurrency %s) are not used: set MOBILE_SAM_INFERENCE_TIMEOUT and "
            "MOBILE_SAM_MAX_REQUESTS",
            timeout,
            concurrency,
        )
    traffic.timeout.set(None)
    traffic.max_concurrency.set(None)


def enable_worker_respawn() -> None:
    """Have BentoML replace dead processes in containers too; by default it does so only outside of them."""
    os.environ.pop(CONTAINERIZED, None)


def set_up_process_manager(folder: Path) -> None:
    """Make BentoML's process manager listen on sockets in a private folder, and report a port in use in one line.

    The process manager starts any program for any client, and by default it listens on TCP ports of this machine. If
    the service's port is in use, its default output includes a traceback.

    Args:
        folder: folder that only this user can enter.
    """
    endpoints = {
        "endpoint": f"ipc://{folder}/manager",
        "pubsub_endpoint": f"ipc://{folder}/manager-events",
    }

    class Arbiter(circus.Arbiter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            for listener in options["sockets"]:
                if listener.port:  # Unix sockets and sockets on any free port have none
                    try:
                        check_port(listener.host, str(listener.port))
                    except EnvironmentCheckError as error:
                        raise SystemExit(f"error: {error}") from None
            super().__init__(*arguments, **{**options, **endpoints})

        def stop(self) -> Any:
            """Stop even without the temporary folder or while a worker starts, when BentoML ignores the signal."""
            with contextlib.suppress(FileNotFoundError):
                self.exit_stack.close()
            if self._exclusive_running_command is not None and not self._stopping:
                self.loop.call_later(STOP_RETRY_INTERVAL_S, self.stop)
                return None
            return super().stop()

    circus.Arbiter = Arbiter


def refuse_to_serve(reason: str) -> None:
    """Make `bentoml serve` exit with an error message; `bentoml build`, which also imports the service, still works.

    BentoML searches for `tritonserver` before it calls the service's hooks, and fails with a traceback without one.

    Args:
        reason: text of the error message.
    """
    assert callable(serving.find_triton_binary), "BentoML no longer has find_triton_binary: adapt utils/bento.py"

    def refuse() -> str:
        raise SystemExit(f"error: {reason}")

    serving.find_triton_binary = refuse


def isolate_metrics(folder: Path) -> None:
    """Keep the metrics files of this service in its own folder.

    By default, all services of a user share one folder, and each of them clears it at start.

    Args:
        folder: run folder of the service.
    """
    BentoMLContainer.prometheus_multiproc_dir.set(str(folder / health.METRICS_DIR))


def triton_address(runner: str) -> str:
    """Return host and port of a runner's Triton.

    Raises:
        LookupError: the process is not an API worker of a running service.
    """
    return str(BentoMLContainer.remote_runner_mapping.get()[runner])


async def disconnect(runner: Any) -> None:
    """Close a worker's connections to Triton: BentoML leaves them open, and Triton waits for them when it stops.

    Args:
        runner: a `bentoml.triton.Runner`, unusable afterwards.
    """
    await runner._runner_handle.client.close()


def static_files() -> frozenset[str]:
    """Return the URL paths of BentoML's files for the Swagger page."""
    folder = Path(bentoml.__file__).parent / "_internal" / "server" / "static_content"
    return frozenset(f"/static_content/{entry.name}" for entry in folder.iterdir() if entry.is_file())
