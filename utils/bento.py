"""What BentoML does by default that this service does otherwise, or has to know of."""

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
from utils.environment import Unfit, check_port

logger = logging.getLogger("bentoml.mobile_sam")

DEFAULT_TIMEOUT = 60
CONTAINERIZED = "BENTOML_CONTAINERIZED"
STOP_AGAIN_AFTER_S = 0.1
"""Time between two attempts to stop a process manager that is at another task."""


def leave_limits_and_respawning_to_us() -> None:
    """Switch off BentoML's limits of time and concurrency, and have it start dead processes again also in a container.

    Its limits answer in words of their own, before anything of this service sees the request; the edge has the same and
    more. In a container it leaves dead API workers dead, and so the service gets slower until none is left.
    """
    traffic = BentoMLContainer.api_server_config.traffic
    timeout, concurrency = traffic.timeout.get(), traffic.max_concurrency.get()
    if timeout not in {None, DEFAULT_TIMEOUT} or concurrency is not None:
        logger.warning(
            "BentoML's limits (timeout %s, max_concurrency %s) are not used: set MOBILE_SAM_INFERENCE_TIMEOUT and "
            "MOBILE_SAM_MAX_REQUESTS",
            timeout,
            concurrency,
        )
    traffic.timeout.set(None)
    traffic.max_concurrency.set(None)
    os.environ.pop(CONTAINERIZED, None)


def set_up_process_manager(folder: Path) -> None:
    """Have BentoML's process manager listen in a folder of this user's, and end in one line where a port is taken.

    It obeys whoever reaches it, and can start any program: on ports of this machine, its default, that is everybody
    here. Where it cannot listen on the service's own address its default is two lines and a traceback.

    Args:
        folder: which nobody else may enter.
    """
    endpoints = {
        "endpoint": f"ipc://{folder}/manager",
        "pubsub_endpoint": f"ipc://{folder}/manager-events",
    }

    class Arbiter(circus.Arbiter):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            for listener in options["sockets"]:
                if listener.port:  # a socket in a folder, and one on any free port, have none
                    try:
                        check_port(listener.host, str(listener.port))
                    except Unfit as error:
                        raise SystemExit(f"error: {error}") from None
            super().__init__(*arguments, **{**options, **endpoints})

        def stop(self) -> Any:
            """Stop; BentoML's own drops the signal where its temporary folder was removed, or a worker just starts."""
            with contextlib.suppress(FileNotFoundError):
                self.exit_stack.close()
            if self._exclusive_running_command is not None and not self._stopping:
                self.loop.call_later(STOP_AGAIN_AFTER_S, self.stop)
                return None
            return super().stop()

    circus.Arbiter = Arbiter


def refuse_to_serve(reason: str) -> None:
    """Have `bentoml serve` end in one line; `bentoml build`, which imports the service too, goes on.

    BentoML looks for `tritonserver` before it calls the service's hooks, and ends in a traceback where there is none.

    Args:
        reason: what is missing and what to do.
    """
    assert callable(serving.find_triton_binary), "BentoML finds tritonserver in another way: see utils/bento.py"

    def refuse() -> str:
        raise SystemExit(f"error: {reason}")

    serving.find_triton_binary = refuse


def keep_metrics_apart(folder: Path) -> None:
    """Have the counters of this service's processes in a folder of its own.

    BentoML's is one for all services of a user, and each empties it when it starts.

    Args:
        folder: which nobody else uses.
    """
    BentoMLContainer.prometheus_multiproc_dir.set(str(folder / health.METRICS))


def triton_address(runner: str) -> str:
    """Host and port of the Triton of a runner, as an API worker knows it.

    Raises:
        LookupError: this is no API worker of a running service.
    """
    return str(BentoMLContainer.remote_runner_mapping.get()[runner])


async def disconnect(runner: Any) -> None:
    """Close a worker's connections to Triton, which waits for them when it ends; BentoML leaves them open.

    Args:
        runner: a `bentoml.triton.Runner`; no longer to be asked afterwards.
    """
    await runner._runner_handle.client.close()


def static_files() -> frozenset[str]:
    """Paths of the files that BentoML serves for the Swagger page."""
    folder = Path(bentoml.__file__).parent / "_internal" / "server" / "static_content"
    return frozenset(f"/static_content/{entry.name}" for entry in folder.iterdir() if entry.is_file())
